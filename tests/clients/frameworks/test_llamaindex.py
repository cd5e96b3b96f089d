"""LlamaIndex: nothing but `api_base` (or `base_url`) and `api_key` is ours. Each class before an upstream of
either dialect.

Its class for Anthropic takes no names but those of Anthropic's models. So an alias that it shall use has to be
one of them, as two are in firsttoken.toml; what they answer cannot be scripted.
"""

import pytest
import stack
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.openai_like import OpenAILike
from openai import OpenAIError

QUESTION = ChatMessage(role="user", content="Why is the first token slow?")


def openai_like(model: str):
    return OpenAILike(
        model=model,
        api_base=f"{stack.GATEWAY}/v1",
        api_key=stack.KEY,
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
    )


def anthropic(model: str):
    return Anthropic(model=model, base_url=stack.GATEWAY, api_key=stack.KEY, max_tokens=4096, max_retries=0)


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"clear over {city}"


TOOL = FunctionTool.from_defaults(get_weather)

UPSTREAM = pytest.mark.parametrize("upstream", stack.UPSTREAMS.values(), ids=stack.UPSTREAMS.keys())
ALIAS = pytest.mark.parametrize("alias", ["claude-opus-4-1", "claude-sonnet-4-5"], ids=stack.UPSTREAMS.keys())


def streams_text(llm):
    chunks = list(llm.stream_chat([QUESTION]))
    assert chunks[-1].message.content.startswith("This is a simulated answer")
    assert len(chunks) >= 30


def streams_calls_and_sends_their_results(llm, wanted: int, **more):
    chunks = list(llm.stream_chat_with_tools([TOOL], chat_history=[QUESTION], **more))
    calls = llm.get_tool_calls_from_response(chunks[-1])
    assert [call.tool_kwargs for call in calls] == [{"city": "simulated"}] * wanted
    assert len(chunks) > 2 * wanted
    results = [
        ChatMessage(role="tool", content="clear", additional_kwargs={"tool_call_id": call.tool_id}) for call in calls
    ]
    history = [QUESTION, chunks[-1].message, *results]
    answer = list(llm.stream_chat_with_tools([TOOL], chat_history=history))[-1]
    assert answer.message.content.startswith("This is a simulated answer")


@UPSTREAM
def test_openai_like_streams_text(upstream):
    streams_text(openai_like(f"{upstream}sim-ttft20-itl5-n30"))


@UPSTREAM
def test_openai_like_streams_two_calls_and_sends_their_results(upstream):
    streams_calls_and_sends_their_results(openai_like(f"{upstream}sim-ttft20-itl5-n7-tools2"), 2)


@UPSTREAM
def test_openai_like_raises_an_error_in_the_middle(upstream):
    said = ""
    with pytest.raises(OpenAIError, match="broke in the middle"):
        for chunk in openai_like(f"{upstream}sim-ttft20-itl5-n20-faultcut@5").stream_chat([QUESTION]):
            said = chunk.message.content
    assert said.startswith("This is a simulated")


@ALIAS
def test_anthropic_streams_text(alias):
    streams_text(anthropic(alias))


@ALIAS
def test_anthropic_streams_a_call_and_sends_its_result(alias):
    streams_calls_and_sends_their_results(anthropic(alias), 1, tool_required=True)

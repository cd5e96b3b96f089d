"""LangChain: nothing but `base_url` and `api_key` is ours. Each class before an upstream of either dialect."""

import langchain_anthropic
import langchain_core
import langchain_openai
import pytest
import stack
from anthropic import AnthropicError
from langchain_core.messages import HumanMessage, ToolMessage
from openai import OpenAIError

QUESTION = HumanMessage("Why is the first token slow?")


def openai(model: str, **more):
    return langchain_openai.ChatOpenAI(
        model=model, base_url=f"{stack.GATEWAY}/v1", api_key=stack.KEY, max_retries=0, stream_usage=True, **more
    )


def responses(model: str):
    return openai(model, use_responses_api=True, store=False)


def anthropic(model: str):
    return langchain_anthropic.ChatAnthropic(
        model=model, base_url=stack.GATEWAY, api_key=stack.KEY, max_retries=0, max_tokens=4096
    )


@langchain_core.tools.tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"clear over {city}"


pytestmark = [
    pytest.mark.parametrize("chat", [openai, responses, anthropic]),
    pytest.mark.parametrize("upstream", stack.UPSTREAMS.values(), ids=stack.UPSTREAMS.keys()),
]


def whole(chunks):
    """What the pieces add up to, and how many they are."""
    chunks = list(chunks)
    message = chunks[0]
    for chunk in chunks[1:]:
        message += chunk
    return message, len(chunks)


def test_streams_text(chat, upstream):
    message, pieces = whole(chat(f"{upstream}sim-ttft20-itl5-n30").stream([QUESTION]))
    assert message.text.startswith("This is a simulated answer")
    assert pieces >= 30
    assert message.usage_metadata["output_tokens"] == 30


def test_streams_two_calls_and_sends_their_results(chat, upstream):
    model = chat(f"{upstream}sim-ttft20-itl5-n7-tools2").bind_tools([get_weather])
    message, pieces = whole(model.stream([QUESTION]))
    assert [call["args"] for call in message.tool_calls] == [{"city": "simulated"}] * 2
    assert pieces > 4
    results = [get_weather.invoke(call) for call in message.tool_calls]
    assert all(isinstance(result, ToolMessage) for result in results)
    answer, _ = whole(model.stream([QUESTION, message, *results]))
    assert answer.text.startswith("This is a simulated answer")


def test_an_error_in_the_middle_raises(chat, upstream):
    pieces = []
    with pytest.raises((OpenAIError, AnthropicError), match="broke in the middle"):
        for chunk in chat(f"{upstream}sim-ttft20-itl5-n20-faultcut@5").stream([QUESTION]):
            pieces.append(chunk.text)
    assert "".join(pieces).startswith("This is a simulated")

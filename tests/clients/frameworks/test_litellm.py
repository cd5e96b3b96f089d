"""LiteLLM's client: nothing but `api_base` and `api_key` is ours. Both of its providers before an upstream of
either dialect.
"""

import json
import os

import pytest
import stack

# It would fetch a list of prices first.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm  # noqa: E402

QUESTION = {"role": "user", "content": "Why is the first token slow?"}
TOOL = {
    "type": "function",
    "function": {
        "name": stack.TOOL_NAME,
        "description": stack.TOOL_DESCRIPTION,
        "parameters": stack.TOOL_SCHEMA,
    },
}
# What each provider of LiteLLM takes as its base.
BASES = {"openai": f"{stack.GATEWAY}/v1", "anthropic": stack.GATEWAY}

pytestmark = [
    pytest.mark.parametrize("provider", BASES),
    pytest.mark.parametrize("upstream", stack.UPSTREAMS.values(), ids=stack.UPSTREAMS.keys()),
]


def stream(provider: str, model: str, messages=(QUESTION,), **more):
    return litellm.completion(
        model=f"{provider}/{model}",
        api_base=BASES[provider],
        api_key=stack.KEY,
        messages=list(messages),
        max_retries=0,
        stream=True,
        stream_options={"include_usage": True},
        **more,
    )


def test_streams_text(provider, upstream):
    chunks = list(stream(provider, f"{upstream}sim-ttft20-itl5-n30"))
    answer = litellm.stream_chunk_builder(chunks)
    assert answer.choices[0].message.content.startswith("This is a simulated answer")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 30
    assert len(chunks) >= 30


def test_streams_two_calls_and_sends_their_results(provider, upstream):
    model = f"{upstream}sim-ttft20-itl5-n7-tools2"
    chunks = list(stream(provider, model, tools=[TOOL]))
    message = litellm.stream_chunk_builder(chunks).choices[0].message
    assert [json.loads(call.function.arguments)["city"] for call in message.tool_calls] == ["simulated"] * 2
    assert len(chunks) > 4
    results = [{"role": "tool", "tool_call_id": call.id, "content": "clear"} for call in message.tool_calls]
    chunks = stream(provider, model, [QUESTION, message.model_dump(), *results], tools=[TOOL])
    answer = litellm.stream_chunk_builder(list(chunks)).choices[0].message
    assert answer.content.startswith("This is a simulated answer")


def test_an_error_in_the_middle_raises(provider, upstream):
    pieces = []
    with pytest.raises(litellm.exceptions.MidStreamFallbackError, match="broke in the middle"):
        for chunk in stream(provider, f"{upstream}sim-ttft20-itl5-n20-faultcut@5"):
            pieces.append(chunk.choices[0].delta.content or "")
    assert "".join(pieces).startswith("This is a simulated")

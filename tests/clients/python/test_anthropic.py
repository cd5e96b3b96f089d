"""The official Anthropic SDK: nothing but `base_url` and `api_key` is ours."""

import time

import anthropic
import pytest
import stack

# Leads to an upstream that speaks the other dialect.
OTHER = "open-"

QUESTION = [{"role": "user", "content": "Why is the first token slow?"}]
TOOLS = [
    {"name": stack.TOOL_NAME, "description": stack.TOOL_DESCRIPTION, "input_schema": stack.TOOL_SCHEMA}
]


def client(url: str = stack.GATEWAY, **options) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key=stack.KEY, max_retries=0, timeout=20, **options)


def ask(model: str, **options) -> dict:
    return {"model": model, "messages": QUESTION, "max_tokens": 4096, **options}


def stream(model: str, url: str = stack.GATEWAY, **options):
    return client(url).messages.create(**ask(model, stream=True, **options))


def text_of(event) -> str:
    if event.type == "content_block_delta" and event.delta.type == "text_delta":
        return event.delta.text
    return ""


def test_streams_text():
    events = list(stream(stack.model("sim-ttft20-itl5-n30")))
    assert len([event for event in events if text_of(event)]) == 30
    assert events[0].type == "message_start"
    assert events[-1].type == "message_stop"


def test_usage():
    with client().messages.stream(**ask(stack.model("sim-ttft20-itl5-n12"))) as events:
        message = events.get_final_message()
    assert message.usage.output_tokens == 12
    assert message.usage.input_tokens > 0


def test_whole_answer():
    answer = client().messages.create(**ask(stack.model("sim-ttft20-itl5-n30")))
    assert answer.content[0].text == "".join(text_of(event) for event in stream(stack.model("sim-ttft20-itl5-n30")))
    assert answer.usage.output_tokens == 30


def test_streams_tool_calls():
    with client().messages.stream(**ask(stack.model("sim-ttft20-itl5-tools2"), tools=TOOLS)) as events:
        pieces = sum(
            event.type == "content_block_delta" and event.delta.type == "input_json_delta" for event in events
        )
        message = events.get_final_message()
    calls = [block for block in message.content if block.type == "tool_use"]
    assert message.stop_reason == "tool_use"
    assert [call.name for call in calls] == [stack.TOOL_NAME] * 2
    assert all(isinstance(call.input, dict) and call.input for call in calls)
    assert pieces > 2


def test_whole_tool_call():
    answer = client().messages.create(**ask(stack.model("sim-ttft20-tool1"), tools=TOOLS))
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    assert isinstance(call.input, dict) and call.input


def test_leaving_mid_stream_stops_the_provider():
    model = stack.model(f"sim-ttft20-itl10-n{stack.never_asked(3011)}")
    events = stream(model)
    for _ in zip(range(8), events):
        pass
    events.close()
    assert stack.aborted_request(model)["tokens_after_abort"] == 0


def test_leaving_before_the_first_token_stops_the_provider():
    model = stack.model(f"sim-ttft20000-n{stack.never_asked(3012)}")
    with pytest.raises(anthropic.APITimeoutError):
        client().with_options(timeout=0.3).messages.create(**ask(model, stream=True))
    assert stack.aborted_request(model)["tokens_after_abort"] == 0


@pytest.mark.parametrize("fault", stack.FAULTS)
def test_fault(fault: str):
    expected = stack.expected(fault, "anthropic")
    pieces, last = [], None
    try:
        for event in stream(stack.faulty(fault)):
            last = event.type
            if text_of(event):
                pieces.append(text_of(event))
    except anthropic.APIConnectionError:
        raise
    except anthropic.APIError as error:
        if pieces:
            assert expected == "broken", error
            assert error.message
        else:
            assert isinstance(error, anthropic.APIStatusError) and expected == error.status_code, error
    else:
        assert expected == "whole", f"ended without an error after {pieces}"
        assert len(pieces) >= 20 and last == "message_stop"


@pytest.mark.passes
def test_wrong_key_is_refused():
    with pytest.raises(anthropic.AuthenticationError):
        client().with_options(api_key="ft-wrong").messages.create(**ask(stack.model("sim")))


@pytest.mark.passes
def test_unknown_model_is_named():
    with pytest.raises(anthropic.NotFoundError, match="no-such-model"):
        client().messages.create(**ask("no-such-model"))


@pytest.mark.passes
def test_count_tokens_passes_through():
    count = client().messages.count_tokens(model=stack.model("sim"), messages=QUESTION)
    assert count.input_tokens > 0


@pytest.mark.parametrize("buffering", stack.PROXIES)
def test_tokens_flow_through_nginx(buffering: str):
    """40 tokens, 20 ms apart: a proxy that holds them back delivers them together at the end."""
    events = stream(stack.model("sim-ttft20-itl20-n40"), url=stack.PROXIES[buffering])
    arrivals = [time.monotonic() for event in events if text_of(event)]
    assert len(arrivals) == 40
    assert arrivals[-1] - arrivals[0] > 0.5 * 39 * 0.020
    bunched = sum(later - earlier < 0.001 for earlier, later in zip(arrivals, arrivals[1:]))
    assert bunched < 10, f"{bunched} of 39 tokens came together with the one before"

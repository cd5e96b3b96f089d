"""The official OpenAI SDK: nothing but `base_url` and `api_key` is ours."""

import json
import time

import openai
import pytest
import stack

# Leads to an upstream that speaks the other dialect.
OTHER = "claude-"

QUESTION = [{"role": "user", "content": "Why is the first token slow?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": stack.TOOL_NAME,
            "description": stack.TOOL_DESCRIPTION,
            "parameters": stack.TOOL_SCHEMA,
        },
    }
]


def client(url: str = stack.GATEWAY, **options) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=stack.KEY, max_retries=0, timeout=20, **options)


def stream(model: str, url: str = stack.GATEWAY, **options):
    return client(url).chat.completions.create(model=model, messages=QUESTION, stream=True, **options)


def read(chunks) -> tuple[list[str], str | None]:
    """The pieces of text and the finish reason."""
    pieces, reason = [], None
    for chunk in chunks:
        for choice in chunk.choices:
            if choice.delta.content:
                pieces.append(choice.delta.content)
            reason = choice.finish_reason or reason
    return pieces, reason


def test_streams_text():
    pieces, reason = read(stream(stack.model("sim-ttft20-itl5-n30")))
    assert len(pieces) == 30
    assert reason in ("stop", "length")


def test_usage_comes_only_when_asked_for():
    chunks = list(stream(stack.model("sim-ttft20-itl5-n12"), stream_options={"include_usage": True}))
    assert chunks[-1].usage.completion_tokens == 12
    assert all(chunk.usage is None for chunk in stream(stack.model("sim-ttft20-itl5-n12")))


def test_whole_answer():
    answer = client().chat.completions.create(model=stack.model("sim-ttft20-itl5-n30"), messages=QUESTION)
    assert answer.choices[0].message.content == "".join(read(stream(stack.model("sim-ttft20-itl5-n30")))[0])
    assert answer.usage.completion_tokens == 30


def test_streams_tool_calls():
    calls: dict[int, dict] = {}
    reason = None
    for chunk in stream(stack.model("sim-ttft20-itl5-tools2"), tools=TOOLS):
        for choice in chunk.choices:
            reason = choice.finish_reason or reason
            for piece in choice.delta.tool_calls or []:
                call = calls.setdefault(piece.index, {"name": "", "arguments": "", "pieces": 0})
                call["name"] += piece.function.name or ""
                call["arguments"] += piece.function.arguments or ""
                call["pieces"] += 1
    assert reason == "tool_calls"
    assert sorted(calls) == [0, 1]
    for call in calls.values():
        assert call["name"] == stack.TOOL_NAME
        assert call["pieces"] > 1
        assert isinstance(json.loads(call["arguments"]), dict)


def test_whole_tool_call():
    answer = client().chat.completions.create(model=stack.model("sim-ttft20-tool1"), messages=QUESTION, tools=TOOLS)
    (call,) = answer.choices[0].message.tool_calls
    assert isinstance(json.loads(call.function.arguments), dict)


def test_leaving_mid_stream_stops_the_provider():
    model = stack.model(f"sim-ttft20-itl10-n{stack.never_asked(3001)}")
    chunks = stream(model)
    for _, chunk in zip(range(5), chunks):
        assert chunk.choices
    chunks.close()
    assert stack.aborted_request(model)["tokens_after_abort"] == 0


def test_leaving_before_the_first_token_stops_the_provider():
    model = stack.model(f"sim-ttft20000-n{stack.never_asked(3002)}")
    with pytest.raises(openai.APITimeoutError):
        client().with_options(timeout=0.3).chat.completions.create(model=model, messages=QUESTION, stream=True)
    assert stack.aborted_request(model)["tokens_after_abort"] == 0


def test_leaving_a_whole_answer_stops_the_provider():
    model = stack.model(f"sim-ttft20-itl10-n{stack.never_asked(3003)}")
    with pytest.raises(openai.APITimeoutError):
        client().with_options(timeout=0.3).chat.completions.create(model=model, messages=QUESTION)
    assert stack.aborted_request(model)["tokens_after_abort"] == 0


@pytest.mark.parametrize("fault", stack.FAULTS)
def test_fault(fault: str):
    expected = stack.expected(fault, "openai")
    pieces, reason = [], None
    try:
        for chunk in stream(stack.faulty(fault)):
            found, ended = read([chunk])
            pieces += found
            reason = ended or reason
    except openai.APIStatusError as error:
        assert expected == error.status_code, error
        assert not pieces
    except openai.APIConnectionError:
        raise
    except openai.APIError as error:
        assert expected == "broken", error
        assert pieces and error.message
    else:
        assert expected == "whole", f"ended without an error after {pieces}"
        assert len(pieces) >= 20 and reason in ("stop", "length")


@pytest.mark.passes
def test_wrong_key_is_refused():
    with pytest.raises(openai.AuthenticationError):
        client().with_options(api_key="ft-wrong").chat.completions.create(model=stack.model("sim"), messages=QUESTION)


@pytest.mark.passes
def test_unknown_model_is_named():
    with pytest.raises(openai.NotFoundError, match="no-such-model"):
        client().chat.completions.create(model="no-such-model", messages=QUESTION)


@pytest.mark.passes
def test_responses_stream_passes_through():
    events = list(client().responses.create(model=stack.model("sim-ttft20-itl5-n20"), input="Why?", stream=True))
    assert events[0].type == "response.created"
    assert sum(event.type == "response.output_text.delta" for event in events) == 20
    assert events[-1].type == "response.completed"


@pytest.mark.passes
def test_embeddings_and_models_pass_through():
    vectors = client().embeddings.create(model=stack.model("sim"), input=["one", "two"]).data
    assert len(vectors) == 2 and len(vectors[0].embedding) == len(vectors[1].embedding) > 0
    assert isinstance([model.id for model in client().models.list()], list)


@pytest.mark.parametrize("buffering", stack.PROXIES)
def test_tokens_flow_through_nginx(buffering: str):
    """40 tokens, 20 ms apart: a proxy that holds them back delivers them together at the end."""
    arrivals = []
    for chunk in stream(stack.model("sim-ttft20-itl20-n40"), url=stack.PROXIES[buffering]):
        if chunk.choices and chunk.choices[0].delta.content:
            arrivals.append(time.monotonic())
    assert len(arrivals) == 40
    assert arrivals[-1] - arrivals[0] > 0.5 * 39 * 0.020
    bunched = sum(later - earlier < 0.001 for earlier, later in zip(arrivals, arrivals[1:]))
    assert bunched < 10, f"{bunched} of 39 tokens came together with the one before"

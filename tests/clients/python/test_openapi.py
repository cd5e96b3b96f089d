"""`/openapi.json` is valid OpenAPI, and the gateway does what it says: every path, every method, what is
asked and what is answered, errors too.
"""

import json
import urllib.error
import urllib.request

import jsonschema
import openapi_spec_validator
import pytest
import stack

FAST = "sim-ttft1-itl1-n5"
USER = {"role": "user", "content": "Hi"}
TOOL = {
    "type": "function",
    "function": {"name": stack.TOOL_NAME, "description": stack.TOOL_DESCRIPTION, "parameters": stack.TOOL_SCHEMA},
}
CALLED = [
    USER,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": stack.TOOL_NAME, "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "Fine."},
]
PARTS = [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}]

# Bodies that each path takes. A path that is described and stands in none of these tables fails.
ASKED = {
    "/v1/chat/completions": [
        {"model": FAST, "messages": [USER]},
        {"model": FAST, "messages": [USER], "stream": True, "stream_options": {"include_usage": True}},
        {"model": f"claude-{FAST}", "messages": CALLED, "tools": [TOOL], "tool_choice": "auto", "max_tokens": 9},
    ],
    "/v1/messages": [
        {"model": FAST, "max_tokens": 9, "messages": [USER]},
        {"model": f"open-{FAST}", "max_tokens": 9, "messages": [USER], "system": "Be brief.", "stream": True},
    ],
    "/v1/messages/count_tokens": [{"model": FAST, "messages": [USER]}],
    "/v1/responses": [
        {"model": FAST, "input": "Hi"},
        {"model": f"claude-{FAST}", "input": [USER], "stream": True, "text": {"format": {"type": "text"}}},
    ],
    "/v1/completions": [{"model": FAST, "prompt": "Hi"}],
    "/v1/embeddings": [{"model": FAST, "input": "Hi"}],
    "/v1/chat": [
        {"model": FAST, "question": "Why?"},
        {"model": FAST, "messages": CALLED, "tools": [TOOL], "temperature": 1.5, "stop": ["x"], "unheard": 1},
    ],
    "/api/chat": [{"id": "chat", "trigger": "submit-message", "messages": PARTS, "model": FAST}],
}
# Where a path has a hole, what fills it; None: the id of a request that was answered.
FILLED = {
    "/v1/requests/{id}": None,
    "/v1/{path}": "/v1/files",
    "/samples/{page}": "/samples/billing/adding-seats",
}


@pytest.fixture(scope="module")
def document():
    return stack.fetch(f"{stack.GATEWAY}/openapi.json")


def check(document, schema, instance):
    """Judges `instance` by a schema whose references lead into the document."""
    whole = {**schema, "components": document["components"]}
    jsonschema.Draft202012Validator(whole).validate(instance)


def found(document, place):
    """What stands at `place`, or at where it refers to."""
    for name in place["$ref"].split("/")[1:] if "$ref" in place else []:
        document = document[name]
    return document if "$ref" in place else place


def ask(method, path, body=None, key=stack.KEY, headers=()):
    """Status, headers and body of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{stack.GATEWAY}{path}", data, method=method, headers=dict(headers))
    if data is not None:
        request.add_header("content-type", "application/json")
    if key:
        request.add_header("authorization", f"Bearer {key}")
    try:
        response = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        return response.status, response.headers, response.read()


def judge(document, method, path, answer):
    """Whether the document knows this answer of `path`."""
    status, headers, body = answer
    responses = document["paths"][path][method.lower()]["responses"]
    fitting = [responses[at] for at in (str(status), f"{status // 100}XX", "default") if at in responses]
    assert fitting, f"{method} {path} answered {status}, of which nothing is said"
    response = found(document, fitting[0])
    known = {name.lower() for name in response.get("headers", {})}
    for name in headers if method != "HEAD" else []:
        ours = name.lower().startswith("x-firsttoken-") or name.lower() == "server-timing"
        assert not ours or name.lower() in known, f"{method} {path}, {status}: {name} is not described"
    if method == "HEAD" or "*/*" in response["content"]:
        return
    media = headers.get_content_type()
    assert media in response["content"], f"{method} {path}, {status}: {media} is not described"
    if media == "application/json":
        check(document, response["content"][media]["schema"], json.loads(body))


def concrete(document, path):
    if path not in FILLED:
        return path
    if FILLED[path]:
        return FILLED[path]
    _, headers, _ = ask("POST", "/v1/embeddings", ASKED["/v1/embeddings"][0])
    return path.replace("{id}", headers["x-firsttoken-request-id"])


def test_the_document_is_valid(document):
    openapi_spec_validator.validate(document)
    assert set(ASKED) == {path for path, item in document["paths"].items() if list(item) == ["post"]}


def test_what_is_asked_fits_and_what_is_answered_is_described(document):
    for path, bodies in ASKED.items():
        content = document["paths"][path]["post"]["requestBody"]["content"]
        for body in bodies:
            check(document, content["application/json"]["schema"], body)
            answer = ask("POST", path, body)
            assert answer[0] == 200, (path, body, answer[2])
            judge(document, "POST", path, answer)


def test_every_get_is_described_and_answers_head(document):
    for path, item in document["paths"].items():
        if "get" not in item:
            continue
        place = concrete(document, path)
        for headers in ({}, {"anthropic-version": "2023-06-01"}):
            answer = ask("GET", place, headers=headers)
            judge(document, "GET", path, answer)
            assert path == "/v1/{path}" or answer[0] == 200, (path, answer[2])
        assert "head" in item, path
        status, headers, body = ask("HEAD", place)
        assert (status, headers.get_content_type(), body) == (answer[0], answer[1].get_content_type(), b""), path


def test_every_refusal_is_described(document):
    for path, bodies in ASKED.items():
        schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        for body in ([], {}, {**bodies[0], "model": 7}):
            with pytest.raises(jsonschema.ValidationError):
                check(document, schema, body)
        for body in ([], {}, {**bodies[0], "model": 7}, {**bodies[0], "model": "nobody"}):
            answer = ask("POST", path, body)
            assert 400 <= answer[0] < 500, (path, body, answer)
            judge(document, "POST", path, answer)
        answer = ask("POST", path, bodies[0], key="ft-wrong")
        assert answer[0] == 401, path
        judge(document, "POST", path, answer)
    for path in FILLED:
        judge(document, "GET", path, ask("GET", path.replace("{id}", "nobody").replace("{path}", "x"), key=None))


def test_a_failure_is_described(document):
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        body = {**ASKED[path][0], "model": "sim-faultstatus:500"}
        answer = ask("POST", path, body)
        assert answer[0] >= 500, (path, answer)
        judge(document, "POST", path, answer)

"""Documents that can only be held against the real binary: README's commands, configuration and clients in
Python, and that the table of faults has every fault.
"""

import json
import re
import subprocess
import urllib.error
import urllib.request

import stack


def firsttoken(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run([stack.BINARY, *args], capture_output=True, text=True, timeout=10)


def test_commands_of_the_readme_exist():
    text = re.sub(r"\s+", " ", stack.README.read_text())
    verbs = set(re.findall(r"[`/]firsttoken ((?:[a-z][a-z-]*)(?: new)?)", text))
    assert {"serve", "chat", "key new", "check-config"} <= verbs
    for verb in verbs:
        found = firsttoken(*verb.split(), "--help")
        assert found.returncode == 0, f"firsttoken {verb}: {found.stderr}"


def test_configuration_of_the_readme_is_valid(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-key")
    for number, block in enumerate(re.findall(r"```toml\n(.*?)```", stack.README.read_text(), re.DOTALL)):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        found = firsttoken("check-config", str(file))
        assert found.returncode == 0, found.stdout + found.stderr


def readme_client(sdk: str):
    """The client that README's lines for this SDK make, pasted but for the address."""
    (lines,) = [block for block in re.findall(r"```python\n(.*?)```", stack.README.read_text(), re.DOTALL) if sdk in block]
    assert lines.isascii(), "no key of other characters can be sent"
    pasted = lines.replace("http://127.0.0.1:8080", stack.KEYLESS)
    assert pasted != lines
    names: dict = {}
    exec(pasted, names)
    return names["client"]


def test_openai_client_of_the_readme():
    for model in ("open-sim-ttft20-itl5-n5", "claude-sim-ttft20-itl5-n5"):
        chunks = readme_client("OpenAI").chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Why?"}], stream=True
        )
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert said.startswith("This is a simulated answer")


def test_anthropic_client_of_the_readme():
    for model in ("open-sim-ttft20-itl5-n5", "claude-sim-ttft20-itl5-n5"):
        with readme_client("Anthropic").messages.stream(
            model=model, max_tokens=100, messages=[{"role": "user", "content": "Why?"}]
        ) as stream:
            assert "".join(stream.text_stream).startswith("This is a simulated answer")


def test_the_table_has_every_fault():
    question = {"model": "sim-faultnonsense", "messages": [{"role": "user", "content": "?"}]}
    request = urllib.request.Request(
        f"{stack.SIM}/v1/chat/completions",
        data=json.dumps(question).encode(),
        headers={"content-type": "application/json"},
    )
    try:
        urllib.request.urlopen(request, timeout=10)
        raise AssertionError("a fault that does not exist was accepted")
    except urllib.error.HTTPError as error:
        said = error.read().decode()
    names = re.search(r"one of ((?:[a-z0-9:]+, )+[a-z0-9:]+)", said).group(1).split(", ")
    known = {f if f.startswith("status:") else re.split("[@:]", f)[0] for f in stack.FAULTS}
    assert known == set(names)

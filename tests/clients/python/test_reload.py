"""SIGHUP on the real binary: the configuration is read again, and a stream that runs does not notice."""

import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import openai
import pytest
import stack

# How long the binary may take to start, or to read its file again.
PATIENCE_S = 10.0


def toml(port: int, models: str) -> str:
    return f"""
listen = "127.0.0.1:{port}"
[[upstreams]]
name = "sim"
provider = "openai"
base_url = "{stack.SIM}"
auth = "none"
{models}
"""


@pytest.fixture
def gateway(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    file = tmp_path / "firsttoken.toml"
    file.write_text(toml(port, '[[models]]\nname = "sim*"'))
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen(
        [stack.BINARY, "serve", "--config", str(file)], stdout=subprocess.DEVNULL, stderr=log
    )
    eventually(lambda: is_ready(port))
    yield process, file, port, tmp_path / "log"
    process.kill()
    process.wait()


def eventually(found):
    deadline = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < deadline, "still not so"
        time.sleep(0.05)


def is_ready(port: int) -> bool:
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1).status == 200
    except (urllib.error.URLError, OSError):
        return False


def test_a_stream_runs_on_while_the_file_is_read_again(gateway):
    process, file, port, log = gateway
    client = openai.OpenAI(base_url=f"http://localhost:{port}/v1", api_key="any", max_retries=0)
    question = [{"role": "user", "content": "Hi"}]

    def serves(model: str) -> bool:
        try:
            client.chat.completions.create(model=model, messages=question)
        except openai.NotFoundError:
            return False
        return True

    running = client.chat.completions.create(model="sim-ttft10-itl20-n100", messages=question, stream=True)
    next(running)
    assert not serves("fast")
    file.write_text(toml(port, '[[models]]\nname = "fast"\nupstream_model = "sim"\n[[models]]\nname = "sim*"'))
    process.send_signal(signal.SIGHUP)
    eventually(lambda: serves("fast"))

    file.write_text(toml(port, '[[models]]\nnmae = "oops"'))
    process.send_signal(signal.SIGHUP)
    eventually(lambda: "stays as it was" in log.read_text())
    assert "nmae" in log.read_text(), "it says what is wrong"
    assert serves("fast")

    chunks = list(running)
    assert chunks[-1].choices == [] or chunks[-1].choices[0].finish_reason == "stop"

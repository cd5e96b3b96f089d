"""What `cargo xtask test` has started, as this suite sees it, and how to wait for what the simulated
provider noticed.

Invariant: nothing here knows an SDK.
"""

import json
import os
import time
import urllib.request
from pathlib import Path

GATEWAY = os.environ["FIRSTTOKEN_URL"]
# One without keys, as a new user has it.
KEYLESS = os.environ["FIRSTTOKEN_KEYLESS_URL"]
KEY = os.environ["FIRSTTOKEN_KEY"]
SIM = os.environ["SIM_URL"]
PROXIES = {"on": os.environ["NGINX_BUFFERED_URL"], "off": os.environ["NGINX_UNBUFFERED_URL"]}
BINARY = os.environ["FIRSTTOKEN_BINARY"]
README = Path(os.environ["FIRSTTOKEN_README"])

FAULTS = json.loads((Path(__file__).parent.parent / "faults.json").read_text())

# What stands before a model's name for an upstream of each dialect.
UPSTREAMS = {"chat-completions": "open-", "messages": "claude-"}

# How long the provider may take to notice that nobody listens any more.
ABORT_S_MAX = 5.0
# How often that is asked.
ABORT_POLL_S = 0.02

TOOL_NAME = "get_weather"
TOOL_DESCRIPTION = "The weather of a city"
TOOL_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}


# What stands before a model's name where the upstream speaks another dialect than the SDK; see conftest.py.
route = ""


def model(name: str) -> str:
    """This model of the simulated provider, by the route that the test is run for."""
    return route + name


def never_asked(tokens: int) -> str:
    """A model that no other test asks for: its number of tokens is one of its own."""
    return str(tokens + (100 if route else 0))


def faulty(fault: str) -> str:
    """The model that answers quickly and then fails so."""
    return model(f"sim-ttft20-itl5-n20-fault{fault}")


def expected(fault: str, dialect: str):
    """What an SDK of this dialect meets, by the route that the test is run for."""
    found = FAULTS[fault]
    return found.get(f"{dialect}_translated", found[dialect]) if route else found[dialect]


def fetch(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


def aborted_request(model: str) -> dict:
    """What the provider recorded of the one request for `model`, once it has seen it aborted."""
    model = model.removeprefix(route)
    for _ in range(int(ABORT_S_MAX / ABORT_POLL_S)):
        records = [r for r in fetch(f"{SIM}/stats")["records"] if r["model"] == model]
        if records and records[-1]["ended"] == "aborted":
            assert len(records) == 1, f"asked more than once: {records}"
            return records[0]
        time.sleep(ABORT_POLL_S)
    raise AssertionError(f"the provider still works for {model} after {ABORT_S_MAX} s: {records}")

"""Every test of an SDK runs twice: before the upstream that speaks its dialect, to which requests pass, and
before one that speaks another, for which they are translated.

A module of tests says in `OTHER` what leads to the latter; what only passes is marked `passes`.
"""

import pytest
import stack


def pytest_configure(config):
    config.addinivalue_line("markers", "passes: only for an upstream that speaks the SDK's dialect")


def pytest_generate_tests(metafunc):
    other = getattr(metafunc.module, "OTHER", None)
    if other is None:
        return
    passes = metafunc.definition.get_closest_marker("passes")
    routes = {"passed": ""} if passes else {"passed": "", "translated": other}
    metafunc.parametrize("route", routes.values(), ids=routes.keys(), indirect=True)


@pytest.fixture(autouse=True)
def route(request):
    stack.route = getattr(request, "param", "")
    yield
    stack.route = ""

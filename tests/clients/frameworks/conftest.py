"""What an error in the middle of a stream leaves behind is cleared away after each test.

LiteLLM does not close such a stream. It is closed when Python clears it away, and where that happens within the
next request, httpcore waits for a lock that it holds itself, for ever.
"""

import gc

import pytest


@pytest.fixture(autouse=True)
def nothing_left_open():
    yield
    gc.collect()

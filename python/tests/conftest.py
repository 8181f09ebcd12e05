"""Fixtures: a real daemon for each test module, a scripted one, and a deadline for every test."""

import os
import pathlib
import signal
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent)]
if "FOREBAY_BIN" in os.environ:
    os.environ.setdefault("FOREBAY_BUFFERD", os.path.join(os.environ["FOREBAY_BIN"], "bufferd"))

import forebay as fb  # noqa: E402
from scripted import ScriptedDaemon  # noqa: E402

TEST_TIMEOUT_S = 60 * int(os.environ.get("FOREBAY_SLOWNESS", "1"))


@pytest.fixture(autouse=True)
def deadline():
    """A test that hangs fails, with the stack of where it hangs."""

    def expire(number, frame):
        raise TimeoutError(f"the test took longer than {TEST_TIMEOUT_S} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(TEST_TIMEOUT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def run():
    """A private daemon of its own for the test."""
    with fb.start() as started:
        yield started


@pytest.fixture
def scripted():
    """A daemon that does what the test tells it."""
    daemon = ScriptedDaemon()
    yield daemon
    daemon.stop()

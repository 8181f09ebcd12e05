"""Who waits for long says so in the log, with the daemon's reason."""

import logging
import threading
import time

import forebay as fb
import pytest


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for module in ("_trainer", "_leases"):
        monkeypatch.setattr(f"forebay.{module}.COMPLAIN_EVERY_S", 0.2)
        monkeypatch.setattr(f"forebay.{module}.LONG_POLL_S", 0.1)


def test_a_trainer_that_waits_says_for_what(run, caplog):
    run.load("math", [{"id": 1}], group_size=2)
    with caplog.at_level(logging.WARNING, "forebay"):
        with pytest.raises(fb.DeadlineExceeded):
            with run.trainer(groups=4, token_budget=64, step_timeout=1.0) as t:
                next(iter(t.steps(1)))
    assert "step 1 has waited" in caplog.text
    assert "waiting for groups: 0 of 4 reserved" in caplog.text


def test_an_actor_without_work_says_why_once(run, caplog):
    run.configure("math", group_size=2)
    said = threading.Event()

    class Listener(logging.Handler):
        def emit(self, record):
            if "nothing to do" in record.getMessage():
                said.set()

    listener = Listener()
    logging.getLogger("forebay").addHandler(listener)
    try:
        with caplog.at_level(logging.WARNING, "forebay"), run.sync.actor("idle", sources=["math"]) as actor:
            waiting = threading.Thread(target=lambda: next(iter(actor), None))
            waiting.start()
            assert said.wait(20)
            calls = time.monotonic() + 1  # time for several more polls
            while time.monotonic() < calls:
                time.sleep(0.05)  # poll: the daemon is asked again and again
        waiting.join(20)
    finally:
        logging.getLogger("forebay").removeHandler(listener)
    complaints = [r.getMessage() for r in caplog.records if "nothing to do" in r.getMessage()]
    assert len(complaints) == 1 and "no_tasks" in complaints[0], complaints

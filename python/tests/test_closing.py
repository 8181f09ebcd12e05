"""How actors end: one grace for all of them together, and one line for what was lost."""

import gc
import logging
import os
import signal

import forebay as fb
import numpy as np
import pytest
from forebay import _actor, _run


class Clock:
    """Time that passes only in waits."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


class Keeper:
    """A keeper whose daemon is away: closing takes all the time that it is given."""

    def __init__(self, clock, log):
        self.clock, self.log, self.closed = clock, log, False

    def stop_acquiring(self, error=None):
        self.log.append("stop")

    def give_back(self):
        self.log.append("give back")

    def held(self):
        return [Assignment(self.clock)]

    def close(self, timeout):
        assert timeout >= 0
        self.log.append("close")
        self.clock.now += timeout
        self.closed = True


class Assignment:
    _done = False

    def __init__(self, clock):
        self.clock = clock

    def _send(self, rollout, reward, rewards, partial):
        assert partial
        return self

    @property
    def promise(self):
        return self

    def result(self, timeout):
        self.clock.now += timeout
        raise fb.DeadlineExceeded(f"nothing within {timeout:g} s")


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(_actor, "time", clock)
    return clock


def actors_of(count, clock, log, handle_sigterm=False):
    def save(assignment):
        log.append("save")
        return "a rollout"

    return [fb.SyncActor(Keeper(clock, log), 600.0, save, handle_sigterm) for _ in range(count)]


def test_actors_that_close_together_share_their_time(clock):
    log = []
    background = Keeper(clock, log)
    begin = clock.now
    _actor.save_and_close(actors_of(8, clock, log), 10.0, [background])
    assert clock.now - begin == 10.0
    # Nothing is waited for before everything is on its way.
    assert log == ["stop"] * 8 + ["save"] * 8 + ["give back"] * 9 + ["close"] * 9


def test_a_keeper_of_an_actor_is_closed_once(clock):
    log = []
    (actor,) = actors_of(1, clock, log)
    _actor.save_and_close([actor], 10.0, [actor._keeper])
    assert log.count("close") == 1


def test_sigterm_ends_all_actors_of_the_process_within_one_grace(clock, monkeypatch):
    log, ended = [], []
    before = signal.signal(signal.SIGTERM, lambda number, frame: ended.append(clock.now))
    monkeypatch.setattr(_actor, "_installed_in", 0)
    monkeypatch.setattr(_actor, "_terminated", type(_actor._terminated)())
    try:
        held = actors_of(8, clock, log, handle_sigterm=True)
        begin = clock.now
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [now - begin for now in ended] == [_actor.SIGTERM_GRACE_S]
    assert all(actor._keeper.closed for actor in held)


def test_runs_that_are_left_open_share_the_time_at_the_end_of_the_process(clock, monkeypatch):
    runs = [fb.connect("127.0.0.1:1") for _ in range(4)]
    keepers = [Keeper(clock, []) for _ in runs]
    for run, keeper in zip(runs, keepers):
        run.sync._process.keepers.append(keeper)
    monkeypatch.setattr(_run, "_open_runs", runs)
    begin = clock.now
    _run._close_all()
    assert clock.now - begin == _run.EXIT_GRACE_S
    assert all(keeper.closed for keeper in keepers)


def never_answered(frames, context):
    for _ in frames:
        pass
    yield from ()


def test_pushes_that_a_close_gives_up_are_told_in_one_line(scripted, caplog):
    scripted.assign(300)
    scripted.push = never_answered
    run = scripted.connect()
    actor = run.sync.actor("env", slots=300)
    for _ in range(300):
        actor.next(timeout=20)._send(fb.Rollout(np.arange(8, dtype=np.uint32), prompt_tokens=2), 1.0, None)
    with caplog.at_level(logging.WARNING, "forebay"):
        run.close(0.1)
        gc.collect()
    said = [record.getMessage() for record in caplog.records if "nobody asked" in record.getMessage()]
    assert said == ["the acknowledgement of a push failed 300 times, and nobody asked: the actor is closed"]

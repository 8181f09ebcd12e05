"""Threads that serve everybody outlive what is wrong with one request, one answer or one text."""

import os

import forebay as fb
import numpy as np
import pytest
from forebay import _leases, _wire


def rollout():
    return fb.Rollout(np.arange(8, dtype=np.uint32), prompt_tokens=2)


@pytest.mark.parametrize("attempt_id", [-1, 1 << 64])
def test_a_reward_for_what_is_no_attempt_is_the_callers_error(scripted, attempt_id):
    run = scripted.connect()
    with pytest.raises(fb.InvalidRequest, match=f"the reward of attempt {attempt_id}: cannot be encoded"):
        run.set_reward(attempt_id, 1.0)
    assert run.set_reward(1, 1.0).result(20) is fb.PushResult.ACCEPTED


def test_an_adoption_with_a_negative_time_is_the_callers_error(scripted):
    run = scripted.connect()
    keeper = run.sync.actor("env")._keeper
    for wrong in ({"version": 1, "pause_s": -1.0}, {"version": -1}):
        with pytest.raises(fb.InvalidRequest, match="the adoption: cannot be encoded"):
            run.report_adoption(**wrong)
        assert keeper.version.number == 0
    run.report_adoption(1).result(20)
    assert keeper.version.number == 1


@pytest.mark.parametrize("options", [{"sources": [b"math"]}, {"name": "\udcff"}])
def test_an_actor_that_no_request_can_name_says_so_instead_of_waiting(scripted, options):
    with pytest.raises(fb.InvalidRequest, match="cannot be encoded"):
        scripted.connect().sync.actor(**options).next(timeout=20)


def test_text_is_cut_between_characters():
    assert _wire.clipped("aé" * 10, 5) == "aéa"
    assert _wire.clipped("\ud83d!", 10) == "?!"


def test_whatever_ends_the_taking_of_assignments_reaches_who_waits_for_one(scripted, monkeypatch):
    monkeypatch.setattr(_leases.LeaseKeeper, "_take", lambda keeper, response: 1 / 0)
    scripted.assign(1)
    with pytest.raises(fb.InternalError, match="ZeroDivisionError"):
        scripted.connect().sync.actor("env").next(timeout=20)


def test_renewals_go_on_after_one_that_failed(scripted, monkeypatch):
    renew = _leases.LeaseKeeper._renew_call
    failures = [KeyError("of a bug")]

    def fail_once(keeper, leases, interval):
        if failures:
            raise failures.pop()
        renew(keeper, leases, interval)

    monkeypatch.setattr(_leases.LeaseKeeper, "_renew_call", fail_once)
    scripted.assign(1)
    a = scripted.connect().sync.actor("env").next(timeout=20)
    scripted.wait(lambda: any(name == "Renew" and list(request.attempt_ids) == [a.id] for name, request in scripted.calls))
    assert failures == []


def test_what_fails_to_be_delivered_does_not_end_the_delivery(scripted, monkeypatch):
    deliver = _leases.LeaseKeeper._deliver_rewards
    failures = [KeyError("of a bug")]

    def fail_once(keeper, entries):
        if failures:
            raise failures.pop()
        deliver(keeper, entries)

    monkeypatch.setattr(_leases.LeaseKeeper, "_deliver_rewards", fail_once)
    run = scripted.connect()
    with pytest.raises(KeyError, match="of a bug"):
        run.set_reward(1, 1.0).result(20)
    assert run.set_reward(2, 1.0).result(20) is fb.PushResult.ACCEPTED


def test_an_actor_of_the_process_that_forked_this_one_says_so(scripted, monkeypatch):
    scripted.assign(2)
    actor = scripted.connect().sync.actor("env", slots=2)
    a = actor.next(timeout=20)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: 1)
        for use in (lambda: actor.next(timeout=20), lambda: a.push(rollout(), reward=1, timeout=20)):
            with pytest.raises(RuntimeError, match="actor env belongs to process [0-9]+, from which this one was forked"):
                use()
    assert a.push(rollout(), reward=1, timeout=20) is fb.PushResult.ACCEPTED


def test_a_wait_may_be_endless_but_its_time_must_be_a_number(scripted):
    endless = float("inf")
    scripted.pushgroup = scripted.push
    scripted.assign(1)
    run = scripted.connect(timeout=endless)
    assert run.status().verdict == "unknown"
    with run.sync.actor("env").next(timeout=endless) as a:
        assert a.push(rollout(), reward=1, timeout=endless) is fb.PushResult.ACCEPTED
    run.push_group("math", [rollout()], task={"q": 1}, timeout=endless)
    run.close(endless)
    for wrong in (float("nan"), -1):
        with pytest.raises(ValueError, match=f"^timeout is {wrong}, must be a number of seconds"):
            fb.connect(scripted.target, timeout=wrong)
        with pytest.raises(ValueError, match=f"^step_timeout is {wrong}, must be a number of seconds"):
            run.trainer(groups=1, step_timeout=wrong)


def test_one_name_stands_for_itself_and_not_for_its_letters(scripted):
    trainer = scripted.connect().trainer(groups=1, sources="math", columns="tokens")
    assert (trainer._spec.sources, trainer.columns) == (["math"], ["tokens"])


def test_a_reply_that_cannot_be_read_is_a_broken_stream(scripted):
    push = scripted.push
    streams = []

    def garbled(frames, context):
        streams.append(1)
        if len(streams) == 1:
            next(frames)
            return iter([b"\xff"])
        return push(frames, context)

    scripted.push = garbled
    scripted.assign(1)
    with scripted.connect().sync.actor("env").next(timeout=20) as a:
        assert a.push(rollout(), reward=1, timeout=20) is fb.PushResult.ACCEPTED
    assert len(streams) == 2

"""Actors against a scripted daemon: leases, pushes, what is reported and when."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap

import forebay as fb
import grpc
import numpy as np
import pytest
from forebay._messages import actor as wire
from forebay import _connection, _push
from forebay._push import FRAME_BYTES, FRAME_HEADER_BYTES_MAX


def rollout(tokens=8, **more):
    return fb.Rollout(np.arange(tokens, dtype=np.uint32), prompt_tokens=2, **more)


async def work_on(run, count, body, **options):
    """Runs `body` on `count` assignments at once; returns what each ended with."""
    results = []

    async def work(a):
        async with a:
            return await body(a)

    tasks = []
    async for a in run.actor("env", slots=max(1, count), **options):
        tasks.append(asyncio.ensure_future(work(a)))
        if len(tasks) == count:
            break
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return results


def test_an_assignment_shows_its_task(scripted):
    scripted.assign(1, seed=1 << 63 | 5, eval_run=9)
    seen = {}

    async def body(a):
        seen.update(task=a.task, sampling=a.sampling, seed=a.seed, source=a.source, version=a.version.number)
        seen.update(eval=a.is_eval, id=a.task_id)
        await a.push(rollout(), reward=1)

    asyncio.run(work_on(scripted.connect(), 1, body))
    assert seen == {
        "task": {"prompt": "2+2"},
        "sampling": {"temperature": 0.5},
        "seed": 5,
        "source": "math",
        "version": 5,
        "eval": True,
        "id": "task-1",
    }


def test_small_rollouts_share_frames_and_arrive_whole(scripted):
    scripted.assign(50)

    async def body(a):
        return await a.push(rollout(8 + a.attempt), reward=a.attempt)

    results = asyncio.run(work_on(scripted.connect(), 50, body))
    assert results == [fb.PushResult.ACCEPTED] * 50
    frames = [frame for _, frame in scripted.frames]
    assert len(frames) < 25
    pushed = {}
    for frame in frames:
        at = 0
        for header in frame.rollouts:
            size = sum(c.bytes for c in header.columns)
            pushed[header.attempt_id] = (header, frame.payload[at : at + size])
            at += size
        assert at == len(frame.payload)
    assert sorted(pushed) == list(range(1, 51))
    for attempt_id, (header, payload) in pushed.items():
        tokens = 8 + attempt_id - 1
        assert header.token == 7
        assert header.rewards == {"reward": attempt_id - 1}
        assert payload[: 4 * tokens] == np.arange(tokens, dtype=np.uint32).tobytes()


def test_a_large_rollout_goes_in_several_frames(scripted):
    scripted.assign(1)
    big = np.random.default_rng(0).standard_normal((2_000, 1_200)).astype(np.float32)
    sent = rollout(2_000, states=big)

    async def body(a):
        return await a.push(sent, reward=1)

    assert asyncio.run(work_on(scripted.connect(), 1, body)) == [fb.PushResult.ACCEPTED]
    frames = [frame for _, frame in scripted.frames]
    assert len(frames) == -(-sum(c.bytes for c in frames[0].rollouts[0].columns) // FRAME_BYTES) > 2
    assert [len(frame.rollouts) for frame in frames] == [1] + [0] * (len(frames) - 1)
    assert b"".join(frame.payload for frame in frames).endswith(big.tobytes())
    assert all(len(frame.payload) <= FRAME_BYTES for frame in frames)


@pytest.mark.parametrize("tokens", [8, FRAME_BYTES])
def test_what_was_not_acknowledged_is_sent_again(scripted, tokens):
    scripted.assign(3)
    scripted.break_streams = 2

    async def body(a):
        return await a.push(rollout(tokens), reward=1)

    assert asyncio.run(work_on(scripted.connect(), 3, body)) == [fb.PushResult.ACCEPTED] * 3
    last = max(stream for stream, _ in scripted.frames)
    assert last == 3
    answered = [h.attempt_id for stream, f in scripted.frames if stream == last for h in f.rollouts]
    assert sorted(answered) == [1, 2, 3]


def send_while_away(scripted, count, **more):
    """Assignments whose rollouts were all queued before a frame was answered: the next stream may take them at once."""
    scripted.assign(count)
    scripted.break_streams = 1
    scripted.may_break.clear()
    actor = scripted.connect().sync.actor("env", slots=count)
    held = [actor.next(timeout=20) for _ in range(count)]
    sent = [a._send(rollout(**more), 1.0, None) for a in held]
    scripted.may_break.set()
    return held, sent


def test_frames_are_bounded_by_their_headers_too(scripted):
    held, sent = send_while_away(scripted, 300, extra={"note": "x" * 60_000})
    assert [outgoing.promise.result(20) for outgoing in sent] == [fb.PushResult.ACCEPTED] * 300
    for stream, frame in scripted.frames:
        assert sum(len(header.encode()) for header in frame.rollouts) <= FRAME_HEADER_BYTES_MAX
    assert max(len(frame.rollouts) for _, frame in scripted.frames) > 10


@pytest.mark.parametrize("nbytes", [8, FRAME_BYTES + 1])
@pytest.mark.parametrize(
    "status, error", [("INVALID_ARGUMENT", fb.InvalidRollout), ("RESOURCE_EXHAUSTED", fb.Overloaded)]
)
def test_a_frame_that_the_daemon_refuses_fails_the_wrong_rollout_alone(scripted, nbytes, status, error):
    scripted.refused_with[3] = (getattr(grpc.StatusCode, status), "rollouts[2].x: is 12, at most 11")
    held, sent = send_while_away(scripted, 6, text=b"x" * nbytes)
    for a, outgoing in zip(held, sent):
        if a.id == 3:
            with pytest.raises(error, match="is 12, at most 11"):
                outgoing.promise.result(20)
        else:
            assert outgoing.promise.result(20) is fb.PushResult.ACCEPTED
    frames = [{header.attempt_id for header in frame.rollouts} for _, frame in scripted.frames]
    refused = next(i for i, attempts in enumerate(frames) if 3 in attempts)
    again = [attempts for attempts in frames[refused + 1 :] if attempts & frames[refused]]
    assert all(len(attempts) == 1 for attempts in again)


def test_after_a_refused_frame_rollouts_share_frames_again(scripted):
    scripted.refused_with[1] = (grpc.StatusCode.INVALID_ARGUMENT, "rollouts[0].x: is wrong")
    held, sent = send_while_away(scripted, 40)
    with pytest.raises(fb.InvalidRollout):
        sent[0].promise.result(20)
    for outgoing in sent[1:]:
        outgoing.promise.result(20)
    pusher = held[0]._keeper.pusher
    more = [_push.Outgoing(wire_header(100 + i), rollout()._encode()[1]) for i in range(40)]
    with pusher._condition:  # all are there before the first is taken
        for outgoing in more:
            pusher.push(outgoing)
    assert [outgoing.promise.result(20) for outgoing in more] == [fb.PushResult.ACCEPTED] * 40
    assert len(scripted.frames[-1][1].rollouts) == 40


def wire_header(attempt_id):
    header, _ = rollout()._encode()
    header.attempt_id, header.token = attempt_id, 7
    return header


def test_pushes_whose_streams_break_for_long_say_so(scripted, caplog, monkeypatch):
    monkeypatch.setattr(_push, "COMPLAIN_EVERY_S", 0.0)
    scripted.assign(1)
    scripted.break_streams = 3

    async def body(a):
        return await a.push(rollout(), reward=1)

    with caplog.at_level(logging.WARNING, "forebay"):
        assert asyncio.run(work_on(scripted.connect(), 1, body)) == [fb.PushResult.ACCEPTED]
    said = [r.getMessage() for r in caplog.records if "pushes wait" in r.getMessage()]
    assert said and "going away" in said[0] and said[0].startswith("pushes wait (1): ")


def test_a_frame_whose_rollouts_were_taken_back_meanwhile_is_not_sent(monkeypatch):
    pusher = _push.Pusher(None, 1)
    under_way, late = (_push.Outgoing(wire_header(i), []) for i in (1, 2))
    pusher._frames.append(_push._Frame([under_way], 0, True))
    pusher._queue.append(late)
    waits = []

    def wait(timeout=None):
        waits.append(timeout)
        if timeout is None:
            pusher._stream += 1  # the end of the test
        else:
            pusher.forget(late)

    monkeypatch.setattr(pusher._condition, "wait", wait)
    assert pusher._next_rollouts(pusher._stream) == []
    assert waits == [_push.LINGER_S, None] and len(pusher._frames) == 1


def test_outcomes_become_exceptions_and_results(scripted):
    scripted.assign(6)
    for attempt, result, field in (
        (1, wire.PUSH_RESULT_INVALID, "columns[0].bytes"),
        (2, wire.PUSH_RESULT_LEASE_LOST, ""),
        (3, wire.PUSH_RESULT_STALE, ""),
        (4, wire.PUSH_RESULT_LATE, ""),
        (5, wire.PUSH_RESULT_DUPLICATE, ""),
    ):
        scripted.outcomes[attempt] = wire.PushOutcome(attempt_id=attempt, result=result, field=field, message="is so")

    async def body(a):
        return await a.push(rollout(), reward=1)

    run = scripted.connect()
    results = asyncio.run(work_on(run, 6, body))
    assert [type(r) for r in results[:3]] == [fb.InvalidRollout, fb.LeaseLost, fb.Stale]
    assert results[0].field == "columns[0].bytes"
    assert results[3:] == [fb.PushResult.LATE, fb.PushResult.DUPLICATE, fb.PushResult.ACCEPTED]
    # The wrong one is a failure; for lost and stale ones there is nothing left to report.
    scripted.wait(lambda: [r for n, r in scripted.calls if n == "Fail"])
    run.close()
    assert [list(r.attempt_ids) for r in scripted.requests("Fail")] == [[1]]
    assert scripted.requests("Release") == []


def test_an_exception_is_a_failure_and_leaving_early_gives_back(scripted):
    scripted.assign(3)

    async def body(a):
        if a.attempt == 0:
            raise KeyError("no verifier")
        if a.attempt == 1:
            raise fb.Unavailable("engine is gone")  # no fault of the task

    run = scripted.connect()
    asyncio.run(work_on(run, 3, body))
    scripted.wait(lambda: sum(len(r.attempt_ids) for n, r in scripted.calls if n in ("Fail", "Release")) == 3)
    (fail,) = scripted.requests("Fail")
    assert (list(fail.attempt_ids), list(fail.tokens), fail.reason) == ([1], [7], "KeyError: 'no verifier'")
    assert sorted(i for r in scripted.requests("Release") for i in r.attempt_ids) == [2, 3]


def test_a_single_free_slot_of_many_is_filled(scripted):
    scripted.assign(33)
    with scripted.connect().sync.actor("env", slots=32) as actor:
        held = [actor.next(timeout=20) for _ in range(32)]
        held[5].push(rollout(8), reward=1)
        assert actor.next(timeout=20).id == 33


def test_no_more_than_the_slots_are_held(scripted):
    scripted.assign(20)
    held, most = set(), 0

    async def main():
        nonlocal most
        run = scripted.connect()
        done = 0

        async def work(a):
            nonlocal most, done
            async with a:
                held.add(a.id)
                most = max(most, len(held))
                await a.push(rollout(), reward=1)
                held.discard(a.id)
            done += 1

        tasks = []
        async for a in run.actor("env", slots=4):
            tasks.append(asyncio.ensure_future(work(a)))
            if len(tasks) == 20:
                break
        await asyncio.gather(*tasks)
        assert done == 20

    asyncio.run(main())
    assert most <= 4
    assert max(request.max for request in scripted.requests("Acquire")) == 4


def test_leaving_the_loop_gives_back_what_nobody_took(scripted):
    scripted.assign(8)

    async def main():
        async for a in scripted.connect().actor("env", slots=8):
            async with a:
                await a.push(rollout(), reward=1)
            break

    asyncio.run(main())
    scripted.wait(lambda: sum(len(r.attempt_ids) for n, r in scripted.calls if n == "Release") == 7)


def test_an_assignment_that_is_dropped_goes_back(scripted):
    scripted.assign(1)
    actor = scripted.connect().sync.actor("env", slots=1)
    a = actor.next(timeout=10)
    assert a is not None
    del a
    scripted.wait(lambda: [r for n, r in scripted.calls if n == "Release"])


def test_the_daemon_stops_attempts_and_says_why(scripted):
    scripted.assign(2)
    scripted.renew_actions = {1: (wire.LEASE_ACTION_ABANDON, "group_done"), 2: (wire.LEASE_ACTION_SAVE_PARTIAL, "draining")}

    async def body(a):
        await a.cancelled.wait()
        seen = (a.cancelled.is_set(), a.cancelled.reason, a.cancelled.wants_partial)
        if a.cancelled.wants_partial:
            await a.save_partial(rollout())
        return seen

    run = scripted.connect()
    results = asyncio.run(work_on(run, 2, body))
    assert results == [(True, "group_done", False), (True, "draining", True)]
    scripted.wait(lambda: [r for n, r in scripted.calls if n == "Release"])
    assert [list(r.attempt_ids) for r in scripted.requests("Release")] == [[1]]
    (header,) = [h for _, f in scripted.frames for h in f.rollouts]
    assert (header.attempt_id, header.partial) == (2, True)


def test_renewals_carry_progress_and_the_clients_cost(scripted):
    scripted.assign(1)

    async def body(a):
        a.progress(17)
        while not any(list(r.generated_tokens) == [17] for r in scripted.requests("Renew")):
            await asyncio.sleep(0.01)  # poll: the next renewal
        await a.push(rollout(), reward=1)

    run = scripted.connect()
    assert asyncio.run(work_on(run, 1, body)) == [None]
    usage = scripted.requests("Renew")[-1].usage
    assert usage.cpu_ms > 0 and usage.resident_bytes > 1 << 20
    assert run.usage().pushed_bytes > 0


def test_short_leases_are_renewed_more_often_than_the_daemon_asks(scripted):
    scripted.renew_interval_ms = 60_000
    scripted.assign(1, lease_ms=300)

    async def body(a):
        while len(scripted.requests("Renew")) < 2:
            await asyncio.sleep(0.01)  # poll: the next renewal
        await a.push(rollout(), reward=1)

    assert asyncio.run(asyncio.wait_for(work_on(scripted.connect(), 1, body), 30)) == [None]


def test_a_session_that_the_daemon_forgot_is_opened_again(scripted):
    scripted.assign(1)
    scripted.answers["Acquire"] = [(grpc.StatusCode.NOT_FOUND, "session: is not open")]

    async def body(a):
        return await a.push(rollout(), reward=1)

    assert asyncio.run(work_on(scripted.connect(), 1, body)) == [fb.PushResult.ACCEPTED]
    assert len(scripted.requests("OpenSession")) == 2


def test_what_cannot_work_ends_the_iteration(scripted):
    scripted.answers["Acquire"] = [(grpc.StatusCode.PERMISSION_DENIED, "a token of role actor is needed")]
    with pytest.raises(fb.NotAllowed, match="role actor"):
        next(scripted.connect().sync.actor("env"))


def test_rewards_and_adoptions_are_delivered_without_waiting(scripted):
    run = scripted.connect()
    pending = [run.set_reward(i, float(i)) for i in (1, 2, 3)]
    assert [p.result(10) for p in pending] == [fb.PushResult.ACCEPTED] * 3
    assert sum(len(r.rewards) for r in scripted.requests("SetReward")) == 3
    run.report_adoption(fb.Version(4, branch=1), pause_s=0.25, engine="engine-1").result(10)
    (report,) = scripted.requests("ReportAdoption")
    assert (report.engine, report.version.number, report.version.branch) == ("engine-1", 4, 1)
    assert (report.pause_ms, report.session) == (250, scripted.requests("SetReward")[0].session)
    with pytest.raises(fb.InvalidRollout):
        run.set_reward(1, float("nan"))


def test_a_reward_that_the_daemon_refuses_fails_alone(scripted):
    scripted.refused_rewards = {3, 8}
    keeper = scripted.connect().sync.actor("env")._keeper
    with keeper._condition:  # all are there before the first call is made
        pending = {i: keeper.set_reward(i, {"reward": 1.0}) for i in range(1, 11)}
    for attempt_id, promise in pending.items():
        if attempt_id in (3, 8):
            with pytest.raises(fb.InvalidRequest, match="names shard 9"):
                promise.result(20)
        else:
            assert promise.result(20) is fb.PushResult.ACCEPTED


def test_calls_with_rewards_are_bounded_in_bytes(scripted):
    keeper = scripted.connect().sync.actor("env")._keeper
    rewards = {f"{'r' * 60}{i}": 1.0 for i in range(64)}
    with keeper._condition:
        pending = [keeper.set_reward(i, rewards) for i in range(1, 2001)]
    assert [promise.result(20) for promise in pending] == [fb.PushResult.ACCEPTED] * 2000
    calls = [len(request.encode()) for request in scripted.requests("SetReward")]
    assert sum(calls) > 8 << 20 and max(calls) < 3 << 20


def test_a_push_has_a_deadline_and_can_be_cancelled(scripted):
    scripted.assign(2)
    scripted.push = lambda frames, context: iter(lambda: next(frames, None) or None, None) and _never(frames)

    def _never(frames):
        for _ in frames:
            pass
        return iter(())

    async def body(a):
        if a.attempt == 0:
            with pytest.raises(fb.DeadlineExceeded):
                await a.push(rollout(), reward=1, timeout=0.2)
            return "deadline"
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(a.push(rollout(), reward=1), 0.2)
        return "cancelled"

    assert asyncio.run(work_on(scripted.connect(), 2, body)) == ["deadline", "cancelled"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("of the task", "ValueError: of the task"), ("no unicode \udce9", "ValueError: no unicode ?")],
)
def test_a_failed_attempt_leaves_the_actor_running_and_a_broken_helper_ends_it(scripted, text, reason):
    scripted.assign(2)

    async def main():
        run = scripted.connect()

        async def work(a):
            async with a:
                if a.attempt == 0:
                    raise ValueError(text)
                await a.push(rollout(), reward=1)
            raise RuntimeError("of the program")

        async for a in run.actor("env", slots=1):
            run.spawn(work(a))

    with pytest.raises(RuntimeError, match="of the program"):
        asyncio.run(main())
    assert [request.reason for request in scripted.requests("Fail")] == [reason]


def test_the_blocking_twin(scripted):
    scripted.assign(3)
    with scripted.connect().sync.actor("env", slots=2) as actor:
        for count, a in enumerate(actor, 1):
            with a:
                assert a.push(rollout(), reward=1) is fb.PushResult.ACCEPTED
                with pytest.raises(fb.LeaseLost):
                    a.push(rollout(), reward=1)
            if count == 3:
                break
    assert scripted.requests("Fail") == []


def test_an_unreachable_daemon_is_said_so_in_time():
    run = fb.connect("127.0.0.1:1", timeout=0.5)
    with pytest.raises(fb.Unavailable, match="127.0.0.1:1"):
        run.status()


SIGTERM_ACTOR = """
    import asyncio, sys
    import forebay as fb
    import numpy as np

    def save(a):
        if a.attempt == 0:
            return fb.Rollout(np.arange(6, dtype=np.uint32), prompt_tokens=2)

    async def main():
        run = fb.connect(sys.argv[1])
        async def work(a):
            async with a:
                print("working", flush=True)
                await asyncio.Event().wait()
        async for a in run.actor("env", slots=2, save_partials=save):
            run.spawn(work(a))

    asyncio.run(main())
"""


def test_sigterm_saves_partials_gives_the_rest_back_and_ends_the_process(scripted):
    scripted.assign(2)
    folder = os.path.dirname(os.path.dirname(fb.__file__))
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SIGTERM_ACTOR), scripted.target],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": folder},
    )
    try:
        assert process.stdout.readline() == b"working\n"
        assert process.stdout.readline() == b"working\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM
    finally:
        process.kill()
        process.stdout.close()
    assert [(h.attempt_id, h.partial) for _, f in scripted.frames for h in f.rollouts] == [(1, True)]
    assert [list(r.attempt_ids) for r in scripted.requests("Release")] == [[2]]

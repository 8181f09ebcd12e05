"""The package against the real daemon: what a run does, end to end."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import forebay as fb
import numpy as np
import pytest
from forebay import _rollout


def rollout(seed=0, tokens=20, **more):
    rng = np.random.default_rng(seed)
    return fb.Rollout(
        rng.integers(0, 1000, tokens, np.uint32),
        prompt_tokens=5,
        logprobs=rng.standard_normal(tokens, np.float32),
        **more,
    )


def attempt_seed(a):
    return int(a.task_id.rpartition("-")[2]) * 100 + a.attempt


def fill(run, groups, group_size=4, name="filler", **more):
    """Finishes `groups` groups of the source "math"; half of each group's rollouts get the reward."""
    tasks = [{"id": f"task-{i}", "question": f"{i} + {i}"} for i in range(50)]
    run.load("math", tasks, group_size=group_size, order="static", max_lag=100)
    with run.sync.actor(name, sources=["math"], slots=1) as actor:
        for count, a in enumerate(actor, 1):
            with a:
                seed = attempt_seed(a)
                a.push(rollout(seed, tokens=10 + a.attempt, **more), reward=a.attempt % 2)
            if count == groups * group_size:
                break


def test_tasks_are_loaded_once_and_sources_changed(run, tmp_path):
    tasks = [{"id": i, "question": f"{i}?"} for i in range(3)]
    assert run.load("math", tasks, group_size=8, sampling={"temperature": 0.5}) == fb.Loaded(3, 0)
    assert run.load("math", tasks) == fb.Loaded(0, 3)
    with pytest.raises(fb.ForebayError, match="another payload"):
        run.load("math", [{"id": 1, "question": "another"}])
    path = tmp_path / "more.jsonl"
    path.write_text('{"question": "a"}\n\n{"question": "b"}\n')
    assert run.load("math", str(path)) == fb.Loaded(2, 0)
    assert run.load("math", str(path)) == fb.Loaded(0, 2)
    run.configure("math", max_lag=7, paused=True)
    source = run.sources()["math"]
    assert (source.tasks, source.group_size) == (5, 8)
    with pytest.raises(TypeError, match="group_sise"):
        run.configure("math", group_sise=3)
    with pytest.raises(fb.InvalidRequest, match="group_size"):
        run.configure("math", group_size=100_000)
    for size in (2, 16):  # attempts_per_task and the rest, which nobody named, follow it
        run.configure("math", group_size=size, complete_deadline_s=60)
        assert run.sources()["math"].group_size == size
    run.configure("math", group_size=4, attempts_per_task=6)
    with pytest.raises(fb.InvalidRequest, match="attempts_per_task: 6, from 8"):
        run.configure("math", group_size=8)
    assert run.sources()["math"].group_size == 4
    with pytest.raises(ValueError, match="order"):
        run.configure("math", order="random")


def test_tasks_that_cannot_be_read_leave_no_source_behind(run, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{")
    for dataset in (bad, tmp_path / "none.jsonl", {"q": 1}):
        with pytest.raises((ValueError, TypeError, OSError)):
            run.load("bad", dataset, group_size=2)
    assert run.sources() == {}


def test_negative_numbers_are_refused_as_they_were_given(run):
    with pytest.raises(ValueError, match="group_size: -1, must be 0 to 4294967295"):
        run.load("math", [{"id": "a"}], group_size=-1)
    assert run.sources() == {}


def test_what_actors_push_is_what_trainers_fetch(run):
    run.load("math", [{"id": f"task-{i}"} for i in range(8)], group_size=4, order="static", max_lag=5)
    pushed = {}

    async def main():
        done = asyncio.Event()

        async def work(a):
            async with a:
                r = rollout(attempt_seed(a), 10 + a.attempt, extra_column=np.full((10 + a.attempt, 2), attempt_seed(a), np.int64))
                assert await a.push(r, reward=float(a.attempt)) is fb.PushResult.ACCEPTED
                pushed[tuple(r.tokens)] = r
                if len(pushed) == 32:
                    done.set()

        async def act():
            async for a in run.actor("env", slots=8):
                run.spawn(work(a))

        acting = run.spawn(act())
        await asyncio.wait_for(done.wait(), 30)
        acting.cancel()

    asyncio.run(main())
    columns = ["tokens", "loss_mask", "logprobs", "extra_column"]
    with run.trainer(groups=8, mini_batches=2, token_budget=64, columns=columns, pad_multiple=8) as t:
        (step,) = t.steps(1)
        assert (step.totals.groups, step.totals.rollouts) == (8, 32)
        assert "8 groups, 32 rollouts" in str(step)
        batches = list(step)
        seen = 0
        for mb in batches:
            assert mb.num_tokens <= 64 and len(mb.tokens) % 8 == 0
            assert mb.tokens.dtype == np.uint32 and mb.logprobs.dtype == np.float32
            for i in range(len(mb)):
                tokens = mb.sequence("tokens", i)
                r = pushed.pop(tuple(tokens))
                seen += 1
                np.testing.assert_array_equal(mb.sequence("loss_mask", i), r.sequences[0].loss_mask)
                np.testing.assert_array_equal(mb.sequence("logprobs", i), r.sequences[0].columns["logprobs"].array)
                np.testing.assert_array_equal(mb.sequence("extra_column", i), r.sequences[0].columns["extra_column"])
                begin, end = mb.cu_seqlens[i], mb.cu_seqlens[i + 1]
                np.testing.assert_array_equal(mb.position_ids[begin:end], np.arange(end - begin))
                assert (mb.prompt_tokens[i], mb.loss_tokens[i]) == (5, len(tokens) - 5)
                expected = (mb.rewards[i] - 1.5) / (np.std([0, 1, 2, 3], ddof=1) + 1e-6)
                assert mb.advantages[i] == pytest.approx(expected, rel=1e-3)
            assert not mb.tokens[mb.num_tokens :].any() and set(mb.sources) <= {"math"}
        assert seen == 32 and not pushed
        again = list(step)
        for mb, other in zip(batches, again):
            np.testing.assert_array_equal(mb.tokens, other.tokens)
        assert sum(m.loss_tokens for m in step.mini_batches()) == step.totals.loss_tokens
        assert sum(mb.loss_tokens.sum() for mb in batches) == step.totals.loss_tokens
        assert step.commit().number == step.next_version.number


def test_two_ranks_share_a_step_and_columns_come_back(run):
    fill(run, 6)

    def rank(dp_rank):
        return run.trainer(mesh=fb.Mesh(dp=2, dp_rank=dp_rank), groups=6, mini_batches=2, token_budget=48)

    with rank(0) as first, rank(1) as second:
        assert first.generation == second.generation
        (one,), (two,) = first.steps(1), second.steps(1)
        assert one.plan_hash == two.plan_hash and len(one) == len(two)
        ids = [mb.rollout_ids for step in (one, two) for mb in step]
        assert len(np.unique(np.concatenate(ids))) == 24
        for step in (one, two):
            for mb in step:
                if not mb.is_filler:
                    step.put(mb, old_logprobs=mb.logprobs * 2)
            for mini in step.mini_batches():
                for mb in mini:
                    if not mb.is_filler:
                        np.testing.assert_array_equal(mb.old_logprobs, mb.logprobs * 2)
        assert one.commit().number == two.commit().number  # once, whichever comes first


def test_an_exception_aborts_the_step_and_its_groups_come_again(run):
    fill(run, 2)
    with pytest.raises(RuntimeError, match="out of memory"):
        with run.trainer(groups=2, token_budget=64) as t:
            for step in t.steps():
                groups = {int(g) for mb in step for g in mb.group_ids}
                raise RuntimeError("out of memory")
    with run.trainer(groups=2, token_budget=64) as t:
        (step,) = t.steps(1)
        assert step.number == 1
        assert {int(g) for mb in step for g in mb.group_ids} == groups
        step.commit()


def test_a_newer_start_of_the_trainer_fences_the_older(run):
    fill(run, 2)
    with run.trainer(groups=1, token_budget=64) as old:
        (step,) = old.steps(1)
        with run.trainer(groups=1, token_budget=64) as new:
            with pytest.raises(fb.FencedTrainer):
                step.commit()
            (step,) = new.steps(1)
            assert step.commit().number == 1
            assert new.next_step == 2


def test_steps_opened_ahead_and_what_a_step_waits_for(run):
    fill(run, 3)
    with run.trainer(groups=1, token_budget=64, ahead=1, step_timeout=0.5) as t:
        numbers = []
        with pytest.raises(fb.DeadlineExceeded, match="group"):
            for step in t.steps():
                numbers.append(step.number)
                step.commit()
        assert numbers == [1, 2, 3]


def test_bad_specs_and_fetches_are_refused_by_name(run):
    fill(run, 1)
    with pytest.raises(ValueError, match="groups"):
        run.trainer(token_budget=64)
    with pytest.raises(TypeError, match="grups"):
        run.trainer(groups=1, grups=2)
    with run.trainer(groups=1, token_budget=64, columns=["tokens", "values"]) as t:
        (step,) = t.steps(1)
        with pytest.raises(fb.ForebayError, match="values"):
            list(step)
    with run.trainer(groups=1, token_budget=64, columns=["tokens", "values"], fill_missing=True) as t:
        with pytest.raises(fb.ForebayError, match="sources"):
            next(run.trainer(groups=1, sources=["nothing"]).__enter__().steps())


def test_own_advantages(run):
    fill(run, 2)

    def advantages(scalars):
        assert len(scalars.rewards) == 8
        return scalars.rewards * 10

    with run.trainer(groups=2, token_budget=64, advantages=advantages) as t:
        (step,) = t.steps(1)
        for mb in step:
            np.testing.assert_array_equal(mb.advantages, mb.rewards * 10)
        step.commit()


def test_versions_are_announced_followed_and_reported(run):
    fill(run, 1)
    seen = []

    async def follow():
        async for version in run.policy():
            seen.append((version.number, version.phase, version.where))
            if version.published and version.number == 1:
                await run.report_adoption(version, pause_s=0.5, engine="engine-1")
                return

    async def main():
        following = run.spawn(follow())
        async with run.aio.trainer(groups=1, token_budget=64) as t:
            async for step in t.steps(1):
                async for mb in step:
                    assert len(mb) == 4
                await step.commit()
                await t.announce(step.next_version)
                await t.publish(step.next_version, where="/weights/1")
        await asyncio.wait_for(following, 20)

    asyncio.run(main())
    assert seen[-1] == (1, "published", "/weights/1")
    policy = run.policy()
    assert policy.wait(10).number == 1
    assert policy.latest.where == "/weights/1"


def test_an_evaluation_is_pinned_to_its_version(run):
    run.load("held-out", [{"id": str(i)} for i in range(6)], purpose="eval")
    evaluation = run.start_eval("held-out", version=0, attempts=2)
    assert not evaluation.result().done
    with run.sync.actor("env", slots=4) as actor:
        for count, a in enumerate(actor, 1):
            with a:
                assert a.is_eval and a.version.number == 0
                a.push(rollout(count), reward=float(int(a.task_id) < 3))
            if count == 12:
                break
    result = evaluation.wait(timeout=20)
    assert (result.tasks, result.rollouts, result.mean) == (6, 12, pytest.approx(0.5))
    assert result.standard_error == pytest.approx(np.std([0, 0, 0, 1, 1, 1], ddof=1) / np.sqrt(6), rel=0.05)
    assert result.pass_at == {1: pytest.approx(0.5), 2: pytest.approx(0.5)}


def test_a_partial_attempt_is_continued(run):
    run.load("math", [{"id": "one"}], group_size=2, order="static", max_lag=5)
    with run.sync.actor("first", slots=1) as actor:
        with actor.next(20) as a:
            number = a.attempt
            saved = rollout(3, 12, versions=[(0, 0)])
            a.save_partial(saved)
    with run.sync.actor("second", slots=2) as actor:
        taken = [actor.next(20), actor.next(20)]
        (continued,) = [a for a in taken if a.partial is not None]
        assert continued.attempt == number
        np.testing.assert_array_equal(continued.partial.tokens, saved.tokens)
        assert continued.partial.versions == [(0, 0, 0)]
        for a in taken:
            with a:
                a.push(rollout(a.attempt), reward=a.attempt)
    assert run.sources()["math"].groups_ready == 1


def test_a_late_reward_completes_the_group(run):
    run.load("math", [{"id": "one"}], group_size=2, reward_timeout_s=60, max_lag=5)
    with run.sync.actor("env", slots=2) as actor:
        taken = [actor.next(20), actor.next(20)]
        for a in taken:
            with a:
                a.push(rollout(a.attempt))
        assert run.sources()["math"].groups_ready == 0
        for a in taken:
            run.set_reward(a.id, float(a.attempt)).result(20)
    assert run.sources()["math"].groups_ready == 1


def test_a_late_reward_that_is_not_taken_is_an_exception(run):
    run.load("math", [{"id": "one"}], group_size=2, reward_timeout_s=60, rewards={"right": 1.0, "short": 0.5})
    with run.sync.actor("env", slots=2) as actor:
        pushed, held = actor.next(20), actor.next(20)
        pushed.push(rollout(1))
        for wrong in ({"zzz": 1.0}, {"yyy": 1.0, "zzz": 1.0}, {}):
            with pytest.raises(fb.InvalidRollout, match=f"of attempt {pushed.id} .*{'.*'.join(sorted(wrong)) or 'nothing'}") as e:
                run.set_reward(pushed, wrong).result(20)
            assert e.value.field == ("rewards[zzz]" if len(wrong) == 1 else "rewards")
        for nobody in (held.id, held.id ^ 1 << 40):
            with pytest.raises(fb.NotFound, match=rf"attempt {nobody}: .*\[right\].*not pushed yet.*another run"):
                run.set_reward(nobody, {"right": 1.0}).result(20)
        assert run.set_reward(pushed, {"right": 1.0}).result(20) is fb.PushResult.ACCEPTED
        assert run.set_reward(pushed, {"right": 1.0}).result(20) is fb.PushResult.DUPLICATE
        with pytest.raises(fb.InvalidRollout, match="right, short; .* new ones"):
            run.set_reward(pushed, {"right": 1.0, "short": 1.0}).result(20)
        assert run.sources()["math"].groups_ready == 0
        with held:
            held.push(rollout(2), rewards={"right": 0.0, "short": 1.0})
        assert run.set_reward(pushed, {"short": 0.0}).result(20) is fb.PushResult.ACCEPTED
        assert run.sources()["math"].groups_ready == 1
        assert actor.set_reward(pushed, {"short": 0.0}).result(20) is fb.PushResult.DUPLICATE


def test_a_reward_after_its_group_was_done_is_late(run):
    run.load("math", [{"id": "one"}], group_size=2, complete_at=1, advantage="none", reward_timeout_s=60)
    with run.sync.actor("env", slots=2) as actor:
        late, first = actor.next(20), actor.next(20)
        late.push(rollout(1))
        first.push(rollout(2), reward=1.0)
        assert run.sources()["math"].groups_ready == 1
        assert run.set_reward(late, 1.0).result(20) is fb.PushResult.LATE


def test_a_finished_group_is_pushed_without_assignments(run):
    run.load("offline", [], group_size=2, max_lag=5)
    big = {"states": np.zeros((20, 40_000), np.float32)}  # several frames
    group = [rollout(i, rewards={"reward": float(i)}, versions=0, **big) for i in range(2)]
    assert run.push_group("offline", group, task={"question": "?"}) == [fb.PushResult.ACCEPTED] * 2
    assert run.sources()["offline"].groups_ready == 1
    with pytest.raises(fb.ForebayError, match="nowhere"):
        run.push_group("nowhere", group, task={"question": "?"})


@pytest.mark.parametrize("place", [0, 2])
def test_a_group_that_is_refused_names_the_rollout_that_is_wrong(run, place):
    run.load("offline", [], group_size=3, max_lag=1)

    def refused(error, match, *, rewards=None, **spoiled):
        rewards = {"reward": 1.0} if rewards is None else rewards
        group = [rollout(i, rewards={"reward": float(i)}, versions=0) for i in range(3)]
        group[place] = rollout(9, rewards=rewards, **{"versions": 0, **spoiled})
        with pytest.raises(error, match=match) as e:
            run.push_group("offline", group, task={"question": "?"})
        return e.value

    future = refused(fb.InvalidRollout, r"version 0\.99 was never announced", versions=99)
    assert future.field == f"rollouts[{place}].versions"
    assert refused(fb.InvalidRollout, 'reward "reward" is missing', rewards={}).field == f"rollouts[{place}].rewards"
    source = run.sources()["offline"]
    assert (source.tasks, source.rollouts, source.groups_ready) == (0, 0, 0)
    with pytest.raises(fb.InvalidRollout, match="group.source .* is for evaluation") as e:
        run.load("held-out", [], purpose="eval")
        run.push_group("held-out", [rollout(1, rewards={"reward": 1.0}, versions=0)] * 2, task={"question": "?"})
    assert e.value.field == "group.source"


def group_with_headers(count):
    """Rollouts whose headers have some 920 KB each."""
    turns = [fb.Turn(0, 1, role="r" * 1011)] * 900
    return [rollout(i, rewards={"reward": float(i % 2)}, versions=0, turns=turns) for i in range(count)]


def test_a_group_is_bounded_by_what_its_first_message_holds(run):
    run.load("offline", [], group_size=13, max_lag=5)
    with pytest.raises(fb.InvalidRequest, match="group: its task and its rollouts' headers have 128[0-9]+ bytes, .* 12776192"):
        run.push_group("offline", group_with_headers(14), task={"question": "?"})
    with pytest.raises(fb.InvalidRequest, match="rollouts: has 4097 entries, at most 4096"):
        run.push_group("offline", [rollout()] * 4097, task={"question": "?"})
    with pytest.raises(fb.InvalidRequest, match="group.external_id: 'iii.*' has 257 bytes, must be 1 to 256"):
        run.push_group("offline", [rollout()], task_id="i" * 257)
    with pytest.raises(fb.InvalidRequest, match="group.payload: of task 'one' has .* bytes, at most 1048576"):
        run.push_group("offline", [rollout()], task={"id": "one", "text": "x" * 1_048_576})
    assert run.push_group("offline", group_with_headers(13), task={"question": "?"}) == [fb.PushResult.ACCEPTED] * 13


def test_a_rollout_that_makes_the_daemon_refuse_its_frame_fails_alone(run, monkeypatch):
    """The client's own check of the count is switched off."""
    monkeypatch.setattr(_rollout, "COLUMNS_MAX", 1000)
    run.load("math", [{"id": str(i)} for i in range(3)], group_size=2, max_failures=1)
    with run.sync.actor("env", slots=6) as actor:
        held = [actor.next(20) for _ in range(6)]
        with held[0]._keeper.pusher._condition:  # all are there before the first frame is made
            sent = [
                a._send(rollout(number, **{f"c{i}": 1.0 for i in range(300 if number == 3 else 1)}), float(number % 2), None)
                for number, a in enumerate(held)
            ]
        for number, (a, outgoing) in enumerate(zip(held, sent)):
            if number == 3:
                with pytest.raises(fb.InvalidRollout, match="has more than 256 entries"):
                    outgoing.promise.result(20)
                a.release()
            else:
                assert outgoing.promise.result(20) is fb.PushResult.ACCEPTED
                a._pushed()
    assert run.sources()["math"].groups_ready == 2


def test_a_column_of_a_micro_batch_that_no_message_holds_is_refused_at_once(run):
    fill(run, 1, 2)
    with run.trainer(groups=1, token_budget=64) as t:
        (step,) = t.steps(1)
        (mb,) = step
        with pytest.raises(fb.InvalidRequest, match="states: has .* bytes .* at most 16711680 a column"):
            step.put(mb, states=np.zeros((mb.num_tokens, 16_000_000 // mb.num_tokens + 200_000), np.uint8))
        wide = {f"x{i}": np.full((mb.num_tokens, 6_000_000 // mb.num_tokens), i, np.uint8) for i in range(5)}
        step.put(mb, **wide)
        (again,) = step
        for i in range(5):
            assert (again[f"x{i}"] == i).all() and again[f"x{i}"].nbytes > 5_900_000


def worker(run, answers):
    answers.put((os.getpid(), run.sources()["math"].tasks))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_run_works_in_other_processes(run, method):
    run.load("math", [{"id": "one"}])
    context = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    process = context.Process(target=worker, args=(run, answers))
    process.start()
    process.join(30)
    assert process.exitcode == 0
    pid, tasks = answers.get()
    assert pid != os.getpid() and tasks == 1
    assert run.sources()["math"].tasks == 1  # the parent goes on


def forked_actor(run, answers):
    with run.sync.actor("child", slots=1) as actor, actor.next(20) as a:
        a.push(rollout(), reward=1)
        answers.put(a.task_id)


def test_a_fork_beside_a_busy_actor_disturbs_neither(run):
    run.load("math", [{"id": str(i)} for i in range(8)], group_size=2, max_lag=5)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    with run.sync.actor("parent", slots=3) as actor:
        held = [actor.next(20) for _ in range(3)]
        children = [context.Process(target=forked_actor, args=(run, answers)) for _ in range(2)]
        for child in children:
            child.start()
        for a in held:
            with a:
                assert a.push(rollout(), reward=1) is fb.PushResult.ACCEPTED
        for child in children:
            child.join(30)
            assert child.exitcode == 0
    assert run.sources()["math"].rollouts == 5


def test_a_daemon_that_ends_is_waited_for_and_then_named(run):
    assert run.load("math", [{"id": "one"}]).added == 1
    run.daemon.stop()
    short = fb.connect(run.target, timeout=0.5)
    with pytest.raises(fb.Unavailable, match="not available"):
        short.sources()


STARTS_A_DAEMON = """
import os, signal
import forebay as fb
run = fb.start()
print(run.daemon.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_private_daemon_ends_with_the_process_that_started_it_even_if_that_is_killed():
    folder = os.path.dirname(os.path.dirname(fb.__file__))
    done = subprocess.run(
        [sys.executable, "-c", STARTS_A_DAEMON],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": folder},
        timeout=40,
    )
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}/fd/0") and time.monotonic() < deadline:
        time.sleep(0.05)  # poll: the daemon's end
    assert not os.path.exists(f"/proc/{pid}/fd/0")


def test_a_wrong_setting_of_the_daemon_is_shown():
    with pytest.raises(fb.Unavailable, match="no_such_entry"):
        fb.start(no_such_entry=1)


def test_many_slots_and_ranks_at_once(run):
    """Actors and two ranks run freely; every rollout is trained at most once."""
    run.load("math", [{"id": f"task-{i}"} for i in range(40)], group_size=4, max_lag=2)
    trained = []
    optimizer = threading.Barrier(2, timeout=30)  # as an all-reduce keeps ranks together

    def rank(dp_rank, steps):
        with run.trainer(mesh=fb.Mesh(dp=2, dp_rank=dp_rank), groups=8, token_budget=128) as t:
            for step in t.steps(steps):
                for mb in step:
                    trained.extend(int(i) for i in mb.rollout_ids)
                    assert (mb.lags <= 2).all()
                optimizer.wait()
                step.commit()
                if dp_rank == 0:
                    t.publish(step.next_version, where=f"/weights/{step.next_version}")

    async def main():
        versions = 0

        async def follow():
            nonlocal versions
            async for version in run.policy():
                if version.published:
                    versions = version.number
                    run.report_adoption(version)

        async def work(a):
            async with a:
                await a.push(rollout(a.id & 0xFFFF, 8 + a.attempt, versions=versions), reward=a.attempt % 2)

        async def act():
            async for a in run.actor("env", slots=32):
                run.spawn(work(a))

        helpers = [run.spawn(follow()), run.spawn(act())]
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(None, rank, r, 6) for r in range(2)))
        for helper in helpers:
            helper.cancel()

    asyncio.run(main())
    assert len(trained) == len(set(trained))
    source = run.sources()["math"]
    assert len(trained) == source.trained
    # A rollout that grew too old leaves its group, and is counted; nothing else may be missing.
    assert 0 <= 6 * 8 * 4 - len(trained) <= source.dropped.get("stale", 0)

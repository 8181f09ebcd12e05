"""Bad input through the Python package, with a real daemon: each names field, value and limit, and the state stays as it was.

What the package itself checks is also tried with its checks switched off: headers are changed after they were encoded.
"""

import math
import os
import pathlib
import sys
import time

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
BIN = pathlib.Path(os.environ.get("FOREBAY_BIN", ROOT / "build" / "release" / "bin"))
os.environ.setdefault("FOREBAY_BUFFERD", str(BIN / "bufferd"))

import forebay as fb  # noqa: E402
from forebay._messages import admin, types  # noqa: E402

TIMEOUT_S = 60 * int(os.environ.get("FOREBAY_SLOWNESS", "1"))
SETTLE_S = 5 * int(os.environ.get("FOREBAY_SLOWNESS", "1"))
ROLLOUT_BYTES_MAX = 65_536
TOKENS, PROMPT = 20, 5


def rollout(seed=0, **more):
    rng = np.random.default_rng(seed)
    given = {"logprobs": rng.standard_normal(TOKENS, np.float32), "prompt_tokens": PROMPT, "versions": 0, **more}
    return fb.Rollout(rng.integers(0, 1000, TOKENS, np.uint32), **given)


def changed(change, **more):
    """A rollout whose header is changed after the package has checked and encoded it; its payload is as it was."""
    r = rollout(**more)
    encode = r._encode

    def spoil(*arguments):
        header, parts = encode(*arguments)
        header = types.RolloutHeader.decode(header.encode())
        header.columns = list(header.columns)
        header.rewards = dict(header.rewards)
        parts = [np.frombuffer(part.tobytes(), np.uint8) for part in parts]
        return header, change(header, parts) or parts

    r._encode = spoil
    return r


# ---- what the daemon holds


def every(run, method, request, kind, field):
    """All entries of a list that comes in pages."""
    entries, token = [], ""
    while True:
        request.page_token = token
        page = run._connection.call(f"/forebay.v1.AdminService/{method}", request, kind)
        entries += getattr(page, field)
        token = page.page_token
        if not token:
            return entries


def without(message, *names):
    """Its bytes without what moves by itself."""
    for name in names:
        setattr(message, name, type(message)().__getattribute__(name))
    return message.encode()


def picture(run):
    """Status, sources, tasks, rollouts, leases and steps."""
    call = run._connection.call
    status = call("/forebay.v1.AdminService/GetStatus", admin.GetStatusRequest(), admin.GetStatusResponse)
    sources = call("/forebay.v1.AdminService/ListSources", admin.ListSourcesRequest(), admin.ListSourcesResponse).sources
    steps = call("/forebay.v1.AdminService/ListSteps", admin.ListStepsRequest(), admin.ListStepsResponse).steps
    names = [source.settings.name for source in sources]
    tasks = [every(run, "ListTasks", admin.ListTasksRequest(source=n), admin.ListTasksResponse, "tasks") for n in names]
    rollouts = every(run, "ListRollouts", admin.ListRolloutsRequest(), admin.ListRolloutsResponse, "rollouts")
    leases = every(run, "ListLeases", admin.ListLeasesRequest(), admin.ListLeasesResponse, "leases")
    return {
        "status": without(status, "uptime_ms", "resident_bytes", "waits", "reasons", "verdict"),
        "sources": [without(source) for source in sources],
        "tasks": [[without(task) for task in of] for of in tasks],
        "rollouts": [without(entry) for entry in rollouts],
        "leases": [without(lease, "age_ms", "expires_in_ms") for lease in leases],
        "steps": [without(step, "waited_ms", "waiting") for step in steps],
    }


def assert_unchanged(run, before):
    deadline = time.monotonic() + SETTLE_S
    while (now := picture(run)) != before and time.monotonic() < deadline:
        time.sleep(0.02)  # poll: what was freed is counted
    assert now == before


class Refusal:
    """The block must raise `error` with all of `texts`, and change nothing."""

    def __init__(self, run, error, *texts):
        self.run, self.error, self.texts = run, error, texts

    def __enter__(self):
        self.before = picture(self.run)

    def __exit__(self, kind, error, trace):
        assert error is not None, f"was taken, and not refused with {self.texts}"
        if not isinstance(error, self.error):
            return False
        for text in self.texts:
            assert text in str(error), f"{text!r} is not in {error}"
        assert_unchanged(self.run, self.before)
        return True


# ---- rollouts


@pytest.fixture(scope="module")
def run():
    """One daemon for all rollouts: none of those that are wrong may leave a trace."""
    with fb.start(limits__rollout_bytes_max=ROLLOUT_BYTES_MAX) as started:
        started.load("math", [{"id": "one"}, {"id": "two"}], group_size=2, order="static", max_lag=4, max_failures=1)
        started.load("held-out", [{"id": "eval"}], purpose="eval")
        yield started


@pytest.fixture(scope="module")
def held(run):
    """An attempt that bad rollouts are pushed for; in the end it takes a good one."""
    with run.sync.actor("env", sources=["math"], slots=1) as actor:
        a = actor.next(TIMEOUT_S)
        yield a
        assert a.push(rollout(), reward=1.0) is fb.PushResult.ACCEPTED


def column(name):
    def find(header):
        return next(c for c in header.columns if c.name == name)

    return find


tokens, mask = column("tokens"), column("loss_mask")


def wrong_dtype(header, parts):
    tokens(header).dtype = types.DTYPE_F32


def unknown_dtype(header, parts):
    mask(header).dtype = 99


def wrong_shape(header, parts):
    tokens(header).inner = [2]
    tokens(header).bytes *= 2
    return [np.concatenate([part, part]) if part.nbytes == 4 * TOKENS and i == 0 else part for i, part in enumerate(parts)]


def wrong_count(header, parts):
    tokens(header).bytes -= 4
    return [part[:-4] if i == 0 else part for i, part in enumerate(parts)]


def wrong_crc(header, parts):
    mask(header).crc32c = 0x3039


def missing_column(header, parts):
    place = header.columns.index(mask(header))
    del header.columns[place]
    return parts[:place] + parts[place + 1 :]


def too_many_loss_tokens(header, parts):
    header.sequences[0].loss_tokens = 999


def too_long_a_prompt(header, parts):
    header.sequences[0].prompt_tokens = TOKENS + 1


def runs_that_do_not_add_up(header, parts):
    header.sequences[0].versions = [types.VersionRun(offset=0, number=0, loss_tokens=3)]


def a_run_behind_the_end(header, parts):
    header.sequences[0].versions = [types.VersionRun(offset=0), types.VersionRun(offset=TOKENS, loss_tokens=TOKENS - PROMPT)]


def reward_is_nan(header, parts):
    header.rewards["reward"] = math.nan


# What makes the rollout, and what its refusal says: field, value, limit.
BY_THE_PACKAGE = {
    "dtype": (lambda: rollout(logprobs=np.zeros(TOKENS, np.int64)), "columns[", ".dtype", "is int64", "must be float32"),
    "shape": (lambda: rollout(logprobs=np.zeros((TOKENS, 2), np.float32)), "columns[", ".inner", "is (2,)", "0 dimensions"),
    "count": (lambda: rollout(logprobs=np.zeros(TOKENS - 2, np.float32)), ".bytes", "18 rows", "must be 20"),
    "lengths": (lambda: rollout(loss_mask=np.ones(TOKENS + 1, np.uint8)), "loss_mask", "21", "20"),
    "prompt": (lambda: rollout(prompt_tokens=TOKENS + 1), "prompt_tokens", "21", "20"),
    "run": (lambda: rollout(versions=[(0, 0), (TOKENS, 0)]), "versions[1]", "20"),
    "nan": (lambda: rollout(rewards={"reward": math.nan}), "rewards[reward]", "is nan", "within +-1e+12"),
    "infinite": (lambda: rollout(rewards={"reward": math.inf}), "rewards[reward]", "is inf", "within +-1e+12"),
}
BY_THE_DAEMON = {
    "dtype": (lambda: changed(wrong_dtype), "columns[0].dtype", "is 11", "u32"),
    "unknown dtype": (lambda: changed(unknown_dtype), ".dtype", "99"),
    "shape": (lambda: changed(wrong_shape), "columns[0].inner", "1 dimensions", "0"),
    "count": (lambda: changed(wrong_count), "columns[0].bytes", "76", "80"),
    "crc": (lambda: changed(wrong_crc), "columns[1].crc32c", "3039", "the bytes have"),
    "missing column": (lambda: changed(missing_column), "columns", "loss_mask"),
    "loss tokens": (lambda: changed(too_many_loss_tokens), "sequences[0].loss_tokens", "999", "20"),
    "prompt": (lambda: changed(too_long_a_prompt), "sequences[0].prompt_tokens", "21", "20"),
    "sum of runs": (lambda: changed(runs_that_do_not_add_up), "versions", "3", "15"),
    "run": (lambda: changed(a_run_behind_the_end), "versions", "offset", "20"),
    "nan": (lambda: changed(reward_is_nan, rewards={"reward": 1.0}), "rewards[reward]", "nan", "finite"),
    "oversized": (lambda: rollout(states=np.zeros((TOKENS, 4096), np.uint8)), "bytes", "82", str(ROLLOUT_BYTES_MAX)),
    "future": (lambda: rollout(versions=99), "versions", "0.99", "0.0"),
    "another branch": (lambda: rollout(versions=[(0, 0, 3)]), "versions", "3.0", "0.0"),
}


def named(cases, where):
    return [pytest.param(make, texts, id=f"{where}: {name}") for name, (make, *texts) in cases.items()]


@pytest.mark.parametrize("make, texts", named(BY_THE_PACKAGE, "package") + named(BY_THE_DAEMON, "daemon"))
def test_a_rollout_that_is_wrong_is_refused_and_changes_nothing(run, held, make, texts):
    with Refusal(run, fb.InvalidRollout, *texts):
        wrong = make()
        held.push(wrong, None if wrong.rewards else 1.0, timeout=TIMEOUT_S)


@pytest.mark.parametrize("make, texts", named(BY_THE_DAEMON, "daemon"))
def test_a_group_with_one_that_is_wrong_is_refused_as_a_whole(run, make, texts):
    wrong = make()
    wrong.rewards = wrong.rewards or {"reward": 1.0}
    both = [rollout(1, rewards={"reward": 0.0}), wrong]
    with Refusal(run, fb.InvalidRollout, *texts):
        run.push_group("math", both, task={"id": "new", "question": "?"}, timeout=TIMEOUT_S)


# ---- all else


def of_nan(run, held):
    """Past the package's own check of rewards."""
    held._keeper.set_reward(held.id, {"reward": math.nan}).result(TIMEOUT_S)


def group(run, source, **more):
    run.push_group(source, [rollout(i, rewards={"reward": float(i)}) for i in range(2)], timeout=TIMEOUT_S, **more)


REQUESTS = {
    "late reward is nan": (lambda run, held: run.set_reward(held, math.nan), fb.InvalidRollout, "rewards[reward]", "nan", "1e+12"),
    "late reward is nan, unchecked": (of_nan, fb.InvalidRequest, "rewards['reward']", "nan", "finite"),
    "weight": (lambda run, held: run.configure("math", weight=-1.5), fb.InvalidRequest, "weight", "-1.5", "0"),
    "weight of a new one": (lambda run, held: run.load("new", [], weight=-1.5), fb.InvalidRequest, "weight", "-1.5", "0"),
    "other content": (lambda run, held: run.load("math", [{"id": "one", "q": 2}]), fb.Conflict, "tasks[0]", "one", "another payload"),
    "group's source": (lambda run, held: group(run, "nowhere", task={}), fb.ForebayError, "source", "nowhere"),
    "source of an evaluation": (lambda run, held: run.start_eval("nowhere", version=0), fb.ForebayError, "source", "nowhere"),
    "version of an evaluation": (lambda run, held: run.start_eval("held-out", version=7), fb.ForebayError, "version", "7", "0.0"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_is_wrong_is_refused_and_changes_nothing(run, held, name):
    ask, error, *texts = REQUESTS[name]
    with Refusal(run, error, *texts):
        ask(run, held)


# ---- steps


@pytest.fixture
def trained():
    """A daemon of its own with three groups that are ready."""
    with fb.start() as started:
        started.load("offline", [], group_size=2, max_lag=4)
        for number in range(3):
            group(started, "offline", task={"id": number})
        yield started


def test_what_is_taken_is_seen(trained):
    """The picture that the other tests compare sees a task, a lease, a rollout and a step."""
    seen = [picture(trained)]
    trained.load("math", [{"id": "one"}], group_size=2)
    seen.append(picture(trained))
    with trained.sync.actor("env", sources=["math"], slots=1) as actor:
        a = actor.next(TIMEOUT_S)
        seen.append(picture(trained))
        a.push(rollout(), reward=1.0)
        seen.append(picture(trained))
    with trained.trainer(**spec()) as t:
        next(t.steps()).commit()
        seen.append(picture(trained))
    for part, moments in {"tasks": (0, 1), "leases": (1, 2), "rollouts": (2, 3), "steps": (3, 4)}.items():
        assert seen[moments[0]][part] != seen[moments[1]][part], part


def spec(**more):
    return {"groups": 1, "token_budget": 64, "step_timeout": TIMEOUT_S, **more}


def test_commits_out_of_order_are_refused(trained):
    with trained.trainer(**spec()) as t:
        steps = t.steps()
        first, second = next(steps), next(steps)
        with Refusal(trained, fb.Conflict, "step", "2", "1"):
            second.commit()
        assert first.commit().number == 1
        assert second.commit().number == 2


def test_ranks_with_other_specs_are_refused_unless_they_replan(trained):
    with trained.trainer(**spec(mesh=fb.Mesh(dp=2, dp_rank=0))) as one:
        next(one.steps())
        with trained.trainer(**spec(mesh=fb.Mesh(dp=2, dp_rank=1), groups=2)) as two:
            with Refusal(trained, fb.ForebayError, "groups", "1", "2"):
                next(two.steps())
        with trained.trainer(**spec(mesh=fb.Mesh(dp=2, dp_rank=1), token_budget=128, replan=True)) as two:
            assert next(two.steps()).totals.groups == 1


SPECS = {
    "no groups": (dict(groups=0), ValueError, "groups"),
    "no budget": (dict(token_budget=0), fb.InvalidRequest, "token_budget", "0"),
    "too many groups": (dict(groups=2_000_000), fb.InvalidRequest, "groups", "2000000", "1000000"),
    "source": (dict(sources=["nowhere"]), fb.ForebayError, "sources", "nowhere"),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_that_is_wrong_is_refused(trained, name):
    wrong, error, *texts = SPECS[name]
    with Refusal(trained, error, *texts):
        with trained.trainer(**spec(**wrong)) as t:
            next(t.steps())


def test_versions_that_no_step_made_are_not_published(trained):
    with trained.trainer(**spec()) as t:
        next(t.steps()).commit()
        t.publish(1, where="/weights/1")
        for version, *texts in ((9, "0/9", "at most 0/1"), (fb.Version(1, branch=3), "3/1", "branch 0")):
            with Refusal(trained, fb.Conflict, "version: ", *texts):
                t.publish(version, where="/weights/9")


def test_rollouts_of_an_abandoned_branch_are_refused(trained):
    trained.load("math", [{"id": "one"}], group_size=2, order="static", max_lag=4)
    with trained.trainer(**spec()) as t:
        next(t.steps()).commit()
        t.publish(1, where="/weights/1")
        t.rewind(0)
        t.publish(0, where="/weights/0")
    old = [rollout(i, rewards={"reward": float(i)}, versions=[(0, 1, 0)]) for i in range(2)]
    with Refusal(trained, fb.Stale, "version 0.1", "abandoned branch", "current one is 1"):
        trained.push_group("offline", old, task={"id": "new"}, timeout=TIMEOUT_S)
    with trained.sync.actor("env", sources=["math"], slots=1) as actor:
        a = actor.next(TIMEOUT_S)
        assert a.version == fb.Version(0, branch=1)
        before = picture(trained)
        with pytest.raises(fb.Stale, match="version 0.1 is of an abandoned branch; the current one is 1"):
            a.push(old[0], reward=1.0, timeout=TIMEOUT_S)
        # Nothing of it is held, and the attempt is had once more.
        assert {name: picture(trained)[name] for name in ("rollouts", "steps")} == {n: before[n] for n in ("rollouts", "steps")}
        again = actor.next(TIMEOUT_S)
        assert (again.id, again.attempt) == (a.id, a.attempt)
        assert again.push(rollout(), reward=1.0) is fb.PushResult.ACCEPTED

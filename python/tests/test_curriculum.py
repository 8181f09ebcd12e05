"""Which tasks are drawn and how many attempts of them are made, and how ranks share what comes of it."""

import collections

import forebay as fb
import numpy as np
import pytest


def rollout(seed=0, tokens=20):
    rng = np.random.default_rng(seed)
    return fb.Rollout(rng.integers(0, 1000, tokens, np.uint32), prompt_tokens=5, logprobs=rng.standard_normal(tokens, np.float32))


def test_ranks_are_balanced_by_the_trainers_own_costs(run):
    run.load("math", [{"id": i} for i in range(3)], group_size=4, order="static", max_lag=100)
    with run.sync.actor("a", sources=["math"], slots=1) as actor:
        for count, a in enumerate(actor, 1):
            with a:
                a.push(rollout(count, tokens=10 + a.attempt), reward=a.attempt % 2)
            if count == 12:
                break
    with pytest.raises(fb.InvalidRequest, match=r"cost_table\[1\].cost: 1, must be finite, above 0 and at least 2"):
        with run.trainer(groups=3, cost_table=[(10, 2), (20, 1)]) as t:
            next(t.steps(1))
    with pytest.raises(ValueError, match="cost_table .* must hold pairs"):
        run.trainer(groups=3, cost_table=[7])

    def rank(dp_rank):
        return run.trainer(mesh=fb.Mesh(dp=2, dp_rank=dp_rank), groups=3, cost_table={13: 100, 12: 1})

    with rank(0) as first, rank(1) as second:
        lengths = [np.concatenate([np.diff(mb.cu_seqlens) for mb in next(t.steps(1))]).tolist() for t in (first, second)]
        assert sorted(map(len, lengths)) == [2, 10]
        assert sorted(map(sum, lengths))[0] == 26  # two of the long ones against all the rest


def test_learnable_order_prefers_what_is_neither_solved_nor_unsolved(run):
    run.load("math", [{"id": "solved"}, {"id": "half"}], group_size=2, order="learnable", retest=0.0, max_lag=100)
    with pytest.raises(fb.InvalidRequest, match="retest: 1.5, from 0 to 1"):
        run.configure("math", retest=1.5)
    drawn = {"solved": 0, "half": 0}
    with run.sync.actor("a", sources=["math"], slots=1) as actor:
        for a in actor:
            with a:
                name = a.task["id"]
                drawn[name] += 1
                a.push(rollout(sum(drawn.values())), reward=1 if name == "solved" else a.attempt % 2)
            if sum(drawn.values()) == 160:
                break
    # 4p(1-p) is 1 against 0.17 at last, so that about one in five is the solved one; as long as it is not known to be.
    assert drawn["half"] > 1.5 * drawn["solved"] > 0


def test_few_attempts_tell_whether_the_others_are_made(run):
    tasks = [{"id": i} for i in range(4)]
    with pytest.raises(fb.InvalidRequest, match="filters.screen_attempts: 8, from 2 to 7"):
        run.load("math", tasks, group_size=8, screen_attempts=8)
    run.load("math", tasks, group_size=8, screen_attempts=3, order="static", epochs=1, max_lag=100)
    made = collections.Counter()
    with run.sync.actor("a", sources=["math"], slots=1) as actor:
        for count, a in enumerate(actor, 1):
            with a:
                made[a.task["id"]] += 1
                mixed = a.task["id"] == 2
                a.push(rollout(count), reward=a.attempt % 2 if mixed else 1)
            if count == 3 + 3 + 8 + 3:
                break
    assert made == {0: 3, 1: 3, 2: 8, 3: 3}
    source = run.sources()["math"]
    assert source.groups_ready == 1 and source.dropped == {"filtered_equal": 9}

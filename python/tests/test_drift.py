"""How far the trainer is from the engines: what the package computes, and what the daemon makes of it."""

import asyncio
import math

import forebay as fb
import numpy as np
import pytest
import stand_in_torch as torch
from forebay import _drift
from forebay._micro_batch import MicroBatch
from forebay._messages import admin as admin_wire
from forebay._messages import drift as drift_wire
from forebay._messages import trainer as wire

ADMIN = "/forebay.v1.AdminService/"
GROUP = 8
TOKENS = 400
DRIFTED = "engine-3"


def micro_batch(lengths, versions, spans=None, engines=(), seed=0, padding=0, dtype="float32"):
    """One whose columns are random; `spans`: of each sequence [(offset, version, engine)]."""
    rng = np.random.default_rng(seed)
    count = sum(lengths)
    layout = wire.MicroBatchLayout(
        revision=1,
        cu_seqlens=[0, *np.cumsum(lengths).tolist()],
        padded_tokens=count + padding,
        versions=versions,
        engine_names=engines,
        sampled_counts=[len(of) for of in spans or ()],
        sampled_offsets=[offset for of in spans or () for offset, _, _ in of],
        sampled_versions=[version for of in spans or () for _, version, _ in of],
        sampled_engines=[engine for of in spans or () for _, _, engine in of],
    )
    logprobs = -rng.random(count + padding, np.float32)
    if dtype == "bfloat16":
        logprobs = (logprobs.view(np.uint32) >> 16).astype(np.uint16)
    mask = rng.integers(0, 2, count + padding, np.uint8)
    return MicroBatch(layout, {"logprobs": logprobs, "loss_mask": mask}, {"logprobs": dtype}, {}, 0, 0)


def plainly(mb, trainer, spans, train_version, predicting=False):
    """The same, token by token, as a dict of lists of d."""
    out = {}
    for s in range(len(mb)):
        begin, end = int(mb.cu_seqlens[s]), int(mb.cu_seqlens[s + 1])
        for row in range(begin, end - predicting):
            if not mb.loss_mask[row]:
                continue
            token = row + predicting
            _, version, engine = [span for span in spans[s] if span[0] <= token - begin][-1]
            d = float(trainer[row]) - float(mb.logprobs[token])
            out.setdefault((s, max(train_version - version, 0), engine), []).append(d)
    return out


def check(parts, expected, engines):
    assert [(p.sequence, p.lag, p.engine) for p in parts] == sorted(
        (s, lag, engines[engine]) for s, lag, engine in expected
    )
    for part in parts:
        d = expected[part.sequence, part.lag, engines.index(part.engine)]
        assert part.tokens == len(d) and part.non_finite == part.clamped == 0
        assert part.k1 == pytest.approx(-sum(d))
        assert part.k2 == pytest.approx(sum(x * x / 2 for x in d))
        assert part.k3 == pytest.approx(sum(math.exp(x) - 1 - x for x in d))
        assert part.max_abs == pytest.approx(max(map(abs, d)))


SPANS = [[(0, 5, 0)], [(0, 3, 1), (10, 4, 1), (60, 5, 0)], [(0, 6, 0)]]


@pytest.mark.parametrize("predicting", (False, True))
@pytest.mark.parametrize("padding", (0, 7))
def test_sums_are_those_of_a_plain_loop(predicting, padding):
    mb = micro_batch([50, 100, 1], [5, 3, 6], SPANS, ["a", "b"], padding=padding)
    mb.loss_mask[150] = 1
    rng = np.random.default_rng(1)
    trainer = mb.logprobs + rng.normal(0, 0.3, len(mb.logprobs)).astype(np.float32)
    reference = mb.logprobs - rng.random(len(mb.logprobs), np.float32)
    engine, against = _drift.drift_parts(mb, trainer, reference, predicting, 5)
    check(engine, plainly(mb, trainer, SPANS, 5, int(predicting)), ["a", "b"])
    expected = {}
    for s in range(3):
        rows = np.arange(mb.cu_seqlens[s], mb.cu_seqlens[s + 1] - predicting)
        rows = rows[mb.loss_mask[rows] != 0]
        if len(rows):
            expected[s, 0, 0] = [float(reference[row]) - float(trainer[row]) for row in rows]
    check(against, expected, [""])
    short = _drift.drift_parts(mb, trainer[: mb.num_tokens], reference[: mb.num_tokens], predicting, 5)
    assert short == (engine, against)


def test_without_spans_a_sequence_is_of_its_version_and_of_no_engine():
    mb = micro_batch([5, 6], [2, 4])
    mb.loss_mask[:] = 1
    parts, none = _drift.drift_parts(mb, mb.logprobs, None, False, 4)
    assert [(p.sequence, p.lag, p.engine, p.tokens, p.k3) for p in parts] == [(0, 2, "", 5, 0), (1, 0, "", 6, 0)]
    assert none == []


def test_what_is_not_finite_or_far_off_is_counted_apart():
    mb = micro_batch([6], [0])
    mb.loss_mask[:] = [1, 1, 1, 1, 1, 0]
    mb.logprobs[:] = [-1, -1, -np.inf, -100, 0, np.nan]
    trainer = np.array([np.nan, -1.5, -1, 0, -100, 0], np.float32)
    ((part,), _) = _drift.drift_parts(mb, trainer, None, False, 0)
    assert (part.tokens, part.non_finite, part.clamped, part.max_abs) == (3, 2, 2, 100)
    assert part.k1 == pytest.approx(0.5 - 20 + 20)
    assert part.k2 == pytest.approx(0.125 + 200 + 200)
    assert part.k3 == pytest.approx(math.exp(-0.5) - 0.5 + math.exp(20) - 21 + math.exp(-20) + 19)


def test_arrays_of_torch_and_of_half_the_width_will_do():
    mb = micro_batch([40], [0], dtype="bfloat16")
    exact = (mb.logprobs.astype(np.uint32) << 16).view(np.float32)
    parts, _ = _drift.drift_parts(mb, exact, None, False, 0)
    assert parts[0].tokens == np.count_nonzero(mb.loss_mask) and parts[0].k2 == 0
    tensor = torch.Tensor(exact, torch.float32)
    assert _drift.drift_parts(mb, tensor, None, False, 0)[0] == parts
    for wrong in (exact[:-1], exact.reshape(1, -1)):
        with pytest.raises(ValueError, match="logprobs has shape"):
            _drift.drift_parts(mb, wrong, None, False, 0)
    with pytest.raises(ValueError, match="reference has shape"):
        _drift.drift_parts(mb, exact, exact[:3], False, 0)
    mb.columns.pop("logprobs")
    with pytest.raises(KeyError, match="logprobs"):
        _drift.drift_parts(mb, exact, None, False, 0)


# ---- with a daemon


def drift_of(run):
    return run.sync._connection.call(ADMIN + "GetDrift", drift_wire.GetDriftRequest(), drift_wire.GetDriftResponse)


def fill(run, groups, engine_of):
    run.load("math", [{"id": f"task-{i}"} for i in range(100)], group_size=GROUP, max_lag=100)
    count = 0
    with run.sync.actor("env-1", sources=["math"], engine="engine-0") as actor:
        for a in actor:
            with a:
                rng = np.random.default_rng(count)
                logprobs = -rng.random(TOKENS, np.float32)
                tokens = rng.integers(0, 1000, TOKENS, np.uint32)
                a.push(
                    fb.Rollout(tokens, prompt_tokens=50, logprobs=logprobs, **engine_of(count)), reward=a.attempt % 2
                )
            count += 1
            if count == groups * GROUP:
                break


def by_engine(number):
    """A quarter of the rollouts each; the actor's own engine is not named."""
    return {"engine": f"engine-{number % 4}"} if number % 4 else {}


def trainers_logprobs(mb, rng):
    """Near to the engines', but for one of them."""
    out = mb.logprobs + rng.normal(0, 0.02, len(mb.logprobs)).astype(np.float32)
    names = mb._layout.engine_names
    for s in range(len(mb)):
        (engine,) = mb._layout.sampled_engines[s : s + 1]
        if names[engine] == DRIFTED:
            out[mb.cu_seqlens[s] : mb.cu_seqlens[s + 1]] -= 0.5
    return out


def test_an_engine_that_drifted_is_named(run):
    fill(run, 4, by_engine)
    rng = np.random.default_rng(0)
    expected = {f"engine-{i}": [] for i in range(4)}
    with run.trainer(groups=4, token_budget=4 * TOKENS) as t:
        step = next(t.steps())
        for mb in step:
            logprobs = trainers_logprobs(mb, rng)
            for s in range(len(mb)):
                rows = slice(mb.cu_seqlens[s] + 50, mb.cu_seqlens[s + 1])
                name = mb._layout.engine_names[mb._layout.sampled_engines[s]]
                expected[name] += (logprobs[rows].astype(float) - mb.logprobs[rows].astype(float)).tolist()
            assert step.report(mb, logprobs, reference=logprobs - np.float32(0.1))
            assert not step.report(mb, logprobs)  # again, as a peer would
        before = drift_of(run)
        step.commit()
    drift = drift_of(run)
    assert (drift.reports, drift.repeated, drift.steps) == (len(step), len(step), 1)
    assert before.all.tokens == drift.all.tokens == drift.mismatch.tokens == 4 * GROUP * (TOKENS - 50)
    assert [engine.name for engine in drift.engines] == sorted(expected)
    for engine in drift.engines:
        d = np.array(expected[engine.name])
        assert engine.all.tokens == len(d)
        assert engine.all.k1 == pytest.approx(-d.mean())
        assert engine.all.k2 == pytest.approx((d * d / 2).mean())
        assert engine.all.k3 == pytest.approx((np.expm1(d) - d).mean())
        assert engine.all.max_abs == pytest.approx(np.abs(d).max())
    assert [row.name for row in drift.sources] == ["math"]
    assert [row.name for row in drift.lengths] == ["257-512"]
    assert [row.name for row in drift.lags] == ["0"]
    assert drift.reference.tokens == drift.all.tokens
    assert drift.reference.k1 == pytest.approx(0.1, rel=1e-5)
    (outlier,) = drift.outliers
    assert (outlier.engine, outlier.lag, outlier.unusable) == (DRIFTED, "0", False)
    assert outlier.value > outlier.limit > outlier.median
    status = run.status()
    assert status.verdict == "degraded"
    assert any(f"'{DRIFTED}' has a mean k3" in reason for reason in status.reasons)


def test_lags_are_of_the_tokens(run):
    runs = [(0, 0), (200, 1)]
    fill_versions = {"versions": runs, "turns": [fb.Turn(50, 100, engine="other")]}
    run.load("math", [{"id": "a"}, {"id": "b"}], group_size=2, max_lag=100)

    def push_all(versions):
        with run.sync.actor("env-1", sources=["math"]) as actor:
            for count, a in enumerate(actor, 1):
                with a:
                    tokens = np.full(TOKENS, 7, np.uint32)
                    logprobs = np.full(TOKENS, -1, np.float32)
                    a.push(
                        fb.Rollout(tokens, prompt_tokens=50, logprobs=logprobs, **versions), reward=a.attempt % 2
                    )
                if count == 2:
                    break

    push_all({})
    with run.trainer(groups=1) as t:
        steps = t.steps()
        step = next(steps)
        version = step.commit()
        t.publish(version, where="x")
        assert version.number == 1
        push_all(fill_versions)
        step = next(steps)
        for mb in step:
            assert step.report(mb, mb.logprobs)
        step.commit()
    drift = drift_of(run)
    assert {lag.name: lag.all.tokens for lag in drift.lags} == {"0": 2 * 200, "1": 2 * 150}
    assert {e.name: e.all.tokens for e in drift.engines} == {"env-1": 2 * 250, "other": 2 * 100}
    by_name = {e.name: e for e in drift.engines}
    assert by_name["other"].mismatch.tokens == 0 and by_name["env-1"].mismatch.tokens == 2 * 200


def test_sums_of_ones_own_are_checked(run):
    fill(run, 1, by_engine)
    with run.trainer(groups=1) as t:
        step = next(t.steps())
        (mb,) = list(step)
        good = fb.DriftPart(0, 10, 0.5, 0.1, 0.1, 0.3, engine="mine")
        for change, message in (
            ({"sequence": GROUP}, f"engine.sequences.0.: {GROUP}, less than {GROUP}"),
            ({"lag": 1}, "engine.lags.0.: 1, less than 1"),
            ({"tokens": TOKENS}, "engine.tokens.0.: with it sequence 0 has 400, its loss tokens are 350"),
            ({"k3": -1.0}, "engine.k3.0."),
            ({"k2": math.nan}, "engine.k2.0."),
            ({"engine": "x" * 257}, "engine_names.0.: 257 bytes, at most 256"),
        ):
            with pytest.raises(fb.InvalidRequest, match=message):
                step.report_parts(mb, [good._replace(**change)])
        with pytest.raises(fb.InvalidRequest, match="65537"):
            step.report_parts(mb, [good] * 65_537)
        assert drift_of(run).reports == 0
        assert step.report_parts(mb, [good], [good._replace(engine="")])
        assert not step.report_parts(mb, [good])
        assert not step.report_parts(mb, [])
        drift = drift_of(run)
        assert (drift.all.tokens, drift.reference.tokens, drift.repeated) == (10, 10, 1)
        step.commit()
        assert not step.report_parts(mb, [good])  # counted, and the answer was lost
        with pytest.raises(fb.Conflict, match="is not open"):
            mb.index = 7
            step.report_parts(mb, [good])


def test_steps_are_held_until_that_is_lifted(run):
    fill(run, 3, by_engine)
    change = admin_wire.SetConfigRequest(values={"drift.hold_k3": "0.2"})
    run.sync._connection.call(ADMIN + "SetConfig", change, admin_wire.SetConfigResponse)
    with run.trainer(groups=1, step_timeout=1) as t:
        step = next(t.steps())
        for mb in step:
            step.report(mb, mb.logprobs - np.float32(1))  # k3 = e^-1
        step.commit()
        with pytest.raises(fb.DeadlineExceeded, match="held since step 1"):
            next(t.steps())
    status = run.status()
    assert status.verdict == "degraded" and any("buffer-ctl kl --lift" in reason for reason in status.reasons)
    hold = drift_of(run).hold
    assert (hold.step, round(hold.k3, 4), hold.limit) == (1, 0.3679, 0.2)

    def lift():
        request = drift_wire.LiftHoldRequest(who="test", why="it was meant")
        return run.sync._connection.call(ADMIN + "LiftHold", request, drift_wire.LiftHoldResponse).lifted

    assert lift() and not lift()
    assert drift_of(run).hold is None
    with run.trainer(groups=1) as t:
        next(t.steps()).commit()


def test_drift_outlives_the_daemon(tmp_path):
    def reported(run):
        drift = drift_of(run)
        return drift.reports, drift.steps, [(e.name, e.all.tokens, e.all.k3) for e in drift.engines]

    directory = str(tmp_path / "run")
    with fb.start(storage__directory=directory) as run:
        fill(run, 1, by_engine)
        with run.trainer(groups=1) as t:
            step = next(t.steps())
            for mb in step:
                step.report(mb, mb.logprobs - np.float32(0.5))
            step.commit()
        before = reported(run)
        assert before[0] > 0 and len(before[2]) == 4
    with fb.start(storage__directory=directory) as run:
        assert reported(run) == before


def test_an_asynchronous_trainer_reports_too(run):
    fill(run, 1, by_engine)

    async def train():
        async with run.aio.trainer(groups=1) as t:
            async for step in t.steps(1):
                async for mb in step:
                    assert await step.report(mb, mb.logprobs)
                    assert not await step.report_parts(mb, [fb.DriftPart(0, 1, 0.0, 0.0, 0.0, 0.0)])
                await step.commit()

    asyncio.run(train())
    assert drift_of(run).steps == 1

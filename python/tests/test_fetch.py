"""Fetching and opening steps against a scripted daemon: broken streams, refusals, budgets."""

import asyncio
import pickle
import sys
import threading
import time

import forebay as fb
import grpc
import numpy as np
import pytest
import stand_in_torch as torch
from forebay import _connection
from forebay._messages import trainer as wire
from forebay._messages import types
from forebay._micro_batch import PUT_BYTES_MAX
from scripted import MESSAGE_BYTES_MAX

TOKENS = 1000


def frames_of(request, pieces=3):
    """A micro-batch whose tokens say which one it is, in several frames."""
    tokens = np.full(TOKENS, 10 * request.mini_batch + request.micro_batch, np.uint32)
    mask = np.ones(TOKENS, np.uint8)
    layout = wire.MicroBatchLayout(
        revision=request.revision,
        cu_seqlens=[0, 400, TOKENS],
        padded_tokens=TOKENS,
        max_seqlen=600,
        columns=[
            wire.FetchedColumn(name="tokens", dtype=types.DTYPE_U32, domain=1, bytes=tokens.nbytes),
            wire.FetchedColumn(name="empty", dtype=types.DTYPE_F32, domain=4, bytes=0),
            wire.FetchedColumn(name="loss_mask", dtype=types.DTYPE_U8, domain=1, bytes=mask.nbytes),
        ],
        rewards=[0.0, 1.0],
        advantages=[-1.0, 1.0],
    )
    data = tokens.tobytes() + mask.tobytes()
    cuts = [len(data) * i // pieces for i in range(pieces + 1)]
    frames = [wire.FetchFrame(data=data[a:b]) for a, b in zip(cuts, cuts[1:])]
    frames[0].layout = layout
    frames[-1].last = True
    return frames


@pytest.fixture
def daemon(scripted):
    scripted.micro_batch = frames_of
    scripted.answers["AttachTrainer"] = [wire.AttachTrainerResponse(generation=4, next_step=1)]
    scripted.answers["OpenStep"] = [
        wire.OpenStepResponse(
            state=wire.STEP_STATE_SEALED,
            revision=2,
            mini_batches=[wire.MiniBatchPlan(micro_batches_per_rank=4), wire.MiniBatchPlan(micro_batches_per_rank=3)],
        )
    ]
    return scripted


def numbers(micro_batches):
    return [int(mb.tokens[0]) for mb in micro_batches]


ALL = [0, 1, 2, 3, 10, 11, 12]


def test_micro_batches_come_in_order_and_again(daemon):
    with daemon.connect().trainer(groups=1) as t:
        step = next(t.steps())
        assert numbers(step) == ALL
        assert [numbers(mini) for mini in step.mini_batches()] == [ALL[:4], ALL[4:]]
        mini = step.mini_batches()[1]
        assert numbers(mini) == numbers(mini) == ALL[4:]
        first = next(iter(step))
        assert first.position_ids.tolist() == [*range(400), *range(600)]
        assert first["empty"].size == 0
        with pytest.raises(KeyError, match="values"):
            first["values"]
        with pytest.raises(AttributeError, match="values"):
            first.values
    assert {(r.generation, r.step, r.revision) for r in daemon.fetched} == {(4, 1, 2)}


def test_memory_is_used_again_only_when_nobody_holds_it(daemon):
    with daemon.connect().trainer(groups=1) as t:
        step = next(t.steps())
        kept = [mb.tokens[10:20] for mb in step]  # views alone, the micro-batches are gone
        for _ in range(5):
            assert numbers(step) == ALL
        assert [int(view[0]) for view in kept] == ALL
        places = {mb.tokens.__array_interface__["data"][0] for _ in range(5) for mb in step}
        assert len(places) < 20  # of 35


def test_a_stream_that_breaks_is_opened_again_and_nothing_is_lost(daemon):
    breaks = iter([1, 4])

    def micro_batch(request):
        frames = frames_of(request)
        if len(daemon.fetched) in breaks_at:
            breaks_at.discard(len(daemon.fetched))
            return [frames[0], grpc.StatusCode.UNAVAILABLE]
        return frames

    breaks_at = set(breaks)
    daemon.micro_batch = micro_batch
    with daemon.connect().trainer(groups=1) as t:
        step = next(t.steps())
        batches = list(step)
    assert numbers(batches) == ALL
    assert all((mb.tokens == mb.tokens[0]).all() for mb in batches)
    assert not breaks_at


def test_fetching_goes_on_after_a_stream_broke_while_nothing_was_asked_for(daemon):
    def micro_batch(request):
        return [*frames_of(request), *([grpc.StatusCode.UNAVAILABLE] if len(daemon.fetched) == 1 else [])]

    daemon.micro_batch = micro_batch
    with daemon.connect().trainer(groups=1, prefetch_bytes=TOKENS * 5 + 1, fetch_timeout=20) as t:
        taken = iter(next(t.steps()))  # the first fills the budget: the next is asked for when it is taken
        fetcher = t._fetcher
        deadline = time.monotonic() + 20
        while not (fetcher.condition._waiters and not fetcher._asked and daemon.fetched):
            assert time.monotonic() < deadline
            time.sleep(0.01)  # poll: until the thread has nothing to do
        assert numbers(taken) == ALL


def test_a_refused_micro_batch_raises_and_the_stream_goes_on(daemon):
    def micro_batch(request):
        if request.micro_batch == 1 and "values" in request.columns:
            return [wire.FetchFrame(error_code=3, error_message="columns: no rollout has 'values'", last=True)]
        return frames_of(request)

    daemon.micro_batch = micro_batch
    with daemon.connect().trainer(groups=1, columns=["tokens", "values"]) as t:
        step = next(t.steps())
        taken = iter(step)
        assert numbers([next(taken)]) == [0]
        with pytest.raises(fb.InvalidRequest, match="values"):
            next(taken)
        t.columns = ["tokens"]
        assert numbers(step) == ALL


def test_a_step_that_lost_bytes_comes_again_under_its_new_revision(daemon):
    def lossy(request):
        if request.revision == 2 and request.micro_batch == 2:
            code = grpc.StatusCode.DATA_LOSS.value[0]
            return [wire.FetchFrame(last=True, error_code=code, error_message="step 1: rollout 0x5: gone")]
        return frames_of(request)

    daemon.micro_batch = lossy
    (first,) = daemon.answers["OpenStep"]
    again = wire.OpenStepResponse.decode(first.encode())
    again.revision = 3
    daemon.answers["OpenStep"].append(again)
    seen = []
    with daemon.connect().trainer(groups=1) as t:
        for step in t.steps(1):
            try:
                assert numbers(step) == ALL
            except fb.DataLost as error:
                assert "rollout 0x5" in str(error) and step.lost
            seen.append((step.number, step.revision))
    assert seen == [(1, 2), (1, 3)]


def test_an_answer_that_contradicts_its_layout_is_refused(daemon):
    def micro_batch(request):
        frames = frames_of(request)
        frames[1].data += b"more"
        return frames

    daemon.micro_batch = micro_batch
    with daemon.connect().trainer(groups=1) as t:
        with pytest.raises(fb.InternalError, match="bytes more"):
            list(next(t.steps()))


def test_an_answer_that_is_no_message_is_refused(daemon):
    class Garbage(wire.FetchFrame):
        def encode(self):
            return b"\xff"

    daemon.micro_batch = lambda request: [Garbage()]
    with daemon.connect().trainer(groups=1, fetch_timeout=20) as t:
        with pytest.raises(fb.InternalError, match="cannot be read"):
            list(next(t.steps()))


def test_a_micro_batch_can_be_pickled_and_changed(daemon):
    with daemon.connect().trainer(groups=1) as t:
        mb = pickle.loads(pickle.dumps(next(iter(next(t.steps())))))
    assert mb.rewards.tolist() == [0.0, 1.0] and mb.rewards is mb.rewards
    assert mb.cu_seqlens.dtype == np.int32 and len(mb) == 2 and mb.sources == []
    mb.advantages = mb.advantages * 2
    assert mb.advantages.tolist() == [-2.0, 2.0]


def test_no_more_is_fetched_ahead_than_the_budget(daemon):
    one = TOKENS * 5
    with daemon.connect().trainer(groups=1, prefetch_bytes=2 * one) as t:
        step = next(t.steps())
        taken = iter(step)
        next(taken)
        fetch = step._ahead[1]
        seen = []
        for _ in range(4):
            with fetch.condition:
                fetch.condition.wait_for(lambda: fetch.received == fetch.asked, 10)
                seen.append(fetch.held_bytes)
            next(taken)
        assert max(seen) <= 2 * one and len(daemon.fetched) < 7


def test_a_fetch_has_a_deadline_and_can_be_cancelled(daemon):
    release = threading.Event()

    def micro_batch(request):
        release.wait(20)
        return frames_of(request)

    daemon.micro_batch = micro_batch

    async def main():
        async with daemon.connect().aio.trainer(groups=1) as t:
            async for step in t.steps(1):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(step.__aiter__().__anext__(), 0.2)
                t.sync.fetch_timeout = 0.2
                with pytest.raises(fb.DeadlineExceeded, match="micro-batch 0 of mini-batch 0 of step 1"):
                    await asyncio.wait_for(step.__aiter__().__anext__(), 10)
        release.set()

    asyncio.run(main())


def test_put_sends_rows_without_padding_and_fetches_them_by_name(daemon):
    with daemon.connect().trainer(groups=1) as t:
        step = next(t.steps())
        for mb in step:
            step.put(mb, old_logprobs=np.arange(TOKENS, dtype=np.float64), flags=np.ones((TOKENS, 2), np.uint8))
            assert mb.old_logprobs.dtype == np.float32 and mb.old_logprobs[5] == 5
            with pytest.raises(ValueError, match="7 rows"):
                step.put(mb, old_logprobs=np.zeros(7))
        daemon.fetched.clear()
        list(step.mini_batches()[0])
    (first, *_) = daemon.requests("PutColumns")
    assert [(c.name, c.dtype, tuple(c.inner), c.bytes) for c in first.columns] == [
        ("old_logprobs", types.DTYPE_F32, (), 4 * TOKENS),
        ("flags", types.DTYPE_U8, (2,), 2 * TOKENS),
    ]
    assert first.data == np.arange(TOKENS, dtype=np.float32).tobytes() + b"\x01" * 2 * TOKENS
    assert list(daemon.fetched[0].columns) == ["tokens", "loss_mask", "logprobs", "old_logprobs", "flags"]


def test_columns_that_one_message_cannot_hold_go_in_several(daemon):
    wide = PUT_BYTES_MAX // (4 * TOKENS)
    with daemon.connect().trainer(groups=1) as t:
        step = next(t.steps())
        mb = next(iter(step))
        columns = {name: np.full((TOKENS, wide), number, np.float32) for number, name in enumerate("abc")}
        step.put(mb, flag=np.ones(TOKENS, np.uint8), **columns)
        assert [mb[name][0, 0] for name in "abc"] == [0, 1, 2]
    requests = daemon.requests("PutColumns")
    assert [[c.name for c in r.columns] for r in requests] == [["flag", "a"], ["b"], ["c"]]
    assert all(len(r.encode()) <= MESSAGE_BYTES_MAX for r in requests)
    assert [len(r.data) for r in requests[1:]] == [4 * TOKENS * wide] * 2


def test_a_column_that_no_message_can_hold_is_refused_by_name_and_none_is_written(daemon):
    with daemon.connect().trainer(groups=1) as t:
        step = next(t.steps())
        mb = next(iter(step))
        with pytest.raises(fb.InvalidRequest, match=r"states: has 20000000 bytes \(1000 tokens of 20000\), at most 16711680"):
            step.put(mb, flag=np.ones(TOKENS, np.uint8), states=np.zeros((TOKENS, 5_000), np.float32))
        assert "flag" not in mb.columns
    assert daemon.requests("PutColumns") == []


def test_a_request_that_no_daemon_takes_is_refused_before_it_is_sent(daemon):
    run = daemon.connect()
    with pytest.raises(fb.InvalidRequest, match="AttachTrainer: the request has 16777[0-9]+ bytes, at most 16777216"):
        run.trainer(groups=1, name="x" * MESSAGE_BYTES_MAX).__enter__()
    assert daemon.requests("AttachTrainer") == []


def test_tensors_have_the_types_that_torch_knows(daemon, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch)
    with daemon.connect().trainer(groups=1) as t:
        step = next(t.steps())
        mb = next(iter(step))
        tensors = mb.torch("cuda:1")
        assert tensors.tokens.dtype is torch.int64 and tensors.loss_mask.dtype is torch.uint8
        assert tensors.tokens.device == "cuda:1" and tensors.tokens.tolist() == mb.tokens.tolist()
        assert tensors.cu_seqlens.tolist() == [0, 400, TOKENS]
        assert tensors.advantages.dtype is torch.float32
        assert tensors.position_ids.shape == (TOKENS,)
        step.put(mb, old_logprobs=torch.zeros(TOKENS).to("cuda:1"), bits=torch.zeros(TOKENS, dtype=torch.bfloat16))
        assert mb["old_logprobs"].dtype == np.float32
        assert mb.torch("cpu").columns["bits"].dtype is torch.bfloat16


def test_an_exception_aborts_the_open_steps(daemon):
    with pytest.raises(ZeroDivisionError):
        with daemon.connect().trainer(groups=1) as t:
            next(t.steps())
            raise ZeroDivisionError("of the model")
    (abort,) = daemon.requests("AbortStep")
    assert (abort.step, abort.generation) == (1, 4)
    assert abort.reason == "ZeroDivisionError: of the model"


def test_calls_are_repeated_while_the_daemon_is_away_and_no_longer(daemon):
    away = (grpc.StatusCode.UNAVAILABLE, "starting")
    daemon.answers["CommitStep"] = [away, away, wire.CommitStepResponse(already_committed=True)]
    daemon.answers["AbortStep"] = [(grpc.StatusCode.FAILED_PRECONDITION, "step: 1 is committed")]
    run = daemon.connect(timeout=5)
    with run.trainer(groups=1) as t:
        step = next(t.steps())
        step.commit()
        assert len(daemon.requests("CommitStep")) == 3
    daemon.answers["GetStatus"] = [away] * 1000
    with pytest.raises(fb.Unavailable, match="starting"):
        daemon.connect(timeout=2).status()
    daemon.answers["GetStatus"] = [(grpc.StatusCode.ABORTED, "x"), (grpc.StatusCode.RESOURCE_EXHAUSTED, "calls", 10)]
    with pytest.raises(fb.Conflict):
        run.status()
    assert run.status().verdict == "unknown"  # after the second try


def test_a_limit_without_a_time_to_ask_again_is_told_at_once(daemon):
    full = (grpc.StatusCode.RESOURCE_EXHAUSTED, "the source has 2147483648 tasks")
    daemon.answers["GetStatus"] = [full] * 2
    run = daemon.connect()
    with pytest.raises(fb.Overloaded, match="2147483648 tasks"):
        run.status()
    assert len(daemon.requests("GetStatus")) == 1


def test_a_fetch_that_a_limit_forbids_is_told_at_once(daemon):
    daemon.micro_batch = lambda request: [grpc.StatusCode.RESOURCE_EXHAUSTED]
    with daemon.connect().trainer(groups=1) as t:
        with pytest.raises(fb.Overloaded, match="going away"):
            next(iter(next(t.steps())))
    assert len(daemon.fetched) == 1


def test_a_step_that_is_refused_at_once_is_asked_for_with_pauses(daemon, monkeypatch):
    pauses = []
    monkeypatch.setattr(_connection.Scope, "wait", lambda scope, seconds: pauses.append(seconds) and False)
    full = (grpc.StatusCode.RESOURCE_EXHAUSTED, "messages that shard 0 has not acknowledged")
    daemon.answers["OpenStep"][:0] = [full] * 3
    with daemon.connect().trainer(groups=1) as t:
        next(t.steps())
    assert len(daemon.requests("OpenStep")) == 4
    assert len([seconds for seconds in pauses if seconds > 0]) >= 3

"""Checkpoints and rewinds, as a trainer writes them."""

import forebay as fb
import grpc
import pytest
from forebay._messages import trainer
from forebay._messages.types import PolicyVersion
from test_daemon import fill

ATTACHED = dict(next_step=1, train_version=PolicyVersion())


@pytest.fixture(params=["auto", "threads"])
def kept(request, tmp_path):
    """A daemon that keeps the rollouts of committed steps, with either way to its disk."""
    with fb.start(storage__directory=str(tmp_path / "run"), storage__io=request.param) as started:
        yield started


def content(step):
    return [(mb.tokens.tobytes(), mb.advantages.tobytes()) for mb in step]


def test_a_checkpoint_is_the_end_of_all_rewinds_below_it(kept):
    fill(kept, 3)
    with kept.trainer(groups=1, token_budget=64) as t:
        for step in t.steps(3):
            step.commit()
            t.publish(step.next_version, where="weights")
        assert kept.status().retained_bytes > 0
        assert t.checkpoint(1) == 1
        assert t.checkpoint() == 3
        assert t.checkpoint(2) == 3
    assert kept.status().checkpoint == 3
    assert kept.status().retained_bytes == 0
    with kept.trainer(groups=1, token_budget=64) as t:
        with pytest.raises(fb.Conflict, match="at least 3, which the last checkpoint covers"):
            t.rewind(1)


def test_the_loop_goes_on_after_the_step_that_was_gone_back_to(kept):
    fill(kept, 4)
    seen, numbers = {}, []
    with kept.trainer(groups=1, token_budget=64, ahead=1) as t:
        for step in t.steps():
            numbers.append(step.number)
            seen.setdefault(step.number, []).append(content(step))
            step.commit()
            t.publish(step.next_version, where="weights")
            if len(numbers) == 3:
                assert t.checkpoint(1) == 1
                version = t.rewind(1, replay=True, reason="a look at what went wrong")
                assert (version.branch, version.number) == (1, 1)
                t.publish(1, where="weights")  # a number is of the current branch
            if len(numbers) == 5:
                break
    assert numbers == [1, 2, 3, 2, 3]
    assert seen[2][0] == seen[2][1] and seen[3][0] == seen[3][1]
    status = kept.status()
    assert (status.next_step, status.checkpoint, status.published.branch) == (4, 1, 1)
    with kept.trainer(groups=1, token_budget=64) as t:
        t.rewind(2)
        assert t.next_step == 3
        with pytest.raises(fb.Conflict, match="is not committed; the last one that is: 2"):
            t.rewind(5)
    assert kept.sources()["math"].dropped["rewound"] > 0


def test_a_step_that_was_taken_back_is_not_read_on(kept):
    fill(kept, 2)
    with kept.trainer(groups=1, token_budget=64) as t:
        steps = t.steps()
        next(steps).commit()
        t.publish(1, where="weights")
        second = next(steps)
        t.rewind(1)
        with pytest.raises(fb.Conflict, match="is aborted"):
            list(second)


def test_another_rank_has_done_it_already(scripted):
    scripted.answers["AttachTrainer"] = [
        trainer.AttachTrainerResponse(generation=1, **ATTACHED),
        trainer.AttachTrainerResponse(generation=2, next_step=8, train_version=PolicyVersion(branch=1, number=7)),
    ]
    scripted.answers["Rewind"] = [(grpc.StatusCode.ABORTED, "generation 1 is over; 2 began")]
    with scripted.connect().trainer(groups=1) as t:
        assert t.rewind(7) == fb.Version(7, branch=1)
        assert (t.generation, t.next_step) == (2, 8)


def test_a_process_whose_place_is_taken_hears_of_it(scripted):
    scripted.answers["AttachTrainer"] = [
        trainer.AttachTrainerResponse(generation=1, **ATTACHED),
        (grpc.StatusCode.ABORTED, "process 5 lost its place to another; generation 2 began"),
    ]
    scripted.answers["Rewind"] = [(grpc.StatusCode.ABORTED, "generation 1 is over; 2 began")]
    with scripted.connect().trainer(groups=1) as t:
        with pytest.raises(fb.FencedTrainer, match="lost its place"):
            t.rewind(7)


def test_a_repeated_call_carries_the_same_request(scripted):
    scripted.answers["AttachTrainer"] = [trainer.AttachTrainerResponse(generation=1, **ATTACHED)] * 2
    scripted.answers["Rewind"] = [(grpc.StatusCode.UNAVAILABLE, "going away")]
    with scripted.connect().trainer(groups=1) as t:
        t.rewind(0)
    first, second = scripted.requests("Rewind")
    assert first.request_id == second.request_id != 0
    assert (first.generation, first.mode) == (1, trainer.REWIND_MODE_FRESH)

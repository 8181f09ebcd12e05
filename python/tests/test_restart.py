"""A daemon that goes away and comes back: what waits for it goes on, and no error reaches the user."""

import os
import signal
import threading
import time

import forebay as fb
import grpc
import numpy as np
import pytest
from forebay import _daemon
from forebay._messages import actor, admin, trainer

# No repetition within the call; what asks again is the layer above.
TIME_IS_OVER = (grpc.StatusCode.DEADLINE_EXCEEDED, "the daemon does not answer")


def rollout(seed):
    rng = np.random.default_rng(seed)
    return fb.Rollout(rng.integers(0, 1000, 50, np.uint32), prompt_tokens=5, logprobs=np.ones(50, np.float32))


def test_a_request_for_assignments_keeps_its_number_until_it_is_answered(scripted):
    scripted.answers["Acquire"] = [TIME_IS_OVER, TIME_IS_OVER]
    scripted.assign(1)
    with scripted.connect().sync.actor("test") as it:
        with it.next(timeout=20) as a:
            a.push(rollout(1), reward=1.0)
        scripted.wait(lambda: len([1 for name, _ in scripted.calls if name == "Acquire"]) >= 4)
    numbers = [request.request_id for request in scripted.requests("Acquire")]
    assert numbers[:4] == [1, 1, 1, 2]


def test_a_step_is_waited_for_longer_than_one_call_takes(scripted):
    sealed = trainer.OpenStepResponse(state=trainer.STEP_STATE_SEALED, revision=1)
    scripted.answers["AttachTrainer"] = [trainer.AttachTrainerResponse(generation=1, next_step=1)]
    scripted.answers["OpenStep"] = [TIME_IS_OVER, TIME_IS_OVER, sealed]
    with scripted.connect().trainer(groups=1) as t:
        for step in t.steps(1):
            step.commit()
    assert len(scripted.requests("OpenStep")) == 3


def test_a_step_that_does_not_come_within_its_time_says_so(scripted):
    scripted.answers["AttachTrainer"] = [trainer.AttachTrainerResponse(generation=1, next_step=1)]
    scripted.answers["OpenStep"] = [TIME_IS_OVER]
    with scripted.connect().trainer(groups=1, step_timeout=0.0) as t:
        with pytest.raises(fb.DeadlineExceeded, match="does not answer"):
            next(t.steps(1))


def test_leaving_the_trainer_ends_a_wait_for_a_step_on_another_thread(scripted):
    scripted.answers["AttachTrainer"] = [trainer.AttachTrainerResponse(generation=1, next_step=1)]
    scripted.answers["OpenStep"] = [trainer.OpenStepResponse(state=trainer.STEP_STATE_OPEN)] * 100_000
    raised = []

    def steps():
        try:
            next(t.steps())
        except fb.ForebayError as error:
            raised.append(error)

    with scripted.connect().trainer(groups=1) as t:
        thread = threading.Thread(target=steps)
        thread.start()
        scripted.wait(lambda: [1 for name, _ in scripted.calls if name == "OpenStep"])
    thread.join(20)
    assert not thread.is_alive()
    (error,) = raised
    assert isinstance(error, fb.Cancelled)
    with pytest.raises(fb.Cancelled):
        next(t.steps())


def test_an_evaluation_is_waited_for_longer_than_one_call_takes(scripted):
    scripted.answers["GetEval"] = [TIME_IS_OVER, admin.EvalResult(done=True, rollouts=3)]
    assert scripted.connect().start_eval("held-out").wait(20).rollouts == 3


def test_a_group_whose_stream_breaks_is_the_same_request_again(scripted):
    seen = []

    def pushgroup(frames, context):
        for body in frames:
            frame = actor.PushFrame.decode(body)
            seen.append(frame.group.request_id)
            if len(seen) == 1:
                context.abort(grpc.StatusCode.INTERNAL, "the connection broke within a message")
            yield actor.PushReply(frame=frame.frame, accepted=len(frame.rollouts)).encode()

    scripted.pushgroup = pushgroup
    results = scripted.connect().push_group("math", [rollout(1), rollout(2)], task={"id": "a"})
    assert results == [fb.PushResult.ACCEPTED] * 2
    assert len(seen) == 2 and seen[0] == seen[1] != 0


class Restarted:
    """A daemon that is killed with -9 and started again on its directory."""

    def __init__(self, folder):
        self.config = {
            "listen__grpc": f"127.0.0.1:{_daemon.free_port()}", "listen__unix": "", "storage__directory": str(folder)
        }  # fmt: skip
        self.daemon = fb.start(**self.config)

    def kill(self):
        os.kill(self.daemon.daemon.pid, signal.SIGKILL)
        self.daemon.daemon._process.wait(20)
        self.daemon.close()

    def start(self):
        self.daemon = fb.start(**self.config)


@pytest.fixture
def restarted(tmp_path):
    held = Restarted(tmp_path / "data")
    yield held
    held.daemon.close()


def test_attempts_and_steps_go_on_after_the_daemon_was_killed(restarted):
    with fb.connect(restarted.config["listen__grpc"]) as run:
        run.load("math", [{"id": str(i)} for i in range(4)], group_size=2, keep_equal_rewards=True)
        with run.sync.actor("test", sources=["math"], slots=4) as it:
            held = [it.next(timeout=20) for _ in range(4)]
            for a in held[:2]:
                a.push(rollout(a.id), reward=1.0)
            restarted.kill()
            back = threading.Timer(1.0, restarted.start)
            back.start()
            for a in held[2:]:
                assert a.push(rollout(a.id), reward=1.0) is fb.PushResult.ACCEPTED
            back.join()
        with run.trainer(groups=2, sources=["math"]) as t:
            (step,) = t.steps(1)
            before = [mb.tokens.tobytes() for mb in step]
            restarted.kill()
            restarted.start()
            assert [mb.tokens.tobytes() for mb in step] == before
            version = step.commit()
            restarted.kill()
            restarted.start()
            assert step.commit() == version
            t.publish(version, where="/weights")
        assert run.status().next_step == 2
        assert run.sources()["math"].trained == 4


def test_a_call_ends_when_its_time_is_over_though_the_daemon_is_away(restarted):
    with fb.connect(restarted.config["listen__grpc"], timeout=1.0) as run:
        run.sources()
        restarted.kill()
        begin = time.monotonic()
        with pytest.raises(fb.Unavailable, match=restarted.config["listen__grpc"]):
            run.sources()
        assert time.monotonic() - begin < 20
        restarted.start()


def test_a_call_that_waits_for_the_daemon_ends_when_the_run_is_closed(restarted):
    run = fb.connect(restarted.config["listen__grpc"])
    run.sources()
    restarted.kill()
    ended = []

    def call():
        try:
            run.sources()
        except fb.ForebayError as error:
            ended.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    run.close(1.0)
    thread.join(20)
    assert len(ended) == 1
    restarted.start()


def test_a_call_on_a_closed_run_is_refused_though_the_daemon_is_away(restarted):
    run = fb.connect(restarted.config["listen__grpc"])
    run.sources()
    restarted.kill()
    run.close(1.0)
    with pytest.raises(fb.Cancelled, match="closed"):
        run.sources()
    restarted.start()

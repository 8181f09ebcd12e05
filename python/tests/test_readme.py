"""README's blocks run as they stand there: the actor's and the trainer's, against a real daemon."""

import os
import pathlib
import re
import sys
import threading
from types import SimpleNamespace

import forebay as fb
import numpy as np
import pytest
import stand_in_torch

README = pathlib.Path(__file__).parent.parent.parent / "README.md"
STEPS = 2


def blocks():
    """The Python blocks, in order: an actor, a trainer."""
    actor, trainer = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return compile(actor, f"{README}: actor", "exec"), compile(trainer, f"{README}: trainer", "exec")


class Enough(Exception):
    pass


async def generate(prompt, seed, stop_when, temperature=1.0):
    """What vLLM returns, and its text."""
    rng = np.random.default_rng(seed)
    token_ids = rng.integers(0, 100, int(rng.integers(2, 9))).tolist()
    logprobs = [{token: SimpleNamespace(logprob=-1.0)} for token in token_ids]
    text = "right" if seed % 2 else "wrong"
    output = SimpleNamespace(token_ids=token_ids, logprobs=logprobs, text=text, finish_reason="stop")
    return SimpleNamespace(prompt_token_ids=[1, 2, 3], outputs=[output], text=text)


class Loss:
    """A number that has a gradient."""

    def __init__(self, value, backward):
        self.value, self.backward = value, backward

    def __mul__(self, factor):
        return Loss(self.value * factor, self.backward)

    def __truediv__(self, by):
        return Loss(self.value / by, self.backward)


def test_the_actor_and_the_trainer_of_the_readme_work_together(run, monkeypatch):
    actor, trainer = blocks()
    done = {"backward": 0, "step": 0, "saved": []}

    def connect(target):
        assert target == "127.0.0.1:7400"  # where a daemon is by default
        return run

    def pg_sum(model, mb):
        assert mb.tokens.device == "cuda" and mb.logprobs.shape == mb.tokens.shape == mb.loss_mask.shape
        return Loss(1.0, lambda: done.update(backward=done["backward"] + 1))

    def save(model):
        done["saved"].append(run.status().next_step - 1)
        if len(done["saved"]) > STEPS:
            raise Enough
        return f"/weights/{len(done['saved'])}"

    monkeypatch.setattr(fb, "connect", connect)
    monkeypatch.setitem(sys.modules, "torch", stand_in_torch)
    failures = []
    dataset = [{"id": i, "prompt": f"{i} + {i} ="} for i in range(500)]

    def act():
        try:
            exec(actor, {"dataset": dataset, "generate": generate, "verify": lambda task, text: float(text == "right")})
        except BaseException as error:  # raised by the test below
            failures.append(error)

    acting = threading.Thread(target=act, name="actor of the README")
    acting.start()
    opt = SimpleNamespace(step=lambda: done.update(step=done["step"] + 1), zero_grad=lambda: None)
    try:
        with pytest.raises(Enough):
            exec(trainer, {"fb": fb, "run": run, "rank": 0, "model": None, "opt": opt, "pg_sum": pg_sum, "save": save})
    finally:
        source = run.sources()["math"]
        run.sync.close()  # ends the actor's loop
        acting.join(20 * int(os.environ.get("FOREBAY_SLOWNESS", "1")))
    assert not acting.is_alive() and failures == []
    assert done["saved"] == [1, 2, 3] and done["step"] == 4 * 3 and done["backward"] >= 4 * 3
    assert source.group_size == 16
    assert 3 * 64 * 2 <= source.trained <= 3 * 64 * 16  # what grew too old meanwhile left its group

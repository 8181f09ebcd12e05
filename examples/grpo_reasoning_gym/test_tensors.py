"""Tensors of torch on both sides of the buffer: pushed as they are, and what a micro-batch gives and takes."""

import os
import pathlib
import sys

import numpy as np
import torch

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
BIN = pathlib.Path(os.environ.get("FOREBAY_BIN", ROOT / "build" / "release" / "bin"))
os.environ.setdefault("FOREBAY_BUFFERD", str(BIN / "bufferd"))

import forebay as fb  # noqa: E402

TOKENS = 16


def rollout(number):
    torch.manual_seed(number)
    columns = {"hidden": torch.randn(TOKENS, 3).bfloat16(), "grad": torch.randn(TOKENS, requires_grad=True)}
    tokens = torch.randint(0, 1000, (TOKENS,))
    logprobs = torch.randn(TOKENS * 2)[::2]  # not contiguous
    return fb.Rollout(tokens, prompt_tokens=4, logprobs=logprobs, versions=0, rewards={"reward": number}, **columns)


def test_tensors_come_back_as_they_were_pushed():
    with fb.start() as run:
        run.load("offline", [], group_size=2, max_lag=4)
        pushed = [rollout(number) for number in range(2)]
        run.push_group("offline", pushed, task={"id": "one"}, timeout=30)
        columns = ["tokens", "loss_mask", "logprobs", "hidden", "grad"]
        with run.trainer(groups=1, token_budget=64, columns=columns, step_timeout=30) as t:
            step = next(t.steps())
            (mb,) = step
            got = mb.torch("cpu")
            assert got.tokens.dtype == torch.int64 and got.loss_mask.dtype == torch.uint8
            assert got.advantages.dtype == got.logprobs.dtype == torch.float32
            assert got.columns["hidden"].dtype == torch.bfloat16 and got.columns["hidden"].shape == (2 * TOKENS, 3)
            for i, begin in enumerate(got.cu_seqlens.tolist()[:-1]):
                number = int(mb.rewards[i])
                torch.manual_seed(number)
                hidden, grad = torch.randn(TOKENS, 3).bfloat16(), torch.randn(TOKENS)
                assert torch.equal(got.columns["hidden"][begin : begin + TOKENS], hidden)
                assert torch.equal(got.columns["grad"][begin : begin + TOKENS], grad)
                assert np.array_equal(got.tokens[begin : begin + TOKENS].numpy(), pushed[number].tokens)
            step.put(mb, old_logprobs=got.logprobs * 2, bits=torch.ones(2 * TOKENS, dtype=torch.bfloat16))
            (again,) = step
            assert torch.equal(again.torch("cpu").columns["old_logprobs"], got.logprobs * 2)
            assert torch.equal(again.torch("cpu").columns["bits"], torch.ones(2 * TOKENS).bfloat16())

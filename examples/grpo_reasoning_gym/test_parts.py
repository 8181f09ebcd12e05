"""Checks of the parts that training stands on: ./dev test examples"""

import types

import numpy as np
import pytest
import torch

from loss import pg_sum, token_logprobs
from model import Sampler, Transformer, decode
from tasks import SOURCES, make_tasks, verify

PROMPTS = ("sun>", "oacoa=", "culla>", "rrm=")


def generate(model, slots, prompts=PROMPTS):
    """Answers by prompt, sampled `slots` at a time; each prompt has a seed of its own."""
    sampler, answers, waiting = Sampler(model, slots), {}, list(enumerate(prompts))
    while len(answers) < len(prompts):
        while waiting and sampler.free:
            i, prompt = waiting.pop()
            sampler.add(prompt, prompt, seed=i)
        for answer in sampler.step():
            answers[answer.key] = answer
    return answers


def packed(answers):
    lengths = [len(a.tokens) for a in answers]
    masks = [np.arange(len(a.tokens)) >= a.prompt_length for a in answers]
    logprobs = [np.r_[np.zeros(a.prompt_length, np.float32), a.logprobs] for a in answers]
    return types.SimpleNamespace(
        tokens=torch.tensor(np.concatenate([a.tokens for a in answers])),
        position_ids=torch.tensor(np.concatenate([np.arange(n) for n in lengths])),
        cu_seqlens=torch.tensor(np.cumsum([0] + lengths), dtype=torch.int32),
        loss_mask=torch.tensor(np.concatenate(masks)),
        logprobs=torch.tensor(np.concatenate(logprobs)),
        advantages=torch.linspace(-1, 1, len(answers)),
    )


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Transformer()


def test_trainer_and_engine_agree_on_logprobs(model):
    mb = packed(list(generate(model, slots=3).values()))
    difference = (token_logprobs(model, mb) - mb.logprobs)[mb.loss_mask]
    assert len(difference) > 0 and difference.abs().max() < 1e-4


def test_answers_do_not_depend_on_neighbours_or_on_who_had_the_slot_before(model):
    alone, together = generate(model, slots=1), generate(model, slots=4)
    assert [decode(alone[p].tokens) for p in PROMPTS] == [
        decode(together[p].tokens) for p in PROMPTS
    ]


def test_on_policy_loss_is_the_negative_sum_of_advantages_and_has_a_gradient(model):
    mb = packed(list(generate(model, slots=4).values()))
    loss = pg_sum(model, mb)
    lengths = (mb.cu_seqlens[1:] - mb.cu_seqlens[:-1]).long()
    expected = -torch.repeat_interleave(mb.advantages, lengths)[mb.loss_mask].sum()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-2)
    loss.backward()
    assert model.head.weight.grad.abs().sum() > 0


def test_clipping_stops_the_gradient_of_tokens_that_moved_far_already(model):
    mb = packed(list(generate(model, slots=4).values()))
    mb.advantages = torch.ones(len(PROMPTS))
    mb.logprobs = mb.logprobs - 1  # the ratio is e, beyond the upper bound
    pg_sum(model, mb).backward()
    assert model.head.weight.grad.abs().sum() == 0


@pytest.mark.parametrize("source", SOURCES)
def test_held_out_questions_are_not_trained_and_answers_verify(source):
    def questions(tasks):
        return {
            "".join(sorted(t["prompt"])) if source.startswith("pal") else t["prompt"] for t in tasks
        }

    training, held_out = make_tasks(source, 500, 1), make_tasks(source, 50, 0, held_out=True)
    assert len(training) == 500 and len(held_out) == 50
    assert not questions(training) & questions(held_out)
    assert all(verify(t, t["entry"]["answer"].lower()) == 1.0 for t in training)
    assert all(verify(t, t["prompt"]) == 0.0 for t in training)

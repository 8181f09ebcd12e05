"""Supervised warm start: imitate right answers for a few seconds, until some attempts succeed.

Reinforcement learning from a verifier needs successes to reinforce, and a network with random
weights has none. So this stops on purpose at a mediocre pass rate; what comes after is learned from
the verifier's scores alone.
"""

import random

import numpy as np
import torch
import torch.nn.functional as F

from model import Sampler, encode
from tasks import verify


def warm_start(model, tasks, pass_rate=0.3, seed=0, batch=64, learning_rate=2e-3, steps_max=2000):
    """Train `model` until it passes `pass_rate` of the tasks; returns the rate and the steps."""
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95))
    for step in range(1, steps_max + 1):
        tokens, position_ids, cu_seqlens, is_answer = _pack(rng.sample(tasks, batch))
        logits = model(tokens, position_ids, cu_seqlens)
        loss = F.cross_entropy(logits[:-1][is_answer[1:]], tokens[1:][is_answer[1:]])
        optimizer.param_groups[0]["lr"] = learning_rate * min(1, step / 20)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            rate = sampled_pass_rate(model, rng.sample(tasks, 128), seed)
            print(
                f"  warm start: step {step}, loss {loss.item():.2f}, pass rate {rate:.0%}",
                flush=True,
            )
            if rate >= pass_rate:
                return rate, step
    raise RuntimeError(f"no pass rate of {pass_rate:.0%} after {steps_max} steps")


def sampled_pass_rate(model, tasks, seed):
    """Share of the tasks that one sampled answer each solves."""
    sampler = Sampler(model, len(tasks))
    for i, task in enumerate(tasks):
        sampler.add(i, task["prompt"], seed=[seed, i])
    passed = 0.0
    while sampler.free < len(tasks):
        passed += sum(verify(tasks[answer.key], answer.text) for answer in sampler.step())
    return passed / len(tasks)


def _pack(tasks):
    """Prompts with their answers as one packed batch, laid out as Forebay's micro-batches are."""
    prompts = [encode(task["prompt"]) for task in tasks]
    answers = [encode(task["entry"]["answer"].lower() + "\n") for task in tasks]
    lengths = [len(p) + len(a) for p, a in zip(prompts, answers)]
    return (
        torch.tensor([t for p, a in zip(prompts, answers) for t in p + a]),
        torch.tensor(np.concatenate([np.arange(n) for n in lengths])),
        torch.tensor(np.cumsum([0] + lengths)),
        torch.tensor(
            [t for p, a in zip(prompts, answers) for t in [False] * len(p) + [True] * len(a)]
        ),
    )

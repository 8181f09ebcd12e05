"""An actor: runs many attempts at once in one sampler, and pushes each with the verifier's reward.

python actor.py --name env-1 --weights warm_start.pt
"""

import argparse
import asyncio
import time

import forebay as fb
import numpy as np
import torch

from model import Sampler, Transformer, load
from tasks import verify


class Engine:
    """The sampler as a service inside this process; its weights may change between two tokens."""

    def __init__(self, model, slots):
        self.model, self.sampler = model, Sampler(model, slots)
        self.waiting, self.work = {}, asyncio.Event()

    async def generate(self, prompt, seed, stop_when):
        """The answer, or None if `stop_when` was set before it ended."""
        key, done = object(), asyncio.get_running_loop().create_future()
        self.sampler.add(key, prompt, seed)
        self.waiting[key] = done, stop_when
        self.work.set()
        return await done

    def use(self, path, version):
        load(self.model, path)
        self.sampler.version = version

    async def run(self):
        while True:
            await self.work.wait()
            for answer in self.sampler.step():
                self.waiting.pop(answer.key)[0].set_result(answer)
            for key in [k for k, (_, stop) in self.waiting.items() if stop.is_set()]:
                self.sampler.cancel(key)
                self.waiting.pop(key)[0].set_result(None)
            if not self.waiting:
                self.work.clear()
            await asyncio.sleep(0)


def rollout_of(answer):
    """What the sampler kept, as Forebay's columns: all per token, prompt included."""
    prompt = answer.prompt_length
    starts = np.flatnonzero(np.diff(answer.versions, prepend=-1))  # where another version took over
    return fb.Rollout(
        tokens=answer.tokens.astype(np.uint32),
        loss_mask=(np.arange(len(answer.tokens)) >= prompt).astype(np.uint8),
        logprobs=np.concatenate((np.zeros(prompt, np.float32), answer.logprobs)),
        prompt_tokens=prompt,
        versions=[(prompt + i if i else 0, int(answer.versions[i])) for i in starts],
        status="finished" if answer.finished else "truncated",
    )


async def attempt(a, engine):
    async with a:  # an exception is reported as a failure; leaving early gives the attempt back
        answer = await engine.generate(a.task["prompt"], seed=a.seed, stop_when=a.cancelled)
        if answer is not None:
            await a.push(rollout_of(answer), reward=verify(a.task, answer.text))


async def follow_policy(run, engine):
    """Load each version that is published; one that came and went meanwhile is skipped."""
    async for version in run.policy():
        if version.published and version.where:
            start = time.monotonic()
            engine.use(version.where, version.number)
            run.report_adoption(version, pause_s=time.monotonic() - start)


async def main(args):
    torch.set_num_threads(1)
    model = Transformer()
    load(model, args.weights)
    engine = Engine(model, args.slots)
    run = fb.connect(args.address)
    run.spawn(engine.run())
    run.spawn(follow_policy(run, engine))
    async for a in run.actor(args.name, slots=args.slots):
        run.spawn(attempt(a, engine))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", default="127.0.0.1:7400")
    parser.add_argument("--name", default="actor")
    parser.add_argument("--weights", required=True, help="the weights of version 0")
    parser.add_argument("--slots", type=int, default=128)
    asyncio.run(main(parser.parse_args()))

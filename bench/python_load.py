"""The Python package as a load: rollouts pushed by an actor, micro-batches fetched by a trainer's rank.

    python bench/python_load.py push --target 127.0.0.1:7400 --message-bytes 500000 --window 256
    python bench/python_load.py fetch --target 127.0.0.1:7400 --message-bytes 1114112

Only the public API, with numpy arrays. Prints one line of JSON, with the fields that bench/limits/python_limit.py prints.
"""

import argparse
import asyncio
import json
import os
import resource
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import forebay as fb  # noqa: E402
from limits.python_limit import own_cpu_seconds, process_cpu_seconds  # noqa: E402

BYTES_PER_TOKEN = {"push": 9, "fetch": 17}  # tokens, mask and log-probs; and two more columns of f32
TOKENS_PER_ROLLOUT = 4096  # of a fetched micro-batch
MICRO_BATCHES = 32  # of the step that is fetched again and again


class Meter:
    """Rates between begin and end; the client's and the server's CPU."""

    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments

    def begin(self) -> None:
        self.at, self.cpu = time.monotonic(), own_cpu_seconds()
        self.server_cpu = process_cpu_seconds(self.arguments.server_pid)

    def result(self, operations: int, message_bytes: int) -> dict:
        seconds, cpu = time.monotonic() - self.at, own_cpu_seconds() - self.cpu
        server_cpu = process_cpu_seconds(self.arguments.server_pid) - self.server_cpu
        gigabytes = operations * message_bytes * 1e-9
        return {
            "name": f"python_{self.arguments.direction}",
            "operations": operations,
            "seconds": round(seconds, 4),
            "ops_per_s": round(operations / seconds, 1),
            "gb_per_s": round(gigabytes / seconds, 4),
            "client_cpu_s_per_gb": round(cpu / gigabytes, 4),
            "server_cpu_s_per_gb": round(server_cpu / gigabytes, 4),
            "client_peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }


def rollout_of(tokens: int, columns: int, seed: int) -> fb.Rollout:
    random = np.random.default_rng(seed)
    more = {
        f"column_{i}": random.standard_normal(tokens, np.float32) for i in range(columns - 3)
    }
    return fb.Rollout(
        random.integers(0, 128_000, tokens, np.uint32),
        prompt_tokens=tokens // 8,
        logprobs=random.standard_normal(tokens, np.float32),
        **more,
    )


async def push(run: fb.Run, arguments: argparse.Namespace) -> dict:
    """Groups of equal rewards are filtered, so the daemon's memory is free again at once."""
    tasks = [{"id": str(i)} for i in range(20_000)]
    run.load("load", tasks, group_size=4, order="static", max_lag=1_000_000)
    tokens = arguments.message_bytes // BYTES_PER_TOKEN["push"]
    rollouts = [rollout_of(tokens, 3, seed) for seed in range(4)]
    meter, pushed = Meter(arguments), 0

    async def attempt(a: fb.Assignment) -> None:
        nonlocal pushed
        async with a:
            await a.push(rollouts[a.attempt], reward=1.0)
            pushed += 1

    async with run.actor("python-load", sources=["load"], slots=arguments.window) as actor:
        warm = time.monotonic() + arguments.warm_up_seconds
        end, begun = float("inf"), 0
        async for a in actor:
            run.spawn(attempt(a))
            now = time.monotonic()
            if now >= warm and end == float("inf"):
                meter.begin()
                begun, end = pushed, now + arguments.seconds
            if now >= end:
                break
        return meter.result(pushed - begun, rollouts[0].nbytes)


def fill(run: fb.Run, rollouts: int) -> None:
    """As many groups of two as the micro-batches take."""
    run.load("load", [{"id": str(i)} for i in range(rollouts)], group_size=2, order="static", max_lag=1_000_000)
    with run.sync.actor("python-load", sources=["load"]) as actor:
        for count, a in enumerate(actor, 1):
            with a:
                a.push(rollout_of(TOKENS_PER_ROLLOUT, 5, count), reward=float(a.attempt))
            if count == rollouts:
                break


def fetch(run: fb.Run, arguments: argparse.Namespace) -> dict:
    tokens = arguments.message_bytes // BYTES_PER_TOKEN["fetch"]
    rollouts = MICRO_BATCHES * tokens // TOKENS_PER_ROLLOUT
    fill(run, rollouts)
    columns = ["tokens", "loss_mask", "logprobs", "column_0", "column_1"]
    meter = Meter(arguments)
    with run.trainer(groups=rollouts // 2, token_budget=tokens, columns=columns) as trainer:
        step = next(trainer.steps(1))
        warm = time.monotonic() + arguments.warm_up_seconds
        while time.monotonic() < warm:
            sizes = [mb.nbytes for mb in step]
        meter.begin()
        fetched = 0
        while time.monotonic() < meter.at + arguments.seconds:
            fetched += sum(1 for mb in step)
        result = meter.result(fetched, sum(sizes) // len(sizes))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("direction", choices=["push", "fetch"])
    parser.add_argument("--target", required=True, help="bufferd, host:port or unix:/path")
    parser.add_argument("--message-bytes", type=int, default=500_000, help="one rollout or micro-batch")
    parser.add_argument("--window", type=int, default=256, help="push: slots of the actor")
    parser.add_argument("--warm-up-seconds", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--server-pid", type=int, default=0)
    arguments = parser.parse_args()
    with fb.connect(arguments.target) as run:
        result = asyncio.run(push(run, arguments)) if arguments.direction == "push" else fetch(run, arguments)
    print(json.dumps(result))


if __name__ == "__main__":
    main()

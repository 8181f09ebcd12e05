"""Tasks and rollouts whose every byte follows from a number, so that whoever meets them can check them. Pure."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import forebay as fb
import numpy as np

PROMPT_TOKENS = 4
TEXT_BYTES_LOG2 = (8, 21)  # of a rollout: 256 bytes to 2 MiB, most of them small
PASS_SHARE = 0.5
NATIVE_TAG = 1 << 63  # of rollouts that clients in C++ make


def native_arrays(tag: int) -> dict[str, Any]:
    """As tests/chaos/actor_main.cc makes them."""

    def mix(indices: Any) -> Any:  # splitmix64
        z = np.uint64(tag) + (indices + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    first = int(mix(np.zeros(1, np.uint64))[0])
    count, size = 32 + first % 480, 256 << (first >> 32) % 10
    tokens = (mix(np.arange(1, count + 1, dtype=np.uint64)) & np.uint64(0x7FFFFFFF)).astype(np.uint32)
    logprobs = np.float32(-0.25) * (tokens % np.uint32(17)).astype(np.float32)
    tokens[0], tokens[1] = tag & 0xFFFFFFFF, tag >> 32
    at = np.arange(size)
    text = (tokens[at % count] + (at // count).astype(np.uint32)).astype(np.uint8)
    return {"tokens": tokens, "logprobs": logprobs, "text": text.tobytes()}


def rollout_arrays(tag: int) -> dict[str, Any]:
    """The columns of the rollout named `tag`, which its first two tokens spell."""
    if tag & NATIVE_TAG:
        return native_arrays(tag)
    rng = np.random.default_rng(tag)
    count = int(rng.integers(32, 1024))
    tokens = rng.integers(0, 1 << 31, count, np.uint32)
    tokens[0], tokens[1] = tag & 0xFFFFFFFF, tag >> 32
    size = int(2 ** rng.uniform(*TEXT_BYTES_LOG2))
    return {"tokens": tokens, "logprobs": rng.standard_normal(count, np.float32), "text": rng.bytes(size)}


def rollout(tag: int, version: int) -> fb.Rollout:
    columns = rollout_arrays(tag)
    return fb.Rollout(
        columns["tokens"], prompt_tokens=PROMPT_TOKENS, logprobs=columns["logprobs"], versions=version, text=columns["text"]
    )


def reward_of(tag: int) -> float:
    return float(hash_of("reward", tag) % 1000) / 1000


def tag_of(tokens: Any) -> int:
    return int(tokens[0]) | int(tokens[1]) << 32


def wrong_column(mb: fb.MicroBatch, index: int) -> str:
    """The name of a column that is not what was pushed; empty if all are."""
    tag = tag_of(mb.sequence("tokens", index))
    for name, pushed in rollout_arrays(tag).items():
        fetched = mb.sequence(name, index)
        if fetched.tobytes() != (pushed if isinstance(pushed, bytes) else pushed.tobytes()):
            return f"{name} of rollout {tag:#x}"
    return ""


def wrong_partial(partial: fb.Partial, tag: int) -> str:
    """The name of a column of an unfinished attempt that is not what was saved as `tag`."""
    (held,) = partial.sequences
    for name, saved in rollout_arrays(tag).items():
        if held[name].tobytes() != (saved if isinstance(saved, bytes) else saved.tobytes()):
            return f"{name} of {tag:#x}"
    return ""


def digest(mb: fb.MicroBatch) -> str:
    """Of all bytes of a micro-batch but of columns that were put later."""
    out = hashlib.blake2b(digest_size=16)
    for value in (mb.cu_seqlens, mb.rewards, mb.advantages, mb.versions, mb.lags, mb.rollout_ids, mb.group_ids, mb.task_ids):
        out.update(value.tobytes())
    for name in ("tokens", "loss_mask", "logprobs", "text"):
        out.update(mb.columns[name].tobytes() if name in mb.columns else b"")
    out.update(repr((mb.mini_batch, mb.index, mb.padded_tokens, mb.totals)).encode())
    return out.hexdigest()


def task(source: str, number: int) -> dict[str, Any]:
    rng = random.Random(f"{source}/{number}")
    return {"id": f"{source}-{number}", "question": rng.randbytes(rng.randrange(16, 4096)).hex()}


def task_number(external_id: str) -> int:
    return int(external_id.rpartition("-")[2])


def eval_reward(external_id: str, attempt: int) -> float:
    return float(hash_of(external_id, attempt) % 100 < 100 * PASS_SHARE)


def hash_of(*parts: Any) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")

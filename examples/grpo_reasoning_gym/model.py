"""A small character-level transformer: training forward, and a sampler with a KV cache.

Two ways through the same weights:

* `Transformer.forward` takes a packed batch, as Forebay's micro-batches are: sequences one behind
  the other, with `cu_seqlens` and `position_ids`. A token sees only its own sequence.
* `Sampler` generates in slots that start and end independently (continuous batching), one token a
  call for all of them, and keeps the log-probability of each token that it drew: what the trainer
  calls the engine's logprobs.

Swap this file for your own model and vLLM or SGLang; nothing else depends on what is inside.
"""

import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ALPHABET = "\n0123456789+-=,>abcdefghijklmnopqrstuvwxyz"
END = 0  # the newline ends an answer
_ID = {char: i for i, char in enumerate(ALPHABET)}


def encode(text):
    return [_ID[char] for char in text]


def decode(ids):
    return "".join(ALPHABET[i] for i in ids)


@dataclass(frozen=True)
class Config:
    width: int = 64
    layers: int = 2
    heads: int = 4
    max_tokens: int = 48


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c.heads
        self.norm1, self.norm2 = nn.LayerNorm(c.width), nn.LayerNorm(c.width)
        self.qkv = nn.Linear(c.width, 3 * c.width)
        self.out = nn.Linear(c.width, c.width)
        self.up = nn.Linear(c.width, 4 * c.width)
        self.down = nn.Linear(4 * c.width, c.width)

    def forward(self, x, attend):
        """x is [tokens, width]; `attend` maps q, k, v [tokens, heads, head width] to that shape."""
        q, k, v = self.qkv(self.norm1(x)).view(len(x), 3, self.heads, -1).unbind(1)
        x = x + self.out(attend(q, k, v).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def attention(q, k, v, mask):
    """Plain softmax attention over the last two axes; `mask` is True where a key may be seen."""
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


class Transformer(nn.Module):
    def __init__(self, config=Config()):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(len(ALPHABET), config.width)
        self.place = nn.Embedding(config.max_tokens, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, len(ALPHABET), bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.5 * config.width**-0.5)

    def forward(self, tokens, position_ids, cu_seqlens):
        """Logits [tokens, alphabet] of a packed batch.

        Without a varlen kernel on the CPU, attention alone sees the sequences as padded rows.
        """
        lengths = (cu_seqlens[1:] - cu_seqlens[:-1]).long()
        row = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        longest = int(lengths.max())
        causal = torch.ones(longest, longest, dtype=torch.bool).tril()

        def attend(q, k, v):
            qkv = q.new_zeros(3, len(lengths), longest, *q.shape[1:])
            qkv[:, row, position_ids] = torch.stack((q, k, v))
            return attention(*qkv.transpose(2, 3), causal).transpose(1, 2)[row, position_ids]

        x = self.embed(tokens) + self.place(position_ids)
        for block in self.blocks:
            x = block(x, attend)
        return self.head(self.norm(x))


@dataclass(frozen=True)
class Answer:
    """All tokens of an attempt, prompt included; logprobs and versions of its response's tokens."""

    key: object
    tokens: np.ndarray
    prompt_length: int
    logprobs: np.ndarray
    versions: np.ndarray
    finished: bool  # False: the room for tokens ran out first

    @property
    def text(self):
        return decode(self.tokens[self.prompt_length :]).rstrip("\n")


class Sampler:
    """Generates at temperature 1 in `slots` slots. Weights may change between calls of `step`."""

    def __init__(self, model, slots, version=0):
        c = model.config
        self.model, self.version = model, version
        self.keys = [None] * slots
        self.fed = np.zeros(slots, np.int64)  # tokens that the cache holds
        self.prompt_length = np.ones(slots, np.int64)
        self.tokens = np.zeros((slots, c.max_tokens + 1), np.int64)
        self.draws = np.zeros((slots, c.max_tokens + 1))
        self.logprobs = np.zeros((slots, c.max_tokens + 1), np.float32)
        self.versions = np.zeros((slots, c.max_tokens + 1), np.int64)
        self.cache = torch.zeros(c.layers, 2, slots, c.heads, c.max_tokens, c.width // c.heads)

    @property
    def free(self):
        return self.keys.count(None)

    def add(self, key, prompt, seed):
        """Start an attempt. Its random draws depend on `seed` alone, not on its neighbours."""
        slot, ids = self.keys.index(None), encode(prompt)
        self.keys[slot], self.fed[slot], self.prompt_length[slot] = key, 0, len(ids)
        self.tokens[slot, : len(ids)] = ids
        self.draws[slot] = np.random.default_rng(seed).random(self.draws.shape[1])

    def cancel(self, key):
        self.keys = [None if k == key else k for k in self.keys]

    def step(self):
        """One more token in every busy slot; returns the answers that ended with it."""
        busy = np.array([key is not None for key in self.keys])
        if not busy.any():
            return []
        self.fed[~busy] = 0  # idle slots are computed too, and ignored
        slots, at = np.arange(len(self.keys)), self.fed + 1
        logprobs = self._next_logprobs(self.tokens[slots, self.fed], self.fed)
        drawn = (logprobs.exp().cumsum(-1).numpy() < self.draws[slots, at, None]).sum(-1)
        drawn = drawn.clip(max=len(ALPHABET) - 1)
        wrote = busy & (at >= self.prompt_length)  # the others still read their prompt
        self.tokens[wrote, at[wrote]] = drawn[wrote]
        self.logprobs[wrote, at[wrote]] = logprobs.numpy()[slots, drawn][wrote]
        self.versions[wrote, at[wrote]] = self.version
        self.fed = at
        ended = wrote & ((drawn == END) | (at + 1 >= self.model.config.max_tokens))
        return [self._take(slot) for slot in np.flatnonzero(ended)]

    def _take(self, slot):
        start, stop = self.prompt_length[slot], self.fed[slot] + 1
        answer = Answer(
            key=self.keys[slot],
            tokens=self.tokens[slot, :stop].copy(),
            prompt_length=int(start),
            logprobs=self.logprobs[slot, start:stop].copy(),
            versions=self.versions[slot, start:stop].copy(),
            finished=bool(self.tokens[slot, stop - 1] == END),
        )
        self.keys[slot] = None
        return answer

    @torch.no_grad()
    def _next_logprobs(self, tokens, positions):
        """Log-probabilities [slots, alphabet] after one token per slot at its own position."""
        model, position = self.model, torch.from_numpy(positions)
        slots, seen = torch.arange(len(tokens)), int(positions.max()) + 1
        mask = (torch.arange(seen) <= position[:, None])[:, None, None]
        x = model.embed(torch.from_numpy(tokens)) + model.place(position)
        for block, (keys, values) in zip(model.blocks, self.cache):

            def attend(q, k, v):
                keys[slots, :, position], values[slots, :, position] = k, v
                return attention(q[:, :, None], keys[:, :, :seen], values[:, :, :seen], mask)

            x = block(x, attend)
        return model.head(model.norm(x)).log_softmax(-1)


def save(model, path):
    """Write weights so that a reader never sees half a file."""
    torch.save(model.state_dict(), f"{path}.tmp")
    os.replace(f"{path}.tmp", path)


def load(model, path):
    model.load_state_dict(torch.load(path, map_location="cpu"))

"""Rollouts from what engines return. Objects are taken by their shape, so no engine needs to be installed.

These are the bodies of Rollout's class methods. Pure functions.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Type

import numpy as np

if TYPE_CHECKING:
    from ._rollout import Rollout

_FINISH = {"length": "truncated", "abort": "aborted", "error": "aborted"}


def from_vllm(
    cls: Type[Rollout],
    /,
    output: Any,
    *,
    index: int = 0,
    prompt_token_ids: Optional[Sequence[int]] = None,
    versions: Any = None,
    **more: Any,
) -> Rollout:
    """From a vLLM RequestOutput, or one CompletionOutput with `prompt_token_ids`.

    Log-probs are taken if they were asked for (SamplingParams(logprobs=0)), routed experts if they
    were recorded. `versions` counts from the first token of the prompt; see Sequence.
    """
    completion = output
    if hasattr(output, "outputs"):
        prompt_token_ids = output.prompt_token_ids if prompt_token_ids is None else prompt_token_ids
        completion = output.outputs[index]
    if prompt_token_ids is None:
        raise TypeError("prompt_token_ids is needed beside a single completion")
    response = list(completion.token_ids)
    columns: Dict[str, Any] = {}
    if completion.logprobs is not None:
        columns["logprobs"] = np.array(
            [step[token].logprob for token, step in zip(response, completion.logprobs)], np.float32
        )
    routed = getattr(completion, "routed_experts", None)
    if routed is not None:
        columns["routed_experts"] = np.asarray(routed)
    if getattr(completion, "text", None):
        columns["text"] = completion.text
    more.setdefault("status", _FINISH.get(completion.finish_reason or "abort", "finished"))
    return _single(cls, prompt_token_ids, response, versions, {**columns, **more})


def from_sglang(
    cls: Type[Rollout],
    /,
    output: Mapping[str, Any],
    *,
    prompt_token_ids: Sequence[int],
    versions: Any = None,
    routed_shape: Optional[Tuple[int, int]] = None,
    **more: Any,
) -> Rollout:
    """From the dict that SGLang's /generate answers, with return_logprob for the log-probs.

    `routed_shape` (layers, experts per token) is needed to read recorded expert routing. A
    `weight_version` that is a number stands for `versions`, unless these are given.
    """
    meta = output["meta_info"]
    logprobs = meta.get("output_token_logprobs")
    response = output.get("output_ids")
    if response is None:
        if logprobs is None:
            raise TypeError("the output has neither output_ids nor meta_info.output_token_logprobs")
        response = [entry[1] for entry in logprobs]
    columns: Dict[str, Any] = {}
    if logprobs is not None:
        columns["logprobs"] = np.array([entry[0] for entry in logprobs], np.float32)
    routed = meta.get("routed_experts")
    if routed is not None:
        columns["routed_experts"] = _routed(routed, routed_shape)
    if output.get("text"):
        columns["text"] = output["text"]
    if versions is None and str(meta.get("weight_version", "")).isdigit():
        versions = int(meta["weight_version"])
    reason = meta.get("finish_reason") or {}
    kind = reason.get("type", "abort") if isinstance(reason, Mapping) else str(reason)
    more.setdefault("status", _FINISH.get(kind, "finished"))
    return _single(cls, prompt_token_ids, response, versions, {**columns, **more})


def from_messages(
    cls: Type[Rollout],
    /,
    messages: Sequence[Mapping[str, Any]],
    tokenizer: Optional[Any] = None,
    *,
    train_on: Callable[[Mapping[str, Any]], bool] = lambda m: m["role"] == "assistant",
    versions: Any = None,
    **more: Any,
) -> Rollout:
    """From chat messages {role, content}; tokens of the roles that `train_on` names are in the loss.

    A message may bring its own `token_ids` and `logprobs`, which are taken as they are: the only
    safe way for what the policy sampled. The tokens of others come from the tokenizer's chat
    template, as what each message adds to those before it.
    """
    from ._rollout import Turn

    tokens: List[int] = []
    mask: List[int] = []
    logprobs: List[float] = []
    turns = []
    have_logprobs = False
    for i, message in enumerate(messages):
        ids = message.get("token_ids")
        if ids is None:
            ids = _added_tokens(tokenizer, messages, i)
        trained = train_on(message)
        own = message.get("logprobs")
        have_logprobs |= own is not None
        turns.append(Turn(len(tokens), len(ids), role=message["role"]))
        tokens += ids
        mask += [int(trained)] * len(ids)
        logprobs += own if own is not None else [0.0] * len(ids)
    if have_logprobs:
        more.setdefault("logprobs", np.array(logprobs, np.float32))
    more.setdefault("turns", turns)
    return cls(
        np.array(tokens, np.uint32), loss_mask=np.array(mask, np.uint8), versions=versions, **more
    )


def _single(
    cls: Type[Rollout], prompt: Sequence[int], response: Sequence[int], versions: Any, more: Dict[str, Any]
) -> Rollout:
    tokens = np.empty(len(prompt) + len(response), np.uint32)
    tokens[: len(prompt)] = prompt
    tokens[len(prompt) :] = response
    return cls(tokens, prompt_tokens=len(prompt), versions=versions, **more)


def _routed(value: Any, shape: Optional[Tuple[int, int]]) -> "np.ndarray[Any, Any]":
    """[tokens - 1, layers, top_k] as i16: the contract's widest type, and no model has 2^15 experts."""
    if isinstance(value, (str, bytes)):
        if shape is None:
            raise TypeError("routed_shape=(layers, experts per token) is needed to read routed_experts")
        value = np.frombuffer(base64.b64decode(value), np.int32).reshape(-1, *shape)
    return np.asarray(value).astype(np.int16)


def _added_tokens(tokenizer: Any, messages: Sequence[Mapping[str, Any]], index: int) -> List[int]:
    if tokenizer is None:
        raise TypeError(f"messages[{index}] has no token_ids, so a tokenizer is needed")

    def render(count: int) -> List[int]:
        plain = [{"role": m["role"], "content": m["content"]} for m in messages[:count]]
        return list(tokenizer.apply_chat_template(plain, tokenize=True)) if plain else []

    before, after = render(index), render(index + 1)
    if after[: len(before)] != before:
        raise ValueError(
            f"the chat template changes earlier tokens when messages[{index}] is added; give token_ids"
        )
    return after[len(before) :]

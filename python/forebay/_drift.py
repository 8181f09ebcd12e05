"""How far a trainer is from the engines that sampled its micro-batch, as sums over loss tokens. Plain values, no locks."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ._columns import to_numpy
from ._errors import InvalidRequest
from ._messages import trainer as wire
from ._micro_batch import MicroBatch

CLAMP = 20.0  # |d| beyond it counts as this
PARTS_MAX = 65_536


class DriftPart(NamedTuple):
    """Sums over loss tokens of one sequence that have a lag and an engine in common.

    With d = log p_target - log p_sampler, clamped to +-20: k1 = -d, k2 = d^2 / 2 and k3 = e^d - 1 - d
    estimate KL(sampler || target). tokens: with a finite d; non_finite: the others; clamped: of tokens.
    """

    sequence: int  # index in the micro-batch
    tokens: int
    k1: float
    k2: float
    k3: float
    max_abs: float  # largest |d|, before it was clamped
    lag: int = 0  # training version less the tokens'
    engine: str = ""
    non_finite: int = 0
    clamped: int = 0


def parts_message(parts: Sequence[DriftPart], engine_names: Dict[str, int], sampled: bool) -> wire.DriftParts:
    """`engine_names` is filled with the engines that the parts name; only what engines sampled has lags and engines."""
    if len(parts) > PARTS_MAX:
        raise InvalidRequest(f"parts: {len(parts)}, at most {PARTS_MAX} a micro-batch")
    engines = [engine_names.setdefault(part.engine, len(engine_names)) for part in parts] if sampled else []
    return wire.DriftParts(
        sequences=[part.sequence for part in parts],
        lags=[part.lag for part in parts] if sampled else [],
        engines=engines,
        tokens=[part.tokens for part in parts],
        k1=[part.k1 for part in parts],
        k2=[part.k2 for part in parts],
        k3=[part.k3 for part in parts],
        max_abs=[part.max_abs for part in parts],
        non_finite=[part.non_finite for part in parts],
        clamped=[part.clamped for part in parts],
    )


def drift_parts(
    mb: MicroBatch, logprobs: Any, reference: Optional[Any], predicting: bool, train_version: int
) -> Tuple[List[DriftPart], List[DriftPart]]:
    """Trainer against engines, and reference against trainer.

    Arrays of [T], or of the padded tokens; with `predicting` row t is of token t + 1, as is loss_mask. Raises KeyError
    for a micro-batch that was fetched without logprobs or loss_mask, and ValueError for rows that do not fit.
    """
    if mb._layout.context is not None:
        raise ValueError("the micro-batch is a share of the tokens (context): drift is reported of whole sequences")
    count = mb.num_tokens
    trainer = _rows("logprobs", logprobs, mb)
    bounds = mb.cu_seqlens.astype(np.int64)
    rows = np.flatnonzero(mb.loss_mask[:count])
    if predicting:
        rows = rows[~np.isin(rows, bounds[1:] - 1)]  # the last of a sequence predicts none of its tokens
    tokens = rows + 1 if predicting else rows
    sequences = np.searchsorted(bounds, rows, "right") - 1
    lags, engines, names = _sampled(mb, tokens, bounds, train_version)
    sampler = _as_f64(mb.logprobs, mb.dtypes["logprobs"])[:count]
    of_engines = _sums(trainer[rows] - sampler[tokens], sequences, lags, engines, names)
    if reference is None:
        return of_engines, []
    target = _rows("reference", reference, mb)
    none = np.zeros(len(rows), np.int64)
    return of_engines, _sums(target[rows] - trainer[rows], sequences, none, none, [""])


def _as_f64(array: "np.ndarray[Any, Any]", dtype: str) -> "np.ndarray[Any, Any]":
    if dtype == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def _rows(name: str, value: Any, mb: MicroBatch) -> "np.ndarray[Any, Any]":
    array = _as_f64(*to_numpy(value))
    if array.shape not in ((mb.num_tokens,), (mb.padded_tokens,)):
        raise ValueError(f"{name} has shape {array.shape}, the micro-batch {mb.num_tokens} tokens")
    return array[: mb.num_tokens]


def _sampled(
    mb: MicroBatch, tokens: "np.ndarray[Any, Any]", bounds: "np.ndarray[Any, Any]", train_version: int
) -> Tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]", List[str]]:
    """Lag and engine of each token, and the engines' names."""
    layout = mb._layout
    names = [*layout.engine_names, ""]
    counts = np.zeros(len(mb), np.int64)
    counts[: len(layout.sampled_counts)] = layout.sampled_counts
    whole = counts == 0  # one version throughout, by an engine without a name
    spans = np.repeat(np.arange(len(mb)), np.maximum(counts, 1))
    starts, versions = bounds[spans], mb.versions[spans]
    engines = np.full(len(spans), len(names) - 1, np.int64)
    known = ~whole[spans]
    starts[known] += np.array(layout.sampled_offsets, np.int64)
    versions[known] = np.array(layout.sampled_versions, np.int64)
    engines[known] = np.array(layout.sampled_engines, np.int64)
    span = np.searchsorted(starts, tokens, "right") - 1
    return np.maximum(train_version - versions[span], 0), engines[span], names


def _sums(
    d: "np.ndarray[Any, Any]",
    sequences: "np.ndarray[Any, Any]",
    lags: "np.ndarray[Any, Any]",
    engines: "np.ndarray[Any, Any]",
    names: Sequence[str],
) -> List[DriftPart]:
    if not len(d):
        return []
    keys, groups = np.unique(np.stack((sequences, lags, engines), 1), axis=0, return_inverse=True)
    groups = groups.reshape(-1)
    finite = np.isfinite(d)
    kept = np.clip(d, -CLAMP, CLAMP)[finite]
    at = groups[finite]

    def total(values: Any) -> "np.ndarray[Any, Any]":
        return np.bincount(at, values, len(keys))

    largest = np.zeros(len(keys))
    np.maximum.at(largest, at, np.minimum(np.abs(d[finite]), np.finfo(np.float32).max))
    columns = zip(
        keys.tolist(),
        np.bincount(at, minlength=len(keys)).tolist(),
        total(-kept).tolist(),
        total(kept * kept / 2).tolist(),
        total(np.maximum(np.expm1(kept) - kept, 0)).tolist(),
        largest.tolist(),
        np.bincount(groups[~finite], minlength=len(keys)).tolist(),
        total(np.abs(d[finite]) > CLAMP).astype(np.int64).tolist(),
    )
    return [
        DriftPart(key[0], tokens, k1, k2, k3, most, key[1], names[key[2]], bad, clamped)
        for key, tokens, k1, k2, k3, most, bad, clamped in columns
    ]

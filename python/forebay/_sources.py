"""Sources and their tasks: settings by keyword, loaders for whatever holds tasks. Pure but for reading files."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Union

from ._errors import InvalidRequest
from ._messages import types as wire
from ._messages.admin import Task

TASKS_PER_REQUEST = 4096
BYTES_PER_REQUEST = 2 << 20
# Limits of the contract.
TASK_ID_BYTES_MAX = 256
TASK_BYTES_MAX = 1 << 20
SAMPLING_BYTES_MAX = 64 * 1024
REWARDS_MAX = 8
REQUIRED_COLUMNS_MAX = 64

Dataset = Union[str, "os.PathLike[str]", Iterable[Any]]


def _enum(prefix: str, *names: str) -> Callable[[Any], int]:
    values = {name: getattr(wire, f"{prefix}_{name.upper()}") for name in names}

    def convert(name: Any) -> int:
        if name not in values:
            raise ValueError(f"{name!r} is none of {', '.join(values)}")
        return int(values[name])

    return convert


def _milliseconds(seconds: Any) -> int:
    return int(float(seconds) * 1000)


def _json_object(value: Any) -> str:
    """A JSON object as text, given as such or as a dict."""
    if value == "":
        return ""  # none
    text = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
    if not isinstance(json.loads(text, parse_constant=_no_constant), dict):
        raise ValueError(f"{text[:100]} is no JSON object")
    if len(text.encode()) > SAMPLING_BYTES_MAX:
        raise ValueError(f"has {len(text.encode())} bytes, at most {SAMPLING_BYTES_MAX}")
    return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _at_most(count: int, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def counted(value: Any) -> Any:
        out = convert(value)
        if len(out) > count:
            raise ValueError(f"has {len(out)} entries, at most {count}")
        return out

    return counted


# Keyword: the field of SourceSettings that it sets, and how.
_PLAIN: Dict[str, Any] = {
    "group_size": ("group_size", int),
    "attempts_per_task": ("attempts_per_task", int),
    "sampling": ("sampling_json", _json_object),
    "rewards": ("rewards", _at_most(REWARDS_MAX, dict)),
    "reward_timeout_s": ("reward_timeout_ms", _milliseconds),
    "max_lag": ("max_lag", int),
    "weight": ("weight", float),
    "minimum_share": ("minimum_share", float),
    "epochs": ("epochs", int),
    "retest": ("retest", float),
    "required_columns": ("required_columns", _at_most(REQUIRED_COLUMNS_MAX, list)),
    "paused": ("paused", bool),
    "purpose": ("purpose", _enum("PURPOSE", "train", "eval")),
    "order": ("order", _enum("ORDER", "static", "shuffled", "weighted", "learnable")),
    "advantage": ("advantage", _enum("ADVANTAGE", "grpo", "dr_grpo", "rloo", "reinforce_pp", "none")),
    "lag_of": ("lag_of", _enum("LAG_OF", "oldest", "start", "mean_token", "newest")),
    "late": ("late", _enum("LATE", "drop", "baseline_only", "mask_old_tokens", "train", "wait")),
    "truncated": ("truncated", _enum("TRUNCATED", "train", "mask", "drop")),
    "aborted": ("aborted", _enum("ABORTED", "retry", "drop")),
}
# Keyword: message of SourceSettings, its type, the field within it, and how.
_NESTED: Dict[str, Any] = {
    "complete_at": ("completeness", wire.Completeness, "at_least", int),
    "complete_deadline_s": ("completeness", wire.Completeness, "deadline_ms", _milliseconds),
    "complete_minimum": ("completeness", wire.Completeness, "minimum", int),
    "keep_equal_rewards": ("filters", wire.Filters, "keep_equal_rewards", bool),
    "max_tokens": ("filters", wire.Filters, "max_tokens", int),
    "screen_attempts": ("filters", wire.Filters, "screen_attempts", int),
    "lease_min_s": ("lease", wire.LeaseRules, "min_ms", _milliseconds),
    "lease_max_s": ("lease", wire.LeaseRules, "max_ms", _milliseconds),
    "lease_duration_factor": ("lease", wire.LeaseRules, "duration_factor", float),
    "max_failures": ("lease", wire.LeaseRules, "max_failures", int),
}


def settings(name: str, values: Mapping[str, Any], base: Optional[wire.SourceSettings] = None) -> wire.SourceSettings:
    """SourceSettings from keywords; those not given stay as in `base`, or at their defaults."""
    out = wire.SourceSettings.decode(base.encode()) if base is not None else wire.SourceSettings()
    out.name = name
    if base is not None and values.get("group_size", base.group_size) != base.group_size:
        _follow_group_size(out)
    for keyword, value in values.items():
        try:
            if keyword in _PLAIN:
                field, convert = _PLAIN[keyword]
                setattr(out, field, convert(value))
            elif keyword in _NESTED:
                field, kind, inner, convert = _NESTED[keyword]
                held = getattr(out, field) or kind()
                setattr(held, inner, convert(value))
                setattr(out, field, held)
            else:
                known = ", ".join(sorted([*_PLAIN, *_NESTED]))
                raise TypeError(f"{keyword!r} is no setting of a source; known: {known}")
        except ValueError as error:
            raise ValueError(f"{keyword}: {error}") from None
    return out


def _follow_group_size(held: wire.SourceSettings) -> None:
    """Settings whose defaults are made of group_size, and that are at them, will be at the new ones (0: the default)."""
    if held.attempts_per_task == held.group_size:
        held.attempts_per_task = 0
    if held.completeness is not None:
        if held.completeness.minimum == min(2, held.completeness.at_least):
            held.completeness.minimum = 0
        if held.completeness.at_least == held.group_size:
            held.completeness.at_least = 0


# ---- tasks


def items(dataset: Dataset) -> Iterator[Any]:
    """Items of a data set: a path (.jsonl, .json, also .gz; .parquet), or any iterable."""
    if isinstance(dataset, (Mapping, bytes)):
        raise TypeError(f"a data set is a list of tasks or a path, not one {type(dataset).__name__}")
    if not isinstance(dataset, (str, os.PathLike)):
        yield from dataset
        return
    path = os.fspath(dataset)
    plain = path[:-3] if path.endswith(".gz") else path
    if plain.endswith(".parquet"):
        import pyarrow.parquet as parquet

        for batch in parquet.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    elif plain.endswith((".jsonl", ".ndjson", ".json")):
        opener: Any = gzip.open if path.endswith(".gz") else open
        with opener(path, "rt", encoding="utf-8-sig") as file:  # a byte order mark is no content
            if plain.endswith(".json"):
                yield from json.load(file)
                return
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _parse(line, path, number)
    else:
        raise ValueError(f"{path}: neither .jsonl, .json nor .parquet")


def _parse(line: str, path: str, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path}:{number}: {error}") from None


def tasks(
    dataset: Dataset, id_field: str, weight: Union[None, str, Callable[[Any], float]]
) -> Iterator[Task]:
    """Tasks of a data set. The id is the item's `id_field`, or a hash of its content."""
    for item in items(dataset):
        if isinstance(item, Mapping):
            item = dict(item)
        payload = item if isinstance(item, bytes) else json.dumps(item, default=_plain, ensure_ascii=False).encode()
        external_id = item.get(id_field) if isinstance(item, dict) else None
        if external_id is None:
            canonical = payload
            if not isinstance(item, bytes):
                canonical = json.dumps(item, default=_plain, sort_keys=True).encode()
            external_id = hashlib.blake2b(canonical, digest_size=16).hexdigest()
        share: Optional[float] = None
        if callable(weight):
            share = float(weight(item))
        elif weight is not None:
            share = float(item[weight])
        yield Task(external_id=str(external_id), payload=payload, weight=share)


def _plain(value: Any) -> Any:
    """What JSON does not know: numpy's scalars and arrays, bytes, dates."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (set, tuple)):
        return list(value)
    raise TypeError(f"a task holds a {type(value).__name__}, which is no JSON")


def check(task: Task, path: str) -> None:
    """Raises InvalidRequest for a task that the daemon would refuse with all that are in its request."""
    size = len(task.external_id.encode())
    if not 1 <= size <= TASK_ID_BYTES_MAX:
        shown = task.external_id[:40]
        raise InvalidRequest(f"{path}.external_id: {shown!r} has {size} bytes, must be 1 to {TASK_ID_BYTES_MAX}")
    if len(task.payload) > TASK_BYTES_MAX:
        raise InvalidRequest(
            f"{path}.payload: of task {task.external_id!r} has {len(task.payload)} bytes, at most {TASK_BYTES_MAX}"
        )
    if task.weight is not None and not 0 <= task.weight < math.inf:
        raise InvalidRequest(
            f"{path}.weight: of task {task.external_id!r} is {task.weight}, must be finite and at least 0"
        )


def batches(all_tasks: Iterable[Task]) -> Iterator[List[Task]]:
    """Tasks in requests of bounded size. Raises InvalidRequest for a task beyond the contract's limits."""
    batch: List[Task] = []
    nbytes = 0
    for index, task in enumerate(all_tasks):
        check(task, f"tasks[{index}]")
        batch.append(task)
        nbytes += len(task.payload) + 64
        if len(batch) >= TASKS_PER_REQUEST or nbytes >= BYTES_PER_REQUEST:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch

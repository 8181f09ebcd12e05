"""Rollouts as users make them, checked here with the field paths that the daemon uses. Plain values, no locks."""

from __future__ import annotations

import difflib
import json
import math
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence as Seq, Tuple, Union

import numpy as np

from . import _adapters
from ._columns import KNOWN, Column, Encoded, encode_column, to_numpy
from ._errors import InvalidRollout
from ._messages import types as wire
from ._wire import varint

LOGPROBS = {"": 0, "raw": wire.LOGPROB_RAW, "processed": wire.LOGPROB_PROCESSED}
Array = Any  # a numpy array, a torch tensor, or a sequence of numbers
STATUSES = {
    "finished": wire.ROLLOUT_STATUS_FINISHED,
    "truncated": wire.ROLLOUT_STATUS_TRUNCATED,
    "aborted": wire.ROLLOUT_STATUS_ABORTED,
}
# Limits of the contract. The daemon refuses a whole frame for some of them, so they are checked before anything is sent.
SEQUENCES_MAX = 1024
COLUMNS_MAX = 256
REWARDS_MAX = 64
REWARD_MAX = 1e12
REWARD_NAME_BYTES_MAX = 64
VERSION_RUNS_MAX = 65_536  # of a sequence
TOKENS_MAX = (1 << 31) - 1  # of a sequence
EXTRA_BYTES_MAX = 64 * 1024
HEADER_BYTES_MAX = 1 << 20
_UINT32_MAX = (1 << 32) - 1
_JSON = json.JSONEncoder(allow_nan=False)
SMALL_BYTES_PER_TOKEN = 8  # columns of more are sent last


class VersionRun(NamedTuple):
    """From token `offset` on the sequence was sampled by version `number`. Branch None: the assignment's."""

    offset: int
    number: int
    branch: Optional[int] = None


class Turn(NamedTuple):
    """A span of a sequence: a turn of the policy, a tool's answer, a user's message."""

    offset: int
    tokens: int
    role: str = "assistant"
    engine: str = ""
    tool_wait_s: float = 0.0
    temperature: float = 0.0
    top_p: float = 0.0
    top_k: int = 0
    seed: int = 0
    logprobs: str = ""  # "raw" or "processed"

    def check(self, path: str, tokens: int) -> None:
        """Raises InvalidRollout for a turn that a sequence of `tokens` tokens cannot have."""
        end = self.offset + self.tokens
        if self.offset < 0 or self.tokens < 0 or end > tokens:
            raise InvalidRollout(path, f"ends at {end}, the sequence at {tokens}")
        if self.logprobs not in LOGPROBS:
            raise InvalidRollout(f"{path}.logprobs", f"is {self.logprobs!r}, must be one of {', '.join(LOGPROBS)}")
        if not 0 <= self.tool_wait_s < math.inf:
            raise InvalidRollout(f"{path}.tool_wait_ms", f"is {self.tool_wait_s} s, must be finite and at least 0")

    def message(self) -> wire.Turn:
        sampling = None
        kind = LOGPROBS.get(self.logprobs, 0)
        if self.temperature or self.top_p or self.top_k or self.seed or kind:
            sampling = wire.Sampling(
                temperature=self.temperature,
                top_p=self.top_p,
                top_k=self.top_k,
                seed=self.seed,
                logprobs=kind,
            )
        return wire.Turn(
            offset=self.offset,
            tokens=self.tokens,
            role=self.role,
            engine=self.engine,
            sampling=sampling,
            tool_wait_ms=int(self.tool_wait_s * 1000),
        )


Versions = Union[None, int, Seq[Any], "np.ndarray[Any, Any]"]


class Sequence:
    """Tokens of one context, prompt and response together, with their columns.

    tokens [T]; loss_mask [T] (or [T - P]: the response's), default: the response; logprobs [T] or
    [T - P]; prompt_tokens P, default: the tokens before the first one of the loss.
    versions: a number, runs [(offset, number), ...] or one number per token (-1 on the prompt).
    Any further keyword is a column: an array of T, T - P or T - 1 rows, a scalar, text, bytes, or
    a Column or Ragged that says more.
    """

    def __init__(
        self,
        tokens: Array,
        *,
        loss_mask: Optional[Array] = None,
        logprobs: Optional[Array] = None,
        prompt_tokens: Optional[int] = None,
        versions: Versions = None,
        turns: Seq[Turn] = (),
        advantage: Optional[float] = None,
        **columns: Any,
    ) -> None:
        self.tokens = _tokens(tokens)
        count = len(self.tokens)
        self.prompt_tokens, self.loss_mask = _prompt_and_mask(count, loss_mask, prompt_tokens)
        self.versions = _runs(versions, count)
        self.turns = list(turns)
        self.advantage = advantage
        self.columns: Dict[str, Any] = {"tokens": self.tokens, "loss_mask": self.loss_mask}
        if logprobs is not None:
            self.columns["logprobs"] = _logprobs(logprobs, count, self.prompt_tokens)
        for name, column in columns.items():
            meant = difflib.get_close_matches(name, KNOWN, 1, 0.9)
            if meant and meant[0] != name and not isinstance(column, Column):
                raise TypeError(f"{name!r}: did you mean {meant[0]!r}? A column of that name is given as fb.Column(...)")
        self.columns.update(columns)

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"Sequence({len(self)} tokens, {self.prompt_tokens} of the prompt, {', '.join(self.columns)})"

    def message(self, index: int, branch: int) -> wire.Sequence:
        path = f"sequences[{index}]"
        count = len(self.tokens)
        if not 1 <= count <= TOKENS_MAX:
            raise InvalidRollout(f"{path}.tokens", f"is {count}, must be 1 to {TOKENS_MAX}")
        if not 0 <= self.prompt_tokens <= count:
            raise InvalidRollout(f"{path}.prompt_tokens", f"is {self.prompt_tokens}, at most {count}")
        if self.advantage is not None and not math.isfinite(self.advantage):
            raise InvalidRollout(f"{path}.advantage", f"is {self.advantage}, must be finite")
        for i, turn in enumerate(self.turns):
            turn.check(f"{path}.turns[{i}]", count)
        loss_tokens = _count(self.loss_mask)
        return wire.Sequence(
            tokens=count,
            prompt_tokens=self.prompt_tokens,
            loss_tokens=loss_tokens,
            versions=self._version_runs(path, branch, loss_tokens),
            turns=[turn.message() for turn in self.turns],
            advantage=self.advantage,
        )

    def _version_runs(self, path: str, branch: int, loss_tokens: int) -> List[wire.VersionRun]:
        runs = self.versions
        if not runs:
            return []
        if len(runs) > VERSION_RUNS_MAX:
            raise InvalidRollout(f"{path}.versions", f"has {len(runs)} entries, at most {VERSION_RUNS_MAX}")
        if runs[0].offset != 0:
            raise InvalidRollout(f"{path}.versions[0].offset", f"is {runs[0].offset}, must be 0")
        bounds = [run.offset for run in runs] + [len(self.tokens)]
        for i in range(len(runs)):
            if bounds[i + 1] <= bounds[i]:
                at, rule = (i, "below") if i + 1 == len(runs) else (i + 1, "above")
                limit = bounds[i + 1] if rule == "below" else bounds[i]
                raise InvalidRollout(
                    f"{path}.versions[{at}].offset", f"is {bounds[at]}, must be {rule} {limit}"
                )
        out = []
        for i, (run, begin, end) in enumerate(zip(runs, bounds, bounds[1:])):
            for what, number in (("number", run.number), ("branch", run.branch or 0)):
                if not 0 <= number <= _UINT32_MAX:
                    raise InvalidRollout(f"{path}.versions[{i}].{what}", f"is {number}, must be 0 to {_UINT32_MAX}")
            loss = loss_tokens if len(runs) == 1 else _count(self.loss_mask[begin:end])
            out.append(
                wire.VersionRun(
                    offset=begin,
                    branch=branch if run.branch is None else run.branch,
                    number=run.number,
                    loss_tokens=loss,
                )
            )
        return out


class Rollout:
    """The result of an attempt: one sequence given by its arrays (see Sequence), or several `sequences`.

    rewards: scalars by name, at most 64; push(reward=...) is the one called "reward". extra: a JSON object, at most
    64 KiB. At most 1024 sequences and 256 columns; versions, turns, names and extra together take at most 1 MiB.
    """

    def __init__(
        self,
        tokens: Optional[Array] = None,
        *,
        sequences: Optional[Seq[Sequence]] = None,
        status: str = "finished",
        rewards: Optional[Mapping[str, float]] = None,
        duration_s: Optional[float] = None,
        extra: Optional[Mapping[str, Any]] = None,
        site: str = "",
        engine: str = "",
        **sequence: Any,
    ) -> None:
        if (tokens is None) == (sequences is None):
            raise TypeError("give either tokens (and their columns) or sequences")
        if sequences is not None and sequence:
            raise TypeError(f"{', '.join(sequence)}: belongs into each of the sequences")
        self.sequences = [Sequence(tokens, **sequence)] if sequences is None else list(sequences)
        self.status = status
        self.rewards: Dict[str, float] = dict(rewards or {})
        self.duration_s = duration_s
        self.extra = extra
        self.site = site
        self.engine = engine  # that sampled what no turn names another for; by default the actor's

    from_vllm = classmethod(_adapters.from_vllm)
    from_sglang = classmethod(_adapters.from_sglang)
    from_messages = classmethod(_adapters.from_messages)

    @property
    def tokens(self) -> "np.ndarray[Any, Any]":
        """Of the first sequence."""
        return self.sequences[0].tokens

    @property
    def nbytes(self) -> int:
        """Payload bytes: of the columns that are arrays."""
        columns = [c for s in self.sequences for c in s.columns.values()]
        arrays = [c.array if isinstance(c, Column) else c for c in columns]
        return sum(getattr(array, "nbytes", 0) for array in arrays)

    def __repr__(self) -> str:
        tokens = sum(map(len, self.sequences))
        return f"Rollout({len(self.sequences)} sequences, {tokens} tokens, {self.status}, {self.rewards})"

    def _encode(
        self, branch: int = 0, rewards: Optional[Mapping[str, float]] = None, partial: bool = False
    ) -> Tuple[wire.RolloutHeader, List["np.ndarray[Any, Any]"]]:
        """The header, and the payload's arrays in order. Raises InvalidRollout."""
        if self.status not in STATUSES:
            raise InvalidRollout("status", f"is {self.status!r}, must be one of {', '.join(STATUSES)}")
        if not 1 <= len(self.sequences) <= SEQUENCES_MAX:
            raise InvalidRollout("sequences", f"has {len(self.sequences)} entries, 1 to {SEQUENCES_MAX}")
        if not 0 <= (self.duration_s or 0) < math.inf:
            raise InvalidRollout("duration_ms", f"is {self.duration_s} s, must be finite and at least 0")
        sequences = [s.message(i, branch) for i, s in enumerate(self.sequences)]
        columns, parts = self._columns()
        header = wire.RolloutHeader(
            status=STATUSES[self.status],
            sequences=sequences,
            columns=columns,
            rewards=check_rewards({**self.rewards, **(rewards or {})}),
            duration_ms=int((self.duration_s or 0) * 1000),
            extra_json=self._extra_json(),
            partial=partial,
            site=self.site,
            engine=self.engine,
        )
        return header, parts

    def _extra_json(self) -> str:
        if self.extra is None:
            return ""
        if not isinstance(self.extra, Mapping):
            raise InvalidRollout("extra_json", f"is a {type(self.extra).__name__}, must be an object: a dict")
        try:
            text = _JSON.encode(dict(self.extra))
        except (TypeError, ValueError, RecursionError) as error:
            raise _no_json(self.extra, error) from None
        if len(text) > EXTRA_BYTES_MAX:
            raise InvalidRollout("extra_json", f"has {len(text)} bytes, at most {EXTRA_BYTES_MAX}")
        return text

    def _columns(self) -> Tuple[List[_EncodedColumn], List["np.ndarray[Any, Any]"]]:
        if len(self.sequences[0].columns) > COLUMNS_MAX:
            raise InvalidRollout("columns", f"has {len(self.sequences[0].columns)} entries, at most {COLUMNS_MAX}")
        columns: List[Tuple[int, _EncodedColumn, List["np.ndarray[Any, Any]"]]] = []
        small = SMALL_BYTES_PER_TOKEN * sum(len(s) for s in self.sequences)
        for index, name in enumerate(self.sequences[0].columns):
            path = f"columns[{index}]"
            encoded = [self._column(s, name, path) for s in self.sequences]
            first = encoded[0]
            for other in encoded[1:]:
                if not first.same_kind(other):
                    raise InvalidRollout(
                        path, f"{name} has another dtype, domain or inner shape in another sequence"
                    )
            named_parts = first.domain in ("ragged", "blob") and len(encoded) > 1
            nbytes = sum(e.nbytes for e in encoded)
            columns.append(
                (
                    nbytes if nbytes > small else 0,
                    _EncodedColumn(
                        first.head(), nbytes, [e.nbytes for e in encoded] if named_parts else ()
                    ),
                    [part for e in encoded for part in e.parts],
                )
            )
        for i, sequence in enumerate(self.sequences[1:], 1):
            if sequence.columns.keys() != self.sequences[0].columns.keys():
                raise InvalidRollout(
                    "columns", f"of sequences[{i}] are {', '.join(sequence.columns)}, not those of sequences[0]"
                )
        # Large ones last, so that the daemon may keep them apart (storage.cold_columns).
        columns.sort(key=lambda column: column[0])
        return [c for _, c, _ in columns], [part for _, _, parts in columns for part in parts]

    @staticmethod
    def _column(sequence: Sequence, name: str, path: str) -> Encoded:
        if name not in sequence.columns:
            raise InvalidRollout("columns", f"lack {name!r} in one of the sequences")
        return encode_column(
            name, sequence.columns[name], len(sequence), sequence.prompt_tokens, path
        )


def _count(mask: "np.ndarray[Any, Any]") -> int:
    return int(np.count_nonzero(mask != 0))  # ten times as fast as on the bytes themselves


class _EncodedColumn:
    """Stands for a wire.Column of which all but the sizes is encoded already: most rollouts have the same columns."""

    __slots__ = ("_head", "_bytes", "_sequence_bytes")

    def __init__(self, head: bytes, nbytes: int, sequence_bytes: Seq[int]) -> None:
        self._head, self._bytes, self._sequence_bytes = head, nbytes, sequence_bytes

    def encode(self) -> bytes:
        if not self._sequence_bytes and self._bytes:
            return self._head + b"\x30" + varint(self._bytes)
        return self._head + wire.Column(bytes=self._bytes, sequence_bytes=self._sequence_bytes).encode()


def header_bytes(header: wire.RolloutHeader) -> bytes:
    """The encoded header; raises InvalidRollout for one that is larger than the daemon takes."""
    try:
        data = header.encode()
    except ValueError as error:  # a number out of its type's range, or text that is no Unicode
        raise InvalidRollout("header", f"cannot be encoded: {error}") from None
    if len(data) > HEADER_BYTES_MAX:
        raise InvalidRollout(
            "header",
            f"has {len(data)} bytes, at most {HEADER_BYTES_MAX}: versions and turns of all sequences, names, extra_json",
        )
    return data


def _no_json(extra: Mapping[str, Any], error: Exception) -> InvalidRollout:
    """What `json.dumps` did not take, with its place if that is a number."""
    try:
        found = _not_finite(extra, "extra_json")
    except RecursionError:
        found = None
    if found is None:
        return InvalidRollout("extra_json", f"is no JSON: {error}")
    return InvalidRollout(found[0], f"is {found[1]}, must be finite: JSON has no such number")


def _not_finite(value: Any, path: str) -> Optional[Tuple[str, float]]:
    """The first number in a tree of values that is NaN or infinite, and its path."""
    if isinstance(value, float):
        return None if math.isfinite(value) else (path, value)
    within: List[Tuple[Any, str]] = []
    if isinstance(value, Mapping):
        within = [(inner, f"{path}.{key}") for key, inner in value.items()]
        within += [(key, f"{path}.{key}") for key in value if isinstance(key, float)]
    elif isinstance(value, (list, tuple)):
        within = [(inner, f"{path}[{i}]") for i, inner in enumerate(value)]
    return next(filter(None, (_not_finite(inner, at) for inner, at in within)), None)


def check_rewards(rewards: Mapping[str, float]) -> Dict[str, float]:
    """Rewards as floats; raises InvalidRollout for one that is not within +-1e12, for a name of more than 64 bytes, and
    for more than 64 of them."""
    out = {}
    if len(rewards) > REWARDS_MAX:
        raise InvalidRollout("rewards", f"has {len(rewards)} entries, at most {REWARDS_MAX}")
    for name, value in rewards.items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise InvalidRollout(f"rewards[{name}]", f"is {value!r}, must be a number") from None
        if not abs(number) <= REWARD_MAX:  # written so that NaN fails
            raise InvalidRollout(f"rewards[{name}]", f"is {number}, must be finite and within +-{REWARD_MAX:g}")
        try:
            name_bytes = len(name.encode())
        except (AttributeError, UnicodeEncodeError):
            raise InvalidRollout("rewards", f"has the name {name!r}, which is no text") from None
        if not 1 <= name_bytes <= REWARD_NAME_BYTES_MAX:
            raise InvalidRollout("rewards", f"has a name of {name_bytes} bytes, must be 1 to {REWARD_NAME_BYTES_MAX}")
        out[name] = number
    return out


def _tokens(value: Array) -> "np.ndarray[Any, Any]":
    try:
        array, dtype = to_numpy(value)
    except (TypeError, ValueError) as error:
        raise InvalidRollout("sequences[0].tokens", str(error)) from None
    if dtype == "uint32" and array.ndim == 1:
        return array
    if array.size == 0:
        array = array.astype(np.uint32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidRollout(
            "columns[0].dtype", f"of tokens is {dtype} of {array.ndim} dimensions, must be integers of one"
        )
    if array.size and (int(array.min()) < 0 or int(array.max()) > 0xFFFFFFFF):
        raise InvalidRollout("columns[0].dtype", "of tokens: ids must be 0 to 2^32 - 1")
    return array.astype(np.uint32)


def _prompt_and_mask(
    count: int, loss_mask: Optional[Array], prompt_tokens: Optional[int]
) -> Tuple[int, "np.ndarray[Any, Any]"]:
    if loss_mask is None:
        if prompt_tokens is None:
            raise InvalidRollout("columns[1]", "loss_mask is missing; give it or prompt_tokens")
        mask = np.ones(count, np.uint8)
        mask[:prompt_tokens] = 0
        return prompt_tokens, mask
    mask, dtype = to_numpy(loss_mask)
    if dtype == "bool":
        mask = mask.view(np.uint8)
    elif dtype != "uint8":
        if mask.size and not np.isin(mask, (0, 1)).all():
            raise InvalidRollout("columns[1].dtype", f"of loss_mask is {dtype}, must be uint8, or hold 0 and 1")
        mask = mask.astype(np.uint8)
    if prompt_tokens is not None and len(mask) == count - prompt_tokens != count:
        mask = np.concatenate((np.zeros(prompt_tokens, np.uint8), mask))
    if mask.shape != (count,):
        raise InvalidRollout("columns[1].bytes", f"of loss_mask are {mask.shape} rows, must be {count}")
    if prompt_tokens is None:
        prompt_tokens = int(mask.argmax()) if mask.any() else count
    return prompt_tokens, mask


def _logprobs(value: Array, count: int, prompt_tokens: int) -> Any:
    if isinstance(value, Column):
        return value
    array, dtype = to_numpy(value)
    if dtype in ("float64", "float16"):
        array, dtype = array.astype(np.float32), "float32"
    if array.shape == (count - prompt_tokens,) != (count,):  # the response's alone
        array = np.concatenate((np.zeros(prompt_tokens, array.dtype), array))
    return Column(array, domain="token", dtype=dtype)


def _runs(versions: Versions, count: int) -> List[VersionRun]:
    if versions is None:
        return []
    if isinstance(versions, (int, np.integer)):
        return [VersionRun(0, int(versions))]
    if isinstance(versions, np.ndarray) and versions.ndim == 1:
        return _runs_of_tokens(versions, count)
    if hasattr(versions, "number"):  # a Version
        return [_run((0, versions))]
    try:
        return [_run(entry) for entry in versions]
    except (TypeError, ValueError):
        raise InvalidRollout(
            "versions", f"are {versions!r}, must be a version, [(offset, version), ...], or an array of one a token"
        ) from None


def _run(entry: Any) -> VersionRun:
    offset, number, *branch = entry
    if hasattr(number, "number"):  # a Version
        return VersionRun(int(offset), int(number.number), int(number.branch))
    return VersionRun(int(offset), int(number), int(branch[0]) if branch and branch[0] is not None else None)


def _runs_of_tokens(versions: "np.ndarray[Any, Any]", count: int) -> List[VersionRun]:
    if len(versions) != count:
        raise InvalidRollout("sequences[0].versions", f"are {len(versions)}, must be {count}, one a token")
    known = np.flatnonzero(versions >= 0)
    if not len(known):
        return []
    filled = versions.copy()
    filled[: known[0]] = versions[known[0]]
    if (filled < 0).any():  # a token that no version sampled belongs to the run before it
        last = np.maximum.accumulate(np.where(filled >= 0, np.arange(count), 0))
        filled = filled[last]
    starts = np.flatnonzero(np.diff(filled, prepend=filled[0] - 1))
    return [VersionRun(int(i), int(filled[i])) for i in starts]

"""Micro-batches: what one data-parallel rank runs at once, as numpy arrays. Plain values, no locks."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from ._columns import dtype_name, dtype_number, numpy_dtype, to_numpy
from ._connection import MESSAGE_BYTES_MAX
from ._errors import InternalError, InvalidRequest
from ._messages import trainer as wire
from ._messages.types import DOMAIN_RAGGED, DTYPE_U8, Column

_ALIGN = 64
_PAGE = 4096
# Of columns in one PutColumns; the rest of the message is for what names them.
PUT_BYTES_MAX = MESSAGE_BYTES_MAX - (64 << 10)


@dataclass(frozen=True)
class Totals:
    """What losses divide by."""

    loss_tokens: int
    tokens: int
    sequences: int
    rollouts: int
    groups: int
    dp: int


def totals_of(message: Optional[wire.Totals]) -> Totals:
    """From the wire."""
    m = message or wire.Totals()
    return Totals(m.loss_tokens, m.tokens, m.sequences, m.rollouts, m.groups, m.dp)


class Buffers:
    """Memory of micro-batches that nobody holds any more, for the next ones: fresh pages cost more than the copy.

    An array that was given to a user refers to the whole buffer, so the count of references tells
    whether it is free. One thread uses it.
    """

    def __init__(self, bytes_max: int) -> None:
        self._held: List[Any] = []
        self._bytes_max = bytes_max

    def take(self, nbytes: int) -> "np.ndarray[Any, Any]":
        """At least so many bytes."""
        for i in range(len(self._held)):
            # Two references: the list's, and the argument's of getrefcount.
            if self._held[i].nbytes >= nbytes and sys.getrefcount(self._held[i]) == 2:
                return self._held[i]  # type: ignore[no-any-return]
        buffer = np.empty(-(-nbytes * 5 // 4 // _PAGE) * _PAGE, np.uint8)
        free = [b for b in range(len(self._held)) if sys.getrefcount(self._held[b]) == 2]
        for i in reversed(free):  # too small
            del self._held[i]
        if sum(held.nbytes for held in self._held) + buffer.nbytes <= self._bytes_max:
            self._held.append(buffer)
        return buffer


class Assembly:
    """A micro-batch that is being received: bytes go straight into its arrays."""

    def __init__(self, layout: wire.MicroBatchLayout, buffers: Buffers) -> None:
        self.layout = layout
        sizes = [column.bytes for column in layout.columns]
        starts, end = [], 0
        for size in sizes:
            starts.append(end)
            end += -(-size // _ALIGN) * _ALIGN
        buffer = buffers.take(end)
        self._pieces = [buffer[start : start + size] for start, size in zip(starts, sizes)]
        self._column = 0
        self._filled = 0
        self.nbytes = sum(sizes)

    def take(self, data: memoryview) -> None:
        """The next bytes of the answer."""
        at = 0
        while at < len(data):
            if self._column == len(self._pieces):
                raise InternalError(f"a micro-batch has {len(data) - at} bytes more than its layout says")
            piece = self._pieces[self._column]
            count = min(len(piece) - self._filled, len(data) - at)
            piece.data[self._filled : self._filled + count] = data[at : at + count]
            at += count
            self._filled += count
            if self._filled == len(piece):
                self._column, self._filled = self._column + 1, 0

    def finish(self, mini_batch: int, index: int) -> "MicroBatch":
        while self._column < len(self._pieces) and not len(self._pieces[self._column]):
            self._column += 1
        if self._column != len(self._pieces):
            column = self.layout.columns[self._column]
            raise InternalError(f"a micro-batch ends within its column {column.name}")
        columns, kinds, parts = {}, {}, {}
        for column, piece in zip(self.layout.columns, self._pieces):
            dtype = column.dtype or DTYPE_U8  # a filler's columns have no row, and no dtype
            array = piece.view(numpy_dtype(dtype)) if column.domain != DOMAIN_RAGGED else piece
            columns[column.name] = array.reshape(-1, *column.inner) if column.inner else array
            kinds[column.name] = dtype_name(dtype)
            if len(column.sequence_bytes):
                parts[column.name] = np.array(column.sequence_bytes, np.int64)
        return MicroBatch(self.layout, columns, kinds, parts, mini_batch, index)


def _values(name: str, dtype: Any) -> "functools.cached_property[np.ndarray[Any, Any]]":
    """A list of the layout as an array, made when it is first read: most never are."""
    return functools.cached_property(lambda mb: np.array(getattr(mb._layout, name), dtype))


class MicroBatch:
    """Columns concatenated over the sequences, as a trainer's varlen attention takes them.

    T tokens (with padding) and S sequences. Columns are attributes and items: `mb.tokens` u32 [T],
    `mb.loss_mask` u8 [T], `mb.logprobs` f32 [T], `mb["routed_experts"]`. A filler has no sequence; it
    keeps the number of micro-batches equal on all ranks.

    cu_seqlens i32 [S + 1]; rewards, advantages f32 [S]; versions, lags, prompt_tokens, loss_tokens,
    rollout_loss_tokens (of the whole rollout that the sequence belongs to) i64 [S]; rollout_ids,
    group_ids, task_ids u64 [S]; sources, names [S]. totals: of the mini-batch it belongs to.

    Of a share of the tokens (Context) T are its rows, and cu_seqlens and max_seqlen are of them: a sequence may have
    fewer than its tokens, none, or, with "zigzag_sequences", rows of padding. What is said by sequence is said of the
    whole one. whole_cu_seqlens i32 [S + 1] and whole_padded_tokens are the whole micro-batch's.
    """

    rewards = _values("rewards", np.float32)
    advantages = _values("advantages", np.float32)
    versions = _values("versions", np.int64)
    lags = _values("lags", np.int64)
    rollout_ids = _values("rollout_ids", np.uint64)
    group_ids = _values("group_ids", np.uint64)
    task_ids = _values("task_ids", np.uint64)
    sequence_indexes = _values("sequence_indexes", np.int64)
    prompt_tokens = _values("prompt_tokens", np.int64)
    loss_tokens = _values("loss_tokens", np.int64)
    rollout_loss_tokens = _values("rollout_loss_tokens", np.int64)

    def __init__(
        self,
        layout: wire.MicroBatchLayout,
        columns: Dict[str, "np.ndarray[Any, Any]"],
        dtypes: Dict[str, str],
        parts: Dict[str, "np.ndarray[Any, Any]"],
        mini_batch: int,
        index: int,
    ) -> None:
        self.mini_batch, self.index, self.revision = mini_batch, index, layout.revision
        self.columns, self.dtypes, self._parts = columns, dtypes, parts
        self._layout = layout
        self.max_seqlen = layout.max_seqlen
        self.padded_tokens = layout.padded_tokens

    @functools.cached_property
    def cu_seqlens(self) -> "np.ndarray[Any, Any]":
        return np.array(self._layout.cu_seqlens or (0,), np.int32)

    @property
    def is_share(self) -> bool:
        """Whether this peer has a part of the tokens; others have the rest."""
        return self._layout.context is not None

    @functools.cached_property
    def whole_cu_seqlens(self) -> "np.ndarray[Any, Any]":
        return np.array(self._layout.whole_cu_seqlens, np.int32) if self.is_share else self.cu_seqlens

    @property
    def whole_padded_tokens(self) -> int:
        return self._layout.whole_padded_tokens if self.is_share else self.padded_tokens

    @functools.cached_property
    def totals(self) -> Totals:
        return totals_of(self._layout.mini_batch)

    @functools.cached_property
    def sources(self) -> List[str]:
        names = self._layout.source_names
        return [names[i] if i < len(names) else "" for i in self._layout.sources]

    @property
    def is_filler(self) -> bool:
        return len(self) == 0

    def __len__(self) -> int:
        """Sequences."""
        return len(self.cu_seqlens) - 1

    @property
    def num_tokens(self) -> int:
        """Without padding."""
        return int(self.cu_seqlens[-1])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.columns.values())

    @property
    def tokens(self) -> "np.ndarray[Any, Any]":
        return self["tokens"]

    @property
    def loss_mask(self) -> "np.ndarray[Any, Any]":
        return self["loss_mask"]

    @property
    def logprobs(self) -> "np.ndarray[Any, Any]":
        """The engine's."""
        return self["logprobs"]

    @functools.cached_property
    def position_ids(self) -> "np.ndarray[Any, Any]":
        """i32 [T]: from 0 in each sequence, and in the padding; in a share those of its rows."""
        if self.is_share:
            return self._row_places[1].astype(np.int32)
        bounds = np.append(self.cu_seqlens, max(self.padded_tokens, self.num_tokens))
        lengths = np.diff(bounds)
        return np.arange(bounds[-1], dtype=np.int32) - np.repeat(bounds[:-1], lengths).astype(np.int32)

    @functools.cached_property
    def token_indexes(self) -> "np.ndarray[Any, Any]":
        """i64 [T]: the index of each row in the whole micro-batch, -1 of padding; to put shares together."""
        if not self.is_share:
            rows = np.arange(max(self.padded_tokens, self.num_tokens), dtype=np.int64)
            return np.where(rows < self.num_tokens, rows, -1)
        sequences, positions = self._row_places
        bounds = np.append(self.whole_cu_seqlens.astype(np.int64), self.whole_cu_seqlens[-1])
        indexes = bounds[sequences] + positions
        return np.where(indexes < bounds[sequences + 1], indexes, -1)

    @property
    def _row_places(self) -> Tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
        """Of each row of a share: its sequence, which is S of padding, and its position there."""
        spans = np.array([(s.sequence, s.begin, s.end) for s in self._layout.spans], np.int64).reshape(-1, 3)
        lengths = spans[:, 2] - spans[:, 1]
        starts = np.cumsum(lengths) - lengths
        positions = np.arange(lengths.sum()) + np.repeat(spans[:, 1] - starts, lengths)
        return np.repeat(spans[:, 0], lengths), positions

    def sequence(self, name: str, index: int) -> "np.ndarray[Any, Any]":
        """The part of a column that belongs to one sequence."""
        column = self[name]
        if name in self._parts:
            ends = np.cumsum(self._parts[name])
            flat = column.reshape(-1).view(np.uint8)
            return flat[ends[index] - self._parts[name][index] : ends[index]].view(column.dtype)
        if len(column) == len(self):  # a row a sequence
            return column[index : index + 1]
        return column[self.cu_seqlens[index] : self.cu_seqlens[index + 1]]

    def __getitem__(self, name: str) -> "np.ndarray[Any, Any]":
        try:
            return self.columns[name]
        except KeyError:
            raise KeyError(f"column {name!r} was not fetched; run.trainer(columns=[...]) names those") from None

    def __getattr__(self, name: str) -> Any:
        columns = self.__dict__.get("columns", {})
        if name in columns:
            return columns[name]
        raise AttributeError(f"{name!r} is neither an attribute of a micro-batch nor one of its columns")

    def __repr__(self) -> str:
        return (
            f"<micro-batch {self.index} of mini-batch {self.mini_batch}: {len(self)} sequences, "
            f"{self.num_tokens} tokens, {', '.join(self.columns)}>"
        )

    def torch(self, device: Any = "cpu", non_blocking: bool = True) -> Any:
        """The same as torch tensors, by the same names; torch is imported here and nowhere else.

        Unsigned integers that torch does not know become the next wider signed ones; tokens are i64,
        as embeddings take them.
        """
        import torch

        def move(array: "np.ndarray[Any, Any]", dtype: str = "") -> Any:
            if dtype == "bfloat16":
                tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
            else:
                signed = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}.get(array.dtype.name)
                tensor = torch.from_numpy(array.astype(signed) if signed else array)
            return tensor.to(device, non_blocking=non_blocking)

        out = SimpleNamespace(numpy=self, max_seqlen=self.max_seqlen, sources=self.sources, totals=self.totals)
        out.columns = {name: move(array, self.dtypes[name]) for name, array in self.columns.items()}
        for name, tensor in out.columns.items():
            if not hasattr(self, name) or name in ("tokens", "loss_mask", "logprobs"):
                setattr(out, name, tensor)
        for name, kind in vars(MicroBatch).items():
            value = getattr(self, name) if isinstance(kind, functools.cached_property) else None
            if isinstance(value, np.ndarray):
                setattr(out, name, move(value))
        return out


def put_messages(
    mb: MicroBatch, columns: Dict[str, Any], generation: int, step: int, dp_rank: int
) -> List[wire.PutColumnsRequest]:
    """Per-token results for the tokens without padding; rows of the padding are cut off.

    As few messages as their limit allows, each with whole columns. Raises InvalidRequest for a column of more than
    PUT_BYTES_MAX bytes, and ValueError for one whose rows are not the micro-batch's.
    """
    named = _put_columns(mb, columns)
    batches: List[List[Tuple[Column, Any]]] = [[]]
    nbytes = 0
    for column, array in named:
        if batches[-1] and nbytes + array.nbytes > PUT_BYTES_MAX:
            batches.append([])
            nbytes = 0
        batches[-1].append((column, array))
        nbytes += array.nbytes
    return [
        wire.PutColumnsRequest(
            generation=generation,
            step=step,
            revision=mb.revision,
            dp_rank=dp_rank,
            mini_batch=mb.mini_batch,
            micro_batch=mb.index,
            columns=[column for column, _ in batch],
            data=b"".join([array for _, array in batch]),
        )
        for batch in batches
    ]


def _put_columns(mb: MicroBatch, columns: Dict[str, Any]) -> List[Tuple[Column, Any]]:
    if mb.is_share:
        raise ValueError(
            "a share of a micro-batch's tokens cannot be put: put the rows of the whole one (token_indexes says which "
            "rows these are)"
        )
    named: List[Tuple[Column, Any]] = []
    for name, value in columns.items():
        array, dtype = to_numpy(value)
        if dtype == "float64":
            array, dtype = array.astype(np.float32), "float32"
        rows = array.shape[0] if array.ndim else 0
        if rows not in (mb.num_tokens, mb.padded_tokens):
            raise ValueError(f"{name} has {rows} rows, the micro-batch {mb.num_tokens} tokens")
        array = np.ascontiguousarray(array[: mb.num_tokens])
        if array.nbytes > PUT_BYTES_MAX:
            raise InvalidRequest(
                f"{name}: has {array.nbytes} bytes ({mb.num_tokens} tokens of {array.nbytes // mb.num_tokens}), at most "
                f"{PUT_BYTES_MAX} a column; micro-batches of fewer tokens or a narrower dtype fit"
            )
        column = Column(name=name, dtype=dtype_number(dtype), inner=array.shape[1:], domain=1, bytes=array.nbytes)
        named.append((column, array))
    return named

"""Which part of a micro-batch a rank takes. Plain values; no locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ._columns import dtype_number
from ._messages import trainer as wire

ORDERS = {
    "contiguous": wire.CONTEXT_ORDER_CONTIGUOUS,
    "zigzag": wire.CONTEXT_ORDER_ZIGZAG,
    "zigzag_sequences": wire.CONTEXT_ORDER_ZIGZAG_SEQUENCES,
}


@dataclass(frozen=True)
class Slice:
    """What is taken of a column: `columns={"routed_experts": fb.Slice(inner=[range(12, 24)], dtype="int32")}`.

    inner: by dimension of a row, outermost first, a range, or several that rise and lie apart, whose indexes come one
    after another; None, as for dimensions that are not named: all. dtype: "bfloat16" of f32, "int32" of i16 and the
    like: integers that hold all values, or a float that is rounded to nearest even. shifted: rows stand one token
    earlier, where the model predicts them (row'[t] = row[t + 1] within a sequence, last 0). of: the stored column,
    if it has another name: `"labels": fb.Slice(of="tokens", shifted=True)`.
    """

    inner: Sequence[Any] = ()
    dtype: Optional[str] = None
    shifted: Optional[bool] = None
    of: str = ""

    def message(self, column: str) -> wire.ColumnSlice:
        try:
            dtype = dtype_number(self.dtype) if self.dtype is not None else 0
        except KeyError:
            raise ValueError(f"columns[{column!r}].dtype is {self.dtype!r}, which is no dtype") from None
        aligned = {None: wire.MASK_ALIGNMENT_UNSPECIFIED, False: wire.MASK_ALIGNMENT_TOKEN}
        return wire.ColumnSlice(
            column=column,
            source=self.of,
            dimensions=[_ranges(column, d, taken) for d, taken in enumerate(self.inner)],
            dtype=dtype,
            alignment=aligned.get(self.shifted, wire.MASK_ALIGNMENT_PREDICTING),
        )


@dataclass(frozen=True)
class Context:
    """The share of the tokens that the `rank`-th of `size` context-parallel peers takes.

    order: "contiguous", `size` chunks of the padded rows, of which peer r takes chunk r; "zigzag", 2 x size chunks, of
    which it takes r and 2 x size - 1 - r; "zigzag_sequences", the same in each sequence by itself, padded by zeros to a
    multiple of 2 x size, as ring attention over packed sequences wants it. The first two need rows that these chunks
    divide: `run.trainer(pad_multiple=2 * size)`. pad_multiple: of the share's rows, with "zigzag_sequences" alone.
    """

    size: int
    rank: int
    order: str = "zigzag_sequences"
    pad_multiple: int = 1

    def message(self) -> wire.ContextSlice:
        if self.order not in ORDERS:
            raise ValueError(f"context.order is {self.order!r}, must be one of {', '.join(ORDERS)}")
        if not 0 <= self.rank < self.size:
            raise ValueError(f"context.rank is {self.rank}, must be 0 to context.size, {self.size}, less 1")
        if self.pad_multiple < 1:
            raise ValueError(f"context.pad_multiple is {self.pad_multiple}, must be at least 1")
        return wire.ContextSlice(
            order=ORDERS[self.order], size=self.size, rank=self.rank, pad_multiple=self.pad_multiple
        )


Columns = Union[str, Sequence[str], Mapping[str, Optional[Slice]]]


def split_columns(columns: Columns) -> Tuple[List[str], Dict[str, wire.ColumnSlice]]:
    """The names, in order, and the slices of those that have one."""
    if isinstance(columns, str):
        return [columns], {}
    if not isinstance(columns, Mapping):
        return list(columns), {}
    slices = {}
    for name, taken in columns.items():
        if taken is not None and not isinstance(taken, Slice):
            raise ValueError(f"columns[{name!r}] is {taken!r}, must be a Slice, or None for all of the column")
        if taken is not None:
            slices[name] = taken.message(name)
    return list(columns), slices


def _ranges(column: str, dimension: int, taken: Any) -> wire.IndexRanges:
    if taken is None:
        return wire.IndexRanges()
    several = [taken] if isinstance(taken, (range, slice)) else list(taken)
    ranges = []
    for part in several:
        begin, end, step = (part.start or 0, part.stop, part.step) if isinstance(part, slice) else _of_range(part)
        good = isinstance(begin, int) and isinstance(end, int) and step in (None, 1) and 0 <= begin < end < 1 << 32
        if not good:
            raise ValueError(
                f"columns[{column!r}].inner[{dimension}] has {part!r}, must be a range of indexes, from 0 on, step 1"
            )
        ranges.append(wire.IndexRange(begin=begin, end=end))
    if not ranges:
        raise ValueError(f"columns[{column!r}].inner[{dimension}] has no range; None stands for all")
    return wire.IndexRanges(ranges=ranges)


def _of_range(part: Any) -> Tuple[Any, Any, Any]:
    return (part.start, part.stop, part.step) if isinstance(part, range) else (None, None, None)

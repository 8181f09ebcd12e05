"""Columns: named arrays of a rollout, their dtypes and domains, and how they become bytes. Plain values, no locks."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from ._errors import InvalidRollout
from ._messages import types as wire

DOMAINS = {
    "token": wire.DOMAIN_TOKEN,
    "response_token": wire.DOMAIN_RESPONSE_TOKEN,
    "token_but_last": wire.DOMAIN_TOKEN_BUT_LAST,
    "sequence": wire.DOMAIN_SEQUENCE,
    "ragged": wire.DOMAIN_RAGGED,
    "blob": wire.DOMAIN_BLOB,
}
_DTYPES = {
    "uint8": wire.DTYPE_U8,
    "int8": wire.DTYPE_I8,
    "uint16": wire.DTYPE_U16,
    "int16": wire.DTYPE_I16,
    "uint32": wire.DTYPE_U32,
    "int32": wire.DTYPE_I32,
    "uint64": wire.DTYPE_U64,
    "int64": wire.DTYPE_I64,
    "float16": wire.DTYPE_F16,
    "bfloat16": wire.DTYPE_BF16,
    "float32": wire.DTYPE_F32,
    "float64": wire.DTYPE_F64,
    "bool": wire.DTYPE_BOOL,
}
# numpy has no bf16 of its own: its bits stand in a u16.
_NUMPY = {number: "uint16" if name == "bfloat16" else name for name, number in _DTYPES.items()}
_NATIVE = {np.dtype(name): name for name in _DTYPES if name != "bfloat16"}
INNER_DIMENSIONS_MAX = 4
_PLAIN_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")

# What the columns with known names must be: dtypes, domains, dimensions of a row.
_FLOAT_PER_TOKEN = (("float32",), ("token",), 0)
KNOWN: Dict[str, Tuple[Tuple[str, ...], Tuple[str, ...], int]] = {
    "tokens": (("uint32",), ("token",), 0),
    "loss_mask": (("uint8",), ("token",), 0),
    "logprobs": (("float32", "bfloat16"), ("token",), 0),
    "old_logprobs": _FLOAT_PER_TOKEN,
    "ref_logprobs": _FLOAT_PER_TOKEN,
    "teacher_logprobs": _FLOAT_PER_TOKEN,
    "values": _FLOAT_PER_TOKEN,
    "advantages": _FLOAT_PER_TOKEN,
    "routed_experts": (("uint8", "uint16", "int16"), ("token", "token_but_last"), 2),
}


@dataclass(frozen=True)
class Column:
    """An array with what cannot be told from it.

    domain: "token" (T rows), "response_token" (T - P), "token_but_last" (T - 1), "sequence" (one
    row), "ragged" (see Ragged) or "blob"; None: told from the array's first dimension.
    dtype: "bfloat16" for bf16 bits in a uint16 array. missing: stands for a row that is missing.
    """

    array: Any
    domain: Optional[str] = None
    dtype: Optional[str] = None
    missing: float = 0.0


@dataclass(frozen=True)
class Ragged:
    """Any number of values per token: those of token t are values[offsets[t]:offsets[t + 1]]."""

    values: Any
    offsets: Any


class Encoded:
    """A column of one sequence as it goes over the wire."""

    __slots__ = ("name", "dtype", "domain", "inner", "missing", "parts", "nbytes")

    def __init__(
        self,
        name: str,
        dtype: str,
        domain: str,
        inner: Tuple[int, ...],
        missing: float,
        parts: List[Any],
    ) -> None:
        self.name, self.dtype, self.domain, self.inner = name, dtype, domain, inner
        self.missing, self.parts = missing, parts
        self.nbytes = sum(part.nbytes for part in parts)

    def head(self) -> bytes:
        """All fields of the wire's Column that come before its bytes."""
        return _head(self.name, self.dtype, self.domain, self.inner, self.missing)

    def same_kind(self, other: "Encoded") -> bool:
        return (self.dtype, self.domain, self.inner) == (other.dtype, other.domain, other.inner)


@functools.lru_cache(maxsize=1024)
def _head(name: str, dtype: str, domain: str, inner: Tuple[int, ...], missing: float) -> bytes:
    return wire.Column(
        name=name, dtype=_DTYPES[dtype], inner=inner, domain=DOMAINS[domain], missing=missing
    ).encode()


@functools.lru_cache(maxsize=None)
def numpy_dtype(number: int) -> "np.dtype[Any]":
    """The numpy dtype for one of the wire; bf16 is uint16."""
    name = _NUMPY.get(number)
    if name is None:
        raise ValueError(f"dtype {number} is not known to this version of forebay")
    return np.dtype(name).newbyteorder("<") if np.dtype(name).itemsize > 1 else np.dtype(name)


@functools.lru_cache(maxsize=None)
def dtype_name(number: int) -> str:
    return next(name for name, n in _DTYPES.items() if n == number)


def dtype_number(name: str) -> int:
    return _DTYPES[name]


def to_numpy(value: Any) -> Tuple["np.ndarray[Any, Any]", str]:
    """A contiguous little-endian array and its dtype's name; torch tensors are taken as they are."""
    if hasattr(value, "detach"):  # a torch tensor
        value = value.detach().cpu().contiguous()
        if str(value.dtype) == "torch.bfloat16":
            import torch

            return value.view(torch.int16).numpy().view(np.uint16), "bfloat16"
        value = value.numpy()
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("a masked array would lose its mask: fill it (numpy.ma.filled) or drop what is masked")
    array = np.asarray(value)
    known = _NATIVE.get(array.dtype)
    if known is not None and array.flags.c_contiguous and known != "float64":
        return array, known
    if array.dtype == np.float64 and not isinstance(value, np.ndarray):
        array = array.astype(np.float32)  # Python's floats
    name = array.dtype.name
    if name == "bfloat16":  # of ml_dtypes
        return np.ascontiguousarray(array).view(np.uint16), name
    if name not in _DTYPES:
        raise TypeError(f"dtype {name} is none of {', '.join(_DTYPES)}")
    if not array.dtype.isnative and array.dtype.itemsize > 1:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array) if array.ndim else array, name


def encode_column(
    name: str, value: Any, tokens: int, prompt_tokens: int, path: str
) -> Encoded:
    """Checks one column of a sequence; errors name it as `path`."""
    if not name or len(name) > 64 or not _PLAIN_NAME.issuperset(name):
        raise InvalidRollout(
            f"{path}.name", f"is {name!r}, must be 1 to 64 of letters, digits, '_' and '.'"
        )
    column = value if isinstance(value, Column) else Column(value)
    if isinstance(column.array, Ragged):
        return _ragged(name, column, tokens, path)
    if column.domain == "blob" or isinstance(column.array, (bytes, bytearray, memoryview, str)):
        return _blob(name, column, path)
    try:
        array, dtype = to_numpy(column.array)
    except (TypeError, ValueError) as error:
        raise InvalidRollout(f"{path}.dtype", f"of {name}: {error}") from None
    if column.dtype is not None:
        array, dtype = _as_dtype(array, dtype, column.dtype, path)
    domain = column.domain or _domain_of(array, tokens, prompt_tokens, name, path)
    if domain not in DOMAINS:
        raise InvalidRollout(f"{path}.domain", f"is {domain!r}, must be one of {', '.join(DOMAINS)}")
    rows = _rows(domain, tokens, prompt_tokens)
    inner = array.shape if domain == "sequence" and array.shape[:1] != (1,) else array.shape[1:]
    if domain != "sequence" and (array.ndim == 0 or array.shape[0] != rows):
        have = array.shape[0] if array.ndim else "no"
        raise InvalidRollout(
            f"{path}.bytes", f"of {name} are {have} rows, must be {rows} ({domain}, {tokens} tokens)"
        )
    missing = column.missing
    if name == "routed_experts" and not isinstance(value, Column):
        missing = -1.0 if dtype == "int16" else 0.0
    encoded = Encoded(name, dtype, domain, tuple(inner), missing, [array])
    _check_known(encoded, path)
    return encoded


def _as_dtype(array: Any, dtype: str, wanted: str, path: str) -> Tuple[Any, str]:
    if wanted not in _DTYPES:
        raise InvalidRollout(f"{path}.dtype", f"is {wanted!r}, must be one of {', '.join(_DTYPES)}")
    if wanted == "bfloat16":
        if dtype not in ("uint16", "bfloat16"):
            raise InvalidRollout(f"{path}.dtype", f"is {dtype}, bf16 bits stand in a uint16 array")
        return array, wanted
    return np.ascontiguousarray(array.astype(wanted, copy=False)), wanted


def _rows(domain: str, tokens: int, prompt_tokens: int) -> int:
    return {
        "token": tokens,
        "response_token": tokens - prompt_tokens,
        "token_but_last": tokens - 1,
    }.get(domain, 1)


def _domain_of(array: Any, tokens: int, prompt_tokens: int, name: str, path: str) -> str:
    if array.ndim == 0:
        return "sequence"
    rows = array.shape[0]
    for domain in ("token", "response_token", "token_but_last"):
        if rows == _rows(domain, tokens, prompt_tokens):
            return domain
    if rows == 1:
        return "sequence"
    raise InvalidRollout(
        f"{path}.bytes",
        f"of {name} are {rows} rows, must be {tokens} (a token), {tokens - prompt_tokens} "
        f"(a response token) or {tokens - 1} (a token but the last); say domain= for others",
    )


def _blob(name: str, column: Column, path: str) -> Encoded:
    value = column.array
    try:
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, memoryview) and not value.c_contiguous:
            value = value.tobytes()
        if not isinstance(value, (bytes, bytearray, memoryview)):
            value = to_numpy(value)[0]
        data = np.frombuffer(value, np.uint8)
    except (TypeError, ValueError) as error:
        raise InvalidRollout(f"{path}.bytes", f"of {name}: {error}") from None
    encoded = Encoded(name, "uint8", "blob", (), column.missing, [data])
    _check_known(encoded, path)
    return encoded


def _ragged(name: str, column: Column, tokens: int, path: str) -> Encoded:
    try:
        values, dtype = to_numpy(column.array.values)
    except (TypeError, ValueError) as error:
        raise InvalidRollout(f"{path}.dtype", f"of {name}: {error}") from None
    if values.ndim == 0:
        raise InvalidRollout(f"{path}.bytes", f"of {name} are one value, must be an array of them")
    if isinstance(column.array.offsets, np.ma.MaskedArray):
        raise InvalidRollout(f"{path}.bytes", f"of {name}: offsets are a masked array, whose mask would be lost")
    try:
        offsets = np.ascontiguousarray(column.array.offsets, dtype=np.uint32)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRollout(f"{path}.bytes", f"of {name}: offsets: {error}") from None
    if offsets.shape != (tokens + 1,):
        raise InvalidRollout(
            f"{path}.bytes", f"of {name} have {offsets.size} offsets, must be {tokens + 1}"
        )
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(values) or (np.diff(offsets.astype(np.int64)) < 0).any():
        raise InvalidRollout(
            f"{path}.bytes", f"of {name}: offsets must rise from 0 to {len(values)}, the count of values"
        )
    encoded = Encoded(name, dtype, "ragged", values.shape[1:], column.missing, [offsets, values])
    _check_known(encoded, path)
    return encoded


def _check_known(column: Encoded, path: str) -> None:
    if len(column.inner) > INNER_DIMENSIONS_MAX or 0 in column.inner:
        raise InvalidRollout(
            f"{path}.inner", f"of {column.name} is {column.inner}, at most 4 dimensions of at least 1"
        )
    known = KNOWN.get(column.name)
    if known is None:
        return
    dtypes, domains, dimensions = known
    if column.dtype not in dtypes:
        raise InvalidRollout(
            f"{path}.dtype", f"of {column.name} is {column.dtype}, must be {' or '.join(dtypes)}"
        )
    if column.domain not in domains:
        raise InvalidRollout(
            f"{path}.domain", f"of {column.name} is {column.domain}, must be {' or '.join(domains)}"
        )
    if len(column.inner) != dimensions:
        raise InvalidRollout(
            f"{path}.inner", f"of {column.name} is {column.inner}, must have {dimensions} dimensions"
        )

"""A small codec for proto3 messages, driven by tables.

A message is a class whose attributes are declared with the functions below, one for each type of
the .proto language:

    class PolicyVersion(Message):
        policy: str = string(1)
        number: int = uint32(3)

Attributes that were never set hold their default on the class, so a decoded message costs what it
contains. Unknown fields are skipped; the last value of a scalar wins. Encodings are the same bytes
that the protobuf library writes. Plain values, no locks: a message belongs to one thread at a time.
"""

from __future__ import annotations

import struct
from types import MappingProxyType
from typing import Any, Callable, ClassVar, Dict, List, Optional, Tuple, Type, TypeVar, Union

Buffer = Union[bytes, bytearray, memoryview]
M = TypeVar("M", bound="Message")

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_UINT64 = (1 << 64) - 1
_PACK = {
    "fixed64": struct.Struct("<Q"),
    "fixed32": struct.Struct("<I"),
    "double": struct.Struct("<d"),
    "float": struct.Struct("<f"),
}
_WIRE_TYPE = {"fixed64": FIXED64, "double": FIXED64, "fixed32": FIXED32, "float": FIXED32}
_DEFAULT: Dict[str, Any] = {"string": "", "bytes": b"", "bool": False, "double": 0.0, "float": 0.0}


class WireError(ValueError):
    """The bytes are no message of the expected kind."""


def varint(value: int) -> bytes:
    """`value` as a varint; negative numbers take ten bytes, as in protobuf."""
    value &= _UINT64
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [bytes((i,)) for i in range(0x80)]


def read_varint(data: Buffer, at: int) -> Tuple[int, int]:
    """The varint at `at`, and where it ends."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    result, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _UINT64, at + 1
        shift += 7
        if shift > 63:
            raise WireError("a varint is longer than ten bytes")


class Field:
    """One declared field. `kind` is a scalar type's name or "message"; enums are int32."""

    def __init__(
        self,
        number: int,
        kind: str,
        repeated: bool = False,
        optional: bool = False,
        message: Optional[Callable[[], Type["Message"]]] = None,
        map_value: Optional[str] = None,
    ) -> None:
        self.number, self.kind, self.repeated, self.optional = number, kind, repeated, optional
        self.message, self.map_value = message, map_value
        self.name = ""
        self.wire_type = _WIRE_TYPE.get(kind, LENGTH if self.is_length else VARINT)
        packed = repeated and not self.is_length
        self.tag = varint(number << 3 | (LENGTH if packed else self.wire_type))

    @property
    def is_length(self) -> bool:
        return self.kind in ("string", "bytes", "message", "map")

    def default(self) -> Any:
        if self.kind == "map":
            return MappingProxyType({})
        if self.repeated:
            return ()
        if self.optional or self.kind == "message":
            return None
        return _DEFAULT.get(self.kind, 0)

    # ---- encoding

    def encode(self, value: Any, out: List[Buffer]) -> None:
        if self.kind == "map":
            for key in sorted(value):
                item = b"\x0a" + _length_prefixed(key.encode())
                item += _MAP_VALUE[self.map_value or ""](value[key])
                out += (self.tag, varint(len(item)), item)
        elif not self.repeated:
            if self.kind == "message" or self.optional or value:
                self._encode_one(value, out)
            elif self.kind in ("double", "float") and _PACK[self.kind].pack(value).strip(b"\0"):
                self._encode_one(value, out)  # minus zero is no default
        elif self.is_length:
            for item in value:
                self._encode_one(item, out)
        elif len(value):
            packed = self._pack(value)
            out += (self.tag, varint(len(packed)), packed)

    def _encode_one(self, value: Any, out: List[Buffer]) -> None:
        kind = self.kind
        if kind == "message":
            body = value.encode()
            out += (self.tag, varint(len(body)), body)
        elif kind == "string":
            body = value.encode()
            out += (self.tag, varint(len(body)), body)
        elif kind == "bytes":
            out += (self.tag, varint(len(value)), value)
        elif kind in _PACK:
            out += (self.tag, _PACK[kind].pack(value))
        else:
            out += (self.tag, varint(int(value)))

    def _pack(self, values: Any) -> bytes:
        if self.kind in _PACK:
            return struct.pack("<%d%s" % (len(values), _PACK[self.kind].format[-1]), *values)
        return b"".join([varint(int(v)) for v in values])

    # ---- decoding

    def decode(self, message: Any, data: Buffer, at: int, wire_type: int, views: bool) -> int:
        """Takes one value at `at` into `message`; returns where it ends."""
        if wire_type == LENGTH:
            size, at = read_varint(data, at)
            end = at + size
            if end > len(data):
                raise WireError(f"{self.name}: {size} bytes, but {len(data) - at} are left")
            if self.is_length:
                self._store(message, self._take(data, at, end, views))
            elif self.repeated:
                self._list(message).extend(self._unpack(data, at, end))
            return end
        value: Any
        if wire_type == VARINT:
            value, at = read_varint(data, at)
            value = self._scalar(value)
        else:
            size = 8 if wire_type == FIXED64 else 4
            if at + size > len(data):
                raise WireError(f"{self.name}: the message ends within it")
            value = _PACK[self.kind].unpack_from(data, at)[0]
            at += size
        self._store(message, value)
        return at

    def _scalar(self, value: int) -> Any:
        kind = self.kind
        if kind == "bool":
            return value != 0
        if kind == "uint32":
            return value & 0xFFFFFFFF
        if kind == "int32":
            value &= 0xFFFFFFFF
            return value - (1 << 32) if value >> 31 else value
        if kind == "int64":
            return value - (1 << 64) if value >> 63 else value
        return value

    def _take(self, data: Buffer, at: int, end: int, views: bool) -> Any:
        if self.kind == "message":
            assert self.message is not None
            return _decode(self.message(), data, at, end, views)
        if self.kind == "bytes":
            return memoryview(data)[at:end] if views else bytes(data[at:end])
        if self.kind == "string":
            return str(bytes(data[at:end]), "utf-8", "replace")
        return self._map_entry(bytes(data[at:end]))

    def _map_entry(self, data: bytes) -> Tuple[str, Any]:
        value_type = self.map_value or ""
        entry = _decode(_MAP_ENTRY[value_type], data, 0, len(data), False)
        return entry.key, entry.value  # type: ignore[attr-defined]

    def _unpack(self, data: Buffer, at: int, end: int) -> List[Any]:
        pack = _PACK.get(self.kind)
        if pack is not None:
            count, rest = divmod(end - at, pack.size)
            if rest:
                raise WireError(f"{self.name}: {end - at} bytes are no array of {self.kind}")
            return list(struct.unpack_from("<%d%s" % (count, pack.format[-1]), data, at))
        values = []
        while at < end:
            value, at = read_varint(data, at)
            values.append(self._scalar(value))
        if at != end:
            raise WireError(f"{self.name}: the last value is cut off")
        return values

    def _list(self, message: Any) -> List[Any]:
        held = message.__dict__.get(self.name)
        if held is None:
            held = message.__dict__[self.name] = []
        return held  # type: ignore[no-any-return]

    def _store(self, message: Any, value: Any) -> None:
        if self.kind == "map":
            held = message.__dict__.setdefault(self.name, {})
            held[value[0]] = value[1]
        elif self.repeated:
            self._list(message).append(value)
        elif self.kind == "message" and self.name in message.__dict__:
            message.__dict__[self.name].__dict__.update(value.__dict__)
        else:
            message.__dict__[self.name] = value


class Message:
    """Base of all messages; see the module."""

    FIELDS: ClassVar[Tuple[Field, ...]] = ()
    _BY_NUMBER: ClassVar[Dict[int, Field]] = {}

    def __init_subclass__(cls) -> None:
        fields = []
        for name, field in list(vars(cls).items()):
            if isinstance(field, Field):
                field.name = name
                setattr(cls, name, field.default())
                fields.append(field)
        cls.FIELDS = tuple(sorted(fields, key=lambda f: f.number))
        cls._BY_NUMBER = {f.number: f for f in fields}

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def encode(self) -> bytes:
        """The message's bytes."""
        out: List[Buffer] = []
        held = self.__dict__
        for field in self.FIELDS:
            value = held.get(field.name)
            if value is not None:
                field.encode(value, out)
        return b"".join(out)

    @classmethod
    def decode(cls: Type[M], data: Buffer, views: bool = False) -> M:
        """Reads a message; with `views`, bytes fields are memoryviews into `data`."""
        try:
            return _decode(cls, data, 0, len(data), views)
        except IndexError:
            raise WireError(f"{cls.__name__}: the bytes end within a field") from None

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash(self.encode())

    def __repr__(self) -> str:
        held = ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items())
        return f"{type(self).__name__}({held})"


def _decode(cls: Type[M], data: Buffer, at: int, end: int, views: bool) -> M:
    message = cls()
    by_number = cls._BY_NUMBER
    if end != len(data):
        data = memoryview(data)[:end]  # nothing inside may reach past the end
    while at < end:
        tag, at = read_varint(data, at)
        field = by_number.get(tag >> 3)
        wire_type = tag & 7
        if field is not None and (wire_type == field.wire_type or (field.repeated and wire_type == 2)):
            at = field.decode(message, data, at, wire_type, views)
        else:
            at = _skip(data, at, wire_type, end)
    if at != end:
        raise WireError(f"{cls.__name__}: a field reaches past the end")
    return message


def _skip(data: Buffer, at: int, wire_type: int, end: int) -> int:
    if wire_type == VARINT:
        return read_varint(data, at)[1]
    if wire_type == LENGTH:
        size, at = read_varint(data, at)
        at += size
    elif wire_type == FIXED64:
        at += 8
    elif wire_type == FIXED32:
        at += 4
    else:
        raise WireError(f"wire type {wire_type} is not used by proto3")
    if at > end:
        raise WireError("an unknown field reaches past the end")
    return at


def _length_prefixed(data: bytes) -> bytes:
    return varint(len(data)) + data


_MAP_VALUE: Dict[str, Callable[[Any], bytes]] = {
    "double": lambda v: b"\x11" + _PACK["double"].pack(v),
    "uint64": lambda v: b"\x10" + varint(v),
    "string": lambda v: b"\x12" + _length_prefixed(v.encode()),
}


def _scalar(kind: str) -> Callable[..., Any]:
    def declare(number: int, optional: bool = False) -> Any:
        return Field(number, kind, optional=optional)

    return declare


boolean = _scalar("bool")
bytes_ = _scalar("bytes")
double = _scalar("double")
fixed32 = _scalar("fixed32")
fixed64 = _scalar("fixed64")
float_ = _scalar("float")
int32 = _scalar("int32")
int64 = _scalar("int64")
string = _scalar("string")
uint32 = _scalar("uint32")
uint64 = _scalar("uint64")


def repeated(number: int, kind: str) -> Any:
    """A list of scalars."""
    return Field(number, kind, repeated=True)


def message(number: int, of: Callable[[], Type[Message]]) -> Any:
    """A message, or None if it is absent. `of` is called late, so classes may follow."""
    return Field(number, "message", message=of)


def messages(number: int, of: Callable[[], Type[Message]]) -> Any:
    """A list of messages."""
    return Field(number, "message", repeated=True, message=of)


def mapping(number: int, value: str) -> Any:
    """A map from strings to scalars of one type."""
    return Field(number, "map", repeated=True, map_value=value)


class _DoubleEntry(Message):
    key: str = string(1)
    value: float = double(2)


class _Uint64Entry(Message):
    key: str = string(1)
    value: int = uint64(2)


class _StringEntry(Message):
    key: str = string(1)
    value: str = string(2)


_MAP_ENTRY: Dict[str, Type[Message]] = {
    "double": _DoubleEntry,
    "uint64": _Uint64Entry,
    "string": _StringEntry,
}

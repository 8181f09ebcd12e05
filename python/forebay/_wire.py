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
_PLAIN, _PACKED = 8, 9  # beside the wire types: a varint that is one integer, a list of scalars
_UINT64 = (1 << 64) - 1
_MOST = {"uint32": (1 << 32) - 1, "uint64": _UINT64}
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


def clipped(text: str, nbytes: int) -> str:
    """As much of the text as fits into so many bytes; what is no Unicode in it (lone surrogates) becomes "?"."""
    return text.encode("utf-8", "replace")[:nbytes].decode("utf-8", "ignore")


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
        self.type: Optional[Type["Message"]] = None
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
            number = int(value)
            most = _MOST.get(kind)
            if most is not None and not 0 <= number <= most:
                raise ValueError(f"{self.name}: {number}, must be 0 to {most}")
            out += (self.tag, varint(number))

    def _pack(self, values: Any) -> bytes:
        if self.kind in _PACK:
            return struct.pack("<%d%s" % (len(values), _PACK[self.kind].format[-1]), *values)
        return b"".join([varint(int(v)) for v in values])

    # ---- decoding

    def decode_length(self, message: Any, data: Buffer, at: int, end: int, views: bool) -> None:
        """Takes a message, a string, bytes or an entry of a map."""
        kind = self.kind
        value: Any
        if kind == "string":
            value = str(data[at:end], "utf-8", "replace")
        elif kind == "bytes":
            value = memoryview(data)[at:end] if views else bytes(data[at:end])
        elif kind == "message":
            if self.type is None:
                assert self.message is not None
                self.type = self.message()
            value = _decode(self.type, data, at, end, views)
        else:
            entry: Any = _decode(_MAP_ENTRY[self.map_value or ""], data, at, end, False)
            message.__dict__.setdefault(self.name, {})[entry.key] = entry.value
            return
        self.store(message, value)

    def store(self, message: Any, value: Any) -> None:
        """Sets a scalar or message, or appends it to a list; a message that comes twice is merged."""
        held = message.__dict__
        if self.repeated:
            self._list(message).append(value)
        elif self.kind == "message" and self.name in held:
            held[self.name].__dict__.update(value.__dict__)
        else:
            held[self.name] = value

    def scalar(self, value: int) -> Any:
        """The value of a varint."""
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

    def unpack(self, data: Buffer, at: int, end: int) -> List[Any]:
        """The values of a packed list of scalars."""
        pack = _PACK.get(self.kind)
        if pack is not None:
            count, rest = divmod(end - at, pack.size)
            if rest:
                raise WireError(f"{self.name}: {end - at} bytes are no array of {self.kind}")
            return list(struct.unpack_from("<%d%s" % (count, pack.format[-1]), data, at))
        packed = bytes(data[at:end])
        scalar_from = 0 if self.kind == "bool" else 1 << 31  # below, the value is the varint
        if packed.isascii() and scalar_from:
            return list(packed)
        values = []
        value = shift = 0
        for byte in packed:
            value |= (byte & 0x7F) << shift
            if byte > 0x7F:
                shift += 7
                if shift > 63:
                    raise WireError("a varint is longer than ten bytes")
                continue
            values.append(value if value < scalar_from else self.scalar(value & _UINT64))
            value = shift = 0
        if shift:
            raise WireError(f"{self.name}: the last value is cut off")
        return values

    def _list(self, message: Any) -> List[Any]:
        held = message.__dict__.get(self.name)
        if held is None:
            held = message.__dict__[self.name] = []
        return held  # type: ignore[no-any-return]


class Message:
    """Base of all messages; see the module."""

    FIELDS: ClassVar[Tuple[Field, ...]] = ()
    # Tag: how to take the value, what to do beyond the common case, the field, its name.
    _BY_TAG: ClassVar[Dict[int, Tuple[int, Field, str]]] = {}

    def __init_subclass__(cls) -> None:
        fields = []
        for name, field in list(vars(cls).items()):
            if isinstance(field, Field):
                field.name = name
                setattr(cls, name, field.default())
                fields.append(field)
        cls.FIELDS = tuple(sorted(fields, key=lambda f: f.number))
        cls._BY_TAG = {}
        for field in fields:
            plain = field.wire_type == VARINT and field.kind != "bool" and not field.repeated
            how = _PLAIN if plain else field.wire_type
            cls._BY_TAG[field.number << 3 | field.wire_type] = (how, field, field.name)
            if field.repeated and not field.is_length:
                cls._BY_TAG[field.number << 3 | LENGTH] = (_PACKED, field, field.name)

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
    held = message.__dict__
    by_tag = cls._BY_TAG
    while at < end:
        tag = data[at]
        at += 1
        if tag > 0x7F:
            tag, at = read_varint(data, at - 1)
        known = by_tag.get(tag)
        if known is None:
            at = _skip(data, at, tag & 7, end)
            continue
        how, field, name = known
        if how == _PLAIN:
            value = data[at]
            at += 1
            if value > 0x7F:
                value, at = read_varint(data, at - 1)
                value = field.scalar(value)
            held[name] = value
        elif how == LENGTH or how == _PACKED:
            size = data[at]
            at += 1
            if size > 0x7F:
                size, at = read_varint(data, at - 1)
            if size > end - at:
                raise WireError(f"{name}: {size} bytes, but {end - at} are left")
            if how == LENGTH:
                field.decode_length(message, data, at, at + size, views)
            else:
                values = field.unpack(data, at, at + size)
                if name in held:
                    held[name].extend(values)
                else:
                    held[name] = values
            at += size
        elif how == VARINT:
            value, at = read_varint(data, at)
            field.store(message, field.scalar(value))
        else:
            pack = _PACK[field.kind]
            if pack.size > end - at:
                raise WireError(f"{name}: the message ends within it")
            field.store(message, pack.unpack_from(data, at)[0])
            at += pack.size
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

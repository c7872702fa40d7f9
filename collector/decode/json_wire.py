"""How does a JSON document become the bytes of a protobuf message without building the message? By its descriptors, which are read once.

Only plain values are taken: the JSON types that protobuf's mapping writes, each field once. For anything else `encode` answers None, and protobuf's own
parser decides (json_format.ParseDict, which needs about six times the CPU). The bytes equal those that it leads to.
"""

from __future__ import annotations

import base64
import functools
import operator
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

ID_FIELDS: Final = ("trace_id", "span_id", "parent_span_id")
_MAX_DEPTH = 90  # messages in messages; protobuf's own parser decides from here to its limit
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
# What proto3 leaves out: zero and the empty text.
_ZERO: Final = {_VARINT: b"\0", _FIXED64: bytes(8), _FIXED32: bytes(4), _DELIMITED: b"\0"}
_NUMBER: Final = operator.itemgetter(0)
_FIXED: Final = {
    FieldDescriptor.TYPE_FIXED64: (_FIXED64, struct.Struct("<Q")),
    FieldDescriptor.TYPE_SFIXED64: (_FIXED64, struct.Struct("<q")),
    FieldDescriptor.TYPE_FIXED32: (_FIXED32, struct.Struct("<I")),
    FieldDescriptor.TYPE_SFIXED32: (_FIXED32, struct.Struct("<i")),
}
_INTEGERS: Final = {
    FieldDescriptor.TYPE_UINT64: (0, 1 << 64),
    FieldDescriptor.TYPE_INT64: (-1 << 63, 1 << 63),
    FieldDescriptor.TYPE_UINT32: (0, 1 << 32),
    FieldDescriptor.TYPE_INT32: (-1 << 31, 1 << 31),
}
_DOUBLE: Final = struct.Struct("<d")


class _Unusual(Exception):
    """A value that protobuf's own parser has to judge."""


Write = Callable[[Any, int], bytes]  # a JSON value and its depth to the field's bytes


@dataclass(frozen=True, slots=True)
class _Field:
    """How one field is written. Fields of one `slot` exclude each other."""

    number: int
    slot: str
    write: Write


def encode(kind: type[Message], document: dict[str, Any]) -> bytes | None:
    """The bytes of a message of that kind; None where the document holds something unusual. Unknown fields are left out, ids are hex (or base64)."""
    try:
        return _message(_fields(kind.DESCRIPTOR), document, 1)
    except (_Unusual, ValueError, TypeError, OverflowError, struct.error):
        return None


def _message(fields: dict[str, _Field], document: Any, depth: int) -> bytes:
    if type(document) is not dict or depth > _MAX_DEPTH:
        raise _Unusual
    parts, slots = [], set()
    for name, value in document.items():
        field = fields.get(name)
        if field is None:
            if name[:1] == "[":  # an extension
                raise _Unusual
            continue
        if value is None or field.slot in slots:
            raise _Unusual
        slots.add(field.slot)
        parts.append((field.number, field.write(value, depth)))
    parts.sort(key=_NUMBER)
    return b"".join([part for _, part in parts])


@functools.cache
def _fields(descriptor: Descriptor) -> dict[str, _Field]:
    """The fields of a message by both of their names."""
    out = {}
    for field in descriptor.fields:
        slot = field.containing_oneof.name if field.containing_oneof else field.name
        made = _Field(field.number, slot, _writer(field))
        out[field.json_name] = out[field.name] = made
    return out


def _writer(field: FieldDescriptor) -> Write:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return _of_messages(field)
    scalar = _scalar(field)
    if scalar is None:
        return _unusual
    wire, write = scalar
    tag = _varint(field.number << 3 | wire)
    if not field.is_repeated:
        left_out = None if field.has_presence else _ZERO[wire]
        return functools.partial(_of_one, tag, write, left_out)
    if wire == _DELIMITED:
        return functools.partial(_of_texts, tag, write)
    return functools.partial(_of_numbers, _varint(field.number << 3 | _DELIMITED), write)


def _unusual(value: Any, depth: int) -> bytes:
    raise _Unusual


def _of_one(
    tag: bytes, write: Callable[[Any], bytes], left_out: bytes | None, value: Any, depth: int
) -> bytes:
    made = write(value)
    return b"" if made == left_out else tag + made


def _of_texts(tag: bytes, write: Callable[[Any], bytes], value: Any, depth: int) -> bytes:
    if type(value) is not list:
        raise _Unusual
    return b"".join([tag + write(item) for item in value])


def _of_numbers(tag: bytes, write: Callable[[Any], bytes], value: Any, depth: int) -> bytes:
    """Packed, as numbers of proto3 are."""
    if type(value) is not list:
        raise _Unusual
    packed = b"".join([write(item) for item in value])
    return tag + _varint(len(packed)) + packed if packed else b""


def _of_messages(field: FieldDescriptor) -> Write:
    tag = _varint(field.number << 3 | _DELIMITED)
    kind = field.message_type
    if kind.GetOptions().map_entry or kind.full_name.startswith("google.protobuf."):
        return _unusual

    def one(value: Any, depth: int) -> bytes:
        made = _message(_fields(kind), value, depth + 1)
        return tag + _varint(len(made)) + made

    def several(value: Any, depth: int) -> bytes:
        if type(value) is not list:
            raise _Unusual
        return b"".join([one(item, depth) for item in value])

    return several if field.is_repeated else one


def _scalar(field: FieldDescriptor) -> tuple[int, Callable[[Any], bytes]] | None:
    """The wire type of a field's values, and what writes one without its tag; None where its type is not written here."""
    kind = field.type
    if kind in _FIXED:
        wire, packed = _FIXED[kind]
        return wire, lambda value: packed.pack(_integer(value))
    if kind in _INTEGERS:
        return _VARINT, functools.partial(_ranged, *_INTEGERS[kind])
    if kind == FieldDescriptor.TYPE_ENUM:
        names = {value.name: value.number for value in field.enum_type.values}
        return _VARINT, functools.partial(_named, names)
    if kind == FieldDescriptor.TYPE_BYTES:
        return _DELIMITED, _id if field.name in ID_FIELDS else _base64
    return {
        FieldDescriptor.TYPE_BOOL: (_VARINT, _bool),
        FieldDescriptor.TYPE_STRING: (_DELIMITED, _text),
        FieldDescriptor.TYPE_DOUBLE: (_FIXED64, _double),
        FieldDescriptor.TYPE_SINT32: (_VARINT, _zigzag),
    }.get(kind)


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _SHORT[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SHORT: Final = [bytes([value]) for value in range(0x80)]


def _integer(value: Any) -> int:
    """A whole number, as JSON's or in a string."""
    if type(value) is int:
        return value
    if type(value) is str and value.isascii() and value.removeprefix("-").isdigit():
        return int(value)
    raise _Unusual


def _ranged(least: int, end: int, value: Any) -> bytes:
    number = _integer(value)
    if not least <= number < end:
        raise _Unusual
    return _varint(number & 0xFFFF_FFFF_FFFF_FFFF)


def _zigzag(value: Any) -> bytes:
    number = _integer(value)
    if not -1 << 31 <= number < 1 << 31:
        raise _Unusual
    return _varint((number << 1 ^ number >> 31) & 0xFFFF_FFFF)


def _named(names: dict[str, int], value: Any) -> bytes:
    number = names.get(value) if type(value) is str else value if type(value) is int else None
    if number is None:
        raise _Unusual
    return _ranged(-1 << 31, 1 << 31, number)


def _bool(value: Any) -> bytes:
    if type(value) is not bool:
        raise _Unusual
    return b"\1" if value else b"\0"


def _double(value: Any) -> bytes:
    if type(value) not in (float, int):
        raise _Unusual
    return _DOUBLE.pack(value)


def _text(value: Any) -> bytes:
    if type(value) is not str:
        raise _Unusual
    return _sized(value.encode())


def _id(value: Any) -> bytes:
    """Hex; 8 and 16 bytes end in `=` as base64, which no hex does: protobuf's own JSON (Tempo)."""
    if type(value) is not str or value.endswith("="):
        return _base64(value)
    return _sized(bytes.fromhex(value))


def _base64(value: Any) -> bytes:
    if type(value) is not str:
        raise _Unusual
    encoded = value.encode()
    return _sized(base64.urlsafe_b64decode(encoded + b"=" * (4 - len(encoded) % 4)))


def _sized(made: bytes) -> bytes:
    return _varint(len(made)) + made

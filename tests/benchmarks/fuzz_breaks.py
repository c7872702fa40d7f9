"""In which ways is a body broken? Bytes that are flipped, cut and repeated; and messages that stay well formed and hold what no sender should send."""

from __future__ import annotations

import random
from collections.abc import Callable

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

# --- ways to break bytes ---


def _flip(data: bytearray, dice: random.Random) -> bytearray:
    for _ in range(dice.randint(1, 8)):
        if data:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return data


def _cut(data: bytearray, dice: random.Random) -> bytearray:
    return data[: dice.randrange(len(data) + 1)]


def _take_out(data: bytearray, dice: random.Random) -> bytearray:
    at = dice.randrange(len(data) + 1)
    del data[at : at + dice.randint(1, 16)]
    return data


def _put_in(data: bytearray, dice: random.Random) -> bytearray:
    at = dice.randrange(len(data) + 1)
    data[at:at] = dice.choice(
        (
            b"\xff" * 10,
            b"\x00" * 9,
            b"\x80" * 12,
            dice.randbytes(dice.randint(1, 20)),
            b"\x0a\xff\xff\xff\xff\x0f",
            b"\x12\x00" * 6,
        )
    )
    return data


def _repeat(data: bytearray, dice: random.Random) -> bytearray:
    at = dice.randrange(len(data) + 1)
    piece = data[at : at + dice.randint(1, 64)]
    data[at:at] = piece * dice.randint(1, 20)
    return data


def _noise(data: bytearray, dice: random.Random) -> bytearray:
    return bytearray(dice.randbytes(dice.randint(0, 200)))


def _extreme(data: bytearray, dice: random.Random) -> bytearray:
    """Eight bytes become a hostile number: times and ids are eight bytes wide."""
    at = dice.randrange(max(len(data) - 8, 1))
    data[at : at + 8] = dice.choice(
        (
            b"\xff" * 8,
            b"\x00" * 8,
            b"\xff" * 7 + b"\x7f",
            b"\x00" * 7 + b"\x80",
            b"\x01" + b"\x00" * 7,
        )
    )
    return data


_WAYS: tuple[Callable[[bytearray, random.Random], bytearray], ...] = (
    _flip,
    _flip,
    _cut,
    _take_out,
    _put_in,
    _repeat,
    _noise,
    _extreme,
)


def broken(data: bytes, dice: random.Random) -> bytes:
    """The bytes after one to three breaks."""
    out = bytearray(data)
    for _ in range(dice.randint(1, 3)):
        out = dice.choice(_WAYS)(out, dice)
    return bytes(out)


# --- ways to twist what stays well formed ---

_TEXTS = (
    "",
    "\x00",
    "x" * 3_000,
    "größe 模型 \U0001f40d",
    "[",
    '{"a":',
    '["stop"]',
    "NaN",
    "-1",
    "1e999",
    "True",
    "http://u:p@h/p?q=1#f",
    "\x1f\x1b0",
    "gen_ai.usage.output_tokens",
)
_NUMBERS = (
    0,
    1,
    -1,
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    1_790_000_000_000_000_000,
)
_DOUBLES = (0.0, -0.0, -1.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"))


def twisted(message: Message, dice: random.Random) -> None:
    """Some fields of a message become what no sender should send and one will."""
    for _ in range(dice.randint(1, 5)):
        _twist(message, dice, 0)


def _twist(message: Message, dice: random.Random, depth: int) -> None:
    fields = [f for f in message.DESCRIPTOR.fields if f.message_type is None or depth < 14]
    if not fields:
        return
    inner = [f for f in fields if f.message_type is not None]
    field = dice.choice(inner if inner and dice.random() < 0.85 else fields)
    held = getattr(message, field.name)
    if field.message_type is None:
        _set(message, field, dice)
    elif not field.is_repeated:
        held.SetInParent()
        _twist(held, dice, depth + 1)
    elif held and dice.random() < 0.1:
        del held[dice.randrange(len(held))]
    elif held and dice.random() < 0.1:
        held.add().CopyFrom(dice.choice(list(held)))
    else:
        _twist(
            dice.choice(list(held)) if held and dice.random() < 0.9 else held.add(), dice, depth + 1
        )


def _set(message: Message, field: FieldDescriptor, dice: random.Random) -> None:
    if field.type == FieldDescriptor.TYPE_STRING:
        value: object = dice.choice(_TEXTS)
    elif field.type == FieldDescriptor.TYPE_BYTES:
        value = dice.randbytes(dice.choice((0, 1, 7, 8, 9, 16, 17, 300)))
    elif field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        value = dice.choice(_DOUBLES)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        value = dice.random() < 0.5
    else:
        bits, signed = _WIDTHS[field.cpp_type]
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        value = min(max(dice.choice(_NUMBERS), low), high)
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


_WIDTHS = {
    FieldDescriptor.CPPTYPE_INT32: (32, True),
    FieldDescriptor.CPPTYPE_INT64: (64, True),
    FieldDescriptor.CPPTYPE_UINT32: (32, False),
    FieldDescriptor.CPPTYPE_UINT64: (64, False),
    FieldDescriptor.CPPTYPE_ENUM: (31, False),
}

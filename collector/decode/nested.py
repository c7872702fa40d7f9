"""Are the values inside arrays and maps well formed? The fast decoder leaves them as protobuf bytes; a broken one makes its body a bad one."""

from __future__ import annotations

import functools

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import ArrayValue, KeyValueList

from overrun.collector.decode.columns import BLOB, BROKEN_VALUE, MAP, Attributes, RawSpans
from overrun.collector.errors import BadPayload

# Finish reasons and the like repeat in every batch; longer values are parsed once a batch (about 1 µs each).
_REMEMBERED_BYTES = 64


def check(raw: RawSpans) -> None:
    """Parse every distinct nested value once.

    Raises:
        BadPayload: one of them is no protobuf, has text that is not UTF-8, or is nested more than about a hundred deep.
    """
    try:
        for attributes in (raw.attributes, raw.events.attributes, raw.links.attributes):
            _check(attributes)
    except DecodeError as error:
        raise BadPayload(BROKEN_VALUE) from error


def _check(attributes: Attributes) -> None:
    for member, item in set(
        zip(attributes.other_member.tolist(), attributes.others.to_pylist(), strict=True)
    ):
        if member != BLOB:
            kind = KeyValueList if member == MAP else ArrayValue
            _parse(kind, item) if len(item) <= _REMEMBERED_BYTES else kind.FromString(item)


@functools.lru_cache(maxsize=4_096)
def _parse(kind: type[ArrayValue] | type[KeyValueList], item: bytes) -> None:
    kind.FromString(item)

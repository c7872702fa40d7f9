"""How does an answer become JSON, and JSON an answer? One encoder for every endpoint: numbers that a calculation left as numpy's are plain ones on the wire."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec
import numpy as np


def encode(answer: Any) -> bytes:
    """Return an answer as UTF-8 JSON; times as RFC 3339 in UTC, no NaN.

    Raises:
        TypeError: something that is no answer.
    """
    return _ENCODER.encode(answer)


def decode(data: bytes, kind: type[Answer]) -> Answer:
    """Read an answer of that type back, from any thread.

    msgspec learns what a struct holds when it first reads one, and ends the process (a null pointer, 0.22) when a second thread reads the same
    struct, or one that holds it, meanwhile. So every type is learned behind one lock.

    Raises:
        msgspec.MsgspecError: no JSON, or of another type.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        with _LEARNING:
            decoder = _DECODERS.setdefault(kind, msgspec.json.Decoder(kind))
    answer: Answer = decoder.decode(data)
    return answer


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


Answer = TypeVar("Answer")
_LEARNING = threading.Lock()
_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {}
_ENCODER = msgspec.json.Encoder(enc_hook=_plain)

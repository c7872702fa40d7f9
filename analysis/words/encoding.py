"""How does an answer become JSON, and JSON an answer? One encoder for every endpoint.

Numbers that a calculation left as numpy's are plain ones on the wire. Names come from the sender of telemetry, and JSON is read in terminals: what steers
one there (C1 controls, invisible and bidirectional formatting) is written as an escape, which means the same to every reader of JSON.
"""

from __future__ import annotations

import re
import threading
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

# A text in a table that begins with one of these would be run as a formula by a spreadsheet: the signs, their full-width forms, and white space before them.
FORMULA_STARTS: Final = "=+-@\t\r\n＝＋－＠"


def encode(answer: Any) -> bytes:
    """Return an answer as UTF-8 JSON; times as RFC 3339 in UTC, no NaN.

    Raises:
        TypeError: something that is no answer.
    """
    body = _ENCODER.encode(answer)
    return body if body.isascii() else _STEERS.sub(_escaped, body)


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


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(found[0].decode())


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


Answer = TypeVar("Answer")
# In UTF-8: U+0080-009F, 061C, 200B-200F, 2028-202E, 2060-206F, FEFF. Outside of strings JSON has no such bytes.
_STEERS = re.compile(
    rb"\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf"
)
_LEARNING = threading.Lock()
_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {}
_ENCODER = msgspec.json.Encoder(enc_hook=_plain)

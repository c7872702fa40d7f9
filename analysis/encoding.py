"""How does an answer become JSON? One encoder for every endpoint: numbers that a calculation left as numpy's are plain ones on the wire."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np


def encode(answer: Any) -> bytes:
    """Return an answer as UTF-8 JSON; times as RFC 3339 in UTC, no NaN.

    Raises:
        TypeError: something that is no answer.
    """
    return _ENCODER.encode(answer)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)

"""How much of one item is stored? Limits on what a sender may put into a span, event, link, resource or data point; what they cut is counted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from overrun.collector.config import CollectorSettings
from overrun.collector.normalise import packing
from overrun.collector.process.tally import Tally

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
MAX_KEY = (
    256  # characters of an attribute's key; a longer one is no name, and the attribute is left out
)


def _uncounted(what: str, by: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the settings; `count(what, n)` is told of everything that they cut."""

    attributes: int = 128
    value_length: int = 16_384
    depth: int = 16
    count: Callable[[str, int], None] = _uncounted

    @classmethod
    def of(cls, settings: CollectorSettings, tally: Tally) -> Limits:
        """The limits of the settings, counted as `cut{what=...}`."""
        return cls(
            settings.max_attributes,
            settings.max_attribute_length,
            settings.max_depth,
            lambda what, by: tally.count("cut", by, what=what),
        )

    def printed(self, value: Any) -> str:
        """A decoded AnyValue as text: arrays and maps as JSON, bytes as the text in them, else as hex, nothing as ""; what is nested too deeply is null."""
        if value is None:
            return ""
        if isinstance(value, bytes):
            return _said(value)
        if isinstance(value, list | dict):
            value = self._shallow(value, 0)
        return json.dumps(value, ensure_ascii=False, default=_said, separators=(",", ":"))

    def _shallow(self, value: Any, depth: int) -> Any:
        if not isinstance(value, list | dict):
            return value
        if depth >= self.depth:
            self.count("depth", 1)
            return None
        if isinstance(value, list):
            return [self._shallow(item, depth + 1) for item in value]
        return {key: self._shallow(item, depth + 1) for key, item in value.items()}

    def short(self, text: str) -> str:
        """One value, cut to its length."""
        if len(text) > self.value_length:
            self.count("value_length", 1)
            return text[: self.value_length]
        return text

    def shorten(self, values: pa.StringArray) -> pa.StringArray:
        """As `short`, for a column."""
        if packing.longest(values) <= self.value_length:
            return values
        self.count(
            "value_length",
            pc.sum(pc.greater(pc.utf8_length(values), self.value_length)).as_py() or 0,
        )
        return pc.utf8_slice_codeunits(values, 0, self.value_length)


def _said(value: object) -> str:
    """Bytes as text where they are UTF-8 without control characters (LangSmith puts JSON into them), else as hex."""
    if not isinstance(value, bytes):
        return str(value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return value.hex() if _CONTROL.search(text) else text

"""Which words do senders use? One vocabulary per TOML file in this folder (its form: reading.py): attribute -> canonical field, and what marks a span's stage.

A `Field` means: this attribute, read this way, is that canonical column. Of several that are present, the one with the lowest `rank` wins
(then the order of the files), if its value can be read. A `Mark` means: a span with this attribute (and value) has this role and stage.
Keys also match with `:` or `_` in the place of `.` (what exporters make of them). The tables come from the documented names of each
convention and from recorded payloads; each file names its source, and reports it if no real sender's payload was at hand.
"""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Final

from overrun.collector.dialects.reading import vocabulary
from overrun.collector.dialects.words import (
    READERS,
    Dialect,
    EventField,
    Field,
    Mark,
    Metric,
    SpanName,
)

__all__ = ["READERS", "Dialect", "EventField", "Field", "Mark", "Metric", "SpanName", "load"]

LAST: Final = 100  # place of a vocabulary that names none


@functools.cache
def load() -> tuple[Dialect, ...]:
    """Every vocabulary of this folder by the `order` in its file, then by the file's name; read once for the process."""
    files = [file for file in resources.files(__name__).iterdir() if file.name.endswith(".toml")]
    documents = [(file.name, tomllib.loads(file.read_text("utf-8"))) for file in files]
    in_order = sorted(documents, key=lambda one: (one[1].get("order", LAST), one[0]))
    return tuple(vocabulary(document, f"dialects/{name}") for name, document in in_order)

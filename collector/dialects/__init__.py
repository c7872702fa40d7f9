"""Which words do senders use? One vocabulary per file in this folder, as data: attribute -> canonical field, and what marks a span's stage.

A `Field` says: this attribute, read this way, is that canonical column. Of several that are present, the one with the lowest `rank` wins
(then the order of DIALECTS), if its value can be read. A `Mark` says: a span with this attribute (and value) has this role and stage.
The tables come from the documented names of each convention and from recorded payloads; each file names its source.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass

# How a value is read. `first` is the first item of an array, of a JSON array in a string, or the value itself.
READERS = ("text", "int", "float", "bool", "seconds", "millis", "first", "status", "path")


@dataclass(frozen=True, slots=True)
class Field:
    """canonical column <- attribute `key`, read by `reader` (one of READERS); lower rank wins."""

    column: str
    key: str
    reader: str = "text"
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A span that carries attribute `key` (with one of `values`, if given) has this role and stage."""

    key: str
    role: str
    stage: str
    values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SpanName:
    """A span whose name matches `pattern` (a regular expression, whole string) under scope `scope` has this role and stage."""

    pattern: str
    role: str
    stage: str
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """Metric `name` is indicator `indicator`; values times `scale` are in SI units. `where` keeps only points with these attributes."""

    name: str
    indicator: str
    scale: float = 1.0
    where: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """One vocabulary. `prefixes` of attribute keys decide the name shown for a span (`v_spans.dialect`): the longest prefix, then the
    lowest `precedence` of all its keys (what is special to one sender before what everybody uses). A span under one of `scopes` (or below
    it) is this dialect's, whatever its keys say."""

    name: str
    prefixes: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    marks: tuple[Mark, ...] = ()
    names: tuple[SpanName, ...] = ()
    first_token_events: tuple[str, ...] = ()
    chunk_events: tuple[str, ...] = ()
    text_keys: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    model_labels: tuple[str, ...] = ()
    precedence: int = 10


def load() -> tuple[Dialect, ...]:
    """Every dialect of this folder, in the order of precedence (`ORDER`, default 100, in its file; then by name)."""
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    return tuple(m.DIALECT for m in sorted(modules, key=lambda m: (getattr(m, "ORDER", 100), m.__name__)))

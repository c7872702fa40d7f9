"""Which traits do occurrences of a place have? Every attribute of their span and of all around it, named; nothing here knows a cause."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from typing import Final

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.contrast.attributes import Attribute
from overrun.analysis.contrast.read import Spans
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray

_YES_NO: Final = ["no", "yes"]


@dataclass(frozen=True)
class Occurrences:
    """Pieces of one place, or requests: `request` they belong to, `row` of their span, `before` and `after` (-1: none), `at` (begin) and `ms`."""

    request: IntArray
    row: IntArray
    before: IntArray
    after: IntArray
    at: FloatArray
    ms: FloatArray

    def some(self, kept: IntArray) -> Occurrences:
        """Those at these places."""
        return Occurrences(*(getattr(self, name)[kept] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Kinds:
    """What a trait is about, from its name (kinds.toml): the only words that mechanisms see."""

    kinds: list[tuple[str, re.Pattern[str]]]
    measured: re.Pattern[str]
    identity: re.Pattern[str]
    named: dict[str, re.Pattern[str]]

    @property
    def names(self) -> list[str]:
        """Every kind."""
        return [*(name for name, _ in self.kinds), "attribute"]

    def of(self, name: str) -> str:
        """The kind of a trait; `attribute` where no word of it is known."""
        return next((kind for kind, pattern in self.kinds if pattern.search(name)), "attribute")

    def follows(self, key: str) -> bool:
        """Whether an attribute follows from slowness itself (a measured time, an id of one thing), so that it explains none."""
        return bool(self.measured.search(key)) and not self.identity.search(key)


@functools.cache
def kinds() -> Kinds:
    """The kinds of traits."""
    text = resources.files("overrun.analysis.contrast").joinpath("kinds.toml").read_text("utf-8")
    table = tomllib.loads(text)
    found = [(name, re.compile(pattern, re.I)) for name, pattern in table["kind"].items()]
    named = {name: re.compile(pattern, re.I) for name, pattern in table["named"].items()}
    return Kinds(
        found,
        re.compile(table["measured"], re.I),
        re.compile(table["identity"], re.I),
        named,
    )


@dataclass
class Traits:
    """Traits by name, in the order in which they were found; each has a value or none for each of n occurrences."""

    n: int
    columns: dict[str, Attribute] = field(default_factory=dict)

    def add(self, name: str, column: Attribute) -> None:
        """Add a trait that not all occurrences share."""
        codes = column.codes
        if len(codes) and (codes != codes[0]).any():
            self.columns.setdefault(name, column)

    def flags(self, name: str, there: BoolArray) -> None:
        """Add a trait that is so or not."""
        self.add(name, Attribute(there.astype(np.int64), _YES_NO, None))

    def numbers(self, name: str, values: FloatArray) -> None:
        """Add a trait that is a number, NaN where an occurrence has none."""
        codes = np.where(np.isnan(values), -1, np.unique(values, return_inverse=True)[1].ravel())
        self.add(name, Attribute(codes, [], values))

    def items(self) -> Iterator[tuple[str, Attribute]]:
        """Names and columns."""
        yield from self.columns.items()


def traits_of(spans: Spans, found: Occurrences) -> Traits:
    """Return the attributes of each occurrence's span, parent, root, of the call that it is in, and of what comes before and after in it."""
    out = Traits(len(found.row))
    parent, root = spans.parent[found.row], spans.root[found.row]
    call = spans.paths.call[found.row]
    below = _only_child(spans, found.row)
    around = (
        ("", found.row),
        ("parent", np.where(parent == root, -1, parent)),
        ("call", np.where((call == found.row) | (call == parent), -1, call)),
        ("next", found.after),
        ("previous", found.before),
        ("request within", np.where(below == found.after, -1, below)),
        ("root", np.where(root == found.row, -1, root)),
    )
    for key in spans.attributes.keys:
        if kinds().follows(key):
            continue
        column = spans.attributes[key]
        for what, rows in around:
            if (rows >= 0).any():
                out.add(f"{what} {key}".strip(), column.at(rows))
    _structure(spans, found, out)
    return out


def _only_child(spans: Spans, rows: IntArray) -> IntArray:
    """The first child of each span, whatever it is: an HTTP request below a model call says where it went."""
    parent = spans.parent
    first = np.full(len(parent), -1, dtype=np.int64)
    order = np.argsort(-spans.start, kind="stable")
    order = order[parent[order] >= 0]
    first[parent[order]] = order
    return first[rows]


def _structure(spans: Spans, found: Occurrences, out: Traits) -> None:
    """Add what else a request, a parent and the span itself contain: presence and number of operations, failures before."""
    parent = np.where(spans.parent >= 0, spans.parent, np.arange(len(spans.parent)))
    for name, holder, mine in (
        ("within it", spans.parent, found.row),
        ("beside it", spans.parent, np.where(spans.parent[found.row] >= 0, parent[found.row], -1)),
        ("in its request", spans.root, spans.root[found.row]),
    ):
        _contained(spans, holder, mine, name, out, skip=spans.operation[found.row])
    failed = np.zeros(len(parent), dtype=np.bool_)
    bad = np.flatnonzero(spans.failed & (spans.parent >= 0))
    failed[spans.parent[bad]] = True
    above = spans.parent[found.row]
    own_bad = spans.failed[found.row]
    others = np.bincount(spans.parent[bad], minlength=len(parent))
    out.flags("a call beside it failed", (above >= 0) & (others[above] - own_bad > 0))
    out.flags("a call within it failed", failed[found.row])


def _contained(
    spans: Spans, holder: IntArray, mine: IntArray, where: str, out: Traits, skip: IntArray
) -> None:
    """Add for each operation whether and how often it occurs in what the occurrences have in common with it."""
    n, ops = len(spans.operation), len(spans.operations)
    rows = np.flatnonzero((holder >= 0) & (holder != np.arange(n)) & (spans.paths.role != cp.PHASE))
    present, counts = np.unique(holder[rows] * ops + spans.operation[rows], return_counts=True)
    wanted = np.unique(mine[mine >= 0])
    keep = np.isin(present // ops, wanted)
    present, counts = present[keep], counts[keep]
    own = set(skip.tolist()) if where == "in its request" else set()
    for operation in np.unique(present % ops):
        if int(operation) in own:
            continue
        at = present % ops == operation
        number = np.zeros(n, dtype=np.int64)
        number[present[at] // ops] = counts[at]
        values = np.where(mine >= 0, number[np.maximum(mine, 0)], 0)
        what = f"{spans.operations[operation]} {where}"
        out.flags(what, values > 0)
        if len(np.unique(values)) > 2:
            out.numbers(f"number of {what}", values.astype(np.float64))

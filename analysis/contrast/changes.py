"""What changed on the path at the onset? Every attribute of every operation before and after it, and operations that are new or gone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.contrast.read import Spans
from overrun.analysis.contrast.traits import kinds
from overrun.analysis.words.arrays import BoolArray, IntArray

# Spans of an operation with an attribute on either side, from which it is compared; own default.
LEAST: Final = 5
# Texts change by the part that has another value (total variation), numbers by the factor of their medians; an operation by the part of requests that have it.
MOVED: Final = 0.4
FACTOR: Final = 1.3
CAME: Final = 0.3
GONE: Final = 0.1
# An attribute with more values on a side is no setting; own default.
MOST_VALUES: Final = 200
# What one can undo: settings, not what follows from them, and no numbers that traffic makes.
_UNDO: Final = {"version", "place", "model", "route", "attribute", "reasoning"}
_FOLLOWS: Final = (
    *("instance", "host.name", "response", "error", "exception", "finish", "result", "status"),
    *("pod", "container"),
)


@dataclass(frozen=True)
class Moved:
    """One change: of which operation (service and name), which attribute (`operation`: it is new or gone), from what to what, how clear it is (0..1), and whether
    one can undo it."""

    service: str
    operation: str
    key: str
    before: str | None
    after: str | None
    far: float
    undo: bool


def changes(spans: Spans, inside: BoolArray) -> list[Moved]:
    """Return what changed between requests before and in a stretch (`inside`, per request), the clearest first, each once."""
    request = spans.request[spans.root]
    rows = np.flatnonzero((request >= 0) & ~_left_out(spans))
    now = inside[request[rows]]
    group = spans.service * len(spans.operations) + spans.operation
    found = _operations(spans, rows, now, inside)
    groups, member = np.unique(group[rows], return_inverse=True)
    for key in spans.attributes.keys:
        if not kinds().follows(key):
            found += _of_key(spans, key, rows, now, groups, member.ravel())
    found.sort(key=lambda one: (-round(one.far, 1), one.key.startswith("resource."), one.key))
    once: dict[tuple[str, str | None, str | None], Moved] = {}
    for one in found:
        name = one.key.removeprefix("resource.").removeprefix("service.")
        once.setdefault((name, one.before, one.after), one)
    return list(once.values())


def _left_out(spans: Spans) -> BoolArray:
    return np.asarray(spans.paths.role == cp.PHASE, dtype=np.bool_)


def _of_key(
    spans: Spans, key: str, rows: IntArray, now: BoolArray, groups: IntArray, member: IntArray
) -> list[Moved]:
    """How the values of one attribute moved, per operation."""
    column = spans.attributes[key]
    codes, values = column.codes[rows], len(column.texts)
    there = codes >= 0
    if not there.any():
        return []
    if column.numbers is not None and values > 6:
        return _numbers(spans, key, rows, now, groups, member)
    if not 1 <= values <= MOST_VALUES:
        return []
    counts = [
        np.bincount(
            member[side & there] * values + codes[side & there], minlength=len(groups) * values
        ).reshape(len(groups), values)
        for side in (~now, now)
    ]
    totals = [side.sum(axis=1) for side in counts]
    out = []
    for at in np.flatnonzero((totals[0] >= LEAST) & (totals[1] >= LEAST)):
        shares = [side[at] / total[at] for side, total in zip(counts, totals, strict=True)]
        far = float(np.abs(shares[1] - shares[0]).sum() / 2.0)
        lost, won = shares[0] - shares[1], shares[1] - shares[0]
        # Where hardly any value has a part of it, each value is a thing that came and went, and no setting.
        if far > MOVED and max(lost.max(), won.max()) > MOVED / 2.0:
            old, new = np.argmax(lost), np.argmax(won)
            out.append(_moved(spans, groups[at], key, column.texts[old], column.texts[new], far))
    return out


def _numbers(
    spans: Spans, key: str, rows: IntArray, now: BoolArray, groups: IntArray, member: IntArray
) -> list[Moved]:
    """How the median of a number moved, per operation."""
    numbers = spans.attributes[key].numbers
    values = numbers[rows] if numbers is not None else np.full(len(rows), np.nan)
    out = []
    for at, group in enumerate(groups):
        mine = (member == at) & ~np.isnan(values)
        before, after = values[mine & ~now], values[mine & now]
        if min(len(before), len(after)) < 2 * LEAST:
            continue
        old, new = float(np.median(before)), float(np.median(after))
        if old > 0.0 and not 1.0 / FACTOR <= new / old <= FACTOR:
            far = min(1.0, abs(math.log(max(new, 1e-9) / old)) / 2.0)
            moved = _moved(spans, group, key, f"{old:.4g} at the median", f"{new:.4g}", far)
            out.append(moved)
    return out


def _operations(spans: Spans, rows: IntArray, now: BoolArray, inside: BoolArray) -> list[Moved]:
    """Operations that are new or gone. One that comes only where others failed before is no change but what a failure brings."""
    request = spans.request[spans.root]
    group = spans.service * len(spans.operations) + spans.operation
    failed = np.zeros(len(inside), dtype=np.bool_)
    failed[request[rows[spans.failed[rows]]]] = True
    pairs = np.unique(np.column_stack([group[rows], request[rows]]), axis=0)
    names, member = np.unique(pairs[:, 0], return_inverse=True)
    side, afterwards = inside[pairs[:, 1]], failed[pairs[:, 1]]
    total = max(1, int((~inside).sum())), max(1, int(inside.sum()))
    out = []
    for at, name in enumerate(names):
        mine = member.ravel() == at
        old, new = (mine & ~side).sum() / total[0], (mine & side).sum() / total[1]
        if abs(new - old) <= CAME or min(new, old) >= GONE:
            continue
        came = new > old
        if came and afterwards[mine & side].mean() > 0.8 > failed[inside].mean() + 0.2:
            continue
        before, after = (None, "new") if came else ("there", None)
        moved = _moved(spans, name, "operation", before, after, 1.0)
        out.append(moved)
    return out


def _moved(
    spans: Spans, group: int, key: str, before: str | None, after: str | None, far: float
) -> Moved:
    service, operation = divmod(int(group), len(spans.operations))
    settable = key == "operation" or kinds().of(key) in _UNDO
    undo = (
        settable
        and not any(word in key for word in _FOLLOWS)
        and not (before or "").endswith("at the median")
        and far >= 0.5
    )
    return Moved(
        spans.services[service], spans.operations[operation], key, before, after, far, undo
    )

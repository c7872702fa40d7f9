"""What is known of a place? Facts that mechanisms ask for, each with its type; None is what could not be measured."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.columns import CLIENT, PRODUCER, int_column
from overrun.analysis.contrast import signs
from overrun.analysis.contrast.changes import Moved
from overrun.analysis.contrast.fit import Fit, Term
from overrun.analysis.contrast.read import Spans
from overrun.analysis.contrast.segments import WHERES
from overrun.analysis.contrast.sides import Sides
from overrun.analysis.contrast.traits import Occurrences, Traits, kinds
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.conditions import Fact

# A term is one of the main ones where it carries this part of the excess, or explains this part of the variance where nothing is compared.
MAIN: Final = 0.25
_STORE: Final = re.compile(r"^(SELECT|INSERT|UPDATE|DELETE|EVAL|GET|SET|HGET)\b")

# What is measured of a place. Beside these there are, for each kind of trait (kinds.toml): kind_X (a main term is of it), alike_X (or a trait that the data cannot part
# from one), up_X (slower with more of it), apart_X (parts by what they are, not when), gain_X (part of the variance on the other half); and the names of [named].
MEASURED: Final = {
    "mode": "stretch, always, some",
    "where": "which part of the operation: see words.explanation.Where",
    "metric": "ttft, e2e, tpot, itl",
    "what": "model, engine, store, call, way, own",
    "late_share": "of the occurrences",
    "late_of_bad": "part of the occurrences in bad requests that are late",
    "explained": "of the variance, on the half that did not choose",
    "share": "of the excess",
    "each_bad_ms": "",
    "each_good_ms": "",
    "count_bad": "occurrences in a request",
    "count_good": "",
    "count_grew": "most of the excess is their number",
    "new": "no good request has it",
    "graded": "sizes take six values or more",
    "added_ms": "",
    "added_spread": "",
    "usual_spread": "",
    "lattice_ms": "",
    "together_late": "",
    "together_others": "",
    "one_at_a_time": "",
    "ceiling": "",
    "processes": "that answer in the stretch of the late ones",
    "busiest": "how many times an even part of the occurrences in bad requests the busiest of them answers",
    "late_at_busiest": "part of the late ones that it answers",
    "row": "siblings in a row",
    "row_saves": "part of a request's time",
    "per_token": "ms a token, bad over good",
    "per_token_share": "of the excess",
    "failed_late": "",
    "failed_others": "",
    "arrivals_grew": "factor of the rate of requests in the stretch",
    "ends_moved": "how much later whole requests end, over what the first token does",
    "hosted": "a provider runs the model",
    "gain_load": "gain of what is under way and of arrivals",
    "gain_size": "gain of sizes of inputs and outputs",
}


@functools.cache
def names() -> frozenset[str]:
    """Every fact that a mechanism may ask for."""
    sets = ("kind", "alike", "up", "apart", "gain")
    of_kinds = {f"{one}_{kind}" for one in sets for kind in kinds().names}
    return frozenset(MEASURED.keys() | of_kinds | kinds().named.keys())


_APART: Final = {"tenant", "route", "model", "place", "attribute", "child", "version"}
# Traits of a moment, which part all that comes later where nothing else does.
_WHEN: Final = {"time", "version"}
_PROVIDERS: Final = re.compile(
    r"openai|anthropic|bedrock|googleapis|vertex|azure|mistral|groq|together|cohere|deepseek|fireworks|openrouter",
    re.I,
)


@dataclass(frozen=True)
class At:
    """A place and everything that was measured there: its occurrences `found` (requests, where it is their number that grew), how long each takes (`y` in ms), which
    are `late`, which are in `bad` requests, the terms of the fit, and figures in ms a request of both sides."""

    key: IntArray
    found: Occurrences
    y: FloatArray
    bad: BoolArray
    late: BoolArray
    fit: Fit
    traits: Traits
    of_requests: bool
    excess_ms: float
    share: float
    held: tuple[float, float]
    number: tuple[float, float]

    @property
    def main(self) -> list[Term]:
        """The terms that carry much of the excess."""
        target = self.target_ms
        if target <= 0.0:
            return [one for one in self.fit.terms if one.gain > MAIN]
        return [one for one in self.fit.terms if one.carried_ms > MAIN * target]

    @property
    def target_ms(self) -> float:
        """By how much occurrences in bad requests are longer, the few longest ones cut."""
        if self.bad.all() or not self.bad.any():
            return 0.0
        y = np.minimum(self.y, np.sort(self.y)[-min(5, len(self.y))])
        return float(y[self.bad].mean() - y[~self.bad].mean())


def facts(
    spans: Spans,
    sides: Sides,
    at: At,
    metric: str,
    values: FloatArray,
    moved: list[Moved],
    grew: float | None,
) -> dict[str, Fact]:
    """Return the facts of a place; `values` are the judged latencies, `grew` by which factor more requests arrive in the stretch."""
    main = at.main
    bad_ms, good_ms = at.held
    each = bad_ms / max(at.number[0], 1e-9), good_ms / max(at.number[1], 1e-9)
    grown = sides.mode != "always" and at.number[0] > 1.5 * max(at.number[1], 0.05)
    out: dict[str, Fact] = {
        "mode": sides.mode,
        "where": WHERES[at.key[2]],
        "metric": metric,
        "what": what_it_is(spans, at),
        "late_share": float(at.late.mean()),
        "late_of_bad": float((at.late & at.bad).sum() / max(1, at.bad.sum())),
        "explained": at.fit.gain,
        "share": at.share,
        "each_bad_ms": each[0],
        "each_good_ms": each[1] if at.number[1] > 0.0 else None,
        "count_bad": at.number[0],
        "count_good": at.number[1] if sides.good.any() else None,
        "count_grew": grown and (at.number[0] - at.number[1]) * each[0] > 0.5 * at.excess_ms,
        "new": sides.mode != "always" and at.number[1] < 0.05 * at.number[0],
        "graded": _graded(at, main),
        "arrivals_grew": grew,
        "hosted": _hosted(spans, at),
    }
    signed = _signs(spans, sides, at, values, metric) | _tokens(spans, at)
    around = {one.within for one in main}
    outer = [one for one in at.fit.terms if one.text in around and one not in main]
    return out | _terms(at, [*main, *outer]) | signed


def what_it_is(spans: Spans, at: At) -> str:
    """What holds the time: a call of a model or its engine, a store, another call, the way to another service, or the program's own time."""
    row = int(at.found.row[len(at.found.row) // 2])
    role, kind = int(spans.paths.role[row]), int(int_column(spans.table, "kind")[row])
    where = WHERES[at.key[2]]
    if where == "edge":
        return "way"
    if role == cp.ENGINE or role == cp.PHASE:
        return "engine"
    if role == cp.LLM:
        return "model"
    if where != "itself":
        return "own"
    if _STORE.match(spans.operations[at.key[1]]) or spans.paths.stage[row] == cp.RETRIEVAL:
        return "store"
    return "call" if kind in (CLIENT, PRODUCER) else "own"


def _terms(at: At, main: list[Term]) -> dict[str, Fact]:
    """What the terms say, by kind and by name."""
    # Since a moment, but only some of them: that is when these are late, and no trait of all.
    alike = {kind for one in main if not (one.within and one.kind in _WHEN) for kind in one.kinds}
    said = {name for one in main for name in (one.name, *(other.name for other, _, _ in one.alike))}
    sets = {
        "kind": {one.kind for one in main},
        "alike": alike,
        "up": _rising(main),
        "apart": _apart(main),
    }
    gains = _gains(at.fit)
    out: dict[str, Fact] = {}
    for kind in kinds().names:
        out |= {f"{one}_{kind}": kind in of for one, of in sets.items()}
        out[f"gain_{kind}"] = gains.get(kind, 0.0)
    out["gain_load"] = gains.get("inflight", 0.0) + gains.get("arrivals", 0.0)
    out["gain_size"] = gains.get("size_in", 0.0) + gains.get("size_out", 0.0)
    for name, pattern in kinds().named.items():
        out[name] = any(pattern.search(one) for one in said)
    return out


def _apart(main: list[Term]) -> set[str]:
    """Kinds of the main terms that part occurrences by what they are, and not by when they are."""
    return {
        kind
        for one in main
        for kind in ({one.kind} | ({kinds().of(one.within)} if one.within else set()))
        if kind in _APART and one.candidate.form in ("is", "given")
    }


def _rising(main: list[Term]) -> set[str]:
    return {one.kind for one in main if one.up} | {
        kinds().of(other.name) for one in main for other, _, up in one.alike if up
    }


def _gains(fit: Fit) -> dict[str, float]:
    out: dict[str, float] = {}
    for one in fit.terms:
        out[one.kind] = out.get(one.kind, 0.0) + one.gain
    return out


def _graded(at: At, main: list[Term]) -> bool:
    sizes = [one for one in main if one.kind in ("size_in", "size_out", "reasoning")]
    return any(len(np.unique(at.traits.columns[one.name].codes)) >= 6 for one in sizes)


def _hosted(spans: Spans, at: At) -> bool | None:
    """Whether the model is somebody else's, by the addresses and providers that its spans name; None where they name none."""
    rows = np.unique(np.concatenate([at.found.row, np.maximum(spans.paths.call[at.found.row], 0)]))[
        :200
    ]
    named = set()
    for key in ("provider", "server.address", "gen_ai.system", "gen_ai.provider.name", "model"):
        column = spans.attributes.get(key)
        if column is not None:
            named |= {column.texts[code] for code in np.unique(column.codes[rows]) if code >= 0}
    return any(_PROVIDERS.search(name) for name in named) if named else None


def _signs(spans: Spans, sides: Sides, at: At, values: FloatArray, metric: str) -> dict[str, Fact]:
    """Facts about how late ones end."""
    more = signs.added(at.y, at.late) if sides.mode != "always" else None
    ends = signs.together(spans, at.found)
    failed = _failed(spans, at.found)
    queue = WHERES[at.key[2]] == "queue"
    waits = at.late.any() and not at.of_requests
    answering = np.where(at.found.after >= 0, at.found.after, at.found.row)
    row = signs.in_a_row(
        spans, signs.containing(spans, at.found.row), np.flatnonzero(sides.bad)[:200]
    )
    bad_ms = float(values[sides.bad].mean()) if sides.bad.any() else 0.0
    return {
        "added_ms": None if more is None else more.ms,
        "added_spread": None if more is None else more.spread,
        "usual_spread": None if more is None else more.usual_spread,
        "lattice_ms": None if more is None else more.lattice_ms,
        "together_late": _part(ends, at.late),
        "together_others": _part(ends, ~at.late),
        "failed_late": _part(failed, at.late),
        "failed_others": _part(failed, ~at.late),
        "throttled": any(
            kinds().named["throttled"].search(one)
            for one in _statuses(spans, at.found.some(np.flatnonzero(at.late)[:500]))
        ),
        "one_at_a_time": signs.one_at_a_time(spans.process[answering], at.found)
        if waits and not queue
        else None,
        "ceiling": _ceiling(spans, at) if waits else None,
        **_busiest(spans, at, answering),
        "row": 0.0 if row is None else row.number,
        "row_saves": 0.0 if row is None else row.saves_ms / max(bad_ms, 1e-9),
        "ends_moved": _ends_moved(spans, sides, values) if metric == "ttft" else None,
    }


def _part(of: BoolArray, among: BoolArray) -> float | None:
    return float(of[among].mean()) if among.any() else None


def _failed(spans: Spans, found: Occurrences) -> BoolArray:
    """Which occurrences have a failed call within them or beside them."""
    n = len(spans.parent)
    bad = np.flatnonzero(spans.failed & (spans.parent >= 0))
    number = np.bincount(spans.parent[bad], minlength=n)
    above = spans.parent[found.row]
    beside = np.where(above >= 0, number[np.maximum(above, 0)] - spans.failed[found.row], 0)
    return np.asarray((number[found.row] > 0) | (beside > 0) | spans.failed[found.row])


def _statuses(spans: Spans, found: Occurrences) -> set[str]:
    """Statuses and errors of failed calls within late occurrences or beside them."""
    around = np.unique(np.concatenate([found.row, spans.parent[found.row]]))
    rows = np.flatnonzero(
        spans.failed
        & (np.isin(spans.parent, around) | np.isin(np.arange(len(spans.parent)), around))
    )
    out = set()
    for key in ("http_status", "error_type"):
        column = spans.attributes.get(key)
        if column is not None:
            out |= {column.texts[code] for code in np.unique(column.codes[rows]) if code >= 0}
    return out


def _busiest(spans: Spans, at: At, answering: IntArray) -> dict[str, Fact]:
    """How many processes answer, and which part of it the busiest does."""
    mine, bad = spans.process[answering], at.bad & (at.found.row >= 0)
    if at.of_requests or not bad.any() or not at.late.any():
        return {}
    same = np.isin(spans.operation, np.unique(spans.operation[answering[bad]]))
    times = spans.start[answering[bad]]
    meanwhile = same & (spans.start >= times.min()) & (spans.start <= times.max())
    numbers = np.bincount(mine[bad])
    first, of = int(np.argmax(numbers)), len(np.unique(spans.process[meanwhile]))
    return {
        "processes": float(of),
        "busiest": float(of * numbers[first] / bad.sum()),
        "late_at_busiest": float((mine[at.late] == first).mean()),
    }


def _ceiling(spans: Spans, at: At) -> int | None:
    """How many places are held while late ones wait; see `signs.ceiling`. What is entered after the wait holds them; of a queue, the rest of the operation; of an
    operation that enters nothing, what contains it, from its end on."""
    found, own = at.found, spans.process[at.found.row]
    begins, after = spans.start.copy(), found.after[found.after >= 0]
    everywhere = None
    if WHERES[at.key[2]] == "queue":
        begins[found.row] += found.ms
        everywhere = np.isin(spans.operation, np.unique(spans.operation[found.row])) & (
            spans.process == own[0]
        )
    elif len(after):
        everywhere = np.isin(spans.operation, np.unique(spans.operation[after]))
    if everywhere is not None:
        one = np.zeros_like(spans.process)
        held = signs.Held(begins[everywhere], spans.end[everywhere], one[everywhere])
        return signs.ceiling(held, found, one[found.row], at.late)
    if WHERES[at.key[2]] != "itself" or what_it_is(spans, at) in ("model", "engine"):
        return None
    rows = np.flatnonzero(np.isin(spans.operation, np.unique(spans.operation[found.row])))
    rows = rows[spans.parent[rows] >= 0]
    for holds in (spans.parent[rows], spans.root[rows]):
        held = signs.Held(spans.end[rows], spans.end[holds], spans.process[rows])
        top = signs.ceiling(held, found, own, at.late)
        if top is None or top >= 2:
            return top
    return 0


def _ends_moved(spans: Spans, sides: Sides, values: FloatArray) -> float | None:
    """By how much whole requests end later, over what the judged latency does."""
    root = np.full(len(values), -1, dtype=np.int64)
    tops = np.unique(spans.root)
    tops = tops[spans.request[tops] >= 0]
    root[spans.request[tops]] = tops
    known = root >= 0
    if not (sides.bad & known).any() or not (sides.good & known).any():
        return None
    whole = np.where(known, (spans.end - spans.start)[np.maximum(root, 0)], np.nan)
    later = float(np.nanmedian(whole[sides.bad]) - np.nanmedian(whole[sides.good]))
    judged = float(np.median(values[sides.bad]) - np.median(values[sides.good]))
    return later / judged if judged > 0.0 else None


def _tokens(spans: Spans, at: At) -> dict[str, Fact]:
    """How long a token takes, bad against good."""
    column = spans.attributes.get("output_tokens")
    none: dict[str, Fact] = {"per_token": None, "per_token_share": None}
    if (
        column is None
        or column.numbers is None
        or at.of_requests
        or WHERES[at.key[2]] not in ("itself", "after_first_token")
    ):
        return none
    above = np.maximum(spans.parent[at.found.row], 0)
    own = column.numbers[at.found.row]
    tokens = np.where(np.isnan(own), column.numbers[above], own)
    slopes = signs.per_token(tokens, at.y, at.bad)
    if slopes is None:
        return none
    bad, good = slopes
    saved = (bad - good) * float(np.nanmean(tokens[at.bad])) * at.number[0]
    return {"per_token": bad / good, "per_token_share": saved / max(at.excess_ms, 1e-9)}

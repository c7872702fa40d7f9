"""Why are slow requests slow? The open diagnosis of a window from its spans, as one typed answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import duckdb
import numpy as np
import polars as pl

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.contrast import wording
from overrun.analysis.contrast.advice import advise
from overrun.analysis.contrast.changes import Moved, changes
from overrun.analysis.contrast.edges import Shared, joined, shared_end
from overrun.analysis.contrast.facts import At, facts
from overrun.analysis.contrast.fit import Fit, Term, fit
from overrun.analysis.contrast.mechanisms import Named, name
from overrun.analysis.contrast.order_traits import Load, add_order
from overrun.analysis.contrast.read import MOST_REQUESTS, MOST_SPANS, Spans, read
from overrun.analysis.contrast.segments import WHERES, Segments, per_request, segments
from overrun.analysis.contrast.sides import APART, Sides, interval, relative, sides, two_heaps
from overrun.analysis.contrast.traits import Occurrences, Traits, traits_of
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.conditions import Fact
from overrun.analysis.words.explanation import Explanation, Place, Regularity, State
from overrun.analysis.words.finding import printable, say_ms, say_ratio
from overrun.analysis.words.timestamps import from_us

# A place holds this part of the excess, and three are listed at most; own defaults.
LEAST_SHARE: Final = 0.12
MOST_PLACES: Final = 3
# Good requests of a kind from which bad ones of it are compared with these alone; own default.
LEAST_OF_KIND: Final = 5
# Occurrences that are compared; of more, an even sample.
MOST_OCCURRENCES: Final = 4_000
_MOST_LISTED: Final = 6
# A gap between requests counts as no longer than so many median ones; own default.
LONGEST_GAP: Final = 50.0


@dataclass(frozen=True)
class Window:
    """The judged requests in order of start, with what each judged latency is (ms) and its limit (None: nobody gave one). `every` is how many requests each stands
    for where some are left out."""

    rows: pl.DataFrame
    metric: str
    values: FloatArray
    limits: FloatArray | None
    percentile: float
    every: int = 1


def window_of(
    rows: pl.DataFrame, metric: str, limits: FloatArray | None, percentile: float
) -> Window:
    """The requests (columns trace_key, start_us, end_us, spans, `metric`_ms, and for tokens output_tokens) that have the metric; `limits` per row."""
    known = rows[f"{metric}_ms"].is_not_null().to_numpy()
    order = np.argsort(rows["start_us"].to_numpy(), kind="stable")
    order = order[known[order]]
    kept = rows[order]
    values = kept[f"{metric}_ms"].to_numpy().astype(np.float64)
    every = max(1, -(-kept.height // MOST_REQUESTS), -(-int(kept["spans"].sum()) // MOST_SPANS))
    given = None if limits is None else limits[order]
    if every > 1:
        some = (kept["trace_key"] % every == 0).to_numpy()
        kept, values = kept.filter(some), values[some]
        given = None if given is None else given[some]
    return Window(kept, metric, values, given, percentile, every)


def explain(con: duckdb.DuckDBPyConnection, windows: list[Window]) -> Explanation | str:
    """Return why slow requests of a window are slow, or why nothing can be said; of windows by several latencies, the one that moved most is explained."""
    found = [(sides(one.values, one.limits, one.percentile), one) for one in windows]
    if not found:
        return "no request has a latency that can be judged"
    parts, window = max(found, key=lambda pair: (pair[0].mode != "none", pair[0].moved))
    spans = read(con, window.rows, timedelta(minutes=1))
    if spans is not None:
        parts = _by_kind(window, spans, parts)
    if parts.mode == "none":
        return parts.how
    if spans is None:
        return "the spans of these requests are not stored any more"
    seen = _with_spans(spans, parts)
    if min(seen.bad.sum(), seen.good.sum() if parts.mode != "always" else len(seen.bad)) < 5:
        return "the spans of too few slow requests are stored"
    return _explained(window, spans, seen)


def _by_kind(window: Window, spans: Spans, parts: Sides) -> Sides:
    """The sides where requests are compared with others of their kind: within the limit, where the kinds of most requests were there before."""
    kind, values, limits = kinds_of(spans, len(window.values)), window.values, window.limits
    within = limits is None or (values > limits).mean() <= 1.0 - window.percentile / 100.0
    several = (np.bincount(kind) >= LEAST_OF_KIND).sum() > 1
    new = parts.bad.any() and _known_kinds(kind, parts)[kind][parts.bad].mean() <= 0.5
    if not within or not several or new:
        return parts
    none = None if limits is None else np.full(len(values), np.inf)
    return sides(relative(values, kind), none, window.percentile)


def kinds_of(spans: Spans, requests: int) -> IntArray:
    """Return the kind of each request, a code: the operation of its root, and the first operation of another service that it enters."""
    top = np.flatnonzero((spans.parent < 0) & (spans.request >= 0))
    enters = np.flatnonzero(
        (spans.parent >= 0) & (spans.service != spans.service[spans.parent]) & (spans.request >= 0)
    )
    enters = enters[np.argsort(-spans.start[enters], kind="stable")]
    both = np.full((requests, 2), -1)
    both[spans.request[top], 0] = spans.operation[top]
    # Of several the last one that is put stays: the earliest.
    both[spans.request[enters], 1] = spans.operation[enters]
    return np.unique(both, axis=0, return_inverse=True)[1].ravel()


def _known_kinds(kind: IntArray, parts: Sides) -> BoolArray:
    """Per kind whether enough good requests are of it to compare bad ones with."""
    return np.bincount(kind[parts.good], minlength=int(kind.max()) + 1) >= LEAST_OF_KIND


def _with_spans(spans: Spans, parts: Sides) -> Sides:
    there = np.zeros(len(parts.bad), dtype=np.bool_)
    of = spans.request[spans.root]
    there[of[of >= 0]] = True
    return replace(parts, bad=parts.bad & there, good=parts.good & there)


def _explained(window: Window, spans: Spans, parts: Sides) -> Explanation:
    found = _judged_segments(window, spans)
    weights = matched(spans, parts)
    held = per_request(found, len(window.values))
    usual = weights[1] @ held
    shared = None
    if parts.mode != "always":
        often = weights[0] @ _numbers(found, len(window.values))
        shared = shared_end(found, weights[0] @ held - usual, usual, often)
    if shared is not None:
        found = joined(found, shared, weights[0] @ held - usual)
        held = per_request(found, len(window.values))
    excess = (weights[0] - weights[1]) @ held
    whole = float(excess.sum())
    order = np.argsort(-excess)
    kept = [int(at) for at in order if excess[at] >= LEAST_SHARE * whole]
    kept = kept[:MOST_PLACES] or [int(order[0])]
    inside = parts.inside
    moved = [] if inside is None else changes(spans, inside)
    grew = _grew(window, inside)
    number = _numbers(found, len(window.values))
    means = _Means(held, number, weights)
    ats = [_at(window, spans, parts, found, place, means) for place in kept]
    known = [facts(spans, parts, at, window.metric, window.values, moved, grew) for at in ats]
    names = [name(one) for one in known]
    told = _Found(ats, known, names, moved, means, whole, kept, window.metric, shared)
    return _answer(window, spans, parts, told)


def matched(spans: Spans, parts: Sides) -> tuple[FloatArray, FloatArray]:
    """Return the weight of each request in the mean of bad and of good ones: good ones of each kind (`kinds_of`) count as bad ones have it, so that other
    traffic is no difference; all alike where fewer than half of the bad ones have good ones of their kind to stand beside."""
    bad, good = parts.bad.astype(np.float64), parts.good.astype(np.float64)
    kind = kinds_of(spans, len(bad))
    of = [np.bincount(kind, weights=side, minlength=int(kind.max()) + 1) for side in (bad, good)]
    both = _known_kinds(kind, parts)
    if of[0][both].sum() > 0.5 * bad.sum():
        bad = np.where(both[kind], bad, 0.0)
        good = good * np.where(both, of[0] / np.maximum(of[1], 1.0), 0.0)[kind]
    return bad / max(bad.sum(), 1e-9), good / good.sum() if good.any() else good


@dataclass(frozen=True)
class _Means:
    """Milliseconds and number of pieces of each request at each place, shape (requests, places), and the weights of requests in the means of both sides."""

    held: FloatArray
    number: FloatArray
    weights: tuple[FloatArray, FloatArray]

    def of(self, what: FloatArray, place: int) -> tuple[float, float]:
        """The means of bad and of good requests."""
        return float(self.weights[0] @ what[:, place]), float(self.weights[1] @ what[:, place])


@dataclass(frozen=True)
class _Found:
    """What was found: places with facts and mechanisms, what changed, ms of each request at each place, the whole excess, and which places are listed."""

    ats: list[At]
    facts: list[dict[str, Fact]]
    names: list[Named]
    moved: list[Moved]
    means: _Means
    whole: float
    kept: list[int]
    metric: str
    shared: Shared | None


def _judged_segments(window: Window, spans: Spans) -> Segments:
    """The pieces of what is judged: up to the first token, or all; of time a token, the writing of answers over their tokens."""
    if window.metric == "ttft":
        return segments(spans, window.values)
    found = segments(spans)
    if window.metric == "e2e":
        return found
    writing = np.flatnonzero(np.isin(found.stage, (cp.DECODE, cp.GENERATION)))
    if not len(writing):
        return found
    tokens = np.maximum(window.rows["output_tokens"].fill_null(2).to_numpy() - 1.0, 1.0)
    some = {
        one: getattr(found, one)[writing]
        for one in ("request", "row", "stage", "where", "before", "after", "at", "place")
    }
    return Segments(**some, ms=found.ms[writing] / tokens[some["request"]], places=found.places)


def _numbers(found: Segments, requests: int) -> FloatArray:
    """How often each place occurs in each request."""
    flat = np.bincount(
        found.request * len(found.places) + found.place, minlength=requests * len(found.places)
    )
    return flat.reshape(requests, len(found.places)).astype(np.float64)


def _grew(window: Window, inside: BoolArray | None) -> float | None:
    """By which factor more requests arrive in the stretch than outside of it; None without one."""
    if inside is None or (~inside).sum() < 5:
        return None
    gaps = np.diff(window.rows["start_us"].to_numpy()).astype(np.float64)
    # What lies between a window and its baseline is no gap between arrivals.
    gaps = np.minimum(gaps, LONGEST_GAP * max(1.0, float(np.median(gaps))))
    outside, now = float(gaps[~inside[1:]].mean()), float(gaps[inside[1:]].mean())
    return outside / max(1e-9, now)


def _at(
    window: Window,
    spans: Spans,
    parts: Sides,
    found: Segments,
    place: int,
    means: _Means,
) -> At:
    """Everything about one place."""
    mine = np.flatnonzero(found.place == place)
    if len(mine) > MOST_OCCURRENCES:
        mine = mine[:: -(-len(mine) // MOST_OCCURRENCES)]
    occurring = Occurrences(
        *(getattr(found, one)[mine] for one in ("request", "row", "before", "after", "at", "ms"))
    )
    often, held = means.of(means.number, place), means.of(means.held, place)
    # What is new is that it runs at all, or more often: that is asked of requests.
    of_requests = parts.mode != "always" and often[0] > 1.5 * often[1]
    if of_requests:
        occurring = _requests(spans, means.held[:, place])
    y = occurring.ms
    bad = parts.bad[occurring.request] if parts.mode != "always" else y > np.median(y)
    heaps = two_heaps(y)
    late = bad
    if heaps and heaps.apart > APART and heaps.factor > 1.4 and (y > heaps.cut).mean() < 0.9:
        late = y > heaps.cut
    traits = traits_of(spans, occurring)
    add_order(spans, occurring, traits, _all_requests(window, spans), spans.origin_ns / 1e9)
    if of_requests:
        traits = _without(traits, spans.operations[found.places[place][1]])
    excess = held[0] - held[1]
    whole = float(((means.weights[0] - means.weights[1]) @ means.held).sum())
    return At(
        key=found.places[place],
        found=occurring,
        y=y,
        bad=bad,
        late=late,
        fit=fit(y, traits, occurring.request, bad),
        traits=traits,
        of_requests=of_requests,
        excess_ms=float(excess),
        share=float(excess) / whole if whole else 0.0,
        held=held,
        number=often,
    )


def _requests(spans: Spans, ms: FloatArray) -> Occurrences:
    """Requests as occurrences of a place: how much of it each holds."""
    root = np.unique(spans.root)
    root = root[spans.request[root] >= 0]
    none = np.full(len(root), -1)
    return Occurrences(
        spans.request[root], root, none, none, spans.start[root], ms[spans.request[root]]
    )


def _without(traits: Traits, operation: str) -> Traits:
    """The traits but those that say that the operation itself is there."""
    kept = {
        name: column
        for name, column in traits.columns.items()
        if not name.removeprefix("number of ").startswith(operation)
    }
    return Traits(traits.n, kept)


def _all_requests(window: Window, spans: Spans) -> Load:
    begins, ends = (
        window.rows[name].to_numpy() / 1e3 - spans.origin_ns / 1e6
        for name in ("start_us", "end_us")
    )
    return Load.of(begins, ends)


def _answer(window: Window, spans: Spans, parts: Sides, found: _Found) -> Explanation:
    first, known, named = found.ats[0], found.facts[0], found.names[0]
    places = [_place(spans, parts, found, at) for at in range(len(found.ats))]
    regular = [one for at in found.ats[:1] for one in _regularities(spans, at)]
    typical = [
        float(np.median(window.values[side])) if side.any() else None
        for side in (parts.good, parts.bad)
    ]
    starts = window.rows["start_us"]
    onset = None if parts.first is None else _onset(spans, first, from_us(int(starts[parts.first])))
    ended = parts.last is not None and parts.last < len(starts) - 3
    mechanism = None if named.first is None else named.first[0]
    state = state_of(known)
    out = Explanation(
        source="spans",
        mode=parts.mode,
        metric=window.metric,
        onset=onset,
        until=from_us(int(starts[parts.last - 1])) if ended and parts.last else None,
        before_ms=typical[0],
        now_ms=typical[1],
        n_bad=int(parts.bad.sum()),
        n_good=int(parts.good.sum()),
        sentence="",
        places=places,
        place_confidence=_place_confidence(places[0]),
        regularities=regular,
        regularity_confidence=_regularity_confidence(first),
        changed=[wording.change(one) for one in found.moved[:_MOST_LISTED]],
        state=state[0],
        state_words=state[1],
        mechanism=mechanism,
        refuted=named.refuted,
        excluded=named.refuted_rules,
        untested=[] if mechanism is None else mechanism.untested,
        advice=advise(known, named, found.moved, first),
    )
    out.sentence = _sentence(out)
    out.reasons = _reasons(out, parts, window, first)
    return out


def _onset(spans: Spans, first: At, found: datetime) -> datetime:
    """Since when: as the occurrences of the place show where time itself parts late ones, which scatter less than whole requests; else as requests show."""
    for term in first.main:
        if term.kind == "time" and term.candidate.form == "over" and term.up and not term.within:
            at_ms = float(first.found.at.min()) + term.candidate.value * 1e3
            return from_us(int(spans.origin_ns / 1e3 + at_ms * 1e3))
    return found


def _place(spans: Spans, parts: Sides, found: _Found, at: int) -> Place:
    one = found.ats[at]
    held = found.means.held
    columns = np.column_stack([held[:, found.kept[at]], held.sum(axis=1)])
    caller, callee = wording.edge(spans, one)
    stage = wording.stage_of(one)
    words = wording.place_words(spans, one, found.metric)
    shared, end = found.shared, None
    if shared is not None and found.kept[at] in shared.places:
        end = spans.services[shared.service]
        words = f"the way to and from {printable(end)}: {shared.grown} of its {shared.ways} links became longer"
    ends = (None if end else caller), end or callee
    between = interval(columns, found.means.weights)
    reasons = {
        "interval": "too few slow requests" if between is None else None,
        "caller": "several services call it" if end else "it is no way between services",
        "callee": "it is no way between services",
    }
    place = Place(
        stage=stage,
        service=end or spans.services[one.key[0]],
        operation=spans.operations[one.key[1]],
        where=WHERES[one.key[2]],
        excess_ms=one.excess_ms,
        share=one.share,
        interval=between,
        caller=ends[0],
        callee=ends[1],
        instances=_instances(spans, one),
        words=f"{stage.replace('_', ' ')}: {words}",
    )
    place.reasons = {
        name: why for name, why in reasons.items() if why and getattr(place, name) is None
    }
    return place


def _instances(spans: Spans, at: At) -> list[str]:
    """The instances that carry late occurrences where not all do."""
    column = spans.attributes.get("instance")
    if column is None or not at.late.any():
        return []
    codes = column.codes[at.found.row]
    every = np.unique(codes[codes >= 0])
    counts = np.bincount(codes[at.late & (codes >= 0)], minlength=len(column.texts))
    carry = np.flatnonzero(counts > 0.1 * at.late.sum())
    return [column.texts[code] for code in carry] if 0 < len(carry) < len(every) <= 50 else []


def _regularities(spans: Spans, at: At) -> list[Regularity]:
    origin_s = (spans.origin_ns / 1e6 + float(at.found.at.min())) / 1e3
    out = []
    for term in at.fit.terms:
        late = int((term.slow & at.late).sum()), int(at.late.sum())
        others = int((term.slow & ~at.late).sum()), int((~at.late).sum())
        out.append(
            Regularity(
                trait=term.text,
                words=wording.term_words(term, origin_s, late, others),
                late=late[1],
                late_with=late[0],
                others=others[1],
                others_with=others[0],
                carried=_carried(term, at),
                p=max(term.p, 1e-15),
                tried=at.fit.tried,
                alike=[wording.trait_words(text) for _, text, _ in term.alike[:7]],
            )
        )
    return out


def _carried(term: Term, at: At) -> float:
    target = at.target_ms
    return term.carried_ms / target if target > 0.0 else term.gain


def _place_confidence(place: Place) -> float:
    """How sure the place is: the lower end of its share, as far as it leads."""
    return round(
        max(0.0, min(0.99, place.share if place.interval is None else place.interval[0])), 2
    )


def _regularity_confidence(at: At) -> float | None:
    """The gain of the terms that carry the excess on the half that did not choose them, over what they promised; None without any."""
    main = at.main
    if not main:
        return None
    kept = sum(one.gain for one in main) / max(1e-9, sum(one.promised for one in main))
    return round(max(0.0, min(0.99, kept)), 2)


def state_of(known: dict[str, Fact]) -> tuple[State, str]:
    """The state that a place is in, and why in words."""
    load, ceiling, grew = (known[name] for name in ("gain_load", "ceiling", "arrivals_grew"))
    if isinstance(ceiling, int) and ceiling >= 2:
        return "at_ceiling", f"never more than {ceiling} at once, and so many while late ones wait"
    if isinstance(load, float) and load > 0.25 and isinstance(grew, float) and grew >= 1.15:
        return "more_arrivals", f"{grew:.2f} times as many requests arrive, and time follows them"
    if known["count_grew"] or known["new"]:
        return "more_work", "it runs more often in a slow request"
    sizes = ("size_in", "size_out", "reasoning")
    if any(known[f"up_{one}"] and known[f"kind_{one}"] for one in sizes):
        return "more_work", "its time grows with the size of the work"
    if known["kind_beside"]:
        return "held_back", "it waits while others are worked on"
    if (
        known["mode"] == "stretch"
        and isinstance(known["late_of_bad"], float)
        and known["late_of_bad"] > 0.6
    ):
        return "slower", "the same work takes longer since"
    return "unknown", ""


def _sentence(out: Explanation) -> str:
    """Place, change and time as one sentence."""
    place = out.places[0]
    share = say_ratio(min(1.0, place.share))
    if out.mode == "always":
        return f"{share} of the time of a request is {place.words}."
    when = "" if out.onset is None else f" since {out.onset:%H:%M:%S} UTC"
    until = "" if out.until is None else f" until {out.until:%H:%M:%S} UTC"
    pair = f"{say_ms(out.now_ms or 0.0)} against {say_ms(out.before_ms or 0.0)}"
    whose = "of a request" if out.mode == "stretch" else "of a slow request"
    return f"{out.metric.upper()} {whose}{when}{until} is {pair} at the median; {share} of the difference of means is {place.words}."


def _reasons(out: Explanation, parts: Sides, window: Window, first: At) -> dict[str, str]:
    reasons = {"mode": parts.how}
    if window.every > 1:
        reasons["sample"] = f"one request in {window.every} is looked at"
    if out.onset is None:
        reasons["onset"] = "no stretch of time differs from the rest"
    if out.until is None:
        reasons["until"] = (
            "it lasts until the end of what is judged"
            if out.onset
            else "no stretch of time differs from the rest"
        )
    if not out.regularities:
        reasons["regularities"] = (
            f"none of {first.fit.tried:,} traits parts late ones from others on the half held back"
        )
        reasons["regularity_confidence"] = reasons["regularities"]
    elif out.regularity_confidence is None:
        reasons["regularity_confidence"] = "no trait carries much of the excess"
    if out.mechanism is None:
        reasons["mechanism"] = "no known mechanism fits"
    if out.place_confidence is None:
        reasons["place_confidence"] = "no place leads"
    if out.before_ms is None:
        reasons["before_ms"] = "all requests are slow"
    return reasons


def stages(found: Explanation) -> dict[str, float]:
    """The share of the excess that the listed places hold, by stage."""
    out: dict[str, float] = {}
    for one in found.places:
        if one.stage is not None:
            out[one.stage] = out.get(one.stage, 0.0) + one.share
    return out


__all__ = ["Fit", "IntArray", "Window", "explain", "stages", "window_of"]

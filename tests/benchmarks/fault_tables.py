"""How are the scores told? Shares with Wilson intervals per severity and variant, what-if errors with coverage, and the list of wrong answers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.sample_traces.simulator.pairs import find
from tests.benchmarks.fault_case import Result, WhatIf
from tests.benchmarks.fault_fixes import BestFix

_Case = TypeVar("_Case")
_BASELINES: Final = ("inclusive duration", "always the LLM", "fixed thresholds")
# Effects below this share of the value before are noise between two simulations, not a direction.
DIRECTION: Final = 0.03
# A fix is nearly the best where the judged quantile with it is longer by no more than this part.
NEARLY: Final = 0.1
# The least share of requests over the limit after the onset that makes a fault: the lower edge of the severity "hard".
LEAST_BREACH: Final = 0.02
JUDGED: Final = (("ttft", 0.95), ("ttft", 0.99), ("e2e", 0.95), ("e2e", 0.99))


def line(r: Result) -> str:
    """One case in one line."""
    mark = (
        ("ok  " if not r.alarm else "CRY ")
        if r.healthy
        else ("ok  " if r.cause_right(1) and r.stage_right(1) else "MISS")
    )
    took = " ".join(f"{name} {seconds:g}" for name, seconds in r.seconds.items() if seconds >= 0.1)
    where = ("client" if r.client_only else "full") + (f" {r.ablation}" if r.ablation else "")
    return f"{mark} {r.scenario:<20} {r.severity or '-':<7} {r.seed} {where:<6} breach {r.breach or 0.0:5.1%}  {r.status} {r.stage} {r.cause}  [{took}]"


def share(cases: Sequence[_Case], right: Callable[[_Case], bool]) -> str:
    """`93 % (27/29, 78-98)`: share, counts, and the 95 % Wilson interval."""
    n, hits = len(cases), sum(map(right, cases))
    if not n:
        return "-"
    low, high = _interval(hits, n)
    return f"{hits / n:.0%} ({hits}/{n}, {100 * low:.0f}-{100 * high:.0f})"


def _interval(hits: int, n: int) -> tuple[float, float]:
    low, high = wilson(hits, n, 1.96)
    return max(0.0, low), min(1.0, high)


def counted(results: Iterable[Result]) -> list[Result]:
    """The cases that count. A fault whose requests stay within the limits harms nobody, and is left out."""
    return [r for r in results if r.healthy or min(r.breach or 0.0, *r.alone, 1.0) >= LEAST_BREACH]


def tables(results: Iterable[Result]) -> str:
    """All tables in Markdown."""
    every = list(results)
    cases = counted(every)
    faults, healthy = [r for r in cases if not r.healthy], [r for r in cases if r.healthy]
    single = [r for r in faults if len(r.causes) == 1 or r.client_only]
    out = [
        "| cases | stage top-1 | stage top-3 | cause top-1 | cause top-3 | exact set |",
        "|---|---|---|---|---|---|",
    ]
    for client in (False, True):
        for severity in ("easy", "medium", "hard"):
            chosen = [r for r in faults if r.client_only == client and r.severity == severity]
            if chosen:
                out.append(
                    f"| {'client only' if client else 'full'}, {severity} | "
                    + " | ".join(
                        (
                            share(chosen, lambda r: r.stage_right(1)),
                            share(chosen, lambda r: r.stage_right(3)),
                            share(chosen, lambda r: r.cause_right(1)),
                            share(chosen, lambda r: r.cause_right(3)),
                            share([r for r in chosen if not r.client_only], lambda r: r.set_right),
                        )
                    )
                    + " |"
                )
    several = [r for r in faults if _several(r) and not r.client_only]
    out += [
        "",
        f"Several faults at once, exact set: {share(several, lambda r: r.set_right)}. "
        f"Cause top-1, mean over scenarios (full): {_macro([r for r in single if not r.client_only])}.",
        f"Healthy windows with an alarm: {share(healthy, lambda r: r.alarm)}. Left out because the fault harmed fewer than {LEAST_BREACH:.0%} of the "
        f"requests: {len(every) - len(cases)}.",
        "",
    ]
    told = [r for r in faults if r.path is not None]
    out += [
        "Of right causes, the chain (stage, requests since the onset, their time in that stage) is the injected one: "
        f"{share(told, lambda r: bool(r.path))}.",
        "",
    ]
    out += ["| method | stage top-1 | cause top-1 |", "|---|---|---|"]
    full = [r for r in faults if not r.client_only]
    out.append(
        f"| this | {share(full, lambda r: r.stage_right(1))} | {share(full, lambda r: r.cause_right(1))} |"
    )
    for name in _BASELINES:
        out.append(
            f"| {name} | {share(full, _baseline_right(name, 0))} | {share(full, _baseline_right(name, 1))} |"
        )
    out += [
        "",
        *_timing(faults),
        "",
        *_best_fixes([r.best_fix for r in full if r.best_fix is not None]),
        *_whatifs([w for r in full for w in r.whatifs]),
    ]
    return "\n".join(out)


def _baseline_right(name: str, which: int) -> Callable[[Result], bool]:
    """Whether a simple method has the stage (0) or the cause (1)."""
    return lambda r: r.baselines[name][which] in (r.causes if which else r.stages)


def _several(r: Result) -> bool:
    scenario = find(r.scenario)
    return scenario is not None and scenario.number.startswith("M")


def _macro(cases: list[Result]) -> str:
    per = {
        name: [r.cause_right(1) for r in cases if r.scenario == name]
        for name in {r.scenario for r in cases}
    }
    return (
        f"{statistics.fmean(sum(hits) / len(hits) for hits in per.values()):.0%} of {len(per)} scenarios"
        if per
        else "-"
    )


def _best_fixes(found: Sequence[BestFix]) -> list[str]:
    """How the verdict's fixes stand beside the best that the world could take."""
    if not found:
        return []
    scored = sorted(one.regret for one in found if one.regret is not None)
    out = [
        f"Fix of the verdict put into the true world: {len(scored)} of {len(found)} cases (the others' verdict names none that it can take)."
    ]
    if scored:
        near = sum(regret <= NEARLY for regret in scored)
        helped = sum(one.chosen.after < one.without for one in found if one.chosen is not None)
        out.append(
            f"Best or within {NEARLY:.0%} of the best: {near} of {len(scored)}; regret {statistics.median(scored):.1%} (median), {scored[-1]:.1%} "
            f"(largest); better than no fix: {helped} of {len(scored)}."
        )
    return [*out, ""]


def _timing(faults: list[Result]) -> list[str]:
    errors = sorted(abs(r.onset_error_s) for r in faults if r.onset_error_s is not None)
    late = sorted(r.delay_s for r in faults if r.delay_s is not None)
    out = []
    if errors:
        off = f"{statistics.median(errors):.0f} s (median), {_p90(errors):.0f} s (P90)"
        out.append(f"Onset: found in {len(errors)} of {len(faults)}; off by {off}.")
    if late:
        out.append(
            f"From onset to the first report with the right cause: {statistics.median(late):.0f} s (median of {len(late)})."
        )
    return out


def _whatifs(found: list[WhatIf]) -> list[str]:
    return [*_by_method(found), "", *_by_fix(found)] if found else []


def _by_method(found: list[WhatIf]) -> list[str]:
    """What-ifs by the class of their method, with Wilson intervals."""
    out = [
        "| method | metric | answered | abs. error, median | P90 | interval covers | right direction | subtraction, median | two truths, median |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for method in sorted({w.method for w in found if w.after is not None}):
        for metric, quantile in JUDGED:
            given = [
                w
                for w in found
                if (w.method, w.metric, w.quantile) == (method, metric, quantile)
                and w.after is not None
            ]
            if given:
                out.append(
                    f"| {method} | {metric.upper()} P{100 * quantile:g} | {len(given)} | {_errors(given, share)} |"
                )
    asked = [w for w in found if (w.metric, w.quantile) == JUDGED[-1]]
    return [
        *out,
        "",
        f"Asked of the truth's fixes: {share(asked, lambda w: w.after is not None)} answered, the others refused with the reason.",
    ]


def _by_fix(found: list[WhatIf]) -> list[str]:
    out = [
        "| what-if | metric | cases | answered | abs. error, median | P90 | interval covers | right direction | subtraction, median | two truths, median |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for fix in sorted({w.fix for w in found}):
        for metric, quantile in JUDGED:
            rows = [
                w for w in found if w.fix == fix and w.metric == metric and w.quantile == quantile
            ]
            given = [w for w in rows if w.after is not None]
            if rows:
                method = f" ({given[0].method})" if given else ""
                out.append(
                    f"| {fix}{method} | {metric.upper()} P{100 * quantile:g} | {len(rows)} | {len(given)} | {_errors(given, _counts)} |"
                )
    return out


def _p90(ascending: Sequence[float]) -> float:
    """The least value that nine in ten do not exceed."""
    return ascending[math.ceil(0.9 * len(ascending)) - 1]


def _counts(cases: Sequence[WhatIf], right: Callable[[WhatIf], bool]) -> str:
    return f"{sum(map(right, cases))}/{len(cases)}"


def _errors(
    given: list[WhatIf], told: Callable[[Sequence[WhatIf], Callable[[WhatIf], bool]], str]
) -> str:
    if not given:
        return "- | - | - | - | - | -"
    errors = sorted(abs((w.after or 0.0) - w.truth) / w.truth for w in given)
    covered = told(
        [w for w in given if w.interval],
        lambda w: w.interval is not None and w.interval[0] <= w.truth <= w.interval[1],
    )
    moved = [w for w in given if abs(w.truth - w.before) > DIRECTION * w.before]
    right = told(moved, lambda w: (w.truth < w.before) == ((w.after or 0.0) < w.before))
    naive = sorted(abs(w.naive - w.truth) / w.truth for w in given if w.naive is not None)
    apart = sorted(abs(w.again - w.truth) / w.truth for w in given if w.again is not None)
    return " | ".join(
        (
            f"{statistics.median(errors):.1%}",
            f"{_p90(errors):.1%}",
            covered,
            right,
            *(f"{statistics.median(part):.1%}" if part else "-" for part in (naive, apart)),
        )
    )


def confusions(results: Iterable[Result]) -> str:
    """Every wrong answer with what was said instead and why, as plain text."""
    out = []
    cases = sorted(results, key=lambda r: (r.client_only, r.scenario, str(r.severity), r.seed))
    for r in cases:
        wrong = (
            r.alarm
            if r.healthy
            else not (r.cause_right(1) and r.stage_right(1) and (r.client_only or r.set_right))
        )
        if not wrong:
            continue
        seen = ("client-only" if r.client_only else "full") + (
            f" {r.ablation}" if r.ablation else ""
        )
        out += [
            f"{r.scenario} {r.severity or '(healthy)'} seed {r.seed} {seen}; asked: {r.asked}; "
            f"over the limit after onset: {r.breach or 0.0:.1%}; confounders: {', '.join(r.confounders) or 'none'}",
            f"  expected: causes {r.causes or 'nothing'} stages {r.stages}"
            + (f" (may follow: {r.chain})" if r.chain else ""),
            f"  got:      {r.status}, stage {r.stage}, cause {r.cause}; findings "
            + (", ".join(f"{f} {s} {c:g}" for f, s, c in r.findings) or "none")
            + f"; stages by excess {r.ranked_stages[:4]}",
            f"  said:     {r.sentence[:300]}",
        ]
        out += [f"  skipped:  {rule}: {why[:200]}" for rule, why in r.reasons.items()]
        out.append("")
    n = sum(not r.healthy for r in cases)
    faults = [r for r in cases if not r.healthy]
    full = [r for r in faults if not r.client_only]
    head = (
        f"{len(cases)} cases ({n} with a fault): cause top-1 right in {sum(r.cause_right(1) for r in faults)}, stage top-1 right in "
        f"{sum(r.stage_right(1) for r in faults)}, exact set in {sum(r.set_right for r in full)} of {len(full)}, "
        f"alarms on healthy windows {sum(r.alarm for r in cases if r.healthy)} of {len(cases) - n}"
    )
    return "\n".join([head, "", *out]) + "\n"

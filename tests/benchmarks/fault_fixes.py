"""Is the fix that the verdict names nearly the best one? Every fix that the simulated world can take is put into it, with the same requests.

The fixes beside the verdict's (which has the verdict's parameters) are those of the house with what an engineer would try: the settings of before the
onset, a cap and a limit of one and a half usual lengths, twice the KV cache. More replicas or other hardware buy their way out of most faults: they count
only where the verdict says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from overrun.analysis.front.report import Report
from overrun.sample_traces.simulate import Job, latency_with
from overrun.sample_traces.simulator.faults import limited
from overrun.sample_traces.simulator.settings import Settings

Parameters = Mapping[str, float | str]
_MEAN_OF_LOGNORMAL: Final = 1.06
_ROOM: Final = 1.5


class FixOutcome(msgspec.Struct):
    """One fix in the true world: the judged quantile with it, in ms."""

    fix: str
    after: float


class BestFix(msgspec.Struct):
    """What the verdict's fix does beside the others; `chosen` is null where the verdict names none that the world can take."""

    metric: str
    quantile: str
    without: float
    chosen: FixOutcome | None
    others: list[FixOutcome]

    @property
    def regret(self) -> float | None:
        """How much longer the judged quantile is with the chosen fix than with the best one, as a share; null without a chosen one."""
        if self.chosen is None:
            return None
        best = min([self.chosen.after, *(one.after for one in self.others)])
        return self.chosen.after / best - 1.0


def applied(fix: str, parameters: Parameters, before: Settings, now: Settings) -> Settings | None:
    """The world with a what-if's fix in place, None where it has no such knob; `before` is the world before the onset."""

    def number(name: str) -> int:
        return int(float(parameters[name]))

    worlds: dict[str, Callable[[], Settings]] = {
        "cap": lambda: replace(now, max_tokens=min(now.max_tokens, number("max_tokens"))),
        "context_limit": lambda: replace(now, input_limit=number("max_input_tokens")),
        "kv_size": lambda: replace(
            now, kv_tokens=round(now.kv_tokens * float(parameters["factor"]))
        ),
        "prefix_cache": lambda: replace(now, system_broken_share=before.system_broken_share),
        "chunked_prefill": lambda: replace(now, chunked=True, token_budget=number("token_budget")),
        "max_sequences": lambda: replace(now, max_num_seqs=number("sequences")),
        "retries": lambda: replace(now, retries=0, retry_after_s=0.0),
        "routing": lambda: replace(now, router="least"),
        "eject": lambda: (
            replace(
                now, replicas=now.replicas - 1, slow=tuple(sorted(now.slow))[: now.replicas - 1]
            )
            if now.replicas > 1
            else now
        ),
        "replicas": lambda: replace(now, replicas=number("replicas")),
        "cancellation": lambda: replace(now, cancels=True),
        "speculation": lambda: replace(now, draft_tokens=0),
        "tenant_quota": lambda: (
            limited(now, float(parameters["share_ratio"])) if now.noisy_share else now
        ),
        "connection_pooling": lambda: replace(now, pooled=True),
    }
    return worlds[fix]() if fix in worlds else None


def panel(before: Settings, now: Settings) -> dict[str, Settings]:
    """The fixes that an engineer could try, by name: those that change this world."""
    prompt = (
        before.system_tokens
        + _MEAN_OF_LOGNORMAL * before.input_tokens
        + before.history_tokens * before.history_kept * (before.kind == "chat")
    )
    tries: list[tuple[str, Parameters]] = [
        ("cap", {"max_tokens": _ROOM * before.output_tokens}),
        ("context_limit", {"max_input_tokens": _ROOM * prompt}),
        ("kv_size", {"factor": 2.0}),
        ("prefix_cache", {}),
        ("chunked_prefill", {"token_budget": before.token_budget}),
        ("max_sequences", {"sequences": before.max_num_seqs}),
        ("retries", {}),
        ("routing", {}),
        ("eject", {}),
        ("cancellation", {}),
        ("speculation", {}),
        ("tenant_quota", {"share_ratio": 1.0 / before.tenants}),
        ("connection_pooling", {}),
    ]
    made = {fix: applied(fix, parameters, before, now) for fix, parameters in tries}
    return {fix: world for fix, world in made.items() if world is not None and world != now}


def best_fix(job: Job, report: Report, truth: dict[str, Any]) -> BestFix | None:
    """Score the verdict's fix of a case; None where nothing is judged."""
    metric = "ttft" if report.verdict.metric == "ttft" else "e2e"
    quantile = f"p{report.slo.percentile:g}"
    if report.verdict.metric is None or quantile not in ("p50", "p95", "p99"):
        return None
    job = replace(job, amount=truth["amount"], tuned=False)

    def after(change: Callable[[Settings, Settings], Settings | None]) -> float | None:
        found = latency_with(job, truth["onset_s"], change)
        return (
            None
            if found is None or found[f"{metric}_ms"] is None
            else float(found[f"{metric}_ms"][quantile])
        )

    main = next(
        (finding.fix for finding in report.findings if finding.rule == report.verdict.cause), None
    )
    chosen = None
    if main is not None and main.whatif is not None:
        named, given = main.whatif, main.parameters
        value = after(lambda before, now: applied(named, given, before, now))
        chosen = None if value is None else FixOutcome(named, value)
    names: set[str] = set()
    latency_with(job, truth["onset_s"], lambda before, now: names.update(panel(before, now)))  # type: ignore[func-returns-value]
    # The verdict's own parameters stand for its fix: whether another cap would be better is another question.
    tried = {
        name: after(lambda before, now, name=name: panel(before, now)[name])  # type: ignore[misc]
        for name in sorted(names - {main.whatif if main else None})
    }
    others = [FixOutcome(name, value) for name, value in tried.items() if value is not None]
    return BestFix(
        metric, quantile, float(truth["latency"]["after"][f"{metric}_ms"][quantile]), chosen, others
    )

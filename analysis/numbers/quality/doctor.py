"""Is each sender's telemetry complete? Per service: its dialect, the fields that were never seen, and what to switch on.

Per engine instance with metrics: the indicators that arrive, those that are missing; targets without answers, and unknown names.
"""

from __future__ import annotations

from typing import Any

import duckdb
import msgspec

from overrun.analysis.numbers.quality.store_checks import (
    Cut,
    Held,
    cuts,
    held,
    said_of,
    said_of_cuts,
)
from overrun.analysis.numbers.quality.targets import (
    Sent,
    Target,
    UnknownMetrics,
    is_part,
    say_target,
    say_unknown,
    sent,
)
from overrun.analysis.numbers.requests.stored_names import unstored
from overrun.analysis.numbers.window import Window, filter_of, query
from overrun.analysis.words.finding import printable, say_count, say_ratio
from overrun.collector.normalise.stages import dialects
from overrun.collector.store.answers import fetch_frame

# Field -> (what it is counted among, what is missing without it, what to switch on). Fields of model calls first, then of requests.
_FIELDS: dict[str, tuple[str, str, str]] = {
    "ttft": (
        "streams",
        "TTFT",
        "an instrumentation that records the first token (gen_ai.response.time_to_first_chunk), or the engine's own spans",
    ),
    "output_tokens": (
        "answered",
        "TPOT and token rates",
        'usage in streams: stream_options = {"include_usage": true}',
    ),
    "input_tokens": (
        "answered",
        "prompt growth and cache ratios",
        'usage in streams: stream_options = {"include_usage": true}',
    ),
    "finish_reason": ("answered", "truncated answers", "gen_ai.response.finish_reasons"),
    "response_id": (
        "answered",
        "the join with engine spans without trace context",
        "gen_ai.response.id, or pass traceparent on to the engine",
    ),
    "model": ("calls", "everything by model", "gen_ai.request.model"),
    "cached_tokens": (
        "answered",
        "lost prefix caches",
        "gen_ai.usage.cache_read.input_tokens, where the provider reports it",
    ),
    "error_type": (
        "failed",
        "causes of failures",
        "error.type on failed spans, or exception events",
    ),
    "session": ("traces", "conversations and their growth", "session.id or gen_ai.conversation.id"),
    "tenant": ("traces", "noisy tenants", "tenant.id"),
    "user": ("traces", "abandoned users", "user.id (stored as a salted hash)"),
    "route": ("traces", "budgets per route", "http.route on the server span, or overrun.route"),
}
# What makes no sense of a span that an engine sent.
_CLIENTS_ONLY = frozenset(
    {"session", "tenant", "user", "route", "model", "finish_reason", "cached_tokens", "error_type"}
)


class Missing(msgspec.Struct, kw_only=True):
    """A field that was never seen: what is not known without it, and what to switch on at the sender."""

    field: str
    hides: str
    switch_on: str


class Service(msgspec.Struct, kw_only=True):
    """What one service sends. `dialects` counts its spans per vocabulary, `unknown_spans` those that none knows, `unplaced_spans` those that no
    rule places in a stage. `model_calls` are spans of model calls, `calls` what they are once spans that report the same call are one. `seen` is the
    share (0..1) of the model calls (of the traces, for fields that one span carries for all) that carry a field."""

    service: str
    spans: int
    model_calls: int
    calls: int = 0
    dialects: dict[str, int]
    unknown_spans: int
    unplaced_spans: int
    seen: dict[str, float]
    never_seen: list[Missing]


class MetricSender(msgspec.Struct, kw_only=True):
    """The indicators of one instance's metrics, and what is missing without the others."""

    instance: str
    service: str
    models: list[str]
    indicators: list[str]
    never_seen: list[Missing]


class Checkup(msgspec.Struct, kw_only=True):
    """One entry per service, the one with most model calls first, one per instance that sends metrics, the scraped targets, and whether
    the store holds all that it acknowledged, at any time.

    `refused`: the service asked for is stored nowhere: the command line ends with 2 then.
    """

    services: list[Service]
    metrics: list[MetricSender] = []
    targets: list[Target] = []
    unknown_metrics: UnknownMetrics = msgspec.field(default_factory=UnknownMetrics)
    refused: str = ""
    store: Held | None = None
    cuts: list[Cut] = []


# Indicator -> (what is missing without it, what to switch on). An engine that embeds has its own.
_TOLD: dict[str, tuple[str, str]] = {
    "ttft": (
        "TTFT",
        "an engine with a histogram of it (vLLM, SGLang, TensorRT-LLM), or spans of its callers",
    ),
    "queue_depth": (
        "which requests wait",
        "the engine's own page rather than a gateway's, or [metrics] in overrun.toml if it has another name",
    ),
    "running": (
        "the engine's load",
        "the engine's own page rather than a gateway's, or [metrics] in overrun.toml if it has another name",
    ),
    "kv_cache_usage": (
        "a full KV cache",
        "an engine that reports it (newer llama.cpp, TGI and text-embeddings-inference do not)",
    ),
    "output_tokens": (
        "token rates",
        "the engine's counters of tokens, or [metrics] in overrun.toml if they have other names",
    ),
}
_STANDS_IN: dict[str, str] = {
    "queue_depth": "embedding_queue_depth",
    "running": "embedding_running",
    "ttft": "embedding_e2e",
    "output_tokens": "embedding_tokens",
}


def examine(con: duckdb.DuckDBPyConnection, window: Window) -> Checkup:
    """Look at the spans that start in the window, and at the metrics of its time (its service and instance are filters too; nothing else of it is)."""
    params = {
        key: value
        for key, value in filter_of(window).items()
        if key in ("start", "end", "service", "instance")
    }
    by_service: dict[str, list[dict[str, Any]]] = {}
    for row in fetch_frame(con, query("doctor"), params).to_dicts():
        by_service.setdefault(row["service"], []).append(row)
    of_traces = {
        row["service"]: row for row in fetch_frame(con, query("doctor_traces"), params).to_dicts()
    }
    of_calls = {
        row.pop("service"): row
        for row in fetch_frame(con, query("doctor_calls"), params).to_dicts()
    }
    found = [
        _service(name, rows, of_traces[name], of_calls.get(name, {}))
        for name, rows in by_service.items()
    ]
    arrived = sent(con, window.start, window.end)
    senders = [
        _sender(name, arrived)
        for name in sorted(arrived.indicators)
        if window.service in (None, arrived.services.get(name)) and _meant(window, name)
    ]
    nothing = not found and not senders
    return Checkup(
        services=sorted(found, key=lambda s: (-s.model_calls, -s.spans, s.service)),
        metrics=senders,
        targets=[]
        if window.service
        else [one for one in arrived.targets if _meant(window, one.instance)],
        unknown_metrics=UnknownMetrics() if window.service or window.instance else arrived.unknown,
        refused=unstored(con, Window(service=window.service, instance=window.instance))
        if nothing
        else "",
        store=held(con),
        cuts=cuts(con),
    )


def _meant(window: Window, instance: str) -> bool:
    """Whether an instance is the one that is asked for, or behind it."""
    return window.instance is None or is_part(instance, window.instance)


def _sender(name: str, arrived: Sent) -> MetricSender:
    told = set(arrived.indicators[name])
    engine = not told.isdisjoint({*_TOLD, *_STANDS_IN.values()})
    missing = [
        Missing(field=field, hides=hides, switch_on=switch_on)
        for field, (hides, switch_on) in _TOLD.items()
        if engine
        and field not in told
        and _STANDS_IN.get(field) not in told
        and not (field == "kv_cache_usage" and "embedding_e2e" in told)
    ]
    return MetricSender(
        instance=name,
        service=arrived.services.get(name, ""),
        models=arrived.models.get(name, []),
        indicators=sorted(told),
        never_seen=missing,
    )


def _service(
    name: str, rows: list[dict[str, Any]], of_traces: dict[str, Any], of_calls: dict[str, int]
) -> Service:
    total = of_traces | {
        key: sum(row[key] for row in rows) for key in rows[0] if isinstance(rows[0][key], int)
    }
    engine = total["engine_requests"] == total["calls"] > 0
    seen: dict[str, float] = {}
    missing: list[Missing] = []
    for field, (among, hides, switch_on) in _FIELDS.items():
        if (
            not total[among]
            or (engine and field in _CLIENTS_ONLY)
            or (not total["calls"] and field != "route")
        ):
            continue
        seen[field] = max(total[field] / total[among], _of_calls(of_calls, field, among))
        if not total[field]:
            missing.append(
                Missing(
                    field=field,
                    hides=hides,
                    switch_on=_hint(field, rows, of_call=among != "traces") or switch_on,
                )
            )
    if total["answered"] and not total["streams"]:
        hint = _hint("ttft", rows)
        unseen = "streaming: no call of this service is known to stream"
        missing.insert(
            0,
            Missing(
                field="ttft",
                hides="TTFT",
                switch_on=f"{unseen}; if some do, {hint}" if hint else unseen,
            ),
        )
    if total["agents"] and not total["calls"]:
        missing.append(
            Missing(
                field="model_call",
                hides="all model calls of its agents",
                switch_on="an instrumentation of the provider's client beside the agents' own (opentelemetry-instrumentation-genai-openai)",
            )
        )
    for field, hides in (
        ("instance", "one slow replica among many"),
        ("version", "the effect of a deployment"),
    ):
        if not any(row[field] for row in rows):
            missing.append(
                Missing(
                    field=field,
                    hides=hides,
                    switch_on=f"the resource attribute service.{'instance.id' if field == 'instance' else field}",
                )
            )
    return Service(
        service=name,
        spans=total["spans"],
        model_calls=total["calls"],
        calls=min(of_calls.get("calls", 0), total["calls"]),
        dialects={row["dialect"]: row["spans"] for row in rows if row["dialect"]},
        unknown_spans=sum(row["spans"] for row in rows if not row["dialect"]),
        unplaced_spans=total["unplaced"],
        seen=seen,
        never_seen=missing,
    )


def _of_calls(of_calls: dict[str, int], field: str, among: str) -> float:
    """The share of the calls that carry a field: where several spans report a call, each need not have what one of them has."""
    return of_calls[field] / of_calls[among] if of_calls.get(among) and field in of_calls else 0.0


def _hint(field: str, rows: list[dict[str, Any]], *, of_call: bool = True) -> str | None:
    """The hint of most model calls' dialect for a field that its senders leave out; if any span of a trace may carry it, any dialect's hint."""
    spoken = [
        row["dialect"]
        for row in sorted(rows, key=lambda row: (-row["calls"], -row["spans"]))
        if row["calls"] or not of_call
    ]
    hints = {d.name: dict(d.hints) for d in dialects()}
    return next((hints[name][field] for name in spoken if field in hints.get(name, {})), None)


def render(checkup: Checkup) -> str:
    """The check-up as text, a paragraph per service and instance, then targets and unknown names."""
    parts = [
        "\n".join([head, *(f"  {line}" for line in lines)])
        for head, lines in [*map(said, checkup.services), *map(said_metrics, checkup.metrics)]
    ]
    if not checkup.services:
        parts.insert(
            0,
            "no spans were received: send some (the README's first page shows how), or widen --since"
            if not checkup.metrics
            else "no spans were received, only metrics: they show no single request",
        )
    if checkup.targets:
        parts.append(
            "\n".join(["targets", *(f"  {say_target(target)}" for target in checkup.targets)])
        )
    if checkup.unknown_metrics.metrics:
        parts.append(say_unknown(checkup.unknown_metrics))
    if checkup.store is not None and checkup.store.commits:
        parts.append(said_of(checkup.store))
    if checkup.cuts:
        parts.append(said_of_cuts(checkup.cuts))
    return "\n\n".join(parts)


def said_metrics(sender: MetricSender) -> tuple[str, list[str]]:
    """The text on one instance's metrics: its name, its indicators, and a line for every missing one."""
    of = ", ".join(printable(part) for part in (sender.service, *sender.models) if part)
    lines = [
        f"reports: {', '.join(sender.indicators)}",
        *(
            f"never seen: {m.field} (hides {m.hides}). Switch on: {m.switch_on}"
            for m in sender.never_seen
        ),
    ]
    return f"{printable(sender.instance)}: metrics of {of}", lines


def said(s: Service) -> tuple[str, list[str]]:
    """The text on one service: how much it sends in which dialect, and a line for everything that arrives, is missing, or is not understood."""
    spoken = (
        ", ".join(f"{name} ({say_count(count, 'span')})" for name, count in s.dialects.items())
        or "not known"
    )
    lines = []
    if s.unknown_spans:
        lines.append(
            f"{say_count(s.unknown_spans, 'span')} of no known dialect: name the attributes under [attributes] in overrun.toml"
        )
    if s.unplaced_spans * 4 > s.spans:
        lines.append(
            f"{say_count(s.unplaced_spans, 'span')} without a stage: set overrun.stage there, or add [[stages]] rules to overrun.toml"
        )
    partly = {field: share for field, share in s.seen.items() if 0 < share < 1}
    whole = [field for field, share in s.seen.items() if share >= 1]
    if whole:
        lines.append(f"always there: {', '.join(whole)}")
    if partly:
        lines.append(
            f"sometimes there: {', '.join(f'{field} {say_ratio(round(share, 2))}' for field, share in partly.items())}"
        )
    lines += [
        f"never seen: {m.field} (hides {m.hides}). Switch on: {m.switch_on}" for m in s.never_seen
    ]
    same = f" (of {say_count(s.calls, 'call')})" if 0 < s.calls < s.model_calls else ""
    return (
        f"{s.service}: {say_count(s.spans, 'span')}, {s.model_calls:,} of model calls{same}; dialect: {spoken}",
        lines,
    )

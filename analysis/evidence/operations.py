"""Who spends the time of a request? The own time of each operation on the critical path, its calls a request, and the shape of their durations.

An operation is what one service does or asks for: a span name or an HTTP method, with the host, the path template or the collection that it is asked of. Its own
time leaves out what its children spend, so that a span around others is never blamed for them. The spans come from `Case.slow_tree` and `Case.usual_tree`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import polars as pl

from overrun.analysis.assembly.critical_path import Forest, critical_paths
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.words.arrays import FloatArray, IndexArray
from overrun.analysis.words.finding import printable, say_ms, say_ratio
from overrun.collector.normalise.stages import MODEL_PATHS, ROLE, STAGE, STAGES
from overrun.collector.process.compiled import of_rows

# What tells calls of one operation apart: where it is, not what it is of.
KEYS: Final = ("service", "what", "host", "place", "stage", "purpose")
_KINDS: Final = {
    name: code
    for code, name in enumerate(
        ("unspecified", "internal", "server", "client", "producer", "consumer")
    )
}
# Ids within a name, and the parts of a path that are one: numbers, hashes, UUIDs.
_UUID: Final = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{18,}"
_NAME_IDS: Final = rf"{_UUID}|\b[0-9a-fA-F]{{16,}}\b|([/# :])[0-9]+\b"
_PATH_IDS: Final = rf"/(?:{_UUID}|[0-9]+|[0-9a-fA-F]{{12,}}|[a-z]{{2,6}}_[0-9A-Za-z]{{10,}})(/|$)"
# Products that take telemetry, by what stands in their host names, and paths that only telemetry is sent to.
_VENDORS: Final = (
    r"langfuse|langsmith|smith\.langchain|helicone|traceloop|arize|phoenix|braintrust|agentops|langwatch|lunary|literalai|opik|comet\.com|wandb|mlflow"
    r"|logfire|lmnr|galileo|humanloop|promptlayer|athina|keywordsai|datadoghq|ddog-gov|sentry|newrelic|nr-data|honeycomb|splunk|signalfx|dynatrace"
    r"|grafana|logzio|loggly|sumologic|axiom\.co|betterstack|logtail|posthog|segment\.(?:io|com)|amplitude|mixpanel|rudderstack|otel|otlp|jaeger|zipkin"
    r"|statsd|fluentd|fluent-bit|logstash|loki|telemetry|analytics"
)
_VENDOR_PATHS: Final = (
    r"/api/public/ingestion|/api/public/otel|/v1/(?:traces|metrics|logs)/?$|/api/v[12]/spans"
    r"|/runs/(?:batch|multipart)|/api/\{id\}/(?:store|envelope)|/v0\.\d/traces|/telemetry(?:/|$)|/services/collector"
)
# What a span is called in which a connection of a pool is waited for or opened (SQLAlchemy's instrumentation, pg-pool's, JDBC's).
_POOLS: Final = r"(?i)(?:^|[ ._/-])(?:connect|get.?connection|acquire|check.?out)(?:$|[ ._-])"
_CHECKS: Final = (
    r"(?i)(?:^|[^a-z])(?:auth\w*|verify|verification|verificationtoken|introspect\w*|jwks|oauth2?|api.?keys?|keys?|tokens?|quotas?|rate.?limits?"
    r"|spend|budgets?|entitlements?|permissions?|credits?|licen[cs]es?)(?:$|[^a-z])"
)
_EMBEDS: Final = r"(?i)embed"
_RERANKS: Final = r"(?i)re-?rank"
# Stores that are searched by nearness or by words; others are asked for rows.
_SEARCHES: Final = (
    r"(?i)qdrant|pinecone|weaviate|milvus|zilliz|chroma|elasticsearch|opensearch|vespa|turbopuffer|lancedb|marqo|faiss|typesense|meilisearch|vector|search"
    r"|similarity|knn|retriev"
)
# A call is long that takes more than this many times what its operation usually takes at the median; own default.
LONG: Final = 2.0
# So many times as many calls of an operation as usual are more calls; own default.
MORE_CALLS: Final = 1.5
# Operations of a stage that a finding's evidence lists.
MOST_TOLD: Final = 5
# What a span takes that waits for another service, beside what spans of that service take.
_WAY: Final = "the way "
# Calls of an operation from which a percentile is told; own default, as for stages.
MIN_CALLS: Final = 20


# Clocks and rounding, as in `span_tree`.
_TOLERANCE_S: Final = 0.0005
_NONE: Final[FloatArray] = np.zeros(0)


@dataclass(frozen=True)
class Operation:
    """One operation: its own milliseconds and its calls per slow and per reference request, and the duration in ms of each of its calls in the judged period
    (`took_ms`) and in healthy requests (`usual_took_ms`): those of the baseline, else those within the limit."""

    service: str
    what: str
    host: str
    place: str
    stage: str
    purpose: str
    slow_ms: float
    usual_ms: float
    calls: float
    usual_calls: float
    took_ms: FloatArray
    usual_took_ms: FloatArray
    after_answer: bool
    leaf: bool

    @property
    def excess_ms(self) -> float:
        """How much more a slow request spends on it than a reference one."""
        return self.slow_ms - self.usual_ms

    def same(self, other: Operation | None) -> bool:
        """Return whether it is the same operation, in another stage perhaps: one host may serve searches and tools."""
        return other is not None and all(
            getattr(self, key) == getattr(other, key) for key in KEYS if key != "stage"
        )

    @property
    def name(self) -> str:
        """What it is, without whose: `POST to cloud.langfuse.com/api/public/ingestion`."""
        what, host, place = self.what, self.host, self.place
        if re.fullmatch("[A-Z]+", what) and place.startswith("/"):
            told = f"{what} to {host}{place}"
        elif re.fullmatch("[A-Z]+", what) and host and not place:
            told = f"{what} {'to' if self.purpose in ('http', 'hop', 'vendor') else 'at'} {host}"
        else:
            told = f"{what} {place}" if place and place not in what else what
        return printable(told)

    @property
    def label(self) -> str:
        """What it is, and the service that does it."""
        if self.what.startswith(_WAY):
            return f"{_WAY}from {printable(self.service)} to {printable(self.what.removeprefix(_WAY).removeprefix('to '))}"
        return f"{self.name} in {printable(self.service)}"

    @cached_property
    def healthy_p95_ms(self) -> float | None:
        """P95 of one call in healthy requests, None where they are too few to tell."""
        if len(self.usual_took_ms) < MIN_CALLS:
            return None
        return float(np.percentile(self.usual_took_ms, 95.0))

    @cached_property
    def late_ratio(self) -> float | None:
        """Part of the calls that take more than twice what a call usually takes; None where that is not known."""
        if not len(self.usual_took_ms) or not len(self.took_ms):
            return None
        return float((self.took_ms > LONG * float(np.median(self.usual_took_ms))).mean())

    @property
    def repeats(self) -> bool:
        """Whether a request makes more of these calls than usual, and most take no longer than one usually does (or none was made)."""
        if not self.usual_calls:
            return self.calls > 0.0
        late = self.late_ratio
        return self.calls >= MORE_CALLS * self.usual_calls and late is not None and late < 0.5

    @property
    def shape(self) -> str:
        """How often it is called in a slow request, and how long these calls take, beside the reference."""
        parts = [
            f"{self.calls:.3g} a request"
            + (f" ({self.usual_calls:.3g} usually)" if self.usual_calls else ", none usually")
        ]
        late = self.late_ratio
        if not len(self.took_ms):
            return parts[0]
        middle = float(np.median(self.took_ms))
        if late is None:
            parts.append(f"{say_ms(middle)} each at the median")
        elif 0.0 < late < 0.5:
            line = LONG * float(np.median(self.usual_took_ms))
            long = float(np.median(self.took_ms[self.took_ms > line]))
            rest = float(np.median(self.took_ms[self.took_ms <= line]))
            parts.append(
                f"{say_ratio(late)} of them take {say_ms(long)}, the others {say_ms(rest)}"
            )
        else:
            usual = float(np.median(self.usual_took_ms))
            parts.append(f"{say_ms(middle)} each at the median ({say_ms(usual)} usually)")
        return ", ".join(parts)

    def told(self) -> dict[str, Any]:
        """Return what a finding's evidence says of it; milliseconds."""
        return {
            "operation": self.name,
            "service": printable(self.service),
            "purpose": self.purpose,
            "own_ms": self.slow_ms,
            "reference_own_ms": self.usual_ms,
            "calls": self.calls,
            "reference_calls": self.usual_calls,
            "call_p50_ms": float(np.median(self.took_ms)) if len(self.took_ms) else None,
            "call_p95_ms": float(np.percentile(self.took_ms, 95.0))
            if len(self.took_ms) >= MIN_CALLS
            else None,
            "reference_call_p50_ms": float(np.median(self.usual_took_ms))
            if len(self.usual_took_ms)
            else None,
            "reference_call_p95_ms": self.healthy_p95_ms,
            "long_ratio": self.late_ratio,
        }


class Operations:
    """The operations of slow and of reference requests.

    `slow_until` and `usual_until` have `until_ms` by `trace_key`: how much of the request's path counts (None: all). `calls` gives the spans of the judged
    period and those of healthy requests, by which the durations of calls are judged; without it they are those of slow and of reference requests.
    """

    def __init__(
        self,
        slow: Tree,
        usual: Tree,
        slow_until: pl.DataFrame | None = None,
        usual_until: pl.DataFrame | None = None,
        calls: Callable[[], tuple[pl.DataFrame, pl.DataFrame]] | None = None,
    ) -> None:
        self.slow, self.usual = own_times(slow, slow_until), own_times(usual, usual_until)
        self._requests = max(slow.requests, 1), max(usual.requests, 1)
        self._calls = calls or (lambda: (slow.frame, usual.frame))

    @cached_property
    def _took(self) -> tuple[dict[tuple[str, ...], FloatArray], dict[tuple[str, ...], FloatArray]]:
        now, healthy = self._calls()
        return _durations(now), _durations(healthy)

    @cached_property
    def all(self) -> list[Operation]:
        """Every operation on the path, the one that adds most to a slow request first."""
        sides = [
            _grouped(frame, n)
            for frame, n in zip((self.slow, self.usual), self._requests, strict=True)
        ]
        joined = sides[0].join(
            sides[1], on=list(KEYS), how="full", coalesce=True, suffix="_usual", nulls_equal=True
        )
        found = [
            Operation(
                **{key: row[key] or "" for key in KEYS},
                slow_ms=row["ms"] or 0.0,
                usual_ms=row["ms_usual"] or 0.0,
                calls=row["calls"] or 0.0,
                usual_calls=row["calls_usual"] or 0.0,
                took_ms=self._took[0].get(_whose(row), _NONE),
                usual_took_ms=self._took[1].get(_whose(row), _NONE),
                after_answer=bool(row["after_answer"]),
                leaf=bool(row["leaf"] if row["leaf"] is not None else row["leaf_usual"]),
            )
            for row in joined.iter_rows(named=True)
        ]
        return sorted(found, key=lambda one: (-one.excess_ms, one.service, one.name))

    def of_stage(self, stage: str, service: str | None = None) -> list[Operation]:
        """Return the operations of a stage that take time in slow requests, the one that adds most first."""
        return [
            one
            for one in self.all
            if one.stage == stage
            and one.slow_ms > 0.0
            and (service is None or one.service == service)
        ]

    def whole(self, one: Operation) -> Operation:
        """Return an operation over all stages that its calls stand in."""
        parts = [other for other in self.all if other.same(one)]
        return replace(
            one,
            slow_ms=sum(part.slow_ms for part in parts),
            usual_ms=sum(part.usual_ms for part in parts),
            calls=sum(part.calls for part in parts),
            usual_calls=sum(part.usual_calls for part in parts),
        )

    def spent(self, stage: str) -> FloatArray:
        """Return what each reference request spends on a stage in ms, those left out that spend nothing."""
        of = self.usual.filter(pl.col("stage") == stage).group_by("trace_key")
        return of.agg(pl.col("own_ms").sum())["own_ms"].to_numpy()

    def named_excess_ms(self, stage: str) -> float:
        """Return how much more a slow request spends on a stage in spans that hold no other span: what they are named after takes the time, not what is between."""
        return sum(max(one.excess_ms, 0.0) for one in self.all if one.stage == stage and one.leaf)

    def most(self, stage: str, *, leaves: bool = False) -> Operation | None:
        """Return the operation that a stage's time is spent on: what added most, else what takes most; None where no span of the stage is known.

        With `leaves` of those alone whose spans hold no other span.
        """
        found = [one for one in self.of_stage(stage) if one.leaf or not leaves]
        if not found:
            return None
        return found[0] if found[0].excess_ms > 0.0 else max(found, key=lambda one: one.slow_ms)


def own_times(tree: Tree, until: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return one row per span and stage on the critical paths: `KEYS`, trace_key, own_ms, duration_ms, and whether it began after the last model call."""
    frame = tree.frame.with_row_index("row")
    if frame.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    forest, keys = _forest(frame, tree.parent)
    with of_rows(len(tree.parent)):
        paths = critical_paths(forest)
    pieces = pl.DataFrame(
        {
            "row": paths.piece_row.astype(np.uint32),
            "stage_code": paths.piece_stage,
            "from": paths.piece_from,
            "to": paths.piece_to,
        }
    )
    tops = pl.DataFrame(
        {
            "trace_key": keys,
            "top": np.where(paths.root >= 0, paths.start[np.maximum(paths.root, 0)], 0),
        }
    ).with_columns(pl.col("trace_key").cast(frame.schema["trace_key"]))
    if until is not None:
        tops = tops.join(until.unique("trace_key"), on="trace_key", how="left")
        stop = (pl.col("top") + (pl.col("until_ms") * 1e6).round().cast(pl.Int64)).alias("stop")
    else:
        stop = pl.lit(None, pl.Int64).alias("stop")
    tops = tops.select("trace_key", stop)
    last_call = (
        frame.filter(pl.col("role").is_in(["llm", "engine"]))
        .group_by("trace_key")
        .agg(last_call_s=pl.col("end_s").max())
    )
    named = (
        _named(frame)
        .join(tops, on="trace_key", how="left")
        .join(last_call, on="trace_key", how="left")
    )
    stages = pl.Series("stage", [*STAGES])
    found = pieces.join(named.drop("stage"), on="row", how="left").with_columns(
        own_ms=(pl.min_horizontal("to", "stop") - pl.col("from")).clip(0) / 1e6,
        stage=stages.gather(pieces["stage_code"]),
        after_answer=(pl.col("start_s") >= pl.col("last_call_s") - _TOLERANCE_S).fill_null(
            value=False
        ),
    )
    return (
        found.filter(pl.col("own_ms") > 0.0)
        .group_by(
            "row", *KEYS, "trace_key", "after_answer", "leaf", "duration_ms", maintain_order=True
        )
        .agg(pl.col("own_ms").sum())
        .select(*_SCHEMA)
    )


_SCHEMA: Final[dict[str, Any]] = {
    "trace_key": pl.UInt64(),
    **dict.fromkeys(KEYS, pl.String()),
    "own_ms": pl.Float64(),
    "duration_ms": pl.Float64(),
    "after_answer": pl.Boolean(),
    "leaf": pl.Boolean(),
}


def _forest(frame: pl.DataFrame, parent: IndexArray) -> tuple[Forest, np.ndarray[Any, Any]]:
    """The spans as span trees, and the key of each trace. Rows of a trace stand together already."""
    keys = frame["trace_key"].to_numpy()
    begins = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    bounds = np.r_[begins, len(keys)].astype(np.int64)
    start = (frame["start_s"] * 1e9).round().cast(pl.Int64).to_numpy()
    unknown = np.full(len(keys), -1, np.int64)

    def codes(name: str, known: dict[str, int], default: int) -> Any:
        return (
            frame[name]
            .replace_strict(known, default=default, return_dtype=pl.Int64)
            .fill_null(default)
            .to_numpy()
        )

    nothing = np.zeros(len(keys), np.bool_)
    return Forest(
        bounds=bounds,
        parent=parent,
        true_root=frame["root"].to_numpy(),
        start=start,
        end=start + (frame["duration_ms"] * 1e6).round().cast(pl.Int64).to_numpy(),
        role=codes("role", ROLE, ROLE["plain"]),
        stage=codes("stage", STAGE, STAGE["other"]),
        kind=codes("kind", _KINDS, 0),
        domain=frame["service"].fill_null("").rank("dense").cast(pl.Int64).to_numpy(),
        has_tokens=frame["output_tokens"].is_not_null().to_numpy(),
        left=nothing,
        cancelled=nothing,
        ttft=(frame["ttft_ms"] * 1e6).round().cast(pl.Int64).fill_null(-1).to_numpy(),
        queue=unknown,
        prefill=unknown,
        decode=unknown,
    ), keys[begins]


# What an operation is told by; many spans have the same few combinations.
_TOLD_BY: Final = (
    "name", "kind", "role", "stage", "host", "url", "method", "collection", "store", "outer", "leaf", "far"
)  # fmt: skip


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """The spans with `what`, `host`, `place` and `purpose` of their operations, which are worked out once per combination of what tells them."""
    parents = frame.select("trace_key", span_key="parent_key").unique()
    far = (
        frame.filter(pl.col("service") != pl.col("parent_service"))
        .select("trace_key", span_key="parent_key", far="service")
        .unique(["trace_key", "span_key"])
    )
    told = (
        frame.join(far, on=["trace_key", "span_key"], how="left", maintain_order="left")
        .with_columns(
            outer=pl.col("parent_key").is_null(),
            leaf=~pl.struct("trace_key", "span_key").is_in(parents.to_struct().implode()),
        )
        .with_columns(combination=pl.struct(_TOLD_BY).hash())
    )
    kinds = told.unique("combination", maintain_order=True).select("combination", *_TOLD_BY)
    return told.drop("host", "outer", "far").join(
        _named_kinds(kinds), on="combination", how="left", maintain_order="left"
    )


def _named_kinds(kinds: pl.DataFrame) -> pl.DataFrame:
    url = pl.col("url").fill_null("")
    path = url.str.extract(r"^(?:[a-zA-Z][\w+.-]*://[^/?#]*)?([^?#]*)", 1)
    asks = pl.col("kind").is_in(["client", "producer"]) | (
        (pl.col("kind") == "unspecified") & ~pl.col("outer")
    )
    http = (pl.col("method").is_not_null() & asks).fill_null(value=False)
    host = pl.coalesce(
        pl.when(pl.col("host") != "").then("host"),
        url.str.extract(r"://(?:[^@/?#]*@)?([^/:?#]+)", 1),
    )
    place = pl.when(http).then(path).otherwise(pl.col("collection").fill_null(""))
    named = kinds.with_columns(
        what=pl.when(http)
        .then(pl.col("method").str.to_uppercase())
        .when(_hands_over())
        .then(pl.lit(f"{_WAY}to ") + pl.col("far"))
        .otherwise(pl.col("name").str.replace_all(_NAME_IDS, "${1}{id}")),
        host=pl.when(asks).then(host).otherwise(None).fill_null(""),
        place=pl.when(asks)
        .then(place)
        .otherwise(pl.lit(""))
        .fill_null("")
        .str.replace_all(_PATH_IDS, "/{id}$1")
        .str.replace_all(_PATH_IDS, "/{id}$1"),
        http=http,
    )
    return named.select("combination", "what", "host", "place", purpose=_purpose())


def _hands_over() -> pl.Expr:
    """Whether a span waits for another service that has spans of its own: what it takes beside them is the way there and back."""
    asks = (pl.col("kind") == "client") & ~pl.col("role").is_in(["llm", "engine"])
    return (asks & pl.col("far").is_not_null()).fill_null(value=False)


def _purpose() -> pl.Expr:
    """What an operation is for, by its role, its host and its words."""
    words = pl.concat_str(
        pl.col("what"), pl.col("place"), pl.col("store").fill_null(""), separator=" "
    )
    asked = pl.concat_str(pl.col("host"), pl.col("place"))
    vendor = pl.col("http") & (
        pl.col("host").str.contains(rf"(?i)(?:^|[.-])(?:{_VENDORS})")
        | pl.col("place").str.contains(f"(?i){_VENDOR_PATHS}")
    )
    stored = pl.col("store").is_not_null()
    return (
        pl.when(pl.col("role").is_in(["llm", "engine"]))
        .then(pl.lit("model"))
        .when(vendor)
        .then(pl.lit("vendor"))
        .when((stored & pl.col("what").str.contains(_POOLS)).fill_null(value=False))
        .then(pl.lit("pool"))
        .when(pl.col("role") == "write")
        .then(pl.lit("write"))
        .when(_hands_over() & ~pl.col("http"))
        .then(pl.lit("hop"))
        .when(pl.col("stage").is_in(["guardrail", "tool", "prompt"]))
        .then(pl.col("stage"))
        .when((stored | pl.col("http")) & words.str.contains(_CHECKS))
        .then(pl.lit("check"))
        .when((pl.col("stage") == "retrieval") & words.str.contains(_EMBEDS))
        .then(pl.lit("embedding"))
        .when((pl.col("stage") == "retrieval") & words.str.contains(_RERANKS))
        .then(pl.lit("rerank"))
        .when((pl.col("stage") == "retrieval") & (words.str.contains(_SEARCHES) | ~stored))
        .then(pl.lit("search"))
        .when(stored)
        .then(pl.lit("read"))
        .when(pl.col("http") & asked.str.contains(MODEL_PATHS))
        .then(pl.lit("embedding"))
        .when(pl.col("http"))
        .then(pl.when("leaf").then(pl.lit("http")).otherwise(pl.lit("hop")))
        .otherwise(pl.lit("own"))
    )


def _whose(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(row[key] or "" for key in KEYS if key != "stage")


def _durations(frame: pl.DataFrame) -> dict[tuple[str, ...], FloatArray]:
    """The duration in ms of each call of each operation, whatever stage it stands in."""
    if frame.is_empty():
        return {}
    keys = [key for key in KEYS if key != "stage"]
    grouped = _named(frame).group_by(keys).agg("duration_ms")
    return {
        _whose(row): np.array(row["duration_ms"], np.float64)
        for row in grouped.iter_rows(named=True)
    }


def _grouped(frame: pl.DataFrame, requests: int) -> pl.DataFrame:
    """One row per operation: own ms and calls per request, and whether most come after the last model call."""
    return frame.group_by(*KEYS, maintain_order=True).agg(
        ms=pl.col("own_ms").sum() / requests,
        calls=pl.len() / requests,
        after_answer=pl.col("after_answer").mean() > 0.5,
        leaf=pl.col("leaf").mean() > 0.5,
    )

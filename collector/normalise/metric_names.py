"""Which indicator does a metric's name stand for? The tables of `dialects`, under every spelling and prefix that exporters give them.

Separators and `_total` do not matter, and what stands before an engine's own prefix or the conventions' does not either (`ray_vllm_x`, `acme_gen_ai_x`). Several servers took
over vLLM's names without its prefix (NIM, TensorRT-LLM) or under their own (LMDeploy, Aphrodite, FastDeploy). Such a prefix is recognised by two or more
names that only vLLM's family has; names that anybody could have chosen (`prompt_tokens_total`) are read only beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from overrun.collector.dialects import Metric, load
from overrun.collector.normalise import stages
from overrun.collector.normalise.word_lists import words
from overrun.collector.process.remember import LONGEST, remembered

# Whose tables read a page that speaks vLLM's names under a prefix of its own, in this order.
_FAMILY = ("vllm", "trtllm", "nim")
# Names, without their prefix, that nobody chose who did not take them over from vLLM.
_DISTINCT: Final = (
    *("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"),
    *("gpu_cache_usage_perc", "time_to_first_token_seconds", "inter_token_latency_seconds"),
    *("time_per_output_token_seconds", "e2e_request_latency_seconds"),
    *("request_queue_time_seconds", "request_inference_time_seconds"),
    *("request_prefill_time_seconds", "request_decode_time_seconds"),
)
# Indicators whose metrics count from the start of a process on, whatever type their page leaves out.
COUNTS = words("counts")
# So many names that only the family has make a prefix one of the family's: a single one may be an application's own.
_ENOUGH = 2
# The conventions' names, which gateways put their own name before (`agentgateway_gen_ai_server_request_duration`).
_CONVENTIONS = ("gen_ai_server_", "gen_ai_client_")
# First words that are no exporter's own: `llm_d_x`, but also `llm_requests_total`.
_ANYBODYS = ("gen", "inference", "llm", "request")
# What every program's page has beside its own numbers: the language's runtime, the web framework, the scraper.
_RUNTIMES = re.compile(
    r"(?:python|process|go|promhttp|prometheus|scrape|http|jvm|nodejs|system|otelcol|tokio|grpc|aiohttp|fastapi|uvicorn|starlette|target"
    # Ray's own, beside those of what runs on it.
    r"|ray"
    # The runtimes, frameworks and clients of OpenTelemetry's conventions, which its agents measure unasked.
    r"|v8js|cpython|dotnet|aspnetcore|kestrel|signalr|db|rpc|messaging)_.*|up|.*_created|.*_info"
)


_SEPARATORS: Final = re.compile(r"[:.\-/]")


@remembered(65_536)
def spelling(name: str) -> str:
    """One spelling for `vllm:x_total`, `vllm_x_total`, `vllm.x` and `ray_vllm_x`: exporters translate separators and `_total`, Ray adds its name."""
    return _SEPARATORS.sub("_", name.lower()).removesuffix("_total").removeprefix("ray_")


def find_indicator(
    name: str, attributes: dict[str, Any], scope: str = "", prefixes: frozenset[str] = frozenset()
) -> Metric | None:
    """The indicator of a metric under any of its spellings; None if no table names it. An entry for the scope comes before one for all.

    `prefixes` are those under which the same sender uses the names of vLLM's family (`own_prefixes`).
    """
    for known in _known_as(spelling(name), prefixes):
        found = [m for m in _indicators()[known] if _matches(m, attributes, scope)]
        if found:
            return min(found, key=lambda m: not m.scope)
    return None


def own_prefixes(names: Iterable[str]) -> frozenset[str]:
    """The prefixes (`""` for none) under which one sender uses names of vLLM's family, where these are not a table's own."""
    seen: dict[str, set[str]] = {}
    for spelled in {spelling(name.removesuffix("_bucket")) for name in names}:
        if spelled in _indicators():
            continue
        core = next(
            (core for core in _DISTINCT if spelled == core or spelled.endswith(f"_{core}")), None
        )
        if core is not None and len(spelled) <= LONGEST:
            seen.setdefault(spelled.removesuffix(core), set()).add(core)
    return frozenset(prefix for prefix, cores in seen.items() if len(cores) >= _ENOUGH)


def has_indicator(name: str, prefixes: frozenset[str] = frozenset()) -> bool:
    """Whether a table names an indicator for the name, with some labels or in some scope."""
    return bool(_known_as(spelling(name), prefixes))


def is_known(name: str, prefixes: frozenset[str] = frozenset()) -> bool:
    """Whether a name without an indicator is nothing new: a table has it, or its engine's other names, or every program's page has it."""
    spelled = spelling(name)
    if _known_as(spelled, prefixes) or any(
        prefix and spelled.startswith(prefix) for prefix in prefixes
    ):
        return True
    whole = _SEPARATORS.sub("_", name.lower())
    return _namespace(spelled) in _namespaces() or any(
        _RUNTIMES.fullmatch(one) for one in (spelled, whole)
    )


@stages.derived
def indicators() -> tuple[str, ...]:
    """Every indicator that a table names."""
    return tuple(sorted({name for m in _all_metrics() for name in (m.indicator, m.sum_as) if name}))


def place(named: Metric) -> int:
    """Where in the tables a metric's name stands first."""
    return _places()[spelling(named.name)]


def label(attributes: dict[str, Any], key: str) -> Any:
    """The value of an attribute, also under the name that a Prometheus page gives it."""
    return attributes.get(key, attributes.get(key.replace(".", "_")))


@stages.derived
def _known_as(spelled: str, prefixes: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The spellings in the tables that a name may stand for: itself, itself without what stands before an engine's prefix, and as of vLLM's family."""
    if spelled in _indicators():
        return (spelled,)
    words = spelled.split("_")
    for at in range(1, len(words)):
        later = "_".join(words[at:])
        if later in _indicators() and (words[at] in _prefixed() or later.startswith(_CONVENTIONS)):
            return (later,)
    cores = [
        spelled.removeprefix(prefix) for prefix in sorted(prefixes) if spelled.startswith(prefix)
    ]
    return tuple(
        known
        for core in cores
        for family in _FAMILY
        if (known := f"{family}_{core}") in _indicators()
    )


@stages.derived
def _indicators() -> dict[str, tuple[Metric, ...]]:
    out: dict[str, tuple[Metric, ...]] = {}
    for named in _all_metrics():
        key = spelling(named.name)
        out[key] = (*out.get(key, ()), named)
    return out


@stages.derived
def _places() -> dict[str, int]:
    return {spelling(named.name): i for i, named in reversed(list(enumerate(_all_metrics())))}


@stages.derived
def _prefixed() -> frozenset[str]:
    """The engines whose names begin with their own and a colon (`vllm:x`)."""
    return frozenset(spelling(m.name.partition(":")[0]) for m in _all_metrics() if ":" in m.name)


@stages.derived
def _namespaces() -> frozenset[str]:
    """The first words of the built-in tables' names, where several names share one: these are an exporter's own."""
    first = [_namespace(spelling(m.name)) for dialect in load() for m in dialect.metrics]
    return frozenset(word for word in first if first.count(word) >= _ENOUGH)


def _namespace(spelled: str) -> str:
    words = spelled.split("_")
    return "_".join(words[: 2 if words[0] in _ANYBODYS else 1])


def _all_metrics() -> Iterator[Metric]:
    for dialect in stages.dialects():
        yield from dialect.metrics


def _matches(named: Metric, attributes: dict[str, Any], scope: str) -> bool:
    in_scope = not named.scope or scope == named.scope or scope.startswith(f"{named.scope}.")
    return in_scope and all(label(attributes, key) == value for key, value in named.where)

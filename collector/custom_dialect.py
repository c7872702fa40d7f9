"""What do the operator's own attributes and metrics mean? The tables [attributes], [[stages]] and [metrics] of the settings file, as one more vocabulary.

    [attributes]
    "acme.tokens.in" = "input_tokens"
    "acme.first_token_ms" = { field = "ttft", unit = "ms" }
    "acme.usage" = [{ field = "output_tokens", path = "usage.out" }, { field = "cached_tokens", path = "usage.cached" }]

    [[stages]]
    stage = "guardrail"
    attribute = "acme.step"
    value = "safety"

    [metrics]
    "acme_queue_len" = "queue_depth"
    "acme_cache_pct" = { indicator = "kv_cache_usage", unit = "percent" }
    "acme_requests" = { indicator = "running", where = { state = "active" } }

They come before every built-in vocabulary, whose reader reads them (dialects/reading.py); metrics hold for what is stored from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from overrun.collector.dialects import Dialect, Mark, SpanName, load, reading


def own_dialect(document: Mapping[str, Any], path: Path | None = None) -> Dialect | None:
    """The vocabulary of a settings file; None if it has none of the three tables.

    Raises:
        ConfigError: a field, unit, stage or indicator that nobody knows (names the nearest known one), or a value of the wrong kind.
    """
    where = f"{path}"
    fields = reading.attributes(where, document.get("attributes", {}), own=True)
    rules = reading.stages(where, document.get("stages", []), own=True)
    metrics = reading.metrics(where, document.get("metrics", {}), _indicators())
    if not (fields or rules or metrics):
        return None
    marks = tuple(rule for rule in rules if isinstance(rule, Mark))
    return Dialect(
        name="own",
        precedence=95,
        prefixes=tuple(dict.fromkeys([*(f.key for f in fields), *(m.key for m in marks)])),
        fields=fields,
        marks=marks,
        names=tuple(rule for rule in rules if isinstance(rule, SpanName)),
        metrics=metrics,
    )


def _indicators() -> list[str]:
    """Every indicator of the built-in vocabularies."""
    known = [m for dialect in load() for m in dialect.metrics]
    return sorted({name for m in known for name in (m.indicator, m.sum_as) if name})

"""What do the operator's own metrics mean? The table [metrics] of the settings file.

    [metrics]
    "acme_queue_len" = "queue_depth"
    "acme_first_token_ms" = { indicator = "ttft", unit = "ms" }
    "acme_cache_pct" = { indicator = "kv_cache_usage", unit = "percent" }
    "acme_requests" = { indicator = "running", where = { state = "active" } }

They come before every built-in table and hold for what is stored from then on; a mistake stops the start and names the nearest known word.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

from overrun.collector.dialects import Metric, load
from overrun.collector.errors import ConfigError

# Unit of the sender -> what makes the indicator's SI unit of it. Latencies are in seconds, ratios from 0 to 1, memory in bytes.
UNITS = {
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "percent": 1e-2,
    "ratio": 1.0,
    "bytes": 1.0,
    "MiB": float(1 << 20),
    "GiB": float(1 << 30),
}
_KEYS = ("indicator", "unit", "where")


def own_metrics(table: object, path: Path | None = None) -> tuple[Metric, ...]:
    """The metrics that the settings file names.

    Raises:
        ConfigError: an indicator, unit or key that nobody knows (names the nearest known one), or a value of the wrong kind.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(
            f"{path}: metrics = {table!r} is a value, but [metrics] is a table of metric names and their indicators"
        )
    known = sorted(
        {
            name
            for dialect in load()
            for m in dialect.metrics
            for name in (m.indicator, m.sum_as)
            if name
        }
    )
    return tuple(
        _metric(f"{path}: [metrics] {name!r}", name, said, known) for name, said in table.items()
    )


def _metric(where: str, name: str, said: object, known: Sequence[str]) -> Metric:
    if isinstance(said, str):
        said = {"indicator": said}
    if not isinstance(said, Mapping) or "indicator" not in said:
        raise ConfigError(
            f'{where} = {said!r}: write the name of an indicator, or {{ indicator = "ttft", unit = "ms", where = {{ label = "value" }} }}'
        )
    for key in said:
        if key not in _KEYS:
            raise ConfigError(f"{where}: unknown key {key!r}{_nearest(key, _KEYS)}")
    indicator, unit, labels = said["indicator"], said.get("unit", "s"), said.get("where", {})
    if indicator not in known:
        raise ConfigError(
            f"{where}: unknown indicator {indicator!r}{_nearest(str(indicator), known)}"
        )
    if unit not in UNITS:
        raise ConfigError(f"{where}: unknown unit {unit!r}{_nearest(str(unit), list(UNITS))}")
    if not isinstance(labels, Mapping) or not all(
        isinstance(value, str) for value in labels.values()
    ):
        raise ConfigError(
            f'{where}: where = {labels!r} is not a table of labels and their values, such as {{ state = "active" }}'
        )
    return Metric(name, indicator, UNITS[unit], tuple(sorted(labels.items())))


def _nearest(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f": did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"

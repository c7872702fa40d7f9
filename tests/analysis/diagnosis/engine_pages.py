"""Metrics pages of a small engine over time, as files: what tests import that ask what metrics alone say."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from overrun.analysis.front.file_import import take_in
from overrun.analysis.front.report import Report, build
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from overrun.collector.config import CollectorSettings, Settings
from overrun.collector.store.database import open_store
from tests.conftest import empty_store

T0 = 1_795_640_000
EVERY_S = 15
EDGES = ("0.1", "0.5", "1", "5", "10", "+Inf")
# Requests a step: all of them fast, or all of them between 5 and 10 s.
FAST, SLOW = (10, 0, 0, 0, 0, 0), (0, 0, 0, 0, 10, 0)


def page(
    step: int,
    *,
    slow_from: int | None = None,
    waiting: float = 0.0,
    running: float = 8.0,
    tokens: int = 1_500,
    prefix: str = "vllm:",
    labels: str = "",
    histograms: bool = True,
    name: str = "m",
) -> str:
    """The page after `step` scrapes; from `slow_from` on requests are late and `waiting` of them wait."""
    late = slow_from is not None and step > slow_from
    slow_steps = max(step - slow_from, 0) if slow_from is not None else 0
    counts = [
        fast * (step - slow_steps) + slow * slow_steps
        for fast, slow in zip(FAST, SLOW, strict=True)
    ]
    own = f'model_name="{name}"' + (f",{labels}" if labels else "")
    lines = [
        f"# TYPE {prefix}num_requests_running gauge",
        f"{prefix}num_requests_running{{{own}}} {running}",
        f"# TYPE {prefix}num_requests_waiting gauge",
        f"{prefix}num_requests_waiting{{{own}}} {waiting if late else 0.0}",
        f"# TYPE {prefix}gpu_cache_usage_perc gauge",
        f"{prefix}gpu_cache_usage_perc{{{own}}} {0.97 if late else 0.4}",
        f"# TYPE {prefix}generation_tokens_total counter",
        f"{prefix}generation_tokens_total{{{own}}} {tokens * step}",
    ]
    if histograms:
        lines.append(f"# TYPE {prefix}time_to_first_token_seconds histogram")
        lines += [
            f'{prefix}time_to_first_token_seconds_bucket{{le="{edge}",{own}}} {sum(counts[: at + 1])}'
            for at, edge in enumerate(EDGES)
        ]
        lines += [
            f"{prefix}time_to_first_token_seconds_count{{{own}}} {sum(counts)}",
            f"{prefix}time_to_first_token_seconds_sum{{{own}}} {sum(counts)}",
        ]
    return "\n".join(lines) + "\n"


def write(folder: Path, text: Callable[[int], str], steps: int = 40) -> Path:
    """Pages of one instance, EVERY_S apart."""
    folder.mkdir(parents=True, exist_ok=True)
    for step in range(1, steps + 1):
        path = folder / f"{step:03d}.prom"
        path.write_text(text(step))
        os.utime(path, (T0 + EVERY_S * step, T0 + EVERY_S * step))
    return folder


def imported(folder: Path) -> Path:
    """A database of everything under a folder."""
    db = folder.parent / f"{folder.name}.db"
    shutil.copy(empty_store(), db)  # making one takes a tenth of a second
    take_in(
        [folder],
        Settings(collector=CollectorSettings(db=str(db))),
        url=None,
        progress=lambda at, total: None,
    )
    return db


def report(db: Path, slo: Slo, **window: object) -> Report:
    """The report on a database."""
    store = open_store(db, create=False)
    try:
        with store.reading() as con:
            return build(con, Window(**window), slo)  # type: ignore[arg-type]
    finally:
        store.close()

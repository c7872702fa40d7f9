"""How right are the simulated what-ifs, how honest are their intervals, and how long do they take?

Run `python -m tests.benchmarks.whatif [errors|speed|real] [--write]`. `errors` records traffic on another engine (`whatif_truth`, whose cost law the
product does not know), asks the product about fixes, and compares with the same arrivals and lengths recorded on that engine with the fix in place.
`real` fits two real vLLM runs (tests/analysis/whatif/data) on their first half and predicts the second. `speed` times 10,000 requests on one core.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl

from overrun.analysis.simulator.calibrate import errors, fit
from overrun.analysis.simulator.pool import pools
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fixes import (
    cap,
    chunked_prefill,
    context_limit,
    kv_size,
    load,
    max_sequences,
    prefix_cache,
    replicas,
)
from overrun.analysis.whatif.prediction import Prediction
from overrun.analysis.words.slo import Slo
from tests.analysis.simulator.real_runs import SETTINGS, real
from tests.benchmarks import results
from tests.benchmarks.results import Figure, measured
from tests.benchmarks.whatif_truth import Server, Traffic, record, traffic

Fixed = Callable[[Traffic, Server], tuple[Traffic, Server]]


def facts_of(load_: Traffic, seen: np.ndarray) -> Facts:
    """The recording as the product reads it from the spans of an engine: one call per request."""
    n = len(load_.arrival)
    start_us = (1.76e15 + load_.arrival * 1e6).astype(np.int64)
    ttft, e2e, queue = seen[:, 1] * 1000.0, seen[:, 2] * 1000.0, seen[:, 0] * 1000.0
    tpot = np.where(load_.output > 1, (e2e - ttft) / np.maximum(load_.output - 1, 1), np.nan)
    text: dict[str, Any] = {
        "model": "m",
        "service": "vllm",
        "route": "/chat",
        "provider": None,
        "tenant": None,
        "session": None,
        "error_type": None,
    }
    both = {name: pl.lit(value, pl.String) for name, value in text.items()}
    numbers = pl.DataFrame(
        {
            "trace_id": [f"{k:032x}" for k in range(n)],
            "start_us": start_us,
            "ttft_ms": ttft,
            "e2e_ms": e2e,
            "tpot_ms": tpot,
            "queue_ms": queue,
            "input_tokens": load_.prompt,
            "output_tokens": load_.output,
            "cached_tokens": load_.cached,
        },
        nan_to_null=True,
    )
    none = {
        name: pl.lit(None, pl.Float64)
        for name in ("reasoning_tokens", "max_tokens", "attempts", "ttft_client_ms", "decode_ms")
    }
    calls = numbers.with_columns(
        **both,
        **none,
        span_id=pl.lit("0"),
        end_us=pl.col("start_us") + (pl.col("e2e_ms") * 1000).cast(pl.Int64),
        instance=pl.Series(seen[:, 3].astype(int)).cast(pl.String),
        engine_instance=pl.lit(None, pl.String),
        ttft_source=pl.lit("engine"),
        ttft_engine_ms=pl.col("ttft_ms"),
        engine_e2e_ms=pl.col("e2e_ms"),
        prefill_ms=pl.col("ttft_ms") - pl.col("queue_ms"),
        error=pl.lit(False),
        on_path=pl.lit(True),
        engine_alone=pl.lit(False),
        engine_start_us=pl.col("start_us"),
        request=pl.int_range(n, dtype=pl.Int64),
    )
    empty = pl.DataFrame(
        schema={
            "time_us": pl.Int64,
            "instance": pl.String,
            "model": pl.String,
            "indicator": pl.String,
            "value": pl.Float64,
        }
    )
    return Facts(
        numbers.with_columns(**both, error=pl.lit(False)),
        calls,
        empty,
        Slo(ttft_ms=1500.0, e2e_ms=20_000.0, percentile=99.0),
        "e2e",
    )


def _capped(tokens: int) -> Fixed:
    return lambda t, s: (replace(t, output=np.minimum(t.output, tokens)), s)


def _limited(tokens: int) -> Fixed:
    return lambda t, s: (replace(t, prompt=np.minimum(t.prompt, tokens)), s)


def _cached(ratio: float) -> Fixed:
    return lambda t, s: (
        replace(t, cached=np.minimum((t.prompt * ratio).astype(np.int64), t.prompt - 1)),
        s,
    )


def _server(**changes: Any) -> Fixed:
    return lambda t, s: (t, replace(s, **changes))


FIXES: list[tuple[str, ModuleType, dict[str, Any], Fixed]] = [
    ("cap 512", cap, {"max_tokens": 512}, _capped(512)),
    ("cap 256", cap, {"max_tokens": 256}, _capped(256)),
    ("context 2k", context_limit, {"max_input_tokens": 2000}, _limited(2000)),
    ("cached 50 %", prefix_cache, {"hit_ratio": 0.5}, _cached(0.5)),
    (
        "budget 512",
        chunked_prefill,
        {"token_budget": 512},
        _server(budget=512, prefill_first=False),
    ),
    ("32 seats", max_sequences, {"sequences": 32}, _server(seats=32)),
    (
        "2 replicas, in turn",
        replicas,
        {"replicas": 2, "router": "round_robin"},
        _server(replicas=2),
    ),
    ("3 replicas, least load", replicas, {"replicas": 3}, _server(replicas=3, least_loaded=True)),
    ("load x 0.8", load, {"factor": 0.8}, lambda t, s: (replace(t, arrival=t.arrival / 0.8), s)),
    ("load x 1.2", load, {"factor": 1.2}, lambda t, s: (replace(t, arrival=t.arrival / 1.2), s)),
]
LITTLE_KV: list[tuple[str, ModuleType, dict[str, Any], Fixed]] = [
    ("KV x 2", kv_size, {"factor": 2.0}, lambda t, s: (t, replace(s, kv=2 * s.kv)))
]
SITUATIONS: list[tuple[str, float, Server, dict[str, float]]] = [
    ("half load", 4.5, Server(), {}),
    ("busy", 6.5, Server(), {}),
    ("near capacity", 7.8, Server(), {}),
    ("past capacity", 10.0, Server(), {}),
    ("bursts", 6.0, Server(), {"burst": 0.9}),
    ("64 seats", 6.0, Server(seats=64), {}),
    ("little KV", 7.0, Server(kv=60_000), {}),
    ("prompts first", 6.0, Server(prefill_first=True, budget=8192), {}),
    ("long prompts", 3.5, Server(), {"prompt": 2000.0}),
    ("quick, smooth law", 12.0, Server(prompt_cost=4e-5, power=1.0, step=0.006, noise=0.03), {}),
]
# What calibration has more to look for: a batch above which steps take longer, replicas of which one is slow.
SPEEDS: list[tuple[str, float, Server]] = [
    ("one replica", 7.0, Server()),
    ("one replica with a knee at 24", 5.0, Server(knee=24.0, knee_s=0.03)),
    ("four replicas, one slow", 24.0, Server(replicas=4, speed=(1.0, 1.0, 1.5, 1.0))),
]


def quantiles(seen: np.ndarray) -> dict[str, float]:
    """The truth's figures by name, ms."""
    return {
        f"{name}_p{p}": float(np.percentile(seen[:, column], p) * 1000.0)
        for name, column in (("ttft", 1), ("e2e", 2))
        for p in (50, 95, 99)
    }


def compare(answer: Prediction, truth: dict[str, float]) -> list[dict[str, Any]]:
    """One row per predicted quantile: signed error, whether the interval holds the truth, before and truth."""
    rows = []
    for effect in answer.effects:
        name = f"{effect.metric}_p{round(100 * effect.quantile)}"
        if name in truth and effect.after is not None and effect.interval is not None:
            rows.append(
                {
                    "name": name,
                    "error": effect.after / truth[name] - 1.0,
                    "inside": effect.interval[0] <= truth[name] <= effect.interval[1],
                    "before": effect.before,
                    "after": effect.after,
                    "truth": truth[name],
                    "width": effect.interval[1] / effect.interval[0],
                }
            )
    return rows


def run_errors(n: int, seeds: list[int]) -> list[dict[str, Any]]:
    """Every situation with every fix."""
    rows: list[dict[str, Any]] = []
    for seed in seeds:
        for name, rate, server, shape in SITUATIONS:
            came = traffic(n, rate, seed=seed, **shape)
            facts = facts_of(came, record(came, server, seed=seed + 1))
            engines, why = facts.engines
            sys.stderr.write(
                f"{name}, seed {seed}: {why or 'fitted'} in {sum(e.seconds for e in engines):.1f} s\n"
            )
            for title, module, parameters, fixed in FIXES + (
                LITTLE_KV if server.kv < 100_000 else []
            ):
                truth = quantiles(record(*fixed(came, server), seed=seed + 1))
                answer: Prediction = module.predict(facts, **parameters)
                if answer.method != "simulated" or answer.predicted is None:
                    rows.append(
                        {
                            "situation": name,
                            "fix": title,
                            "seed": seed,
                            "refused": answer.reasons.get("simulated")
                            or answer.reasons.get("predicted"),
                        }
                    )
                    continue
                rows += [
                    {"situation": name, "fix": title, "seed": seed} | row
                    for row in compare(answer, truth)
                ]
    return rows


def real_runs() -> list[str]:
    """Calibrate on the calls that ended in the first half of each real run (its settings are known), predict the others."""
    lines = [
        "| run | E2E P50 | E2E P95 | E2E P99 | TTFT P50 | TTFT P95 | TTFT P99 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, setup in SETTINGS.items():
        facts, first, second = real(name)
        pool = pools(facts)[0][0]
        error = errors(pool, fit(pool, rows=first, setup=setup, refits=0).identity, second)
        lines.append(
            f"| {name}, {len(pool)} requests | "
            + " | ".join(f"{100 * error[k]:.1f} %" for k in sorted(error))
            + " |"
        )
    return lines


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """The rows of `run_errors` as Markdown: per metric and per fix, and what was refused."""
    told = [row for row in rows if "error" in row]
    lines = [
        "| what | figures | median error | 90th percentile | largest | inside the 90 % interval |",
        "|---|---|---|---|---|---|",
    ]
    names = sorted({row["name"] for row in told})
    groups = [(name, [row for row in told if row["name"] == name]) for name in names]
    for metric in ("e2e", "ttft"):
        groups.append(
            (f"{metric}, all quantiles", [row for row in told if row["name"].startswith(metric)])
        )
        groups += [
            (
                f"{metric}: {fix}",
                [row for row in told if row["name"].startswith(metric) and row["fix"] == fix],
            )
            for fix, *_ in FIXES + LITTLE_KV
        ]
    for name, group in groups:
        if group:
            error = np.abs([row["error"] for row in group]) * 100.0
            inside = 100.0 * float(np.mean([row["inside"] for row in group]))
            lines.append(
                f"| {name} | {len(group)} | {np.median(error):.1f} % | {np.quantile(error, 0.9):.1f} % | {error.max():.0f} % | {inside:.0f} % |"
            )
    refused = {(row["situation"], row["seed"]) for row in rows if row.get("refused")}
    return [
        *lines,
        "",
        f"Refused by the gate: {len(refused)} of {len({(row['situation'], row['seed']) for row in rows})} recordings.",
    ]


def speed() -> list[str]:
    """CPU seconds of this process, one thread."""
    warm = facts_of(traffic(200, 2.0), record(traffic(200, 2.0), Server()))
    _ = warm.engines  # kernels come from their cache
    lines = ["| recording | calibration | answer after it | both |", "|---|---|---|---|"]
    for name, rate, server in SPEEDS:
        came = traffic(10_000, rate)
        calm = traffic(4_000, 0.6 * rate)
        earlier = replace(calm, arrival=calm.arrival - calm.arrival[-1] - 1.0)
        for more, before in (
            ("", None),
            ("; 4,000 calls of a calmer time before", facts_of(earlier, record(earlier, server))),
        ):
            facts = replace(facts_of(came, record(came, server)), before=before)
            begun = time.process_time()
            _ = facts.engines
            fitted = time.process_time()
            cap.predict(facts, max_tokens=256)
            done = time.process_time()
            lines.append(
                f"| 10,000 requests, {name}{more} | {fitted - begun:.1f} s | {done - fitted:.1f} s | {done - begun:.1f} s |"
            )
    return lines


def figures(lines: list[str], asked: list[str]) -> list[Figure]:
    """The headlines of the printed tables, for docs/results."""
    script = " ".join(["python -m tests.benchmarks.whatif", *asked])
    tables = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]
    found = []
    for cells in tables:
        if cells[0] in ("e2e, all quantiles", "ttft, all quantiles"):
            what = f"Error of simulated what-ifs on another engine, {cells[0].partition(',')[0].upper()}"
            more: dict[str, float | str] = {"P90": _first(cells[3]), "inside": cells[5]}
            found.append(
                measured(
                    what,
                    _first(cells[2]),
                    "%",
                    more=more,
                    script=script,
                    conditions=f"all quantiles, {cells[1]} figures",
                )
            )
    real_ = {
        cells[0].partition(",")[0]: cells
        for cells in tables
        if cells[0].partition(",")[0] in SETTINGS
    }
    if real_:
        (name, own), *others = real_.items()
        for metric, column in (("E2E P99", 3), ("TTFT P99", 6)):
            rest = {other: _first(cells[column]) for other, cells in others}
            found.append(
                measured(
                    f"Error on real GPUs, {metric}: {name}",
                    _first(own[column]),
                    "%",
                    more=rest,
                    script=script,
                )
            )
    timed = [
        cells
        for cells in tables
        if cells[0].startswith("10,000 requests") and "before" not in cells[0]
    ]
    if timed:
        figure = partial(measured, script=script, conditions="10,000 requests, CPU of one core")
        spent, after = (
            [_first(cells[1]) for cells in timed],
            max(_first(cells[2]) for cells in timed),
        )
        what = "Calibrating an engine: one replica to four of which one is slow"
        found += [
            figure(what, (min(spent), max(spent)), "s"),
            figure("An answer after calibration", after, "s"),
        ]
    return found


def _first(cell: str) -> float:
    return float(cell.split(maxsplit=1)[0])


def main() -> None:
    """Print what was asked for; without arguments errors and speed."""
    asked = [word for word in sys.argv[1:] if word != "--write"]
    what = asked[0] if asked else "all"
    lines: list[str] = []
    if what in ("real", "all"):
        lines += [*real_runs(), ""]
    if what in ("errors", "all"):
        rows = run_errors(
            int(asked[1]) if len(asked) > 1 else 1000, [int(s) for s in asked[2:]] or [101]
        )
        if out := os.environ.get("ROWS"):
            Path(out).write_text(json.dumps(rows))
        lines += summary(rows)
    if what in ("speed", "all"):
        lines += ["", *speed()]
    sys.stdout.write("\n".join([*lines, ""]))
    if "--write" in sys.argv:
        results.record("whatif", figures(lines, asked))


if __name__ == "__main__":
    main()

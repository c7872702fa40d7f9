"""An application that sends metrics of its model calls and no spans: exponential histograms of durations, which become four times as long."""

import json
from pathlib import Path
from typing import Any

from tests.corpus.otlp import T0_MS, attributes

SCALE = 2  # a bucket ends at 2^(n/4)


def histogram(
    name: str, values: dict[int, int], at_s: int, total: float, unit: str, **labels: Any
) -> dict[str, Any]:
    first, last = min(values), max(values)
    point = {
        "attributes": attributes({key.replace("__", "."): item for key, item in labels.items()}),
        "startTimeUnixNano": str(T0_MS * 10**6),
        "timeUnixNano": str((T0_MS + at_s * 1_000) * 10**6),
        "count": str(sum(values.values())),
        "sum": total,
        "scale": SCALE,
        "zeroCount": "0",
        "positive": {
            "offset": first,
            "bucketCounts": [str(values.get(n, 0)) for n in range(first, last + 1)],
        },
    }
    return {
        "name": name,
        "unit": unit,
        "exponentialHistogram": {"aggregationTemporality": 2, "dataPoints": [point]},
    }


def make(folder: Path) -> None:
    lines = []
    counts = {2: 0, 4: 0, 11: 0, 12: 0}
    total = 0.0
    for step in range(60):
        for bucket, seconds in ((2, 1.5), (4, 2.2)) if step < 30 else ((11, 7.5), (12, 8.7)):
            counts[bucket] += 10
            total += 10 * seconds
        at = 20 * (step + 1)
        common = {
            "gen_ai__operation__name": "chat",
            "gen_ai__provider__name": "anthropic",
            "gen_ai__request__model": "claude-sonnet-4",
        }
        lines.append(
            json.dumps(
                {
                    "resourceMetrics": [
                        {
                            "resource": {"attributes": attributes({"service.name": "assistant"})},
                            "scopeMetrics": [
                                {
                                    "scope": {"name": "opentelemetry.instrumentation.anthropic"},
                                    "metrics": [
                                        histogram(
                                            "gen_ai.client.operation.duration",
                                            counts,
                                            at,
                                            total,
                                            "s",
                                            **common,
                                        )
                                    ],
                                }
                            ],
                        }
                    ]
                }
            )
        )
    (folder / "metrics.jsonl").write_text("\n".join(lines))

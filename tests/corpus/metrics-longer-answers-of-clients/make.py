"""An application's metrics alone: calls take three times as long, and their answers have three times as many tokens."""

import json
from pathlib import Path
from typing import Any

from tests.corpus.otlp import T0_MS, attributes

SECONDS, TOKENS = (1.28, 2.56, 5.12, 10.24, 20.48), (64, 256, 1_024, 4_096)


def histogram(
    name: str, unit: str, edges: tuple[float, ...], values: list[float], at_s: int, **labels: Any
) -> dict[str, Any]:
    counts = [0] * (len(edges) + 1)
    for value in values:
        counts[sum(value > edge for edge in edges)] += 1
    point = {
        "attributes": attributes({key.replace("__", "."): item for key, item in labels.items()}),
        "startTimeUnixNano": str(T0_MS * 10**6),
        "timeUnixNano": str((T0_MS + at_s * 1_000) * 10**6),
        "count": str(len(values)),
        "sum": sum(values),
        "explicitBounds": list(edges),
        "bucketCounts": [str(n) for n in counts],
    }
    return {
        "name": name,
        "unit": unit,
        "histogram": {"aggregationTemporality": 2, "dataPoints": [point]},
    }


def make(folder: Path) -> None:
    took: list[float] = []
    read: list[float] = []
    wrote: list[float] = []
    lines = []
    for step in range(60):
        took += [2.2] * 20 if step < 30 else [7.4] * 20
        read += [700.0] * 20
        wrote += [200.0] * 20 if step < 30 else [690.0] * 20
        common = {
            "gen_ai__operation__name": "chat",
            "gen_ai__provider__name": "openai",
            "gen_ai__request__model": "gpt-4o",
        }
        at = 20 * (step + 1)
        metrics = [
            histogram("gen_ai.client.operation.duration", "s", SECONDS, took, at, **common),
            histogram(
                "gen_ai.client.token.usage",
                "{token}",
                TOKENS,
                read,
                at,
                gen_ai__token__type="input",
                **common,
            ),
            histogram(
                "gen_ai.client.token.usage",
                "{token}",
                TOKENS,
                wrote,
                at,
                gen_ai__token__type="output",
                **common,
            ),
        ]
        lines.append(
            json.dumps(
                {
                    "resourceMetrics": [
                        {
                            "resource": {"attributes": attributes({"service.name": "assistant"})},
                            "scopeMetrics": [
                                {
                                    "scope": {"name": "opentelemetry.instrumentation.openai_v2"},
                                    "metrics": metrics,
                                }
                            ],
                        }
                    ]
                }
            )
        )
    (folder / "metrics.jsonl").write_text("\n".join(lines))

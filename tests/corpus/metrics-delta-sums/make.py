"""Delta sums whose start is 0, absent, their own time, or that of the process."""

import json
from pathlib import Path

T0_NS = 1_795_640_000_000_000_000
STARTS = {
    "zero": lambda at: 0,
    "absent": lambda at: None,
    "equal": lambda at: at,
    "good": lambda at: at - 10_000_000_000,
    "process": lambda at: T0_NS,
}


def make(folder: Path) -> None:
    for name, start in STARTS.items():
        points = []
        for step in range(1, 11):
            at = T0_NS + 10_000_000_000 * step
            points.append(
                {"timeUnixNano": str(at), "asDouble": 1_000.0}
                | ({} if start(at) is None else {"startTimeUnixNano": str(start(at))})
            )
        metric = {
            "name": "vllm:prompt_tokens",
            "sum": {"isMonotonic": True, "aggregationTemporality": 1, "dataPoints": points},
        }
        resource = {"attributes": [{"key": "service.instance.id", "value": {"stringValue": name}}]}
        sent = {
            "resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": [metric]}]}]
        }
        (folder / f"{name}.json").write_text(json.dumps(sent))

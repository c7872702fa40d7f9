"""vLLM's older log, as Docker keeps it: each line in a JSON object of its own."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

T0 = datetime(2026, 1, 22, 18, 27, 20, tzinfo=UTC)


def make(folder: Path) -> None:
    lines = []
    for at in range(60):
        when = T0 + timedelta(seconds=5 * at)
        pending, usage = (0, 40.0) if at < 30 else (25, 99.1)
        told = (
            f"INFO {when:%m-%d %H:%M:%S} metrics.py:449] Avg prompt throughput: 310.5 tokens/s, Avg generation throughput: 41.7 tokens/s, "
            f"Running: {6 if at < 30 else 11} reqs, Swapped: {0 if at < 30 else 2} reqs, Pending: {pending} reqs, GPU KV cache usage: {usage}%, CPU KV cache usage: 0.0%.\n"
        )
        lines.append(
            json.dumps(
                {"log": told, "stream": "stderr", "time": when.isoformat().replace("+00:00", ".5Z")}
            )
        )
        lines.append(
            json.dumps(
                {
                    "log": 'INFO:     10.0.0.7:5 - "POST /v1/completions HTTP/1.1" 200 OK\n',
                    "stream": "stdout",
                    "time": when.isoformat().replace("+00:00", ".6Z"),
                }
            )
        )
    (folder / "container.json").write_text("\n".join(lines) + "\n")

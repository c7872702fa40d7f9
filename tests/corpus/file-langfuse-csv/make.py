"""Langfuse's export of observations as a CSV, from the table of its interface."""

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

T0 = datetime(2026, 9, 21, 8, 0, tzinfo=UTC)
COLUMNS = (
    *("id", "type", "traceId", "traceName", "name", "startTime", "endTime"),
    *("completionStartTime", "latency", "timeToFirstToken", "level", "statusMessage", "model"),
    *("usageDetails", "costDetails", "environment", "input", "output"),
)


def iso(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def make(folder: Path) -> None:
    with (folder / "observations.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for number in range(40):
            begin = T0 + timedelta(seconds=5 * number)
            table.writerow(
                {
                    "id": f"obs-{number}",
                    "type": "GENERATION",
                    "traceId": f"trace-{number}",
                    "traceName": "chat",
                    "name": "answer",
                    "startTime": iso(begin),
                    "endTime": iso(begin + timedelta(seconds=2.5)),
                    "completionStartTime": iso(begin + timedelta(seconds=0.6)),
                    "latency": "2.5",
                    "timeToFirstToken": "0.6",
                    "level": "DEFAULT",
                    "model": "gpt-4o",
                    "usageDetails": json.dumps({"input": 500, "output": 70, "total": 570}),
                    "environment": "prod",
                    "input": '[{"role": "user"}]',
                }
            )

"""The same twenty calls in an answer of CloudWatch, a table of Databricks, a container's log, an answer of ClickHouse and the log of TGI."""

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

T0 = 1_790_000_000


def make(folder: Path) -> None:
    results, table, container, compact, tgi = [], [], [], [], []
    for n in range(20):
        failed, at = n % 10 == 9, T0 + 5.0 * n
        took = 0.2 if failed else 2.3
        usage: dict[str, Any] = {} if failed else {"inputTokens": 900, "outputTokens": 120}
        begin, end = (datetime.fromtimestamp(when, UTC) for when in (at, at + took))
        line = {"level": "info", "message": "converse", "modelId": "m", "latencyMs": took * 1e3}
        error = {"error": "ThrottlingException"} if failed else {}
        results.append(
            [
                {"field": "@timestamp", "value": f"{end:%Y-%m-%d %H:%M:%S.%f}"},
                {"field": "@message", "value": json.dumps(line | usage | error)},
                {"field": "@ptr", "value": f"Cm{n}"},
            ]
        )
        counts = {"prompt_tokens": 900, "completion_tokens": 120}
        answer = {"id": "c", "model": "llama", "usage": counts}
        table.append(
            {
                "date": f"{begin:%Y-%m-%d}",
                "timestamp_ms": round(at * 1e3),
                "status_code": 429 if failed else 200,
                "execution_time_ms": round(took * 1e3),
                "response": json.dumps({"error": "x"} if failed else answer),
                "request_metadata": json.dumps({"model_name": "llama"}),
            }
        )
        pino = {"level": 50 if failed else 30, "time": round((at + took) * 1e3), "msg": "llm"}
        call = {"model": "m", "durationMs": round(took * 1e3), "promptTokens": 900}
        err = {"err": {"type": "APIError", "message": "429"}} if failed else {}
        text = json.dumps(pino | call | err) + "\n"
        container.append({"log": text, "stream": "stdout", "time": f"{end:%Y-%m-%dT%H:%M:%S.%f}Z"})
        compact.append([f"{begin:%Y-%m-%d %H:%M:%S}", "conversation-1", "m", 900, 2_300])
        waited = 4.0 if n > 15 else 0.002
        span = {"name": "generate_stream", "total_time": "2.3s", "queue_time": "2ms"}
        if n > 15:
            span |= {"total_time": f"{2.3 + waited}s", "queue_time": f"{waited}s"}
        said = {"timestamp": f"{end:%Y-%m-%dT%H:%M:%S.%f}Z", "level": "INFO", "message": "Success"}
        tgi.append(said | {"target": "text_generation_router::server", "span": span})
    (folder / "results.json").write_text(json.dumps({"results": results, "status": "Complete"}))
    with (folder / "inference.csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    for name, rows in (("container-json.log", container), ("tgi.log", tgi)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = ("start_time", "trace_id", "model", "input_tokens", "duration_ms")
    meta = [{"name": name, "type": "String"} for name in names]
    (folder / "compact.json").write_text(json.dumps({"meta": meta, "data": compact, "rows": 20}))

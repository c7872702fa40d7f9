"""Files that people name in their hurry, and what they are."""

import io
import json
import zipfile
from pathlib import Path


def make(folder: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("traces.json", "{}")
    (folder / "traces.zip").write_bytes(packed.getvalue())
    (folder / "phoenix.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    (folder / "login.json").write_text("<!doctype html><html><body>Sign in</body></html>")
    (folder / "profile.json").write_text(
        json.dumps({"traceEvents": [{"name": "aten::mm", "ph": "X"}], "displayTimeUnit": "ms"})
    )
    (folder / "query.json").write_text(
        json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}})
    )
    (folder / "apm.ndjson").write_text(
        '{"metadata": {"service": {"name": "shop"}}}\n{"transaction": {"id": "1", "duration": 3}}\n'
    )
    (folder / "datadog.json").write_text(
        json.dumps({"data": [{"type": "spans", "attributes": {"resource_name": "POST /chat"}}]})
    )
    (folder / "cloud-trace.json").write_text(
        json.dumps({"projectId": "p", "traceId": "1", "spans": [{"spanId": "1"}]})
    )
    (folder / "weave.jsonl").write_text(
        json.dumps(
            {"id": "1", "op_name": "x", "trace_id": "1", "started_at": "2026-11-20T10:00:00Z"}
        )
    )
    (folder / "node.txt").write_text(
        "{\n  resource: {\n    attributes: {\n      'service.name': 'shop'\n    }\n  },\n  traceId: '1',\n}\n"
    )
    (folder / "collector.log").write_text(
        "2026-11-20T10:04:05.123Z\tinfo\tResourceSpans #0\nResource SchemaURL: \nScopeSpans #0\nSpan #0\n"
    )

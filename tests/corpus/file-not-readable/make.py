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
    (folder / "xray.json").write_text(
        json.dumps({"Traces": [{"Id": "1-1", "Segments": []}], "UnprocessedTraceIds": []})
    )

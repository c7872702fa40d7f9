"""The file exporter's output compressed as a whole, under the names that rotation and people give: its feature gate `exporter.file.nativeCompression`."""

import gzip
import json
from pathlib import Path

import zstandard

from tests.corpus.otlp import chat, resource, span


def make(folder: Path) -> None:
    lines = []
    for n in range(5):
        spans = [
            span(n, "POST /chat", 10_000 * n, 2_000, "server root", {"http.route": "/chat"}),
            chat(n, 10_000 * n + 10, 1_900, parent="root"),
        ]
        lines.append(json.dumps({"resourceSpans": [resource("app", spans)]}).encode())
    pack = zstandard.ZstdCompressor().compress
    framed = b"".join(len(line).to_bytes(4, "big") + line for line in lines)
    (folder / "traces-2024-04-19T06-33-54.214.json").write_bytes(pack(b"\n".join(lines) + b"\n"))
    (folder / "output.zstd").write_bytes(pack(framed))
    (folder / "otel.log").write_bytes(gzip.compress(b"\n".join(lines)))
    (folder / "windows.json").write_bytes(
        "\r\n".join(line.decode() for line in lines).encode("utf-16")
    )
    (folder / "bom.txt").write_bytes(b"\xef\xbb\xbf" + lines[0])
    (folder / "indented.json").write_text(
        "\n".join(json.dumps(json.loads(line), indent=2) for line in lines)
    )
    (folder / "cut.proto").write_bytes(framed[:-40])

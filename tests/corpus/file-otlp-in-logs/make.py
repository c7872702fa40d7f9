"""Three requests, as five loggers write them, and a log without any."""

import json
from pathlib import Path

from tests.corpus.otlp import chat, resource, span


def make(folder: Path) -> None:
    bare = [
        json.dumps(
            resource(
                "shop",
                [
                    span(
                        i,
                        "POST /chat",
                        10_000 * i,
                        3_000,
                        "server root",
                        {"http.request.method": "POST", "http.route": "/chat"},
                    ),
                    chat(i, 10_000 * i + 100, 2_800, parent="root", ttft_s=0.3),
                ],
            )
        )
        for i in range(3)
    ]
    whole = [f'{{"resourceSpans":[{line}]}}' for line in bare]
    (folder / "bare.jsonl").write_text("\n".join(bare))
    (folder / "one-line.jsonl").write_text("".join(whole))
    (folder / "shared.jsonl").write_text(
        f"{whole[0]}\n2026-11-20 10:04:05 INFO answered {{in 3 s}}\n{whole[1]}\nready\n{whole[2]}\n"
    )
    (folder / "java.log").write_text(
        "".join(
            f"Nov 20, 2026 10:04:05 AM io.opentelemetry export\nINFO: {line}\n" for line in bare
        )
    )
    (folder / "container.jsonl").write_text(
        "\n".join(
            json.dumps({"log": f"{line}\n", "stream": "stdout", "time": "2026-11-20T10:04:05Z"})
            for line in ["listening on :8080", *whole]
        )
    )
    (folder / "application.log").write_text("2026-11-20 10:04:05 INFO answered in 3 s\n" * 3)

"""Ollama's log of 300 chats: about 5.2 s each, and 45 s more where the model was idle for a minute and more."""

import random
from datetime import UTC, datetime
from pathlib import Path

T0 = 1_790_000_000


def access(end: float, took: str, method: str, path: str) -> str:
    at = datetime.fromtimestamp(end, UTC)
    return f'[GIN] {at:%Y/%m/%d - %H:%M:%S} | 200 | {took:>12} |      172.30.0.1 | {method:<8} "{path}"'


def make(folder: Path) -> None:
    draw, at, lines = random.Random(7), T0 + 0.4, []
    lines.append(
        'time=2026-09-21T14:13:19.001Z level=INFO source=routes.go:1187 msg="Listening on [::]:11434 (version 0.5.7)"'
    )
    for _ in range(300):
        silent = draw.random() < 0.2
        at += draw.uniform(90, 400) if silent else draw.uniform(2, 40)
        took = 5.2 * draw.lognormvariate(0, 0.15) + (draw.uniform(42, 47) if silent else 0)
        if silent:
            lines += [
                access(at - 20, "784.52µs", "GET", "/api/tags"),
                f'time={datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}.512Z level=INFO source=server.go:594 msg="llama runner started in 44.11 seconds"',
            ]
        at += took
        lines.append(access(at, f"{took:.9f}s", "POST", "/api/chat"))
        if draw.random() < 0.1:
            lines.append(access(at, "26.33µs", "HEAD", "/"))
    (folder / "server.log").write_text("\n".join(lines) + "\n")

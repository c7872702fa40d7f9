"""Streams of 300 chunks under a limit of 128 events: SDKs that drop the oldest, SDKs that drop the newest, names that say which chunk they are, and an
attribute with the first token."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.corpus.otlp import resource, span, write

CHUNKS, LIMIT, FIRST_MS, GAP_MS = 300, 128, 400, 10
CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.usage.output_tokens": CHUNKS,
}


def stream(
    n: int, model: str, events: Sequence[tuple[float, str]], lost: int, **more: Any
) -> list[dict[str, Any]]:
    at = n * 10_000
    lasts = FIRST_MS + GAP_MS * CHUNKS
    return [
        span(
            n,
            "POST /chat",
            at,
            lasts + 10,
            "server root",
            {"http.request.method": "POST", "http.route": "/chat"},
        ),
        span(
            n,
            "chat m",
            at,
            lasts,
            "client chat < root",
            CALL | {"gen_ai.request.model": model} | more,
            events=[(at + ms, name) for ms, name in events],
            more={"droppedEventsCount": lost},
        ),
    ]


def make(folder: Path) -> None:
    chunks = [(FIRST_MS + GAP_MS * i, i) for i in range(CHUNKS)]
    lost = CHUNKS - LIMIT
    generic = [(ms, "gen_ai.content.completion.chunk") for ms, _ in chunks]
    mlflow = [(ms, f"mlflow.chunk.item.{i}") for ms, i in chunks]
    write(
        folder / "traces.json",
        resource("js", stream(1, "drops-oldest", generic[-LIMIT:], lost)),
        resource("java", stream(2, "drops-newest", generic[:LIMIT], lost)),
        resource(
            "mlflow",
            stream(3, "mlflow-oldest", mlflow[-LIMIT:], lost)
            + stream(4, "mlflow-newest", mlflow[:LIMIT], lost),
        ),
        # The Vercel AI SDK's one event among many of the application's own.
        resource(
            "vercel",
            stream(
                5,
                "vercel",
                [(FIRST_MS, "ai.stream.firstChunk"), *((ms, "log") for ms, _ in chunks[1:LIMIT])],
                lost,
            ),
        ),
        resource(
            "attribute",
            stream(
                6,
                "attribute",
                generic[-LIMIT:],
                lost,
                **{"gen_ai.response.time_to_first_chunk": 0.4},
            ),
        ),
        # Jaeger and Zipkin have no such field: the count is a tag there, and stays one.
        resource(
            "jaeger",
            stream(7, "tag", generic[-LIMIT:], 0, **{"otel.dropped_events_count": str(lost)}),
        ),
        resource("whole", stream(8, "whole", generic, 0)),
        # What a resource says of its SDK: Java's keeps the first events since 1.0, Rust's does, JavaScript's does not.
        resource(
            "java-sdk",
            stream(9, "java-sdk", generic[:LIMIT], lost),
            telemetry__sdk__language="java",
            telemetry__sdk__version="1.54.0",
        ),
        resource(
            "java-old",
            stream(10, "java-old", generic[-LIMIT:], lost),
            telemetry__sdk__language="java",
            telemetry__sdk__version="0.9.1",
        ),
        resource(
            "rust-sdk",
            stream(11, "rust-sdk", generic[:LIMIT], lost),
            telemetry__sdk__language="rust",
        ),
        resource(
            "js-sdk",
            stream(12, "js-sdk", generic[-LIMIT:], lost),
            telemetry__sdk__language="nodejs",
        ),
        # .NET, PHP and Erlang keep the first ones too (Erlang sends the newest first), Ruby is not known.
        *(
            resource(
                f"{language}-sdk",
                stream(n, f"{language}-sdk", events, lost),
                telemetry__sdk__language=language,
            )
            for n, language, events in (
                (13, "dotnet", generic[:LIMIT]),
                (14, "php", generic[:LIMIT]),
                (15, "erlang", generic[:LIMIT][::-1]),
                (16, "ruby", generic[-LIMIT:]),
            )
        ),
    )

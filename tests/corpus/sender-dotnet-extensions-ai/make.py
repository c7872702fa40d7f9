"""Two calls of the model and a tool between them, under their own HTTP spans."""

from pathlib import Path

from tests.corpus.otlp import CLIENT, resource, span, write


def make(folder: Path) -> None:
    def call(key: str, at: float, tokens: int) -> list[dict[str, object]]:
        return [
            span(
                1,
                "chat m",
                at,
                1_300,
                key=key,
                parent="loop",
                kind=CLIENT,
                attributes={
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "m",
                    "gen_ai.usage.output_tokens": tokens,
                },
            ),
            span(
                1,
                "POST",
                at + 10,
                1_280,
                key=f"{key} http",
                parent=key,
                kind=CLIENT,
                attributes={
                    "http.request.method": "POST",
                    "url.full": "https://api.example.com/v1/chat/completions",
                },
            ),
        ]

    write(
        folder / "traces.json",
        resource(
            "assistant",
            [
                span(
                    1,
                    "POST chat",
                    0,
                    3_000,
                    "server root",
                    {"http.request.method": "POST", "http.route": "chat"},
                ),
                span(
                    1,
                    "orchestrate_tools",
                    50,
                    2_900,
                    "loop < root",
                    {"gen_ai.operation.name": "orchestrate_tools"},
                ),
                *call("first", 100, 20),
                span(
                    1,
                    "execute_tool weather",
                    1_400,
                    200,
                    "tool < loop",
                    {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"},
                ),
                *call("second", 1_600, 50),
            ],
            scope="Experimental.Microsoft.Extensions.AI",
            telemetry__sdk__language="dotnet",
        ),
    )

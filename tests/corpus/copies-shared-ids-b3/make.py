"""Client and server under one id (B3, Zipkin's shared spans) as OTLP: a chain of three services, each with work of its own."""

from pathlib import Path

from tests.corpus.otlp import CLIENT, SERVER, chat, resource, span, write


def make(folder: Path) -> None:
    def served(
        n: int, name: str, at: float, ms: float, key: str, parent: str, kind: int, **more: object
    ) -> dict[str, object]:
        return span(
            n,
            name,
            10_000 * n + at,
            ms,
            key=key,
            parent=parent,
            kind=kind,
            attributes={"http.method": "POST", "http.path": "/x"} | more,
        )

    app, gateway, model = [], [], []
    for n in range(4):
        app += [
            served(n, "post /chat", 0, 4_000, "root", "", SERVER, **{"http.path": "/chat"}),
            served(n, "post", 100, 3_800, "a", "root", CLIENT),
        ]
        gateway += [
            served(n, "post /gateway", 150, 3_700, "a", "root", SERVER),
            span(n, "guardrail", 10_000 * n + 200, 500, "< a"),
            served(n, "post", 800, 3_000, "b", "a", CLIENT),
        ]
        model += [
            served(n, "post /model", 850, 2_900, "b", "a", SERVER),
            chat(n, 10_000 * n + 900, 2_800, parent="b", ttft_s=0.4),
        ]
    write(
        folder / "traces.json",
        resource("app", app),
        resource("gateway", gateway),
        resource("model", model),
    )

"""One application's spans straight from its SDK, through a Collector that adds attributes of Kubernetes to the resource, and cut off at shutdown."""

from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    def spans(n: int, ms: float) -> list[dict[str, object]]:
        return [
            span(n, "POST /chat", 10_000 * n, ms, "server root", {"http.route": "/chat"}),
            chat(n, 10_000 * n + 100, ms - 200, parent="root", ttft_s=0.3),
        ]

    straight = [item for n in range(4) for item in spans(n, 2_000)]
    # A span processor that ends what is open when it shuts down: shorter copies, later.
    cut = [item for n in range(4) for item in spans(n, 900)]
    write(folder / "1-sdk.json", resource("app", straight, "lib"))
    write(folder / "2-collector.json", resource("app", straight, "lib", k8s__pod__name="app-1"))
    write(folder / "3-shutdown.json", resource("app", cut, "lib"))

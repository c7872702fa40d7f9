"""Datadog's tracers behind the Collector's receiver: operations for names, the old HTTP words, kinds from the span's type or none at all."""

from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    spans = []
    for n in range(4):
        at = 10_000 * n
        web = {
            "dd.span.Resource": "POST /v1/answer",
            "http.method": "POST",
            "http.route": "/v1/answer",
            "http.status_code": "200",
            "component": "express",
            "http.url": "https://app.acme.example/v1/answer?key=1",
            "span.kind": "server",
            "sampling.priority": "1.000000",
            "process.id": 42,
        }
        call = {
            "dd.span.Resource": "POST",
            "http.method": "POST",
            "http.status_code": "200",
            "http.url": "https://crm.acme.example/output/format",
            "out.host": "crm.acme.example",
            "component": "axios",
        }
        spans += [
            span(n, "express.request", at, 2_500, "server root", web),
            # Of a type that the receiver knows no kind of.
            span(n, "axios.post", at + 20, 400, key="a", parent="root", kind=0, attributes=call),
            span(
                n, "http.request", at + 450, 300, "client b < root", call | {"span.kind": "client"}
            ),
            chat(n, at + 800, 1_600, parent="root"),
        ]
    write(
        folder / "traces.json",
        resource("answers", spans, "Datadog", telemetry__sdk__name="Datadog"),
    )

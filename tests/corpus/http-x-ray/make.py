"""AWS X-Ray's segments through the Collector: a segment is named after its service or host, and says HTTP in the old words."""

from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    spans = []
    for n in range(4):
        at = 10_000 * n
        spans += [
            span(
                n,
                "output-service",
                at,
                2_000,
                "server root",
                {
                    "http.method": "POST",
                    "http.url": "https://api.acme.example/prod/answer",
                    "http.status_code": 200,
                    "http.user_agent": "curl",
                    "http.client_ip": "10.0.0.1",
                    "aws.xray.traced": True,
                },
            ),
            span(n, "## handler", at + 10, 1_980, "internal sub < root"),
            span(
                n,
                "queue.acme.example",
                at + 20,
                500,
                "client http < sub",
                {
                    "http.method": "POST",
                    "http.url": "https://queue.acme.example/ask",
                    "http.status_code": 200,
                    "http.response_content_length": 12,
                },
            ),
            chat(n, at + 600, 1_300, parent="sub"),
        ]
    write(folder / "traces.json", resource("output-service", spans, cloud__provider="aws"))

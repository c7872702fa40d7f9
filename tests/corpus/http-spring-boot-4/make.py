"""A Spring Boot 4 service by its own OTLP starter: templates for routes, words of Java, an @Observed method."""

from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def observed(uri: str, **more: str) -> dict[str, str]:
    return {
        "exception": "none",
        "method": "POST",
        "outcome": "SUCCESS",
        "status": "200",
        "uri": uri,
    } | more


def make(folder: Path) -> None:
    spans = []
    for n, (uri, url) in enumerate(
        [
            ("/ask/{id}", "/ask/17"),
            ("/**", "/ask/static"),
            ("UNKNOWN", "http://app:8080/ask/none?q=a"),
        ]
    ):
        at = 10_000 * n
        spans += [
            span(
                n, f"http post {uri}", at, 3_000, "server root", observed(uri, **{"http.url": url})
            ),
            span(
                n,
                "ask#handle",
                at + 10,
                2_900,
                "handler < root",
                {"class": "com.acme.Ask", "method": "post"},
            ),
            # RestClient without a template: no URL but the path.
            span(
                n,
                "http post",
                at + 20,
                800,
                "client http < handler",
                observed("/render/prompt", **{"client.name": "render"}),
            ),
            chat(n, at + 900, 1_900, parent="handler"),
        ]
    failed = observed(
        "/ask/{id}",
        exception="ResourceAccessException",
        outcome="SERVER_ERROR",
        status="502",
        **{"http.url": "/ask/18"},
    )
    spans.append(
        span(
            9,
            "http post /ask/{id}",
            40_000,
            500,
            "server root",
            failed,
            more={"status": {"code": 2}},
        )
    )
    write(folder / "traces.json", resource("ask", spans, "org.springframework.boot"))

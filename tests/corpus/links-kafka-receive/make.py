"""Java's Kafka instrumentation: a receive span polls, a process span below it links to the producer's; batches link to many; and links that are no queue's."""

from pathlib import Path

from tests.corpus.otlp import chat, resource, span, span_id, trace_id, write


def make(folder: Path) -> None:
    web, worker, other = [], [], []
    told = {"messaging.system": "kafka", "messaging.destination.name": "asks"}
    for n in range(3):
        at = 60_000 * n
        web += [
            span(n, "POST /ask", at, 5_000, "server root", {"http.route": "/ask"}),
            span(n, "asks publish", at + 10, 10, "producer send < root", told),
        ]
        link = {"links": [{"traceId": trace_id(n), "spanId": span_id((n, "send"))}]}
        worker += [
            span(
                ("poll", n),
                "asks receive",
                at + 900,
                120,
                "consumer receive",
                told | {"messaging.operation": "receive"},
            ),
            span(
                ("poll", n),
                "asks process",
                at + 1_020,
                3_900,
                "consumer process < receive",
                told,
                more=link,
            ),
            chat(("poll", n), at + 1_120, 3_700, parent="process", ttft_s=0.4),
        ]
        # A batch of all messages, and a turn that links to the one before it.
        every = {
            "links": [{"traceId": trace_id(m), "spanId": span_id((m, "send"))} for m in range(3)]
        }
        other += [
            span(
                ("batch", n), "asks batch", at + 30_000, 1_000, "consumer batch", told, more=every
            ),
            chat(("batch", n), at + 30_100, 800, parent="batch"),
            span(("turn", n), "turn", at + 40_000, 1_000, "internal turn", more=link),
            chat(("turn", n), at + 40_100, 800, parent="turn"),
        ]
    write(
        folder / "traces.json",
        resource("web", web),
        resource("worker", worker),
        resource("other", other),
    )

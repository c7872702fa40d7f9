"""A web request hands its model call to a worker (BullMQ, Sidekiq, Remoulade): two traces, and a link. In one kind it answers at once, in another it waits."""

from pathlib import Path

from tests.corpus.otlp import CONSUMER, PRODUCER, SERVER, chat, resource, span, write


def make(folder: Path) -> None:
    web, worker = [], []
    for n in range(4):
        at = 60_000 * n
        told = {"messaging.system": "bullmq", "messaging.destination.name": "answers"}
        # Accepted at once: the user hears of the answer when the worker has it.
        web += [
            span(
                n, "POST /jobs", at, 50, key="root", kind=SERVER, attributes={"http.route": "/jobs"}
            ),
            span(
                n,
                "answers publish",
                at + 10,
                10,
                key="send",
                parent="root",
                kind=PRODUCER,
                attributes=told,
            ),
        ]
        worker += [
            span(
                ("job", n),
                "answers process",
                at + 5_020,
                3_000,
                key="job",
                kind=CONSUMER,
                links=[(n, (n, "send"))],
                attributes=told,
            ),
            chat(("job", n), at + 5_120, 2_800, parent="job", ttft_s=0.4),
        ]
        # Waited for.
        m = f"wait {n}"
        web += [
            span(
                m,
                "POST /ask",
                at + 20_000,
                5_000,
                key="root",
                kind=SERVER,
                attributes={"http.route": "/ask"},
            ),
            span(
                m,
                "answers publish",
                at + 20_010,
                10,
                key="send",
                parent="root",
                kind=PRODUCER,
                attributes=told,
            ),
        ]
        worker += [
            span(
                ("job", m),
                "answers process",
                at + 21_020,
                3_900,
                key="job",
                kind=CONSUMER,
                links=[(m, (m, "send"))],
                attributes=told,
            ),
            chat(("job", m), at + 21_120, 3_700, parent="job", ttft_s=0.4),
        ]
    for item in worker:
        for link in item.get("links", []):
            link["spanId"] = next(
                s["spanId"]
                for s in web
                if s["traceId"] == link["traceId"] and s["kind"] == PRODUCER
            )
    write(folder / "1-worker.json", resource("worker", worker))
    write(folder / "2-web.json", resource("web", web))

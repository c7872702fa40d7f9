"""A web request hands its model call to a worker (BullMQ, Sidekiq, Remoulade): two traces, and a link. In one kind it answers at once, in another it waits."""

from pathlib import Path

from tests.corpus.otlp import CONSUMER, PRODUCER, SERVER, chat, resource, span, write

TOLD = {"messaging.system": "bullmq", "messaging.destination.name": "answers"}


def make(folder: Path) -> None:
    web, worker = [], []
    for n in range(4):
        at = 60_000 * n
        # Accepted at once: the user hears of the answer when the worker has it. And waited for.
        for trace, route, begun, lasts, job in (
            (n, "/jobs", at, 50, (at + 5_020, 3_000)),
            (f"wait {n}", "/ask", at + 20_000, 5_000, (at + 21_020, 3_900)),
        ):
            of = {"kind": SERVER, "attributes": {"http.route": route}}
            sends = {"key": "send", "parent": "root", "kind": PRODUCER, "attributes": TOLD}
            web += [
                span(trace, f"POST {route}", begun, lasts, "root", **of),
                sent := span(trace, "answers publish", begun + 10, 10, **sends),
            ]
            works = {"key": "job", "kind": CONSUMER, "attributes": TOLD}
            took = span(
                ("job", trace), "answers process", *job, links=[(trace, (trace, "send"))], **works
            )
            took["links"][0]["spanId"] = sent["spanId"]
            answer = chat(("job", trace), job[0] + 100, job[1] - 200, parent="job", ttft_s=0.4)
            worker += [took, answer]
    write(folder / "1-worker.json", resource("worker", worker))
    write(folder / "2-web.json", resource("web", web))

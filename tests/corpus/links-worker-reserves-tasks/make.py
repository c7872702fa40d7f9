"""Answers are made by Celery: a worker reserves tasks behind a long report while the others are idle; the model is as quick as ever."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, web, work, at = random.Random(82), [], [], 0.0
    free = [0.0] * 6
    for n in range(800):
        at += draw.expovariate(1 / 2_600)
        later = n >= 400
        report = later and draw.random() < 0.02
        # Without prefetch a task goes to a free worker; with it, to the next one in turn, whatever that does.
        worker = n % 6 if later else min(range(6), key=lambda i: free[i])
        first, output = draw.lognormvariate(0, 0.25) * 600, int(draw.lognormvariate(0, 0.4) * 150)
        took = first + output * 12.0
        begin = max(at + 22 + draw.uniform(1, 6), free[worker])
        run = (draw.uniform(60_000, 110_000) if report else took) + 30
        free[worker] = begin + run
        name = "jobs.report" if report else "jobs.answer"
        told = {
            "celery.task_name": name,
            "messaging.message.id": f"m{n}",
            "messaging.destination": "celery",
        }
        end = begin + run
        web += [
            span(
                n,
                "POST /reports" if report else "POST /ask",
                at,
                45 if report else end - at + 15,
                "server root",
                {"http.request.method": "POST", "http.route": "/reports" if report else "/ask"},
            ),
            span(
                n,
                f"apply_async/{name}",
                at + 10,
                8,
                "producer send < root",
                told | {"celery.action": "apply_async", "messaging.destination_kind": "queue"},
            ),
        ]
        work += [
            span(
                n,
                f"run/{name}",
                begin,
                run,
                "consumer run < send",
                told
                | {
                    "celery.action": "run",
                    "celery.state": "SUCCESS",
                    "celery.hostname": f"celery@w{worker}",
                },
            ),
            chat(
                n,
                begin + 12,
                run - 22 if report else took,
                parent="run",
                ttft_s=first / 1e3,
                output=output if not report else 4_000,
            ),
        ]
    write(folder / "traces.json", resource("web", web), resource("worker", work))

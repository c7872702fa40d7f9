"""Connections that a balancer dropped while nobody called are used again: the call hangs for the client's 30 s and is sent anew; traffic with pauses."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, spans, at = random.Random(73), [], 0.0
    for n in range(700):
        pause = draw.choice((4_000.0, 9_000.0, 15_000.0, 40_000.0, 300_000.0)) * draw.uniform(
            0.6, 1.4
        )
        at += pause
        hangs = n >= 350 and pause > 200_000 and draw.random() < 0.85
        first = draw.lognormvariate(0, 0.3) * 540 + (30_000 + draw.uniform(5, 60) if hangs else 0)
        output = int(draw.lognormvariate(0, 0.5) * 140)
        whole = first + output * 18.0
        spans += [
            span(
                n,
                "POST /ask",
                at,
                whole + 25,
                "server root",
                {"http.route": "/ask", "http.request.method": "POST"},
            ),
            chat(n, at + 10, whole, parent="root", ttft_s=first / 1e3, output=output),
        ]
        at += whole
    write(folder / "traces.json", resource("assistant", spans))

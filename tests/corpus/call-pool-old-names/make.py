"""Calls to a provider through a pool of four: twenty minutes, in the second half nearly as many come as the pool can take, so that they wait for a place."""

import heapq
import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, spans = random.Random(14), []
    free, at, n = [0.0] * 4, 0.0, 0
    while at < 1_200_000:
        at += draw.expovariate(1 / (2_000 if at < 600_000 else 335))
        n += 1
        begin = max(at + 20, heapq.heappop(free))
        answer = draw.uniform(1_000, 1_500)
        heapq.heappush(free, begin + answer)
        whole = begin + answer - at
        spans += [
            span(n, "POST /sum", at, whole + 20, "server root"),
            chat(n, at + 10, whole + 5, parent="root"),
            span(
                n,
                "HTTP POST",
                begin,
                answer,
                "client http < chat",
                {
                    "http.method": "POST",
                    "http.url": "https://api.openai.com/v1/chat/completions",
                    "http.status_code": 200,
                },
            ),
        ]
    write(folder / "traces.json", resource("summaries", spans))

"""Ten hours: one model every two minutes, a rare one in pairs of calls with pauses of up to half an hour; its replica goes after ten minutes."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, spans = random.Random(45), []
    calls = [(120_000.0 * n + draw.uniform(0, 9_000), "llama-8b") for n in range(225)]
    at = 60_000.0
    while at < 27_000_000:
        calls.append((at, "coder-70b"))
        at += draw.choice((40_000.0, 90_000.0, 240_000.0, 700_000.0, 1_500_000.0))
    used = -1e9
    for n, (begin, model) in enumerate(sorted(calls)):
        first = draw.uniform(300, 600)
        if model == "coder-70b":
            first += draw.uniform(18_000, 40_000) if begin - used > 600_000 else 0.0
            used = begin + first + 1_500
        told = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.usage.input_tokens": int(draw.uniform(200, 900)),
            "gen_ai.usage.output_tokens": 60,
            "gen_ai.response.time_to_first_chunk": first / 1e3,
        }
        spans += [
            span(n, "POST /code", begin, first + 1_520, "server root"),
            chat(n, begin + 10, first + 1_500, parent="root", attributes=told),
        ]
    write(folder / "traces.json", resource("editor", spans))

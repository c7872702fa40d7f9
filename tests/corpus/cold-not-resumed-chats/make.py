"""A user's long chat: quick turns find their history cached; after a pause of more than five minutes all of it is read again. Pauses come in the second half."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, spans, at = random.Random(46), [], 0.0
    for n in range(600):
        rested = n >= 300 and n % 6 == 0
        at += draw.uniform(400_000, 900_000) if rested else draw.uniform(15_000, 60_000)
        history = int(draw.uniform(20_000, 40_000))
        cached = 0 if rested else history - 400
        first = 300.0 + 0.15 * (history - cached)
        told = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.usage.input_tokens": history,
            "gen_ai.usage.cache_read.input_tokens": cached,
            "gen_ai.usage.output_tokens": 80,
            "gen_ai.response.time_to_first_chunk": first / 1e3,
        }
        spans += [
            span(n, "POST /chat", at, first + 1_620, "server root"),
            chat(n, at + 10, first + 1_600, parent="root", attributes=told),
        ]
    write(folder / "traces.json", resource("chat", spans))

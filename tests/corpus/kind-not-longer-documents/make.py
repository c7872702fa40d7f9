"""One call in four is JSON; from the second half on these read 15,000 to 30,000 tokens instead of 800, at 0.15 ms each."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, spans = random.Random(53), []
    for n in range(800):
        at, output, as_json = n * 1_500.0, int(draw.uniform(60, 120)), draw.random() < 0.25
        grown = as_json and n >= 400
        read = int(draw.uniform(15_000, 30_000) if grown else draw.uniform(600, 1_000))
        first = draw.uniform(250, 350) + 0.15 * read
        told = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.provider.name": "openai",
            "gen_ai.output.type": "json" if as_json else "text",
            "gen_ai.usage.input_tokens": read,
            "gen_ai.usage.output_tokens": output,
            "gen_ai.response.time_to_first_chunk": first / 1e3,
        }
        spans += [
            span(n, "POST /read", at, first + 20.0 * output + 40, "server root"),
            chat(n, at + 10, first + 20.0 * output, parent="root", attributes=told),
        ]
    write(folder / "traces.json", resource("reader", spans))

"""Answers of 200 to 400 tokens at any time; in the second half 50 to 90 of them are thought, and come before the first visible token."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, spans = random.Random(59), []
    for n in range(900):
        at, first, output = n * 1_300.0, draw.uniform(380, 620), int(draw.uniform(200, 400))
        whole, thought = first + 30.0 * output, int(draw.uniform(50, 90)) if n >= 450 else 0
        told = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.provider.name": "openai",
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": output,
            "gen_ai.usage.reasoning.output_tokens": thought,
            "gen_ai.response.time_to_first_chunk": (first + 30.0 * thought) / 1e3,
        }
        spans += [
            span(n, "POST /chat", at, whole + 40, "server root"),
            chat(n, at + 20, whole, parent="root", attributes=told),
        ]
    write(folder / "traces.json", resource("chat", spans))

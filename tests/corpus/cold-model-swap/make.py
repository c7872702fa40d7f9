"""An assistant asks one model; from the second half on, every sixth call is for another one, which does not fit beside it. Times of load vary."""

import random
from pathlib import Path

from tests.corpus.otlp import resource, span, write


def make(folder: Path) -> None:
    draw, spans, loaded, at = random.Random(44), [], "qwen3-32b", 0.0
    for n in range(700):
        model = "gemma-27b" if n >= 350 and draw.random() < 0.16 else "qwen3-32b"
        output = int(draw.uniform(60, 200))
        load = draw.uniform(14_000, 30_000) if model != loaded else 0.0
        whole, loaded = load + 400 + 25.0 * output, model
        spans += [
            span(n, "POST /ask", at, whole + 20, "server root"),
            span(
                n,
                "ChatOpenAI",
                at + 10,
                whole,
                "call < root",
                {
                    "openinference.span.kind": "LLM",
                    "llm.model_name": model,
                    "llm.token_count.prompt": int(draw.uniform(300, 900)),
                    "llm.token_count.completion": output,
                },
            ),
        ]
        at += whole + draw.uniform(500, 8_000)
    write(folder / "traces.json", resource("assistant", spans))

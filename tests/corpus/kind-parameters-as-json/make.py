"""One call in four must call a tool; from the second half on each of these waits for three to nine seconds more. Nothing else differs."""

import json
import random
from pathlib import Path

from tests.corpus.otlp import resource, span, write


def make(folder: Path) -> None:
    draw, spans = random.Random(51), []
    for n in range(800):
        at, output, must = n * 1_500.0, int(draw.uniform(60, 120)), draw.random() < 0.25
        whole = 500 + 20.0 * output + (draw.uniform(4_500, 9_000) if must and n >= 400 else 0.0)
        asked = {"temperature": 0.2, "max_tokens": 500, "stop": None}
        if must:
            asked |= {"tools": [{"type": "function"}], "tool_choice": "required"}
        spans += [
            span(n, "POST /extract", at, whole + 20, "server root"),
            span(
                n,
                "ChatOpenAI",
                at + 10,
                whole,
                "call < root",
                {
                    "openinference.span.kind": "LLM",
                    "llm.model_name": "qwen",
                    "llm.invocation_parameters": json.dumps(asked),
                    "llm.token_count.prompt": int(draw.uniform(300, 900)),
                    "llm.token_count.completion": output,
                },
            ),
        ]
    write(folder / "traces.json", resource("extractor", spans))

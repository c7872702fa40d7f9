"""Whole answers alone, OpenLLMetry's names, nothing older stored: after four minutes without a call the network's NAT has forgotten the connection, and a call waits for 60 s."""

import random
from pathlib import Path

from tests.corpus.otlp import resource, span, write


def make(folder: Path) -> None:
    draw, spans, at = random.Random(91), [], 0.0
    for n in range(520):
        pause = draw.lognormvariate(0, 1.3) * 50_000.0
        hangs = pause > 245_000
        read, output = int(draw.lognormvariate(0, 0.7) * 700), int(draw.lognormvariate(0, 0.5) * 90)
        whole = (
            380 * draw.lognormvariate(0, 0.3)
            + output * 15.0
            + (60_000 + draw.uniform(2, 90) if hangs else 0)
        )
        at += pause
        spans += [
            span(
                n,
                "POST /classify",
                at,
                whole + 20,
                "server root",
                {"http.method": "POST", "http.route": "/classify"},
            ),
            span(
                n,
                "openai.chat",
                at + 8,
                whole,
                "client c < root",
                {
                    "llm.request.type": "chat",
                    "gen_ai.system": "OpenAI",
                    "gen_ai.request.model": "gpt-4o-mini",
                    "gen_ai.usage.prompt_tokens": read,
                    "gen_ai.usage.completion_tokens": output,
                },
            ),
        ]
        at += whole
    write(folder / "traces.json", resource("classifier", spans))

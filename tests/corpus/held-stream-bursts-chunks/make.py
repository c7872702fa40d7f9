"""Chunk events of a client: one by one in the first half, 120 at a time in the second; the engine's span tells its own first token."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, client, engine = random.Random(57), [], []
    for n in range(500):
        at, first, output = n * 2_000.0, draw.uniform(120, 200), int(draw.uniform(150, 320))
        size = 120 if n >= 250 else 1
        wrote = [first + 20.0 * k for k in range(output)]
        came = [wrote[min((k // size + 1) * size, output) - 1] + 15 for k in range(output)]
        whole = wrote[-1] + 20
        client += [
            span(n, "POST /write", at, whole + 30, "server root"),
            chat(
                n,
                at + 10,
                whole + 5,
                parent="root",
                output=output,
                events=[(at + 10 + ms, "llm.content.completion.chunk") for ms in came],
            ),
        ]
        engine.append(
            span(
                n,
                "llm_request",
                at + 18,
                wrote[-1],
                "server engine < chat",
                {
                    "gen_ai.request.model": "m",
                    "gen_ai.usage.prompt_tokens": 100,
                    "gen_ai.usage.completion_tokens": output,
                    "gen_ai.latency.time_to_first_token": first / 1e3,
                    "gen_ai.latency.e2e": wrote[-1] / 1e3,
                    "gen_ai.latency.time_in_queue": 0.004,
                    "gen_ai.latency.time_in_model_prefill": first / 1e3 - 0.004,
                    "gen_ai.latency.time_in_model_decode": (wrote[-1] - first) / 1e3,
                },
            )
        )
    write(folder / "traces.json", resource("writer", client), resource("vllm", engine))

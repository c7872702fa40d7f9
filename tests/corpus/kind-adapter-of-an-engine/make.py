"""One engine, a base model and two adapters; from the second half on, one adapter is read from disk for most of its calls."""

import random
from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def make(folder: Path) -> None:
    draw, client, engine = random.Random(52), [], []
    for n in range(800):
        at, output = n * 1_400.0, int(draw.uniform(60, 140))
        model = draw.choice(("llama", "llama", "chat-lora", "sql-lora"))
        slow = model == "sql-lora" and n >= 400 and draw.random() < 0.8
        queue = draw.uniform(1_500, 4_000) if slow else draw.uniform(1, 6)
        prefill, decode = draw.uniform(70, 120), 15.0 * output
        first, whole = queue + prefill, queue + prefill + decode
        told = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.provider.name": "openai",
            "gen_ai.usage.input_tokens": int(draw.uniform(200, 600)),
            "gen_ai.usage.output_tokens": output,
            "gen_ai.response.time_to_first_chunk": (first + 6) / 1e3,
        }
        client += [
            span(n, "POST /ask", at, whole + 40, "server root"),
            chat(n, at + 10, whole + 12, parent="root", attributes=told),
        ]
        engine.append(
            span(
                n,
                "llm_request",
                at + 14,
                whole,
                "server engine < chat",
                {
                    "gen_ai.request.model": model,
                    "gen_ai.usage.prompt_tokens": told["gen_ai.usage.input_tokens"],
                    "gen_ai.usage.completion_tokens": output,
                    "gen_ai.latency.time_to_first_token": first / 1e3,
                    "gen_ai.latency.e2e": whole / 1e3,
                    "gen_ai.latency.time_in_queue": queue / 1e3,
                    "gen_ai.latency.time_in_model_prefill": prefill / 1e3,
                    "gen_ai.latency.time_in_model_decode": decode / 1e3,
                },
            )
        )
    write(
        folder / "traces.json",
        resource("asker", client),
        resource("vllm", engine, service__instance__id="vllm-0"),
    )

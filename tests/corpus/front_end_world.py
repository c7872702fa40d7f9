"""Calls through the front ends of engines that are not busy: what a front end does to each call is the case's."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.corpus.otlp import resource, span, write


def calls(
    folder: Path,
    gap_ms: Callable[[random.Random, bool, int], float],
    *,
    serial: bool,
    prompt: Callable[[random.Random, bool], int],
    engines: int = 1,
    n: int = 900,
    seed: int = 40,
) -> None:
    """`gap_ms(draw, later, tokens)` is what the front end takes of a call, one after the other where `serial`; the second half of the calls is `later`."""
    draw, client, at = random.Random(seed), [], 0.0
    served: dict[int, list[dict[str, Any]]] = {number: [] for number in range(engines)}
    free = dict.fromkeys(range(engines), 0.0)
    for number in range(n):
        at += draw.expovariate(1 / 900)
        later, engine = number >= n // 2, number % engines
        read, output = prompt(draw, later), int(draw.uniform(60, 160))
        begin = max(at, free[engine]) if serial else at
        ready = begin + gap_ms(draw, later, read)
        free[engine] = ready
        prefill, decode = 40.0 + 0.03 * read, 12.0 * output
        whole = ready + prefill + decode + 8.0 - at
        client += [
            span(number, "POST /ask", at - 5, whole + 15, "server root"),
            span(
                number,
                "ChatCompletion",
                at,
                whole,
                "client call < root",
                {
                    "openinference.span.kind": "LLM",
                    "llm.model_name": "qwen",
                    "llm.token_count.prompt": read,
                    "llm.token_count.completion": output,
                },
            ),
        ]
        served[engine].append(
            span(
                number,
                "llm_request",
                ready,
                prefill + decode,
                "server engine < call",
                {
                    "gen_ai.request.model": "qwen",
                    "gen_ai.usage.prompt_tokens": read,
                    "gen_ai.usage.completion_tokens": output,
                    "gen_ai.latency.time_to_first_token": prefill / 1e3,
                    "gen_ai.latency.e2e": (prefill + decode) / 1e3,
                    "gen_ai.latency.time_in_queue": 0.0,
                    "gen_ai.latency.time_in_model_prefill": prefill / 1e3,
                    "gen_ai.latency.time_in_model_decode": decode / 1e3,
                },
            )
        )
    engines_ = [
        resource("vllm", spans, service__instance__id=f"vllm-{number}")
        for number, spans in served.items()
    ]
    write(folder / "traces.json", resource("asker", client), *engines_)

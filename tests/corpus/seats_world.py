"""Calls through an engine with so many seats, or so many tokens of room, written as clients and vLLM's own spans tell them; KV usage as OTLP metrics if asked for."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.corpus.otlp import attributes, chat, ns, resource, span, write


def calls(
    folder: Path,
    *,
    seats: Callable[[float], int],
    every_ms: Callable[[float], float],
    tokens: Callable[[float], float] = lambda _: float("inf"),
    kv_per_token: float | None = None,
    read_ms: Callable[[float, int], float] = lambda _, read: 40 + 0.05 * read,
    until_ms: float = 1_200_000.0,
    seed: int = 32,
) -> None:
    """`seats`, `tokens` and `every_ms` (mean pause between calls) hold at a moment; `kv_per_token` is what one token takes of the KV cache (0..1), `read_ms` how
    long a prompt of so many tokens is read at a moment."""
    draw, at, number = random.Random(seed), 0.0, 0
    running: list[tuple[float, int]] = []
    client: list[dict[str, Any]] = []
    server: list[dict[str, Any]] = []
    usage: list[tuple[float, float]] = []
    free_ms = 0.0
    while True:
        at += draw.expovariate(1 / every_ms(at))
        if at > until_ms:
            break
        number += 1
        read, output = int(draw.lognormvariate(6.6, 0.7)), int(draw.uniform(60, 260))
        begin = max(at, free_ms)  # first come, first served
        while True:
            running = [one for one in running if one[0] > begin]
            held = sum(size for _, size in running)
            if len(running) < seats(begin) and held + read + output <= max(
                tokens(begin), read + output
            ):
                break
            begin = min(end for end, _ in running)
        free_ms = begin
        prefill, decode = read_ms(begin, read), 20.0 * output
        running.append((begin + prefill + decode, read + output))
        if kv_per_token is not None:
            usage.append((begin, kv_per_token * sum(size for _, size in running)))
        queue = begin - at + draw.uniform(0.5, 2.0)
        whole = queue + prefill + decode
        told = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.usage.input_tokens": read,
            "gen_ai.usage.output_tokens": output,
            "gen_ai.response.time_to_first_chunk": (queue + prefill + 6) / 1e3,
        }
        client += [
            span(number, "POST /chat", at - 5, whole + 25, "server root"),
            chat(number, at - 2, whole + 12, parent="root", attributes=told),
        ]
        server.append(
            span(
                number,
                "llm_request",
                at,
                whole,
                "server engine < chat",
                {
                    "gen_ai.request.model": "m",
                    "gen_ai.usage.prompt_tokens": read,
                    "gen_ai.usage.completion_tokens": output,
                    "gen_ai.latency.time_to_first_token": (queue + prefill) / 1e3,
                    "gen_ai.latency.e2e": whole / 1e3,
                    "gen_ai.latency.time_in_queue": queue / 1e3,
                    "gen_ai.latency.time_in_model_prefill": prefill / 1e3,
                    "gen_ai.latency.time_in_model_decode": decode / 1e3,
                },
            )
        )
    write(
        folder / "traces.json",
        resource("chat", client),
        resource("vllm", server, service__instance__id="vllm-0"),
    )
    if usage:
        _metrics(folder / "metrics.json", usage)


def _metrics(path: Path, usage: list[tuple[float, float]]) -> None:
    points = [{"timeUnixNano": ns(at), "asDouble": round(value, 4)} for at, value in usage]
    metric = {"name": "vllm:kv_cache_usage_perc", "gauge": {"dataPoints": points}}
    told = {"service.name": "vllm", "service.instance.id": "vllm-0"}
    of = {"attributes": attributes(told)}
    path.write_text(
        json.dumps({"resourceMetrics": [{"resource": of, "scopeMetrics": [{"metrics": [metric]}]}]})
    )

"""Streams with chunk events that stop at given moments: who stops, and whether an engine tells of its part, is the case's."""

import bisect
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.corpus.otlp import chat, resource, span, write

Pauses = Sequence[tuple[float, float]]
PACE_MS = 16.0


def streams(
    folder: Path,
    pauses_of: Callable[[int, float], Pauses],
    *,
    n: int = 500,
    every_ms: float = 1_100.0,
    engine: bool = False,
    seed: int = 50,
    read: Callable[[int], int] = lambda _: 300,
) -> None:
    """Calls of 60 to 220 tokens; `pauses_of` gives the (moment, length) in ms that stop call n, begun at a moment; `read` its prompt's tokens."""
    draw = random.Random(seed)
    client: list[dict[str, Any]] = []
    server: list[dict[str, Any]] = []
    for number in range(n):
        at, output = number * every_ms + draw.uniform(0, 600), int(draw.uniform(60, 220))
        first = at + draw.uniform(180, 320) + 0.05 * read(number)
        pauses = sorted(pauses_of(number, at))
        moments = [moment for moment, _ in pauses]
        k = bisect.bisect_left(moments, at)
        while k < len(pauses) and moments[k] <= first:
            first += pauses[k][1]
            k += 1
        now, came = first, [first]
        for _ in range(output - 1):
            now += PACE_MS
            while k < len(pauses) and moments[k] <= now:
                now += pauses[k][1]
                k += 1
            came.append(now)
        whole = now - at
        told = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.usage.input_tokens": read(number),
            "gen_ai.usage.output_tokens": output,
        }
        client += [
            span(number, "POST /chat", at - 20, whole + 40, "server root"),
            chat(
                number,
                at,
                whole + 5,
                parent="root",
                attributes=told,
                events=[(moment, "gen_ai.content.completion.chunk") for moment in came],
            ),
        ]
        if engine:
            server.append(_engine(number, at, first, now, read(number), output))
    write(
        folder / "traces.json",
        resource("chat", client),
        *([resource("vllm", server, service__instance__id="vllm-0")] if engine else []),
    )


def _engine(
    number: int, at: float, first: float, last: float, read: int, output: int
) -> dict[str, Any]:
    return span(
        number,
        "llm_request",
        at + 2,
        last - at - 2,
        "server engine < chat",
        {
            "gen_ai.request.model": "m",
            "gen_ai.usage.prompt_tokens": read,
            "gen_ai.usage.completion_tokens": output,
            "gen_ai.latency.time_to_first_token": (first - at - 2) / 1e3,
            "gen_ai.latency.e2e": (last - at - 2) / 1e3,
            "gen_ai.latency.time_in_queue": 0.002,
            "gen_ai.latency.time_in_model_prefill": (first - at - 4) / 1e3,
            "gen_ai.latency.time_in_model_decode": (last - first) / 1e3,
        },
    )

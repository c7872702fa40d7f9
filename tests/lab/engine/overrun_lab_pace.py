"""A general plugin of vLLM: after each real forward it sleeps up to the time that a law gives the step.

Scheduler, KV cache, prefix cache, preemption, sampling, HTTP, tracing and metrics stay vLLM's own; only the speed of
the forward is synthetic. Without a pace, a step on a shared CPU takes 6 ms or 250 ms by chance.

`OVERRUN_LAB_PACE` holds the law as JSON: {"law": NAME, "speed": FLOAT, "noise": SIGMA, "seed": INT, "pause_every_s":
FLOAT, "pause_ms": FLOAT, "cold_s": FLOAT, "cold_factor": FLOAT, "tokenise_us": FLOAT}; without it nothing changes. A pause
lengthens the first step after each such interval. For `cold_s` after its first step an engine takes `cold_factor` times as long.
Each token of a prompt takes the front end `tokenise_us` more, in the thread in which vLLM tokenises.
`OVERRUN_LAB_STEPS` names a file for one line a step: time, sequences, tokens, context, wanted ms, real ms, taken ms.
"""

from __future__ import annotations

import json
import math
import os
import random
import time

# Measured steps of Llama 3.1 8B on an RTX 4090 under vLLM 0.19 (300 requests; casys-kaist/LLMServingSim, MIT).
# Seconds without a prompt give the decode step by least squares, 12.2 ms + 0.011 ms a sequence + 0.000325 ms a token of
# context (median error 9 %); the fastest twentieth of the prompts gives 0.127 ms a prompt token.
TABLE_TOKENS = (1, 64, 128, 256, 512, 1024, 2048, 4096)
TABLE_MS = (12.2, 13.1, 18.0, 33.0, 65.0, 130.0, 260.0, 520.0)
CONTEXT_MS, SEQUENCE_MS = 0.000325, 0.011


def roofline(tokens: int, context: int, sequences: int) -> float:
    """Arithmetic against memory with a smooth corner, and a cost per sequence."""
    compute, memory = 0.11 * tokens, 14.0 + 0.0006 * context
    return float(3.0 + (compute**3 + memory**3) ** (1 / 3) + 0.12 * sequences)


def tiles(tokens: int, context: int, sequences: int) -> float:
    """Work in whole tiles of 64 tokens, attention in blocks of 512, and a host that handles one sequence at a time."""
    return 9.0 + 5.5 * math.ceil(tokens / 64) + 0.35 * math.ceil(context / 512) + 0.45 * sequences


def table(tokens: int, context: int, sequences: int) -> float:
    """Straight lines between the measured steps, and what context and sequences add to them."""
    x = min(max(tokens, TABLE_TOKENS[0]), TABLE_TOKENS[-1])
    above = next(i for i, bound in enumerate(TABLE_TOKENS) if x <= bound)
    if above == 0:
        base = TABLE_MS[0]
    else:
        low, high = TABLE_TOKENS[above - 1], TABLE_TOKENS[above]
        base = TABLE_MS[above - 1] + (TABLE_MS[above] - TABLE_MS[above - 1]) * (x - low) / (
            high - low
        )
    return base + CONTEXT_MS * context + SEQUENCE_MS * sequences


def graphs(tokens: int, context: int, sequences: int) -> float:
    """Steps without a prompt run as a recorded graph of the next power of two sequences; those with one run piece by piece, with 12 ms of starting kernels."""
    if tokens <= sequences:
        return 10.0 + 0.5 * 2.0 ** math.ceil(math.log2(max(sequences, 1))) + 0.0004 * context
    return 22.0 + 0.09 * tokens + 0.0004 * context


LAWS = {"roofline": roofline, "tiles": tiles, "table": table, "graphs": graphs}


class Pace:
    """How long a step has to take, with log-normal noise."""

    def __init__(self, settings: dict[str, object]) -> None:
        self.law = LAWS[str(settings.get("law", "roofline"))]
        self.speed = float(settings.get("speed", 1.0))  # type: ignore[arg-type]
        self.noise = float(settings.get("noise", 0.03))  # type: ignore[arg-type]
        self.random = random.Random(int(settings.get("seed", 0)))  # type: ignore[call-overload]
        self.pause_every_s = float(settings.get("pause_every_s", 0.0))  # type: ignore[arg-type]
        self.pause_ms = float(settings.get("pause_ms", 0.0))  # type: ignore[arg-type]
        self.paused_at = time.monotonic()
        self.cold_s = float(settings.get("cold_s", 0.0))  # type: ignore[arg-type]
        self.cold_factor = float(settings.get("cold_factor", 1.0))  # type: ignore[arg-type]
        self.first_at: float | None = None

    def wanted_ms(self, tokens: int, context: int, sequences: int) -> float:
        """The time of a step of `tokens` new tokens that attends to `context` tokens of `sequences` requests."""
        usual = self.law(tokens, context, sequences) / self.speed * self._cold()
        return usual * self.random.lognormvariate(0.0, self.noise) + self._pause_ms()

    def _cold(self) -> float:
        now = time.monotonic()
        if self.first_at is None:
            self.first_at = now
        return self.cold_factor if now - self.first_at < self.cold_s else 1.0

    def _pause_ms(self) -> float:
        now = time.monotonic()
        if not self.pause_every_s or now - self.paused_at < self.pause_every_s:
            return 0.0
        self.paused_at = now
        return self.pause_ms


def shape(scheduled: object) -> tuple[int, int, int]:
    """New tokens, tokens of context, and sequences of a step, from vLLM's SchedulerOutput."""
    new_tokens = scheduled.num_scheduled_tokens  # type: ignore[attr-defined]
    computed = {r.req_id: r.num_computed_tokens for r in scheduled.scheduled_new_reqs}  # type: ignore[attr-defined]
    cached = scheduled.scheduled_cached_reqs  # type: ignore[attr-defined]
    computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    context = sum(computed.get(request, 0) + count for request, count in new_tokens.items())
    return sum(new_tokens.values()), context, len(new_tokens)


NAP_S = 0.0003


def rest_between_looks() -> None:
    """Let vLLM's processes sleep 0.3 ms before they look again for a message of each other.

    They spin, which takes a whole core while a step is waited for. On a GPU host nobody misses that core; here client and application do.
    """
    from vllm.distributed.device_communicators import shm_broadcast

    shm_broadcast.sched_yield = lambda: time.sleep(NAP_S)


def slow_tokeniser(microseconds: float) -> None:
    """Let vLLM's tokenising take so long for each token of a prompt."""
    from vllm.renderers.base import BaseRenderer

    tokenise = BaseRenderer._tokenize_prompt

    def paced(self: object, *args: object, **kwargs: object) -> dict[str, list[int]]:
        made: dict[str, list[int]] = tokenise(self, *args, **kwargs)
        time.sleep(len(made["prompt_token_ids"]) * microseconds / 1e6)
        return made

    BaseRenderer._tokenize_prompt = paced


def register() -> None:
    """Entry point: called by vLLM in each of its processes."""
    settings = os.environ.get("OVERRUN_LAB_PACE")
    if not settings:
        return
    rest_between_looks()
    from vllm.v1.worker import gpu_model_runner

    runner = gpu_model_runner.GPUModelRunner
    if getattr(runner, "overrun_lab_pace", None) is not None:
        return
    pace = runner.overrun_lab_pace = Pace(json.loads(settings))
    if tokenise_us := float(json.loads(settings).get("tokenise_us", 0.0)):
        slow_tokeniser(tokenise_us)
    forward = runner.execute_model
    path = os.environ.get("OVERRUN_LAB_STEPS")
    log = open(path, "a", buffering=1) if path else None  # noqa: SIM115 - lives as long as the process

    def paced(self: object, scheduler_output: object, *args: object, **kwargs: object) -> object:
        begin = time.perf_counter()
        result = forward(self, scheduler_output, *args, **kwargs)
        tokens, context, sequences = shape(scheduler_output)
        if not sequences:
            return result
        wanted, real = (
            pace.wanted_ms(tokens, context, sequences),
            (time.perf_counter() - begin) * 1e3,
        )
        if wanted > real:
            time.sleep((wanted - real) / 1e3)
        if log:
            taken = (time.perf_counter() - begin) * 1e3
            log.write(
                f"{time.time():.4f} {sequences} {tokens} {context} {wanted:.2f} {real:.2f} {taken:.2f}\n"
            )
        return result

    runner.execute_model = paced

"""How long does an opaque provider take? Time to first token and speed drawn per call, with a wait that comes and goes, refusals, sag and spikes."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from overrun.sample_traces.simulator.settings import Settings
from overrun.sample_traces.simulator.traffic import (
    PROVIDER,
    PROVIDER_SPEED,
    REFUSED,
    SPIKE,
    SPIKE_SIZE,
    WAIT,
    Request,
    call_draw,
    lognormal,
)

_INPUT_MS = 0.045  # per token of the prompt: providers run on more accelerators
_SWING_S = 75.0


@dataclass(frozen=True)
class Answer:
    """What one call will bring: seconds to its first token, seconds per further token in either half, or a refusal."""

    first_s: float
    token_s: float
    late_token_s: float
    refused: bool


class Provider:
    """Draws answers; the wait depends on the moment, and the same moment has the same wait in every run of a seed."""

    def __init__(self, seed: int) -> None:
        self._phase = random.Random(f"provider/{seed}").random()

    def call(
        self, s: Settings, request: Request, now: float, nth: int, input_tokens: int
    ) -> Answer:
        """The answer to a request's nth call (attempts count) at a moment."""

        def z(which: int) -> float:
            return request.z[call_draw(nth, which)]

        wait = s.provider_queue_s * max(
            0.0, 0.6 + 0.8 * math.sin(2.0 * math.pi * (now / _SWING_S + self._phase))
        )
        first = (
            lognormal(s.provider_ttft_ms, s.provider_ttft_sigma, z(PROVIDER)) / 1000.0
            + input_tokens * _INPUT_MS / 1000.0
        )
        first += wait * lognormal(1.0, 0.35, z(WAIT))
        if request.uniform(call_draw(nth, SPIKE)) < s.provider_spike_share:
            first += s.provider_spike_s * lognormal(1.0, 0.2, z(SPIKE_SIZE))
        token = lognormal(s.provider_tpot_ms, 0.12, z(PROVIDER_SPEED)) / 1000.0
        refused = request.uniform(call_draw(nth, REFUSED)) < s.provider_429
        return Answer(
            first, token * (1.0 + 0.4 * (s.provider_sag - 1.0)), token * s.provider_sag, refused
        )

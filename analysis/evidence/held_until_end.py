"""Which calls show their first token only near the end of a long answer, and the rest at once?"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.words.arrays import BoolArray, FloatArray

MIN_HELD: Final = 0.5

LAST_PART: Final = 0.9

# Of the time that the tokens after the first take to write; a longer rest was streamed. Own default.
MOST_REST: Final = 0.25

# Answers with fewer tokens begin and end together; if they were not counted, those that take less to write; own defaults.
LONG: Final = 20

LONG_MS: Final = 250.0


class Pace(NamedTuple):
    """Usual time of a token, and between the first one and the end of an answer, in ms."""

    token_ms: float
    rest_ms: float


def held_share(calls: Calls, held: BoolArray, pace: Pace) -> float:
    """Return the share of held ones (shape of `calls`, or empty) among the calls that could be: with a long answer and a first token."""
    could = _long(calls, pace) & known(calls.of("ttft_client_ms"))
    return float(held[could].mean()) if len(held) and could.any() else 0.0


def _long(calls: Calls, pace: Pace) -> BoolArray:
    tokens = calls.of("output_tokens")
    mask: BoolArray = np.where(
        np.isnan(tokens), _writing_ms(calls, pace) >= LONG_MS, np.nan_to_num(tokens) >= LONG
    )
    return mask


def _writing_ms(calls: Calls, pace: Pace) -> FloatArray:
    """What the tokens after the first take to write: as the engine says, else at the usual pace; where they were not counted, what answers took before."""
    tokens, decode = calls.of("output_tokens"), calls.of("decode_ms")
    return np.where(
        ~np.isnan(decode),
        decode,
        np.where(np.isnan(tokens), pace.rest_ms, pace.token_ms * np.nan_to_num(tokens)),
    )


def usual_rest_ms(case: Case) -> float:
    """Return the median time between the first token and the end of the calls before; 0 without them: today's may be held back."""
    if case.calls_before is None:
        return 0.0
    rest = case.calls_before.of("e2e_ms") - case.calls_before.of("ttft_client_ms")
    return float(np.nanmedian(rest)) if known(rest).any() else 0.0


def usual_token_ms(case: Case) -> float:
    """Return the median time per token of the calls before, else of those now; 0 if none reported it."""
    sides = [calls.token_ms for calls in (case.calls_before, case.calls) if calls is not None]
    return next((float(np.nanmedian(side)) for side in sides if known(side).any()), 0.0)


def held_calls(calls: Calls, pace: Pace) -> BoolArray:
    """Return which calls with a long answer show their first token in the last tenth (or far behind the engine's) and the rest at once; as long as the calls."""
    first, whole, engine = (
        calls.of("ttft_client_ms"),
        calls.of("e2e_ms"),
        calls.of("ttft_engine_ms"),
    )
    tokens = np.nan_to_num(calls.of("output_tokens"))
    # Hidden thought comes before the first visible token: its time is no holding back.
    thought = np.nan_to_num(calls.of("reasoning_tokens")) / np.maximum(tokens, 1.0)
    wrote = np.nan_to_num(engine) + thought * np.maximum(whole - np.nan_to_num(engine), 0.0)
    late = np.where(
        known(engine),
        np.nan_to_num(first - wrote) > MIN_HELD * whole,
        (first > LAST_PART * whole) & (thought == 0.0),
    )
    writing = _writing_ms(calls, pace) * (1.0 - thought)
    at_once = (whole - first < MOST_REST * writing) | (writing <= 0.0)
    held: BoolArray = _long(calls, pace) & known(first) & late & at_once
    return held if len(calls) >= MIN_CALLS or held.any() else np.zeros(0, dtype=np.bool_)

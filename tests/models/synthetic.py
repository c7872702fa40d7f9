"""A small made-up trace with a known answer, for tests that need a trained artifact in a second."""

import math
import random
from datetime import UTC, datetime, timedelta

import polars as pl

from overrun.models.sources import COLUMNS

START = datetime(2026, 3, 2, tzinfo=UTC)


def trace(rows: int = 1_500, seed: int = 7) -> pl.DataFrame:
    """Return `rows` requests, one every two seconds, in three routes.

    `chat` generates a quarter of its prompt (within 10 %), `noise` anything from 10 to 199 tokens, and `session` what
    the session's number dictates. Every tenth answer of `noise` was cut by its limit.
    """
    dice = random.Random(seed)
    table = []
    for number in range(rows):
        route = ("chat", "noise", "session")[number % 3]
        input_tokens = int(math.exp(dice.uniform(4, 8)))
        session = f"s{dice.randrange(8)}" if route == "session" else None
        output_tokens = {
            "chat": int(input_tokens / 4 * dice.uniform(0.9, 1.1)),
            "noise": dice.randrange(10, 200),
            "session": 20 + 60 * int(session[1:]) + dice.randrange(10) if session else 0,
        }[route]
        table.append(
            {
                "time": START + timedelta(seconds=2 * number),
                "route": route,
                "model": "m-1",
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "max_tokens": 4_096,
                "temperature": 0.7,
                "stream": True,
                "turn": 1 + number % 4,
                "session": session,
                "finish_reason": "length" if route == "noise" and number % 10 == 1 else "stop",
                "e2e_ms": 500.0 + 10.0 * output_tokens,
            }
        )
    return pl.DataFrame(table, schema_overrides={name: COLUMNS[name] for name in table[0]})

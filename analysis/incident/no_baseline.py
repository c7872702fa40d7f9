"""What cannot be known where a stage is over its budget and nothing older is stored to compare with? Reported with the stage, so that no cause is made up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.numbers.stages.tail import Tail
from overrun.analysis.words.finding import say_ms

# The columns of requests whose figures are shown.
FIGURES: Final = ("input_tokens", "output_tokens", "tpot_ms")
# As many reasons as a sentence bears; all stand among the report's reasons.
MOST_UNSEEN: Final = 3
_WRITING: Final = ("decode", "generation")
_READING: Final = ("prefill", "first_token")


def without_before(slow: pl.DataFrame, tail: Tail, stage: str, older: str) -> str:
    """Return what a baseline would show of a stage, with figures of the slow requests (columns `FIGURES`), why there is none (`older`), and what to do."""
    if stage in _WRITING:
        told = _figures(
            [
                ("a token takes {}", slow["tpot_ms"], True),
                ("an answer has {} tokens", slow["output_tokens"], False),
            ]
        )
        asked = "tokens were faster before, or answers were shorter"
    elif stage in _READING:
        told, asked = (
            _figures([("a prompt has {} tokens", slow["input_tokens"], False)]),
            "prompts were shorter before, were cached, or were read faster",
        )
    elif stage == "queue":
        told, asked = "", "fewer requests arrived before, or each brought less work"
    else:
        told, asked = f" ({say_ms(tail.tail_ms.get(stage, 0.0))} now)", f"{stage} took less before"
    return (
        f"It is not known whether {asked}{told}, because {older}. Keep recording until a healthy period is stored, or name "
        "one as the baseline. Compare model, version and settings with those of a fast time."
    )


def unseen(lacking: Mapping[str, str]) -> str:
    """Return which causes could not be looked at, with what to record; empty where each was."""
    told = [f"{rule}: {why}" for rule, why in lacking.items()]
    return f" The data may not show the cause: {'; '.join(told[:MOST_UNSEEN])}." if told else ""


def _figures(what: list[tuple[str, pl.Series, bool]]) -> str:
    """Medians of what is known, in brackets; nothing where nothing is."""
    known = [(text, values.drop_nulls().to_numpy(), is_time) for text, values, is_time in what]
    said = [
        text.format(say_ms(float(np.median(values))) if is_time else f"{np.median(values):,.0f}")
        for text, values, is_time in known
        if len(values)
    ]
    return f" ({', '.join(said)} in slow requests now)" if said else ""

"""What senders say of a span, in each vocabulary's documented words: the columns, the role and the stage that come of it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from overrun.collector.normalise.stages import ROLES, STAGES
from tests.collector.normalise.test_spans import row

MS = 1_000_000
CASES = tomllib.loads((Path(__file__).parent / "words.toml").read_text())


@pytest.mark.parametrize("case", CASES)
def test_words_mean(case: str) -> None:
    # `row` also holds the stored row against the slow reading of it.
    found = row(*CASES[case].get("says", {}).items(), **CASES[case].get("span", {}))
    found["is"] = [ROLES[found["role"]], STAGES[found["stage"]]]
    means = {k: None if v == "null" else v for k, v in CASES[case]["means"].items()}
    assert {k: found[k] for k in means} == means
    assert "secret" not in str(found)


EVENTS = {
    "openinference": ("First Token Stream Event", None),
    "openllmetry": ("gen_ai.content.completion.chunk", 3),
    "openllmetry of old": ("llm.content.completion.chunk", 3),
    "mlflow": ("mlflow.chunk.item.0", 3),
    "mlflow's tenth": ("mlflow.chunk.item.10", 3),
    "vercel": ("ai.stream.firstChunk", None),
    "langsmith": ("new_token", None),
}


@pytest.mark.parametrize("sender", EVENTS)
def test_an_event_tells_of_the_first_token(sender: str) -> None:
    name, chunks = EVENTS[sender]
    found = row(events=[(3, name), (5, name), (9, name)])
    assert (found["ttft_ns"], found["ttft_source"], found["chunks"]) == (3 * MS, 2, chunks)
    if chunks:
        assert (found["chunk_span_ns"], found["chunk_gap_max_ns"]) == (6 * MS, 4 * MS)

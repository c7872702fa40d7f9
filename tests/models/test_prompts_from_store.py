"""Opted-in prompts, end to end: OTLP in, numbers in the store in place of the text, and a predictor that learned from them."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from overrun.analysis.front.asked import Source
from overrun.analysis.front.python_api import Recording
from overrun.collector.config import PrivacySettings, Settings
from overrun.collector.errors import ConfigError
from overrun.collector.ingest.writer import TRACES
from overrun.collector.normalise.prompt_features import (
    line_of,
    measuring,
    read_line,
    read_table_file,
)
from overrun.collector.normalise.prompt_shape import SHAPE
from overrun.collector.normalise.verbosity import table_id
from overrun.models.predict import Predictor
from overrun.models.sources import from_llm_calls
from overrun.models.train import TrainReport, TrainSettings, train_to_folder
from tests.collector.conftest import body, opened, span

MARKER = "zebracrossing"
CALLS = 700
SETTINGS = TrainSettings(max_rounds=30)


def prompts() -> list[tuple[str, int]]:
    """Prompts that ask for a number of words, and answers as long as that."""
    dice = random.Random(4)
    made = []
    for number in range(CALLS):
        words = dice.choice((30, 100, 400))
        filler = "and so on, " * dice.randrange(150)
        made.append(
            (
                f"Write {filler}about {MARKER} number{number} in {words} words",
                int(words * dice.uniform(0.9, 1.1)),
            )
        )
    return made


def messages(prompt: str) -> str:
    return json.dumps(
        [
            {"role": "user", "parts": [{"type": "text", "content": prompt}]},
            {"role": "assistant", "parts": []},
        ]
    )


def as_openllmetry(prompt: str) -> dict[str, str]:
    return {
        "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.10.content": prompt,
        "gen_ai.prompt.9.content": "What?",
    }


def as_semconv(prompt: str) -> dict[str, str]:
    return {"gen_ai.input.messages": messages(prompt)}


def as_openinference(prompt: str) -> dict[str, str]:
    return {
        "input.value": json.dumps(
            {"model": "m", "messages": [{"role": "user", "content": prompt}]}
        ),
        "llm.input_messages.1.message.content": prompt,
    }


def stored(
    path: Path, privacy: PrivacySettings, worded: Callable[[str], dict[str, str]] = as_semconv
) -> pl.DataFrame:
    """Send the calls, close the store, and read them as `overrun length train --db` does."""
    spans = []
    for number, (prompt, tokens) in enumerate(prompts()):
        call = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.usage.output_tokens": tokens,
            "gen_ai.usage.input_tokens": 9,
        }
        spans.append(
            span(
                number + 1,
                1,
                name="chat m",
                kind=3,
                start_ms=1_000 * number,
                ms=100,
                attributes=call | worded(prompt),
            )
        )
    with opened(path, privacy=privacy) as pipeline:
        pipeline.writer.submit(TRACES, body(spans)).result(60)
        pipeline.drain()
    rows = Recording(Source(Settings(), path))
    return from_llm_calls(rows.frame("llm-calls"), rows.frame("prompts"))


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainReport]:
    folder = tmp_path_factory.mktemp("prompts")
    frame = stored(folder / "t.db", PrivacySettings(prompt_features=True))
    return folder, train_to_folder(frame, folder / "predictor", settings=SETTINGS)


def test_the_store_keeps_numbers_and_not_a_word(learned: tuple[Path, TrainReport]) -> None:
    folder, _ = learned
    for file in (folder / "t.db", *(folder / "predictor").iterdir()):
        assert MARKER.encode() not in file.read_bytes()


def test_training_from_the_store_uses_them(learned: tuple[Path, TrainReport]) -> None:
    folder, report = learned
    assert "verbosity" in report.features
    (route,) = report.test.routes
    assert route.verdict.skill == "good"
    predictor = Predictor.load(folder / "predictor")
    asked = (
        {
            "route": route.route,
            "prompt": f"Write about rain in {words} words",
            "input_tokens": 9,
            "model": "m",
        }
        for words in (400, 30)
    )
    long, short = map(predictor.predict, asked)
    assert long["p50"] > 4 * short["p50"]


@pytest.mark.parametrize("worded", [as_openllmetry, as_openinference])
def test_the_last_message_is_measured_in_other_vocabularies(
    tmp_path: Path, worded: Callable[[str], dict[str, str]]
) -> None:
    frame = stored(tmp_path / "t.db", PrivacySettings(prompt_features=True), worded)
    wanted = [
        dict(zip(SHAPE, own.shape, strict=True))["shape_wanted_words"]
        for own in map(read_line, frame["prompt_numbers"])
        if own
    ]
    assert len(wanted) == CALLS
    assert np.corrcoef(np.log(wanted), np.log(frame["output_tokens"].to_numpy()))[0, 1] > 0.99
    assert MARKER.encode() not in (tmp_path / "t.db").read_bytes()


def test_by_default_nothing_is_kept_of_a_prompt(tmp_path: Path) -> None:
    frame = stored(tmp_path / "t.db", PrivacySettings())
    assert frame["prompt_numbers"].null_count() == CALLS
    data = (tmp_path / "t.db").read_bytes()
    assert MARKER.encode() not in data
    assert b"[prompt: " not in data


def test_a_configured_table_scores_at_ingest_and_travels_on(
    learned: tuple[Path, TrainReport], tmp_path: Path
) -> None:
    folder, _ = learned
    data = (
        read_table_file(str(folder / "predictor"))[0][:-2] + b"\0\x3c"
    )  # another intercept, another table
    (tmp_path / "ngram_ridge.f16").write_bytes(data)
    frame = stored(
        tmp_path / "t.db", PrivacySettings(prompt_features=True, prompt_table=str(tmp_path))
    )
    own = [read_line(line) for line in frame["prompt_numbers"]]
    assert {one.table for one in own if one} == {table_id(data)}
    scores = np.array([one.verbosity for one in own if one], dtype=float)
    assert np.corrcoef(scores, np.log(frame["output_tokens"].to_numpy()))[0, 1] > 0.95
    report = train_to_folder(frame, tmp_path / "next", settings=SETTINGS, prompt_table=data)
    assert (report.folder / "ngram_ridge.f16").read_bytes() == data
    # Scores by a table that is not at hand cannot be given by the router: they are not used.
    other = train_to_folder(frame, tmp_path / "other", settings=SETTINGS)
    assert (other.folder / "ngram_ridge.f16").read_bytes() != data


def test_what_cannot_be_a_table_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"prompt_table: .*nowhere.* cannot be read"):
        measuring(PrivacySettings(prompt_features=True, prompt_table=str(tmp_path / "nowhere")))
    (tmp_path / "ngram_ridge.f16").write_bytes(b"short")
    with pytest.raises(ConfigError, match=r"ngram_ridge.f16 is not a table of [\d,]+ bytes: train"):
        measuring(PrivacySettings(prompt_features=True, prompt_table=str(tmp_path)))
    with pytest.raises(ConfigError, match="prompt_features is not: set"):
        measuring(PrivacySettings(prompt_table=str(tmp_path)))
    assert (
        measuring(PrivacySettings())
        is measuring(PrivacySettings(prompt_features=True, store_text=True))
        is None
    )


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2]", '{"temperature": 1}', "[" * 200, '{"messages": []}']
)
def test_text_without_a_prompt_leaves_nothing(text: str) -> None:
    assert line_of(text) == ""


@pytest.mark.parametrize(
    "line",
    [
        None,
        "",
        "[prompt: - 1 2]",
        "[prompt: - 1 2 x]",
        "[text: 3 characters, 00]",
        "[prompt: - " + "1." * 30 + "]",
    ],
)
def test_a_line_of_another_build_is_not_read(line: str | None) -> None:
    assert read_line(line) is None


def test_a_long_number_in_a_prompt_is_not_kept() -> None:
    own = read_line(line_of("My PIN is 4711, what is yours?"))
    assert own is not None
    assert dict(zip(SHAPE, own.shape, strict=True))["shape_max_number"] == 5_000

"""The verbosity score: learned from words, never from the prompt it scores, and no text in the artifact."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xgboost

from overrun.collector.normalise.prompt_shape import shape, words_of
from overrun.collector.normalise.verbosity import (
    BINS,
    TABLE_SIZE,
    hashed,
    read_table,
    score,
    table_id,
)
from overrun.models import verbosity
from overrun.models.errors import ArtifactError
from overrun.models.predict import Predictor
from overrun.models.train import TrainReport, TrainSettings, train_to_folder
from overrun.models.verbosity import MIN_PROMPTS, Prompt, learn, out_of_fold, scored
from tests.models import synthetic

FILLER = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "sigma",
]


def prompts(rows: int, seed: int = 3) -> tuple[list[str], list[float]]:
    """Prompts of random words; those that say `saga` are answered with 600 tokens, the others with 60."""
    dice = random.Random(seed)
    texts, lengths = [], []
    for number in range(rows):
        words = [*dice.sample(FILLER, 5), f"unique{number}"]
        wordy = dice.random() < 0.4
        if wordy:
            words[dice.randrange(5)] = "saga"
        texts.append(" ".join(words))
        lengths.append((600.0 if wordy else 60.0) * dice.uniform(0.8, 1.2))
    return texts, lengths


def read(texts: list[str]) -> list[Prompt | None]:
    return [(hashed(words_of(text)), shape(text, words_of(text))) for text in texts]


def test_the_word_that_asks_for_more_raises_the_score() -> None:
    texts, lengths = prompts(600)
    table = learn(read(texts), np.log1p(lengths), ["g"] * 600)
    assert table is not None
    long, short = scored(table, read(["tell a saga about kappa", "tell a thing about kappa"]))
    assert long > short + 0.5


def test_shapes_alone_teach_a_table_where_no_words_were_kept() -> None:
    """Prompts of many words are answered at length; what the words are is not known."""
    texts = ["say " * (1 + number % 7) + ", " * (number % 90) for number in range(400)]
    lengths = np.log1p([40.0 * (1 + number % 7) for number in range(400)])
    prompts: list[Prompt | None] = [
        ((), counts) for counts in (shape(text, words_of(text)) for text in texts)
    ]
    table = learn(prompts, lengths, ["g"] * 400)
    assert table is not None
    assert not table[:BINS].any()
    assert np.corrcoef(out_of_fold(prompts, lengths, ["g"] * 400), lengths)[0, 1] > 0.9
    # Weights of words count for nothing, so a router that has the text gives the same score.
    assert scored(table, read(texts[:50])) == pytest.approx(scored(table, prompts[:50]), abs=1e-6)


def test_a_table_read_back_scores_the_same_and_names_itself_by_its_bytes() -> None:
    texts, lengths = prompts(300)
    table = learn(read(texts), np.log1p(lengths), ["g"] * 300)
    assert table is not None
    data = table.astype("<f2").tobytes()
    again = read_table(data)
    assert again is not None
    assert [score(again, *prompt) for prompt in read(texts[:9]) if prompt] == scored(
        table, read(texts[:9])
    ).tolist()
    assert table_id(data) == table_id(bytes(data)) != table_id(data[:-1] + b"\1")
    assert read_table(data[:-2]) is None
    assert len(data) == 2 * TABLE_SIZE


def test_scores_are_out_of_fold_and_absent_without_a_prompt() -> None:
    texts, _ = prompts(400)
    noise = np.random.default_rng(0).normal(5, 1, 400)
    known_prompts = read(texts)
    known_prompts[7] = None
    scores = out_of_fold(known_prompts, noise, ["g"] * 400)
    assert np.isnan(scores[7])
    known = np.delete(np.arange(400), 7)
    # Every prompt has a word of its own: a table that had seen them would follow the noise.
    assert abs(np.corrcoef(scores[known], noise[known])[0, 1]) < 0.25


def test_too_few_prompts_teach_nothing() -> None:
    texts, lengths = prompts(MIN_PROMPTS - 1)
    assert learn(read(texts), np.log1p(lengths), ["g"] * len(texts)) is None
    assert np.isnan(out_of_fold(read(texts), np.log1p(lengths), ["g"] * len(texts))).all()


@pytest.fixture(scope="module")
def worded(tmp_path_factory: pytest.TempPathFactory) -> TrainReport:
    texts, lengths = prompts(900)
    frame = synthetic.trace(900).with_columns(
        route=pl.lit("chat"), session=pl.lit(None, dtype=pl.String), input_tokens=pl.lit(9), prompt=pl.Series(texts),
        output_tokens=pl.Series(lengths).cast(pl.Int64), finish_reason=pl.lit("stop"))  # fmt: skip
    settings = TrainSettings(max_rounds=40, learn_all=False)
    return train_to_folder(frame, tmp_path_factory.mktemp("worded") / "artifact", settings=settings)


def test_prompts_bring_skill_where_metadata_has_none(worded: TrainReport) -> None:
    (chat,) = worded.test.routes
    assert chat.verdict.skill == "good"
    assert chat.answered.mae < 0.5 * chat.route_median_mae
    assert "verbosity" in worded.features
    predictor = Predictor.load(worded.folder)
    long = predictor.predict({"route": "chat", "prompt": "alpha saga beta gamma delta unique5000"})
    short = predictor.predict({"route": "chat", "prompt": "alpha zeta beta gamma delta unique5000"})
    assert long["p50"] > 3 * short["p50"]
    assert predictor.predict({"route": "chat"})["p50"] >= 1


def test_a_word_that_stands_in_every_prompt_says_nothing() -> None:
    texts, lengths = prompts(300)
    known: list[Prompt | None] = [
        (hashed(words_of(f"please {text}")), shape(text, words_of(text))) for text in texts
    ]
    table = learn(known, np.log1p(lengths), [None] * len(texts))
    assert table is not None
    every = [
        set.intersection(*(set(prompt[0][kind]) for prompt in known if prompt is not None))
        for kind in range(3)
    ]
    assert all(every)
    assert not table[sorted(set.union(*every))].any()
    assert table[list(hashed(["saga"])[0])].max() > 0.1


def test_a_few_runaway_answers_do_not_decide() -> None:
    """One answer in fifty has no end, and one is empty: what is usual among the others stands."""
    dice = np.random.default_rng(0)
    lengths = dice.normal(5.0, 0.5, 1_000)
    broken = lengths.copy()
    broken[::50], broken[1::50] = 14.0, 0.0
    plain, robust = (verbosity._above(own, ["g"] * 1_000) for own in (lengths, broken))
    whole = np.delete(np.arange(1_000), [*range(0, 1_000, 50), *range(1, 1_000, 50)])
    assert np.corrcoef(plain, lengths)[0, 1] > 0.99
    assert np.std(plain) == pytest.approx(np.std(lengths), rel=0.02)
    assert np.corrcoef(robust[whole], lengths[whole])[0, 1] > 0.99
    assert np.abs(robust).max() < 4.0 < np.abs(broken - broken.mean()).max()


def test_what_is_usual_is_each_groups_own() -> None:
    above = verbosity._above(
        np.array([1.0, 2.0, 3.0, 7.0, 8.0, 9.0, 4.0]), ["a", "a", "a", "b", "b", "b", "alone"]
    )
    np.testing.assert_allclose(above, [-1, 0, 1, -1, 0, 1, 0], atol=1e-9)


def test_the_weights_are_those_of_a_ridge_regression() -> None:
    dice = np.random.default_rng(0)
    inputs, wanted = dice.normal(size=(40, 60)), dice.normal(size=40)
    exact = np.linalg.solve(inputs.T @ inputs + verbosity._PENALTY * np.eye(60), inputs.T @ wanted)
    np.testing.assert_allclose(
        verbosity._solve(lambda own: inputs @ own, lambda error: inputs.T @ error, wanted),
        exact,
        atol=1e-4,
    )
    assert not verbosity._solve(
        lambda own: inputs @ own, lambda error: inputs.T @ error, np.zeros(40)
    ).any()


def test_the_number_of_threads_changes_no_byte_of_a_score() -> None:
    script = """
import hashlib, numpy as np
from tests.models.test_verbosity import prompts, hashed, shape, words_of, out_of_fold
texts, lengths = prompts(900)
known = [(hashed(words_of(text)), shape(text * (1 + number % 7), words_of(text))) for number, text in enumerate(texts)]
print(hashlib.sha256(out_of_fold(known, np.log1p(lengths), [None] * len(texts)).tobytes()).hexdigest())
"""
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    }
    assert len(digests) == 1


def test_no_word_of_a_prompt_is_in_the_artifact(worded: TrainReport) -> None:
    for path in worded.folder.iterdir():
        data = path.read_bytes()
        assert not any(word.encode() in data for word in ("saga", "epsilon", "unique"))


def test_a_prompt_that_asks_for_more_is_not_predicted_shorter(worded: TrainReport) -> None:
    model = xgboost.Booster(model_file=str(worded.folder / "model_p50.ubj"))
    names = list(worded.features)
    inputs = np.full((60, len(names)), 4.0, dtype=np.float32)
    for name in ("verbosity", "scored_log_tokens"):
        inputs[:, names.index(name)] += np.linspace(-6, 6, 60)
    steps = np.diff(model.inplace_predict(inputs))
    assert steps.sum() > 1.0
    assert -steps[steps < 0].sum() < 0.02 * steps.sum()


def test_a_table_of_another_size_is_refused(worded: TrainReport, tmp_path: Path) -> None:
    from tests.models.test_artifact import keep, rewrite

    folder = Path(shutil.copytree(worded.folder, tmp_path / "a"))
    (folder / "ngram_ridge.f16").write_bytes(b"\0" * 10)
    rewrite(folder, keep)
    with pytest.raises(ArtifactError, match=r"ngram_ridge\.f16 is 10 bytes, expected 134,202"):
        Predictor.load(folder)

"""A predictor for `litellm_check`: route `long` generates 400 tokens, route `short` 20."""

from pathlib import Path

import polars as pl

from overrun.models.train import TrainSettings, train_to_folder
from tests.models import synthetic

ROWS = 900


def write(folder: Path) -> None:
    """Train it into `folder`."""
    long = [number % 2 == 1 for number in range(ROWS)]
    trace = synthetic.trace(ROWS).with_columns(
        route=pl.Series(["long" if one else "short" for one in long]), model=pl.lit("chat"), session=pl.lit(None, dtype=pl.String),
        output_tokens=pl.Series([(400 if one else 20) + number % 5 for number, one in enumerate(long)]), finish_reason=pl.lit("stop"))  # fmt: skip
    train_to_folder(trace, folder, settings=TrainSettings(max_rounds=10, learn_all=False))

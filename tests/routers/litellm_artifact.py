"""A predictor for `litellm_check`: route `long` generates 400 tokens, route `short` 20. Usage: python -m tests.routers.litellm_artifact DIR."""

import sys

import polars as pl

from models.train import train_to_folder
from tests.models import synthetic

ROWS = 900

if __name__ == "__main__":
    long = [number % 2 == 1 for number in range(ROWS)]
    trace = synthetic.trace(ROWS).with_columns(
        route=pl.Series(["long" if one else "short" for one in long]), model=pl.lit("chat"), session=pl.lit(None, dtype=pl.String),
        output_tokens=pl.Series([(400 if one else 20) + number % 5 for number, one in enumerate(long)]), finish_reason=pl.lit("stop"))  # fmt: skip
    train_to_folder(trace, sys.argv[1])

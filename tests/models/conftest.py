"""Traces and trained artifacts, made once per test run."""

from pathlib import Path

import polars as pl
import pytest

from overrun.models.predict import Predictor
from overrun.models.sources import load_traces
from overrun.models.train import TrainReport, train_to_folder
from tests.models import synthetic

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def azure_mixed() -> pl.DataFrame:
    """Read both Azure traces, each under its route."""
    return load_traces(
        [
            (DATA / "trace_azure2023_conv.parquet", "conv"),
            (DATA / "trace_azure2023_code.parquet", "code"),
        ]
    )


@pytest.fixture(scope="session")
def azure_report(
    azure_mixed: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> TrainReport:
    """Train a predictor of both Azure routes."""
    return train_to_folder(azure_mixed, tmp_path_factory.mktemp("azure") / "artifact")


@pytest.fixture(scope="session")
def small_report(tmp_path_factory: pytest.TempPathFactory) -> TrainReport:
    """Train a predictor of the synthetic trace."""
    return train_to_folder(synthetic.trace(), tmp_path_factory.mktemp("small") / "artifact")


@pytest.fixture
def predictor(small_report: TrainReport) -> Predictor:
    """Load the synthetic predictor as a router would: nothing observed yet."""
    return Predictor.load(small_report.folder)

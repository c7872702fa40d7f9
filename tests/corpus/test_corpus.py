"""What other people's telemetry did to us once it does not do again: every case of this folder, by its own right values."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.corpus.runner import FOLDER, Case, at_path, cases, holds

_MOST_BYTES = 400_000


@pytest.mark.parametrize("folder", cases(), ids=lambda path: path.name)
def test_case(folder: Path, tmp_path: Path, start_server: StartServer) -> None:
    Case(folder, tmp_path, start_server).run()


def test_every_folder_is_a_small_case_with_its_source() -> None:
    folders = [path for path in FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert sorted(folders) == cases()
    for folder in folders:
        assert re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", folder.name), folder
        assert {"title", "kind", "source", "step"} <= tomllib.loads(
            (folder / "case.toml").read_text()
        ).keys(), folder
        assert (
            sum(
                path.stat().st_size
                for path in folder.rglob("*")
                if path.is_file() and "__pycache__" not in path.parts
            )
            <= _MOST_BYTES
        ), folder


def test_values_are_compared_as_the_format_says() -> None:
    answer = {"stages": [{"stage": "queue", "p50_ms": 10.0}, {"stage": "decode", "p50_ms": None}]}
    assert (
        at_path(answer, "stages.0.stage") == at_path(answer, "stages[stage=queue].stage") == "queue"
    )
    assert at_path(answer, "stages[stage=post].p50_ms") is None
    assert holds("near", [[1.0, None, "a"]], [[1.04, "null", "a"]], 0.05)
    assert not holds("near", 1.0, 1.06, 0.05)
    assert not holds("near", None, 1.0, 0.05)
    assert holds("is", None, "null", 0)
    assert holds("one_of", None, ["null", 300], 0)
    assert not holds("one_of", 9_700, ["null", 300], 0)
    assert holds("without", "a b", "c", 0)
    assert not holds("at_least", None, 0, 0)

"""The table [metrics] of the settings file: names that no table knows become indicators, and mistakes stop the start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from overrun.collector.config import described, load
from overrun.collector.errors import ConfigError
from overrun.collector.normalise import stages
from overrun.collector.normalise.metric_names import find_indicator

TEXT = """[metrics]
"acme_queue_len" = "queue_depth"
acme_first_token = { indicator = "ttft", unit = "ms" }
acme_cache_pct = { indicator = "kv_cache_usage", unit = "percent" }
acme_requests = { indicator = "running", where = { state = "active" } }
"vllm:num_requests_waiting" = "running"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[list[str]]:
    path = tmp_path / "overrun.toml"
    path.write_text(TEXT)
    made = load(path, {})
    stages.learn(made.words)
    yield described(made)
    stages.learn(None)


@pytest.mark.parametrize(
    ("name", "labels", "indicator", "scale"),
    [
        ("acme_queue_len", {}, "queue_depth", 1.0),
        ("acme:queue.len", {}, "queue_depth", 1.0),
        ("acme_first_token", {}, "ttft", 0.001),
        ("acme_cache_pct", {}, "kv_cache_usage", 0.01),
        ("acme_requests", {"state": "active"}, "running", 1.0),
        ("vllm_num_requests_waiting", {}, "running", 1.0),
    ],
)
def test_a_named_metric_is_its_indicator(
    settings: list[str], name: str, labels: dict[str, str], indicator: str, scale: float
) -> None:
    found = find_indicator(name, labels)
    assert found is not None
    assert (found.indicator, found.scale) == (indicator, scale)
    assert sum(line.startswith("[metrics] ") for line in settings) == 5


def test_labels_that_differ_are_another_metric(settings: list[str]) -> None:
    assert find_indicator("acme_requests", {"state": "idle"}) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('a = "queue_dept"', "unknown indicator 'queue_dept': did you mean queue_depth?"),
        ('a = { indicator = "ttft", unit = "msec" }', "unknown unit 'msec': did you mean ms?"),
        ('a = { indicator = "ttft", unt = "ms" }', "unknown key 'unt': did you mean unit?"),
        ("a = 3", "write the name of an indicator"),
        ('a = { indicator = "running", where = "x" }', "not a table of labels"),
    ],
)
def test_a_mistake_stops_the_start(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "overrun.toml"
    path.write_text(f"[metrics]\n{text}\n")
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        load(path, {})


def test_metrics_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "overrun.toml"
    path.write_text("metrics = 1\n")
    with pytest.raises(ConfigError, match="is a table of metric names"):
        load(path, {})

"""What a sender may put into one item is bounded by the settings, and what a limit cuts is counted."""

from pathlib import Path
from typing import Any

import pytest

from overrun.collector.config import PrivacySettings
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import METRICS, TRACES
from tests.collector.conftest import attributes, body, one, opened, span
from tests.collector.normalise.test_points import gauge
from tests.collector.normalise.test_points import request as metrics_request


def kept(pipeline: Pipeline, values: dict[str, Any]) -> dict[str, str]:
    """The attributes stored of a span that has these."""
    pipeline.writer.submit(TRACES, body([span(1, 1, attributes=values)])).result(120)
    return dict(one(pipeline, "select attributes from v_spans"))


def cut(pipeline: Pipeline, what: str) -> int:
    return pipeline.writer.tally.value("cut", what=what)


def test_attributes_over_the_count_are_left_out_and_counted(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db", max_attributes=3) as pipeline:
        assert kept(pipeline, {f"k{i}": i for i in range(5)}) == {"k0": "0", "k1": "1", "k2": "2"}
        assert cut(pipeline, "attributes") == 2


def test_a_value_over_the_length_is_cut_and_counted(tmp_path: Path) -> None:
    privacy = PrivacySettings(store_text=True)
    with opened(tmp_path / "t.db", privacy=privacy, max_attribute_length=20) as pipeline:
        assert kept(pipeline, {"short": "x" * 20, "long": "größer" * 10, "n": 5}) == {
            "short": "x" * 20,
            "long": ("größer" * 10)[:20],
            "n": "5",
        }
        assert cut(pipeline, "value_length") == 1


def test_a_key_over_the_length_takes_its_attribute_away(pipeline: Pipeline) -> None:
    assert kept(pipeline, {"k" * 256: 1, "k" * 257: 2}) == {"k" * 256: "1"}
    assert cut(pipeline, "key_length") == 1


def test_a_value_over_the_depth_is_null_from_there_on_and_counted(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db", max_depth=2) as pipeline:
        assert kept(pipeline, {"a": [["x", ["y"]]], "b": {"k": {"l": {"m": 1}}}, "c": [1]}) == {
            "a": '[["x",null]]',
            "b": '{"k":{"l":null}}',
            "c": "[1]",
        }
        assert cut(pipeline, "depth") == 2


def test_the_limits_hold_for_resources_events_and_data_points(tmp_path: Path) -> None:
    many = {f"k{i}": i for i in range(4)}
    with opened(tmp_path / "t.db", max_attributes=2) as pipeline:
        made = span(1, 1)
        made.events.add(name="e").attributes.extend(attributes(many))
        made.links.add(trace_id=b"t" * 16, span_id=b"s" * 8).attributes.extend(attributes(many))
        pipeline.writer.submit(TRACES, body([made], {"service.name": "s", **many})).result(120)
        assert cut(pipeline, "attributes") == 2 + 2 + 3
        pipeline.writer.submit(METRICS, metrics_request(gauge("g", 1.0, **many))).result(120)
        assert cut(pipeline, "attributes") == 7 + 3


def test_a_key_may_be_allowed_to_keep_long_text(tmp_path: Path) -> None:
    long = "x" * 400
    with opened(
        tmp_path / "t.db", privacy=PrivacySettings(keep_long=("shop.manifest",))
    ) as pipeline:
        found = kept(pipeline, {"shop.manifest": long, "shop.other": long})
    assert (found["shop.manifest"], found["shop.other"].startswith("[text: 400 characters")) == (
        long,
        True,
    )


@pytest.mark.parametrize("length", [1_000_000])
def test_a_megabyte_in_one_value_is_stored_as_its_length_and_hash(
    pipeline: Pipeline, length: int
) -> None:
    assert kept(pipeline, {"k": "x" * length})["k"].startswith(f"[text: {length} characters")

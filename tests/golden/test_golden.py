"""Are the answers about a few inputs those that were recorded? The whole record is `make golden`."""

from pathlib import Path

import pytest

from tests.golden import record
from tests.golden.inputs import Input, small

_RECORD = Path(__file__).parent / "small.zst"
_REMEDY = "a refactoring changes no byte; after an intended change: python -m tests.golden --small --write, and name it in the commit"


@pytest.mark.parametrize("one", small(), ids=lambda one: one.name.replace("/", "-"))
def test_answers_are_those_that_were_recorded(one: Input) -> None:
    before = record.read(_RECORD)[one.name]
    found = record.differences({one.name: before}, {one.name: record.answers(one)})
    assert not found, f"{found[0]}. {_REMEDY}"


def test_the_record_has_each_small_input() -> None:
    assert sorted(record.read(_RECORD)) == sorted(one.name for one in small())


def test_a_difference_is_said_by_its_place() -> None:
    before = {"a": {"report.json": '{"verdict": {"cause": "x"}, "n": [1, 2]}', "report.text": "1"}}
    now = {"a": {"report.json": '{"verdict": {"cause": "y"}, "n": [1, 3]}', "report.text": "1"}}
    assert record.differences(before, now) == ['a: report.json, verdict.cause was "x" and is "y"']
    assert record.differences(before, before) == []
    assert record.differences(before, {}) == ["a: is missing now"]
    lines = {"a": {"report.text": "one\ntwo"}}
    assert record.differences(lines, {"a": {"report.text": "one\n2"}}) == [
        "a: report.text, line 2 was 'two' and is '2'"
    ]
    assert record.differences(lines, {"a": {"facts.text": "one\ntwo"}}) == [
        "a: facts.text is new (and 1 more answers)"
    ]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    answers = {"b": {"report.text": "é\u2028\n"}, "a": {"facts.json": "{}"}}
    record.write(answers, tmp_path / "record.zst")
    first = (tmp_path / "record.zst").read_bytes()
    assert record.read(tmp_path / "record.zst") == answers
    record.write(dict(reversed(answers.items())), tmp_path / "record.zst")
    assert (tmp_path / "record.zst").read_bytes() == first

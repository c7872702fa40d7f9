"""The border: JSON objects become requests, or a clear refusal."""

import json
import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.models.errors import RequestError
from overrun.models.request import Request, parse_output_tokens, parse_request

# A fixed alphabet: building the table of all of Unicode costs seconds on a cold start.
TEXT = st.text("a1 -:Zé☃\u2028\x00", max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def test_an_empty_object_is_a_request_of_which_nothing_is_known() -> None:
    request = parse_request({})
    assert request.route is None
    assert all(math.isnan(value) for value in request if isinstance(value, float))


def test_every_field_arrives_in_its_unit() -> None:
    row = {
        "time": "2026-01-31T08:00:00Z",
        "route": "/chat",
        "model": "m",
        "input_tokens": 12,
        "max_tokens": 100,
        "temperature": 0.5,
        "stream": True,
        "turn": 2,
        "session": "s",
        "tenant": "t",
        "prefix_hash": "p",
        "prompt": "secret",
    }
    seconds = datetime(2026, 1, 31, 8, tzinfo=UTC).timestamp()
    assert parse_request(row) == Request(
        seconds, "/chat", "m", 12.0, 100.0, 0.5, 1.0, 2.0, "s", "t", "p"
    )


@pytest.mark.parametrize(
    "time",
    [
        1_769_846_400,
        1_769_846_400.0,
        "2026-01-31T08:00:00",
        "2026-01-31T10:00:00+02:00",
        datetime(2026, 1, 31, 8, tzinfo=UTC),
        datetime(2026, 1, 31, 10, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_the_same_moment_is_the_same_however_it_is_written(time: object) -> None:
    assert parse_request({"time": time}).time_s == 1_769_846_400.0


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("input_tokens", "12", "input_tokens is text; expected a number"),
        ("input_tokens", -1, "input_tokens is out of range"),
        ("input_tokens", True, "input_tokens is true or false"),
        ("input_tokens", math.inf, "input_tokens is out of range"),
        ("input_tokens", 10**400, "input_tokens is out of range"),
        ("max_tokens", 0, "max_tokens is out of range; expected a number from 1"),
        ("temperature", [0.1], "temperature is a list"),
        ("stream", "yes", "stream is text; expected true, false or null"),
        ("stream", 2, "stream is a number"),
        ("route", {"secret": 1}, "route is an object; expected text"),
        ("session", 5, "session is a number"),
        ("time", "yesterday", "time is not a date"),
        ("time", 1_769_846_400_000, "divide milliseconds by 1,000"),
        ("time", [], "time is a list"),
        ("time", "0001-01-01T00:00:00+23:59", "time is out of range; expected a date from 1970"),
        ("session", "secret" * 200, "session has 1,200 characters; expected at most 1,024"),
    ],
)
def test_a_wrong_value_is_refused_with_field_and_remedy(
    field: str, value: object, words: str
) -> None:
    with pytest.raises(RequestError, match=r"expected") as caught:
        parse_request({field: value})
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("field", ["input_tokens", "time", "temperature"])
def test_nan_is_refused_by_name_and_null_is_not_known(field: str) -> None:
    with pytest.raises(
        RequestError, match=rf"{field} is NaN; expected .* null where it is not known"
    ):
        parse_request({field: math.nan})
    assert parse_request({field: None}) == parse_request({})


def test_an_empty_name_counts_as_absent() -> None:
    assert parse_request({"route": "", "session": ""}) == parse_request({})


@pytest.mark.parametrize("value", [None, "5", -1, math.nan, math.inf, True])
def test_observed_outputs_must_be_token_counts(value: object) -> None:
    with pytest.raises(RequestError, match="output_tokens"):
        parse_output_tokens(value)


@given(st.dictionaries(st.sampled_from([*Request._fields, "time", "prompt", "other"]), JSON))
def test_any_json_object_is_parsed_or_refused(row: dict[str, object]) -> None:
    row = json.loads(json.dumps(row))
    try:
        request = parse_request(row)
    except RequestError as error:
        assert "expected" in str(error)
    else:
        assert not math.isinf(request.input_tokens)

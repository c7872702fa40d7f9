"""Windows of finished outputs: exact quantiles, bounded memory, nothing personal in the stored part."""

import hashlib
import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.models.errors import ArtifactError
from overrun.models.history import LEVELS, History, Line, Window, keys_of, past_quantiles
from overrun.models.request import MISSING, Request

ROUTE = Request(
    route="chat", model="m", input_tokens=10.0, session="alice", tenant="ACME", prefix_hash="p"
)


@given(st.lists(st.integers(0, 1_000), min_size=1), st.integers(1, 10), st.floats(0, 1))
def test_quantiles_are_numpys_over_the_newest_outputs(
    outputs: list[int], size: int, level: float
) -> None:
    window = Window(size, outputs)
    assert list(window) == outputs[-size:]
    assert window.last == outputs[-1]
    assert window.quantile(level) == pytest.approx(np.quantile(outputs[-size:], level))


def test_a_request_is_known_at_each_level_it_names() -> None:
    assert keys_of(ROUTE) == {
        "global": (),
        "route": ("chat",),
        "model": ("m",),
        "route_model": ("chat", "m"),
        "same_size": ("chat", 10),
        "tenant": (hashlib.blake2b(b"ACME", digest_size=8).hexdigest(),),
        "session": ("alice",),
        "prefix": ("p",),
    }
    assert keys_of(Request(input_tokens=MISSING)) == {"global": (), "route": (None,)}


def test_a_level_is_silent_below_its_minimum() -> None:
    history = History()
    for count in range(1, 11):
        history.observe(ROUTE, 5)
        assert ("route" in history.windows_of(ROUTE)) == (count >= 10)
        assert len(history.windows_of(ROUTE)["session"]) == count


def test_a_new_session_per_request_does_not_grow_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = {level.name: level for level in LEVELS}
    session = small["session"]
    monkeypatch.setattr(
        "overrun.models.history._LEVEL_BY_NAME",
        small | {"session": type(session)("session", 20, 1, max_keys=3, stored_keys=0)},
    )
    history = History()
    history.observe(ROUTE._replace(session="first"), 1)
    for number in range(3):
        history.observe(ROUTE._replace(session="kept"), 2)
        history.observe(ROUTE._replace(session=f"new{number}"), 3)
    assert history.window("session", ("first",)) is None
    assert history.window("session", ("kept",)) is not None
    assert len(history._windows["session"]) == 3


def test_what_came_earlier_is_known_while_it_runs_and_asking_twice_changes_nothing() -> None:
    history = History()
    first, second = (
        Request(time_s=time_s, session="s", prefix_hash="p") for time_s in (10.0, 12.0)
    )
    assert history.arrivals_of(first) == {}
    for request in (first, second, second):
        history.arrive(request)
    assert history.arrivals_of(second) == {"session": 10.0, "prefix": 10.0}
    assert history.arrivals_of(second._replace(time_s=15.0, prefix_hash=None)) == {"session": 12.0}
    assert history.arrivals_of(first) == {}
    history.arrive(second._replace(time_s=11.0))  # reported late
    assert history.arrivals_of(second) == {"session": 11.0, "prefix": 11.0}
    assert history.arrivals_of(second._replace(time_s=MISSING)) == {}


def test_arrivals_of_ever_new_sessions_do_not_grow_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = {level.name: level for level in LEVELS}
    monkeypatch.setattr(
        "overrun.models.history._LEVEL_BY_NAME",
        small | {"session": replace(small["session"], max_keys=3)},
    )
    history = History()
    for number in range(9):
        history.arrive(Request(time_s=float(number), session=f"s{number}"))
    assert len(history._arrivals["session"]) == 3
    assert history.arrivals_of(Request(time_s=20.0, session="s8")) == {"session": 8.0}


def test_the_stored_part_names_no_session_and_no_prefix_and_survives_json() -> None:
    history = History(b"salt")
    for output_tokens in range(30):
        history.observe(ROUTE, output_tokens)
    payload = json.loads(json.dumps(history.to_payload()))
    assert "alice" not in json.dumps(payload)
    assert "ACME" not in json.dumps(payload)
    assert keys_of(ROUTE, b"salt")["tenant"] != keys_of(ROUTE)["tenant"]
    restored = History.from_payload(payload)
    assert set(restored.windows_of(ROUTE)) == {
        "global",
        "route",
        "model",
        "route_model",
        "same_size",
        "tenant",
    }
    for name, window in restored.windows_of(ROUTE).items():
        assert list(window) == list(history.windows_of(ROUTE)[name])
    assert restored.to_payload() == payload


def test_what_is_stored_of_many_long_windows_keeps_their_quantiles_and_their_order() -> None:
    history = History()
    dice = random.Random(1)
    for number in range(250 * 500):
        history.observe(Request(route=f"/{number % 250}"), int(dice.lognormvariate(5, 1)))
    whole = history.windows_of(Request(route="/7"))["route"]
    restored = History.from_payload(history.to_payload())
    stored = restored.windows_of(Request(route="/7"))["route"]
    assert (len(whole), len(stored)) == (500, 200)
    for level in (0.0, 0.1, 0.5, 0.9, 1.0):
        assert stored.quantile(level) == pytest.approx(whole.quantile(level), rel=0.02)
    came = iter(whole)
    assert all(output in came for output in stored)  # a subsequence
    assert restored.to_payload() == History.from_payload(restored.to_payload()).to_payload()


def test_a_window_covers_what_comes_next() -> None:
    own = Window(100, range(1, 20))  # n = 19: ceil(20 * 0.9) = the 18th, floor(20 * 0.1) = the 2nd
    assert (own.bound(0.9), own.bound(0.1)) == (18.0, 2.0)
    assert past_quantiles({"global": Window(9, [7]), "route": own}, (0.1, 0.5, 0.9)) == [
        2.0,
        10.0,
        18.0,
    ]
    assert past_quantiles({"global": own}, (0.5,)) == [10.0]
    assert math.isnan(past_quantiles({}, (0.5,))[0])


@pytest.mark.parametrize("count", [10, 30])
def test_few_outputs_bound_p99_beyond_the_longest(count: int) -> None:
    """The longest of ten covers 91 % of what comes next, of thirty 97 %."""
    dice = np.random.default_rng(count)
    covered = []
    for lengths in dice.lognormal(5.0, 1.0, (2_000, count + 1)).round().astype(int).tolist():
        covered.append(lengths[-1] <= Window(500, lengths[:-1]).bound(0.99))
    assert 0.97 <= np.mean(covered) <= 0.995
    assert Window(500, [3]).bound(0.99) == 3.0
    assert Window(500, [3, 3, 3]).bound(0.01) == pytest.approx(3.0)


@pytest.mark.parametrize(
    "entry",
    [{}, {"level": "no such", "key": [], "outputs": []}, {"level": "global", "key": 5}, {"level": "global", "key": [], "outputs": [1, 2.5]}, 7,
     *({"level": "global", "key": [], "outputs": [1], "line": line} for line in (
         [1.0], 3, "123456789", [math.nan] * 9, [0.0] * 9, [1, 0, 0, 0, -1, 0, 0, 0, 0], [1, 0, 0, 0, 1, 9e9, 1, 0, 0], [1, 0, 0, 1, 0]))],
)  # fmt: skip
def test_an_unreadable_stored_entry_is_refused(entry: object) -> None:
    with pytest.raises(ArtifactError, match="history entry 0 is not readable"):
        History.from_payload({"salt": "", "windows": [entry]})


@pytest.mark.parametrize(
    "payload", [{}, {"salt": "no hex", "windows": []}, {"salt": 5, "windows": []}, {"salt": ""}]
)
def test_an_unreadable_payload_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(ArtifactError, match="the history is not readable"):
        History.from_payload(payload)


def test_a_line_is_the_weighted_ridge_regression_of_answers_on_scores_and_sizes() -> None:
    dice = np.random.default_rng(0)
    scores = dice.normal(0.3, 0.5, 1_500)
    tokens = dice.integers(5, 2_000, 1_500)
    answers = 5.0 + 0.2 * scores - 0.3 * np.log1p(tokens) + dice.normal(0.0, 0.3, 1_500)
    line = Line()
    for own, size, answer in zip(scores, tokens, answers, strict=True):
        line.add(own, size, answer)
    weights = (1 - 1 / 500) ** np.arange(1_499, -1, -1)
    inputs = np.column_stack([scores, np.log1p(tokens)])
    middle, base = np.average(inputs, axis=0, weights=weights), np.average(answers, weights=weights)
    off = inputs - middle
    found = np.linalg.solve(
        (weights * off.T) @ off + np.diag([4.0, 40.0]),
        (weights * off.T) @ (answers - base) + np.array([4.0, 0.0]),
    )
    assert line.at(1.0, 99) == pytest.approx(
        base + found @ (np.array([1.0, math.log(100)]) - middle), rel=1e-9
    )
    assert line.at(1.0) == pytest.approx(base + found[0] * (1.0 - middle[0]), rel=1e-9)
    assert abs(line.at(0.0, 99) - line.at(0.0, 9) + 0.3 * math.log(10)) < 0.15


def test_a_line_without_sizes_follows_the_score_alone() -> None:
    line = Line()
    for number in range(100):
        line.add(number / 50, math.nan, 4.0 + number / 50)
    assert line.at(1.0, 30_000) == line.at(1.0) == pytest.approx(5.0)


def test_lines_are_learned_where_scores_are_given_and_go_with_the_artifact() -> None:
    history = History()
    for number in range(20):
        history.observe(Request(model="m", tenant="t", verbosity=0.1 * number), 10 * number)
        history.observe(Request(model="unscored"), 5)
    stored = json.loads(json.dumps(history.to_payload()))
    assert {entry["level"] for entry in stored["windows"] if "line" in entry} == {
        "global",
        "route",
        "model",
        "route_model",
    }
    again = History.from_payload(stored)
    assert History.from_payload(again.to_payload()).to_payload() == stored
    own, read = (one.window("model", ("m",)) for one in (history, again))
    assert own is not None
    assert own.line is not None
    assert read is not None
    assert read.line is not None
    assert read.line.at(1.0) == pytest.approx(own.line.at(1.0), abs=1e-4)
    unscored = again.window("model", ("unscored",))
    assert unscored is not None
    assert unscored.line is None

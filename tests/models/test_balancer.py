"""The account of a router: least owed is chosen, ends are booked, nothing is owed twice or for ever."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from overrun.models.balancer import Balancer
from overrun.models.predict import Predictor

LONG = {"route": "chat", "input_tokens": 2_800}
SHORT = {"route": "chat", "input_tokens": 60}


def test_short_requests_avoid_the_backend_with_the_long_one(predictor: Predictor) -> None:
    balancer = Balancer(predictor)
    assert balancer.choose("long", LONG, ["a", "b"]) == "a"
    assert {balancer.choose(f"short{number}", SHORT, ["a", "b"]) for number in range(5)} == {"b"}
    owed = balancer.owed("a")
    balancer.finished("long", 700)
    assert (owed > 400, balancer.owed("a")) == (True, 0.0)
    assert balancer.choose("next", SHORT, ["a", "b"]) == "a"


def test_what_finished_teaches_the_predictor(predictor: Predictor) -> None:
    balancer = Balancer(predictor)
    for number in range(10):
        balancer.choose(str(number), {"route": "new"}, ["a"])
        balancer.finished(str(number), 333)
    assert predictor.predict({"route": "new"})["p50"] == 333.0


def test_a_row_that_is_refused_still_finds_a_backend(predictor: Predictor) -> None:
    balancer = Balancer(predictor)
    assert balancer.choose("x", {"input_tokens": "many"}, ["a"]) == "a"
    assert balancer.owed("a") > 0
    balancer.finished("x", 5)
    with pytest.raises(ValueError, match="no backend"):
        balancer.choose("y", {}, [])


def test_ends_that_are_never_told_are_written_off(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overrun.models.balancer._MAX_OPEN", 3)
    balancer = Balancer(predictor)
    for number in range(50):
        balancer.choose(str(number), SHORT, ["a", "b"])
    assert balancer.owed("a") + balancer.owed("b") <= 3 * 40


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=30))
def test_when_all_have_ended_nothing_is_owed(
    predictor: Predictor, steps: list[tuple[str, bool]]
) -> None:
    balancer = Balancer(predictor)
    for identity, begins in steps:
        if begins:
            balancer.choose(identity, SHORT, [1, 2, 3])
        else:
            balancer.finished(identity)
    for identity in "abcdef":
        balancer.finished(identity)
    assert sum(map(balancer.owed, (1, 2, 3))) == pytest.approx(0.0, abs=1e-9)

"""The language of the tables of mechanisms: three-valued logic, comparison, and mistakes that are refused where a table is loaded."""

import pytest

from overrun.analysis.words.conditions import ConditionError, Fact, condition

FACTS: dict[str, Fact] = {
    "rate": 2.0,
    "before": 1.0,
    "grew": True,
    "fell": False,
    "state": "slower",
    "unseen": None,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("grew", True),
        ("not grew", False),
        ("unseen", None),
        ("not unseen", None),
        ("rate > 1.5 * before", True),
        ("rate >= 2", True),
        ("rate < 2", False),
        ("rate <= 2.0", True),
        ('state = "slower"', True),
        ('state != "slower"', False),
        ("unseen > 3", None),
        ("fell and unseen", False),
        ("grew and unseen", None),
        ("grew or unseen", True),
        ("fell or unseen", None),
        # `and` binds closer than `or`: true or (false and false)
        ("grew or fell and fell", True),
        ("(grew or fell) and fell", False),
        ("not (fell or unseen)", None),
        ("true", True),
    ],
)
def test_a_condition_has_three_values(text: str, holds: bool | None) -> None:
    assert condition(text).holds(FACTS) is holds


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "where a fact or a number belongs"),
        ("grew and", "where a fact or a number belongs"),
        ("grew fell", "goes on with 'fell'"),
        ("(grew", "closing bracket"),
        ("__import__('os')", "cannot be read"),
        ("grew.real", "cannot be read"),
        ("rate > and", "where a fact or a number belongs"),
    ],
)
def test_a_text_that_is_no_condition_is_refused_as_it_is_read(text: str, complaint: str) -> None:
    with pytest.raises(ConditionError, match=complaint.replace("(", r"\(")):
        condition(text)


def test_a_name_that_no_fact_has_is_refused_with_the_name() -> None:
    assert condition("rate > 1", ("rate",)).names == {"rate"}
    with pytest.raises(ConditionError, match="'raet', which is no fact"):
        condition("raet > 1", ("rate",))


@pytest.mark.parametrize("text", ["rate", "state > 1", "2 * state > 1"])
def test_a_wrong_kind_of_fact_is_refused(text: str) -> None:
    with pytest.raises(ConditionError):
        condition(text).holds(FACTS)


def test_what_could_not_be_tried_is_listed() -> None:
    assert condition("rate > 1 and unseen and other").unknown(FACTS) == ["other", "unseen"]

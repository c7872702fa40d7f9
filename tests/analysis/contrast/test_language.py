"""The words in which mechanisms speak: what is refused when it is read, and what is unknown when it is asked."""

import pytest

from overrun.analysis.contrast.language import Condition, MechanismError

FACTS = {"n": "number", "name": "text", "flag": "flag", "kinds": "set", "gain": "by_kind"}


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("n > 2", True),
        ("n > 2 and not flag", True),
        ("1 < n < 3", False),
        ("name == 'queue'", True),
        ("n * 2 - 1 >= 5", True),
        ("has(kinds, 'a', 'b')", True),
        ("has(kinds, 'b')", False),
        ("matches(kinds, '^a$')", True),
        ("figure(gain, 'x', 'y') == 0.5", True),
        ("is_one_of(name, 'queue', 'edge')", True),
        ("missing > 1 or n > 2", True),
        ("missing > 1 and n > 2", None),
        ("missing > 1 and n > 5", False),
        ("not missing > 1", None),
    ],
)
def test_a_condition_holds_or_not_or_is_unknown(text: str, held: bool | None) -> None:
    facts = {
        "n": 3.0,
        "name": "queue",
        "flag": False,
        "kinds": frozenset({"a"}),
        "gain": {"x": 0.5},
    }
    assert Condition(text, FACTS | {"missing": "number"}).holds(facts) is held


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("m > 1", "no fact is named m"),
        ("n", "is a number, wanted a condition"),
        ("n > 'a'", "is a text, wanted a number"),
        ("name > 1", "is a text, wanted a number"),
        ("flag and n", "is a number, wanted a flag"),
        ("has(n, 'a')", "is a number, wanted a set"),
        ("has(kinds)", "wants texts"),
        ("kinds.pop() == 'a'", "no Call"),
        ("__import__('os')", "no Call"),
        ("(lambda: n)() > 1", "no Call"),
        ("[n for n in kinds]", "no ListComp"),
        ("n ** 9 > 1", "no BinOp"),
        ("n >", "invalid syntax"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_words(text: str, why: str) -> None:
    with pytest.raises(MechanismError, match=why):
        Condition(text, FACTS)

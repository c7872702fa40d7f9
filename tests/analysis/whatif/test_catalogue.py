"""Every fix is found by being in the folder, says its question and its parameters, and refuses what it cannot read."""

import pytest

from overrun.analysis.whatif import catalogue
from overrun.analysis.whatif.prediction import WhatIfError

ALL = sorted(catalogue.fixes())


@pytest.mark.parametrize("fix", ALL)
def test_each_fix_has_a_question_and_described_parameters(fix: str) -> None:
    assert catalogue.summary(fix).startswith("What if ")
    for parameter in catalogue.parameters(fix):
        assert parameter.kind in (int, float, str, bool), parameter
        assert parameter.help, parameter


def test_an_unknown_fix_names_the_nearest() -> None:
    with pytest.raises(
        WhatIfError, match="'timeout-fallbak' is unknown: nearest known is 'timeout_fallback'"
    ):
        catalogue.find("timeout-fallbak")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"limit_ms": "5"}, "clip needs stage"),
        (
            {"stage": "queue", "limit_ms": "-3"},
            "limit_ms '-3' is not accepted .*: the longest time of the stage",
        ),
        ({"stage": "queue", "limit_ms": "nan"}, "limit_ms 'nan' is not accepted"),
        (
            {"stage": "queue", "limit_ms": "5", "stgae": "x"},
            "no parameter 'stgae': nearest known is 'stage'",
        ),
    ],
)
def test_a_bad_parameter_is_refused_by_name(texts: dict[str, str], said: str) -> None:
    with pytest.raises(WhatIfError, match=said):
        catalogue.read("clip", texts)


def test_texts_become_values_and_dashes_are_underscores() -> None:
    assert catalogue.read("clip", {"stage": "queue", "limit-ms": "2.5"}) == {
        "stage": "queue",
        "limit_ms": 2.5,
    }

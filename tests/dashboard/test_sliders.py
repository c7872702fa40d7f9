"""What a finding's fix is asked with: the what-if's own name and the finding's parameters, in a link and where the sliders begin."""

from datetime import timedelta

import msgspec
import pytest

from overrun.analysis.front import report as reports
from overrun.analysis.front.fix_list import FixInfo, ParameterInfo
from overrun.analysis.front.report import Report
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.finding import Finding, Fix, Predicted
from overrun.analysis.words.slo import Slo
from overrun.dashboard import sliders
from overrun.dashboard.views import whatif
from tests.analysis.builders import T0, insert, requests, store

KNOWN = frozenset({"cap", "routing", "clip", "retries"})
HIT = ParameterInfo(name="max_tokens", kind="int", help="the most", required=True, default=None)


def fix(id_: str, name: str | None = None, **parameters: float | str) -> Fix:
    return Fix(
        id=id_,
        title="T",
        detail="D",
        assumption="a",
        method="simulated",
        whatif=name,
        parameters=parameters,
        predicted=Predicted(
            metric="e2e",
            quantile=0.95,
            before=900.0,
            after=300.0,
            interval=(250.0, 350.0),
            touched_ratio=0.5,
            cost={},
        ),
        reasons={"window": "over the requests since the onset"},
    )


@pytest.fixture
def report() -> Report:
    """A report with a finding whose fix caps answers at 300 tokens."""
    con = store()
    insert(con, requests(60, decode_ms=100.0))
    found = reports.build(
        con,
        Window(start=T0, end=T0 + timedelta(seconds=60)),
        Slo(e2e_ms=1000.0),
        with_findings=False,
    )
    capped = Finding(
        rule="long_outputs",
        stage="decode",
        service=None,
        severity="warning",
        confidence=0.9,
        headline="h",
        evidence={},
        exemplars=[],
        fix=fix("cap", "cap", max_tokens=300.0),
    )
    return msgspec.structs.replace(found, findings=[capped])


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (
            fix("least_work", "routing", policy="least_load"),
            {"fix": "routing", "p_policy": "least_load"},
        ),
        (fix("cap", "cap", max_tokens=512.0), {"fix": "cap", "p_max_tokens": "512"}),
        (fix("clip"), {"fix": "clip"}),
        (fix("retries_on_error", "retries", ratio=0.875), {"fix": "retries", "p_ratio": "0.875"}),
        (fix("instrument"), None),
        (None, None),
    ],
)
def test_a_link_asks_what_the_finding_asked(
    given: Fix | None, asked: dict[str, str] | None
) -> None:
    assert sliders.to_try(given, KNOWN) == asked


def test_a_slider_begins_where_the_finding_stands(report: Report) -> None:
    options, begin, _ = sliders.choices(HIT, report, "cap")
    assert begin == "300"
    assert "300" in options
    assert sliders.choices(HIT, report, "another")[1] == "512"
    assert sliders.first_fix(report, ["clip", "cap"]) == "cap"


def test_a_prediction_is_the_findings_where_it_asks_the_same(report: Report) -> None:
    info = FixInfo(fix="cap", question="?", parameters=[HIT])
    asked = (("max_tokens", "300"),)
    assert whatif.proposed(report, info, asked) == report.findings[0].fix
    assert whatif.proposed(report, info, (("max_tokens", "200"),)) is None
    assert whatif.proposed(msgspec.structs.replace(report, findings=[]), info, asked) is None

"""Does the table measure what was made, and does every row answer, with a value or with what is lacking?"""

import msgspec
import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.fact import Fact
from overrun.analysis.evidence.fact_table import ROWS
from overrun.analysis.front import fact_text
from overrun.analysis.front.fact_list import FactList, facts
from overrun.analysis.front.text_layout import render
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.encoding import decode, encode
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import at, calls_of, gauge, insert, insert_calls, requests, store

LATE = np.arange(600) >= 300
E2E = Slo(e2e_ms=2500.0)


def _of(rows: pl.DataFrame, **window: str) -> FactList:
    con = store()
    insert(con, rows)
    insert_calls(con, calls_of(rows))
    gauge(con, "kv_cache_usage", {float(at): 0.5 for at in range(0, 600, 15)})
    return facts(con, Window(**window), E2E, None)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def longer() -> FactList:
    """Ten minutes of one request a second; in the second half answers have 300 tokens instead of 100, at 10 ms a token."""
    tokens = np.where(LATE, 300, 100)
    return _of(requests(600, prefill_ms=50.0, decode_ms=(tokens - 1) * 10.0, output_tokens=tokens))


def the(found: FactList, name: str) -> Fact:
    return next(fact for fact in found.facts if fact.name == name)


def test_the_growth_of_answers_is_measured_and_clear(longer: FactList) -> None:
    output = the(longer, "output")
    assert output.before is not None
    assert output.now is not None
    assert (output.before.value, output.now.value) == (100.0, 300.0)
    assert output.change == 3.0
    assert output.clear
    decode = the(longer, "stage.decode")
    assert decode.excess_total_ms == pytest.approx(2_000.0)
    assert longer.excess_ms == pytest.approx(2_000.0)
    assert longer.onset is not None
    assert longer.period is not None
    assert longer.onset.at == longer.period.start
    assert (longer.onset.before_ratio, longer.onset.after_ratio) == (0.0, 1.0)


def test_a_change_within_the_limit_is_dated_as_well() -> None:
    rows = requests(600, decode_ms=np.where(LATE, 600.0, 300.0))
    found = _of(rows)
    assert found.onset is not None
    assert abs((found.onset.at - at(300.0)).total_seconds()) <= 2.0


def test_what_did_not_change_is_not_clear(longer: FactList) -> None:
    for name in ("arrivals", "input", "pace", "repeats"):
        fact = the(longer, name)
        assert fact.change == pytest.approx(1.0, abs=0.02), name
        assert not fact.clear, name


def test_every_row_answers_with_a_value_or_a_reason(longer: FactList) -> None:
    assert {*ROWS} <= {fact.name for fact in longer.facts}
    for fact in longer.facts:
        for field in ("before", "now", "change", "clear", "excess_total_ms", "excess_interval"):
            assert getattr(fact, field) is not None or fact.reasons.get(field), (fact.name, field)
    assert the(longer, "kv_usage").now is not None
    assert "scrape DCGM" in the(longer, "clock").reasons["now"]


def test_facts_travel_and_read_as_text(longer: FactList) -> None:
    again = decode(encode(longer), FactList)
    assert again == longer
    text = render(fact_text.document(again), 100)
    assert "output tokens of a call" in text
    assert "+200 %" in text
    assert "NOT KNOWN" in text
    assert max(map(len, text.splitlines())) <= 100
    narrow = render(fact_text.document(again), 80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert ("(" in _row(text, "output tokens of a call"), "(" in _row(narrow, "output tokens")) == (
        True,
        False,
    )


def _row(text: str, label: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"  {label}"))


@pytest.mark.parametrize(
    ("factor", "said"), [(1.12, "+12 %"), (0.5, "-50 %"), (35.2, "x 35"), (34_909.7, "x 1,000+")]
)
def test_a_change_is_a_part_or_a_factor(longer: FactList, factor: float, said: str) -> None:
    output = msgspec.structs.replace(the(longer, "output"), change=factor)
    assert fact_text.change(output) == said


def test_without_a_baseline_values_stay_and_changes_say_why() -> None:
    rows = requests(300, decode_ms=3_000.0)
    found = _of(rows, baseline="none")
    output = the(found, "output")
    assert found.baseline is None
    assert output.now is not None
    assert output.before is None
    assert output.reasons["change"].startswith("no baseline")


def test_no_request_is_a_reason() -> None:
    found = facts(store(), Window(), E2E, None)
    assert not found.facts
    assert "no request" in found.reasons["facts"]
    assert render(fact_text.document(found)).startswith("No facts: no request")

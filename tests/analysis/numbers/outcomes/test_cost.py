"""What requests cost: tokens of the calls at the prices of the settings file, against arithmetic done by hand."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.front import text_layout, whatif_text
from overrun.analysis.front.report import Report, build, from_json, to_json
from overrun.analysis.front.report_document import render, to_html
from overrun.analysis.front.whatif_answer import in_money
from overrun.analysis.numbers.outcomes.cost import (
    Price,
    PriceError,
    Prices,
    read_prices,
    saved_per_1000_requests,
)
from overrun.analysis.numbers.window import Window
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Prediction
from overrun.analysis.words.finding import Predicted, say_trust
from overrun.analysis.words.slo import DEFAULT
from tests.analysis.builders import calls_of, insert, insert_calls, requests, store

TABLE = {
    "currency": "EUR",
    "m": {"input": 2.0, "cached_input": 0.5, "output": 8.0},
    "gpt-4o": {"input": 2.5, "output": 10.0},
}


def reported(prices: Prices | None, **columns: Any) -> Report:
    """100 requests in 99 s of one call each: 500 input tokens, 200 of them cached, 100 output tokens."""
    con = store()
    frame = requests(100, prefill_ms=10.0, decode_ms=90.0, **({"cached_tokens": 200} | columns))
    insert(con, frame)
    insert_calls(con, calls_of(frame))
    return build(con, Window(), DEFAULT, prices=prices, with_findings=False)


def test_cost_is_tokens_at_their_prices_per_thousand_requests() -> None:
    report = reported(read_prices(TABLE))
    spent = report.cost
    assert spent is not None
    # (300 x 2.0 + 200 x 0.5 + 100 x 8.0) / 1e6 = 0.0015 a request
    assert (spent.currency, spent.total, spent.per_1000_requests) == (
        "EUR",
        pytest.approx(0.15),
        pytest.approx(1.5),
    )
    assert [
        (m.model, m.calls, m.input_tokens, m.cached_tokens, m.output_tokens, m.cost)
        for m in spent.models
    ] == [("m", 100, 50_000, 20_000, 10_000, pytest.approx(0.15))]
    seconds = (report.window.end - report.window.start).total_seconds()  # type: ignore[operator]
    assert (spent.requests_per_s, spent.output_tokens_per_s) == (
        pytest.approx(100 / seconds),
        pytest.approx(10_000 / seconds),
    )
    assert from_json(to_json(report)) == report
    assert "COST 1.50 EUR per 1,000 requests (0.15 for 100 model calls)" in render(report)
    assert "1.50 EUR per 1,000 requests" in to_html(report)


def test_calls_that_tell_of_no_cached_tokens_pay_for_their_whole_input() -> None:
    spent = reported(read_prices(TABLE), cached_tokens=[None] * 40 + [200] * 60).cost
    assert spent is not None
    assert [model.cached_tokens for model in spent.models] == [60 * 200]
    assert spent.total == pytest.approx(60 * 0.0015 + 40 * (500 * 2.0 + 100 * 8.0) / 1e6)


def test_without_prices_there_is_throughput_and_no_cost() -> None:
    spent = reported(None).cost
    assert spent is not None
    assert (spent.per_1000_requests, spent.currency) == (None, None)
    assert "no prices" in spent.reasons["per_1000_requests"]
    assert spent.requests_per_s is not None
    assert "COST" not in render(reported(None))


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"model": "other"}, "no price for other"),
        ({"output_tokens": [None] * 20 + [100] * 80}, "no token counts"),
    ],
)
def test_calls_that_cannot_be_priced_leave_no_total(columns: dict[str, Any], why: str) -> None:
    report = reported(read_prices(TABLE), **columns)
    assert report.cost is not None
    assert report.cost.total is None
    assert why in report.cost.reasons["per_1000_requests"]
    assert "COST unknown: " in render(report)


def test_each_sampled_request_stands_for_its_weight() -> None:
    spent = reported(read_prices(TABLE), sampling="th:e", sample_weight=10.0).cost
    assert spent is not None
    assert (spent.total, spent.per_1000_requests) == (pytest.approx(1.5), pytest.approx(1.5))


def test_a_name_stands_for_its_versions_and_a_star_for_the_rest() -> None:
    prices = read_prices(TABLE)
    assert prices is not None
    assert prices.of("gpt-4o-2024-08-06") == Price(2.5, 2.5, 10.0)
    assert prices.of("gpt-4o") == Price(2.5, 2.5, 10.0)
    assert prices.of("gpt-4omni") is None
    assert prices.of(None) is None
    with_rest = read_prices(TABLE | {"*": {"input": 1.0, "output": 1.0}})
    assert with_rest is not None
    assert with_rest.of(None) == with_rest.of("gpt-4omni") == Price(1.0, 1.0, 1.0)
    assert read_prices({}) is None


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"m": {"input": 1.0}}, "lacks output"),
        ({"m": {"input": 1.0, "output": -1.0}}, "number from 0"),
        ({"m": {"input": True, "output": 1.0}}, "number from 0"),
        ({"m": {"input": 1.0, "outputs": 1.0}}, "output"),
        ({"m": 3.0}, "must be a table"),
        ({"currency": 3}, "currency"),
    ],
)
def test_a_price_that_cannot_be_read_is_refused_by_name(table: dict[str, Any], why: str) -> None:
    with pytest.raises(PriceError, match=why):
        read_prices(table)


def test_a_fix_that_saves_tokens_says_what_that_is_in_money() -> None:
    calls = pl.DataFrame(
        {
            "model": ["m"] * 4,
            "input_tokens": [0, 500, 500, 600],
            "output_tokens": [100, 300, None, 600],
            "request": [0, 1, 1, -1],
        }
    )
    prices = read_prices(TABLE)
    assert prices is not None
    # 400 tokens of the two requests at 8 per million, half of them saved: 0.0016 for 2 requests, 0.8 per 1,000
    assert saved_per_1000_requests(
        calls.filter(pl.col("request") >= 0), 2, prices, 0.5
    ) == pytest.approx(0.8)
    facts = Facts(pl.DataFrame({"start_us": [0, 1]}), calls, pl.DataFrame(), DEFAULT, "e2e")
    answer = in_money(prediction(tokens_saved_ratio=0.5), facts, prices)
    assert answer.cost["saved_per_1000_requests"] == pytest.approx(0.8)
    assert answer.predicted is not None
    assert answer.predicted.cost == answer.cost
    assert "Cost: tokens saved 50 %, saved 0.80 EUR per 1,000 requests." in text_layout.render(
        whatif_text.document(answer)
    )
    assert "saved 0.80 EUR per 1,000 requests" in say_trust(answer.predicted)
    assert in_money(prediction(tokens_saved_ratio=0.5), facts, None).cost == {
        "tokens_saved_ratio": 0.5
    }
    assert in_money(prediction(rejected_ratio=0.5), facts, prices).cost == {"rejected_ratio": 0.5}
    # A hedge sends a tenth of the prompts twice, which is as much as trimming a tenth of them saves.
    added = in_money(prediction(duplicate_ratio=0.1), facts, prices).cost["added_per_1000_requests"]
    assert added == pytest.approx(
        in_money(prediction(input_saved_ratio=0.1), facts, prices).cost["saved_per_1000_requests"]
    )
    assert added > 0.0


def prediction(**cost: float) -> Prediction:
    gain = Predicted(
        metric="e2e",
        quantile=0.95,
        before=2000.0,
        after=1000.0,
        interval=None,
        touched_ratio=0.5,
        cost=cost,
    )
    return Prediction(
        fix="cap",
        title="Cap",
        assumption="nothing changes",
        method="exact",
        parameters={},
        requests=2,
        predicted=gain,
        cost=cost,
    )


def test_a_findings_fix_says_what_the_tokens_it_saves_cost() -> None:
    # Ten of 100 answers write 1,000 tokens instead of 100 and are slow; a cap at 160 takes 10 x 840 of 19,000 output tokens away.
    con, long = store(), np.arange(100) % 10 == 9
    frame = requests(
        100,
        prefill_ms=10.0,
        decode_ms=np.where(long, 9_000.0, 900.0),
        output_tokens=np.where(long, 1000, 100),
        cached_tokens=200,
    )
    insert(con, frame)
    insert_calls(con, calls_of(frame))
    for prices in (read_prices(TABLE), None):
        found = build(con, Window(baseline="none"), DEFAULT, prices=prices)
        fix = next(finding.fix for finding in found.findings if finding.rule == "long_outputs")
        assert fix is not None
        assert fix.predicted is not None
        assert fix.parameters == {"max_tokens": 160}
        assert fix.predicted.cost["tokens_saved_ratio"] == pytest.approx(8_400 / 19_000)
        # 8,400 tokens at 8.00 a million are 0.0672 for 100 requests.
        assert fix.predicted.cost.get("saved_per_1000_requests") == (
            pytest.approx(0.672) if prices else None
        )
    text = render(build(con, Window(baseline="none"), DEFAULT, prices=read_prices(TABLE)))
    assert "saved 0.67 EUR per 1,000 requests" in " ".join(text.split())

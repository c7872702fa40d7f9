"""Latencies that no limit is on: against plain numpy, only where requests carry them, in every output."""

import numpy as np
import pytest

from overrun.analysis.front.report import Report, build
from overrun.analysis.front.report_document import render, to_html, to_markdown
from overrun.analysis.numbers.latency.perceived_latency import Further
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import DEFAULT
from tests.analysis.builders import insert, requests, store

RNG = np.random.default_rng(8)
N = 400
WORST, USABLE = RNG.lognormal(5.0, 0.5, N), RNG.lognormal(6.0, 0.3, N)
GAPS, TOKENS = RNG.lognormal(2.5, 0.4, N), RNG.integers(2, 300, N)


@pytest.fixture(scope="module")
def report() -> Report:
    con = store()
    insert(
        con,
        requests(
            N,
            itl_max_ms=WORST,
            itl_ms=GAPS,
            usable_ms=USABLE,
            output_tokens=TOKENS,
            prefill_ms=100.0,
            ttft_prefill_ms=100.0,
            decode_ms=900.0,
        ),
        requests(
            20,
            itl_max_ms=9e5,
            usable_ms=9e5,
            error=True,
            start_s=np.arange(20) * 1.0,
            decode_ms=1.0,
        ),
    )
    return build(con, Window(), DEFAULT)


def one(report: Report, metric: str) -> Further:
    (found,) = [more for more in report.further if more.metric == metric]
    return found


def test_worst_gaps_and_usable_answers_are_of_the_successful_requests(report: Report) -> None:
    for metric, values in (("itl_worst", WORST), ("usable_answer", USABLE)):
        stats = one(report, metric).ms
        assert stats.n == N
        assert (stats.p50, stats.p95, stats.max) == tuple(
            pytest.approx(float(v), rel=1e-6)
            for v in (*np.quantile(values, [0.5, 0.95]), values.max())
        )
        assert stats.p95_interval is not None


def test_the_gap_of_a_token_counts_each_request_once_a_token(report: Report) -> None:
    stats, every = one(report, "itl_token").ms, np.repeat(GAPS, TOKENS - 1)
    assert stats.p50 == pytest.approx(float(np.median(every)), rel=0.01)
    assert stats.p95 == pytest.approx(float(np.quantile(every, 0.95)), rel=0.01)
    assert stats.n == N


def test_every_output_says_them_in_words(report: Report) -> None:
    text = render(report)
    assert "  itl worst" in text
    assert "usable answer: until the answer is usable, as the application marks it" in " ".join(
        text.split()
    )
    for page in (to_html(report), to_markdown(report)):
        assert "worst gap between tokens of a request" in page


def test_the_first_token_of_any_call_is_given_where_that_of_the_answer_is_not_known() -> None:
    con = store()
    told = requests(
        50, first_model_token_ms=70.0, ttft_prefill_ms=70.0, prefill_ms=70.0, decode_ms=500.0
    )
    insert(con, requests(100, first_model_token_ms=80.0, decode_ms=900.0), told)
    found = build(con, Window(), DEFAULT)
    assert [(more.metric, more.ms.n, more.ms.p50) for more in found.further] == [
        ("first_model_token", 100, 80.0)
    ]


def test_nothing_is_told_that_nobody_measured() -> None:
    con = store()
    insert(con, requests(100, prefill_ms=10.0, ttft_prefill_ms=10.0))
    assert build(con, Window(), DEFAULT).further == []

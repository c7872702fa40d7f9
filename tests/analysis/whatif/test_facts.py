"""Facts are read from the store: requests of the window, every call beside them, spans when asked for."""

import re
from datetime import UTC, datetime

import duckdb
import numpy as np
import pytest

from overrun.analysis.numbers.window import Window, query
from overrun.analysis.whatif.facts import load_facts
from overrun.analysis.whatif.fixes import clip
from overrun.analysis.whatif.prediction import goodput_ratio, recorded
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import ROOT, at, insert, insert_spans, requests, spans_of, store
from tests.analysis.whatif.builders import calls, facts_of, requests_of

FILES = ["whatif_calls", "whatif_prompts", "whatif_requests", "whatif_spans"]


@pytest.mark.parametrize("name", FILES)
def test_query_prepares_against_the_schema(name: str) -> None:
    con = store()
    con.execute(f"prepare q as {query(name)}")
    assert query(name).startswith("-- ")


def test_each_query_has_a_caller() -> None:
    assert (
        sorted(
            set(
                re.findall(
                    r'query\("(whatif_[a-z_]+)"\)', (ROOT / "analysis/whatif/facts.py").read_text()
                )
            )
        )
        == FILES
    )


def with_calls(con: duckdb.DuckDBPyConnection, n: int) -> None:
    insert(con, requests(n, decode_ms=1000.0, ttft_decode_ms=200.0, route=["/a", "/b"] * (n // 2)))
    con.execute("""
        insert into llm_calls (trace_hi, trace_lo, span_id, start_ns, duration_ns, service, route, error, on_path, output_tokens, ttft_ns, ttft_source)
        select trace_hi, trace_lo, 7, start_ns, e2e_ns, service, route, false, true, 100, 200000000, 1 from requests""")


def test_calls_of_other_routes_are_there_but_belong_to_no_request() -> None:
    con = store()
    with_calls(con, 40)
    facts = load_facts(con, Window(route="/a"), Slo(e2e_ms=1000.0), "e2e")
    assert (len(facts), facts.calls.height) == (20, 40)
    assert (facts.request_of >= 0).sum() == 20
    assert (facts.answering >= 0).all()


def test_what_ran_before_the_window_is_apart_from_its_calls() -> None:
    con = store()
    with_calls(con, 200)
    facts = load_facts(con, Window(start=at(100)), Slo(e2e_ms=1000.0), "e2e")
    assert facts.before is not None
    # A minute of them is in the batches of the window, too.
    assert (len(facts), facts.calls.height, facts.before.calls.height) == (100, 160, 100)
    assert facts.before.calls["start_us"].max() < facts.requests["start_us"].min()  # type: ignore[operator]


def test_calls_of_the_minute_before_on_an_engine_that_is_gone_hold_no_seats() -> None:
    """The first half ran on a pod that a rollout replaced: with it the window would have two replicas."""
    con = store()
    with_calls(con, 200)
    con.execute(
        """update llm_calls set engine_instance = case when start_ns < $at then 'old' else 'new' end""",
        {"at": int(at(100).timestamp() * 1e9)},
    )
    facts = load_facts(con, Window(start=at(100)), Slo(e2e_ms=1000.0), "e2e")
    assert facts.calls["engine_instance"].unique().to_list() == ["new"]
    assert facts.calls.height == 100
    # One pod of two stays: its calls of that minute still count.
    con.execute("update llm_calls set engine_instance = 'new' where trace_lo % 2 = 0")
    facts = load_facts(con, Window(start=at(100)), Slo(e2e_ms=1000.0), "e2e")
    assert facts.calls.height == 130


def test_the_latest_requests_are_taken_and_the_cut_is_told() -> None:
    con = store()
    with_calls(con, 40)
    facts = load_facts(con, Window(), Slo(e2e_ms=1000.0), "e2e", most=10)
    assert (len(facts), facts.left_out) == (10, 1)
    assert datetime.fromtimestamp(facts.requests["start_us"][0] / 1e6, UTC) == at(30)


def test_an_empty_window_has_no_requests() -> None:
    facts = load_facts(store(), Window(), Slo(e2e_ms=1000.0), "e2e")
    assert (len(facts), facts.calls.height, facts.spans.height) == (0, 0, 0)


def test_changes_of_calls_before_the_first_token_move_it() -> None:
    # Two calls a request: a planner (1 s) and the answer, whose first token comes 300 ms after its start at 1.2 s.
    both = calls(
        4,
        start_s=[0.0, 1.2, 10.0, 11.2],
        e2e_ms=1000.0,
        ttft_ms=300.0,
        request=[0, 0, 1, 1],
        trace_id=["a", "a", "b", "b"],
    )
    own = requests_of(both, start_us=both["start_us"].gather([0, 2]), ttft_ms=1500.0, e2e_ms=2200.0)
    facts = facts_of(both, requests=own)
    assert facts.answering.tolist() == [1, 3]
    ttft, e2e = facts.per_request(
        both["e2e_ms"].to_numpy() * -0.5, both["ttft_ms"].to_numpy() * -0.5
    )
    assert ttft.tolist() == [-650.0, -650.0]
    assert e2e.tolist() == [-1000.0, -1000.0]


@pytest.mark.parametrize("slo", [Slo(e2e_ms=2000.0), Slo(ttft_ms=5000.0)])
def test_requests_are_judged_by_limits_that_they_came_with(slo: Slo) -> None:
    con, took = store(), 1000.0 + 10.0 * np.arange(100)
    rows = requests(100, tool_ms=took - 200.0, prefill_ms=200.0, ttft_prefill_ms=200.0)
    insert(con, rows)
    insert_spans(
        con,
        spans_of(
            rows,
            "POST /chat",
            "other",
            0.0,
            1.0,
            attributes={"x-slo-e2e-ms": ["1500" if k % 2 else "none" for k in range(100)]},
        ),
    )
    facts = load_facts(con, Window(), slo, "e2e")
    limits = np.where(np.arange(100) % 2, 1500.0, slo.e2e_ms or np.inf)
    assert goodput_ratio(facts, recorded(facts)) == float((took <= limits).mean())
    answer = clip.predict(facts, stage="tool", limit_ms=1000.0)
    assert answer.predicted is not None
    assert answer.predicted.over_before_ratio == float((took > limits).mean())
    assert (answer.predicted.over_after_ratio, answer.goodput_after) == (0.0, 1.0)

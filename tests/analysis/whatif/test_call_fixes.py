"""Fixes that act on calls and span trees: each with its arithmetic shown, and its refusal."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.simulator.pool import pools
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fixes import (
    cancellation,
    cap,
    co_location,
    connection_pooling,
    fan_out,
    prompt_trim,
    reasoning_effort,
    response_cache,
    route_models,
    second_provider,
    side_model,
    step_cap,
    streaming,
    tool_cap,
    warm_pool,
)
from overrun.analysis.whatif.prediction import Prediction
from tests.analysis.whatif.builders import START_US, calls, facts_of, requests_of


def gain(answer: Prediction) -> tuple[float, float]:
    assert answer.predicted is not None, answer.reasons
    return answer.predicted.before, answer.predicted.after


def test_side_calls_shrink_and_the_answer_stays() -> None:
    # A guard model answers with 2 tokens in 300 ms before the answer of 1 s; a tenth of its time is 30 ms.
    both = calls(
        20,
        start_s=np.repeat(np.arange(10) * 5.0, 2) + np.tile([0.0, 0.3], 10),
        e2e_ms=np.tile([300.0, 1000.0], 10),
        ttft_ms=np.tile([290.0, 200.0], 10),
        output_tokens=np.tile([2, 101], 10),
        request=np.arange(20) // 2,
        trace_id=[f"{k // 2}" for k in range(20)],
    )
    own = requests_of(
        both, start_us=both["start_us"].gather(range(0, 20, 2)), e2e_ms=1300.0, ttft_ms=500.0
    )
    answer = side_model.predict(facts_of(both, requests=own), time_factor=0.1)
    assert gain(answer) == (1300.0, pytest.approx(1030.0))
    assert answer.cost["side_calls_ratio"] == 0.5


def test_another_model_for_a_route_leaves_the_others() -> None:
    facts = facts_of(calls(20, e2e_ms=1000.0, ttft_ms=200.0, route=["/a"] * 14 + ["/b"] * 6))
    assert gain(route_models.predict(facts, route="/a", first_factor=0.5, token_factor=0.25)) == (
        1000.0,
        300.0,
    )
    assert (
        route_models.predict(facts, route="/c", first_factor=0.5, token_factor=0.25).predicted
        is None
    )


def test_hidden_reasoning_is_cut_before_the_first_token() -> None:
    # 1,000 ms for 100 tokens, 80 of them hidden reasoning: a quarter of those kept saves 60 x 10 ms before the first token.
    facts = facts_of(
        calls(10, e2e_ms=1000.0, ttft_ms=850.0, output_tokens=100, reasoning_tokens=80.0),
        metric="ttft",
    )
    assert gain(reasoning_effort.predict(facts, factor=0.25)) == (850.0, pytest.approx(250.0))
    assert (
        "reasoning tokens"
        in reasoning_effort.predict(facts_of(calls(10)), factor=0.5).reasons["predicted"]
    )


def test_a_wait_before_hidden_reasoning_is_no_token_of_it() -> None:
    # 300 ms, then 10 ms a token: 50 to 149 of thought and 50 of answer. Half of the thought less is that many times 5 ms.
    thought = np.arange(100.0) + 50.0
    facts = facts_of(
        calls(
            100,
            e2e_ms=300.0 + 10.0 * (thought + 49.0),
            ttft_ms=300.0 + 10.0 * thought,
            output_tokens=thought + 50.0,
            reasoning_tokens=thought,
        ),
        metric="ttft",
    )
    before, after = gain(reasoning_effort.predict(facts, factor=0.5))
    assert before == pytest.approx(300.0 + 995.0)
    assert after == pytest.approx(before - 500.0, abs=15.0)


def test_a_cap_cuts_tokens_at_the_pace_of_those_that_nobody_saw() -> None:
    # 300 ms, then 10 ms a token: 150 of thought, unseen, and 50 to 149 of answer. At 180 tokens in all, 20 and more are cut at 10 ms each.
    written = np.arange(100.0) + 50.0
    facts = facts_of(
        calls(
            100,
            e2e_ms=300.0 + 10.0 * (written + 149.0),
            ttft_ms=300.0 + 1500.0,
            output_tokens=written + 150.0,
            reasoning_tokens=150.0,
        )
    )
    late = next(
        e
        for e in cap.predict(facts, max_tokens=180).effects
        if e.metric == "e2e" and e.quantile == 0.95
    )
    assert late.after == pytest.approx(300.0 + 10.0 * 179.0, rel=0.01)


def guarded(**columns: Any) -> Facts:
    """200 requests: a quick check of 5 tokens by a small model in 60 ms, then an answer; `columns` hold the answers' figures, arrays of shape (200,)."""
    n = 200
    own = {
        "e2e_ms": np.full(n, 60.0),
        "ttft_ms": np.full(n, 40.0),
        "input_tokens": np.full(n, 150.0),
        "output_tokens": np.full(n, 5.0),
    }
    both = {
        name: np.column_stack([own[name], columns.get(name, own[name])]).ravel() for name in own
    }
    both |= {"ttft_ms": [None if np.isnan(value) else value for value in both["ttft_ms"]]}
    made = calls(
        2 * n,
        start_s=np.repeat(np.arange(n) * 20.0, 2) + np.tile([0.0, 0.1], n),
        request=np.arange(2 * n) // 2,
        model=["guard", "m"] * n,
        trace_id=[f"{k // 2}" for k in range(2 * n)],
        **both,
    )
    rows = requests_of(
        made,
        start_us=made["start_us"].gather(range(0, 2 * n, 2)),
        e2e_ms=100.0 + columns["e2e_ms"],
        ttft_ms=100.0 + columns["ttft_ms"],
    )
    return facts_of(
        made, requests=rows, metric="ttft" if not np.isnan(columns["ttft_ms"]).any() else "e2e"
    )


def test_what_a_prompt_costs_is_told_among_the_calls_of_its_model() -> None:
    # 400 ms and 0.1 ms a token of 3,000 to 6,000: 1,000 tokens less are 100 ms, however much quicker a small model answers short prompts.
    tokens = np.linspace(3_000.0, 6_000.0, 200)
    first = 400.0 + 0.1 * tokens
    facts = guarded(
        ttft_ms=first,
        e2e_ms=first + 1_000.0,
        input_tokens=tokens,
        output_tokens=np.full(200, 101.0),
    )
    before, after = gain(prompt_trim.predict(facts, tokens=1_000))
    assert after == pytest.approx(before - 100.0, abs=1.0)


def test_what_a_token_costs_where_no_first_one_was_seen_is_told_among_the_calls_of_its_model() -> (
    None
):
    # 500 ms of wait, then 9 to 11 ms a token of 100 to 900, every other one: cut at 300 tokens, the half of the longer ones keep their own pace.
    tokens = np.tile(np.linspace(100.0, 900.0, 100), 2)
    pace = np.repeat([9.0, 11.0], 100)
    answer = cap.predict(
        guarded(ttft_ms=np.full(200, np.nan), e2e_ms=500.0 + pace * tokens, output_tokens=tokens),
        max_tokens=300,
    )
    late = next(e for e in answer.effects if e.metric == "e2e" and e.quantile == 0.95)
    assert late.after == pytest.approx(600.0 + 11.0 * 300.0, rel=0.02)


@pytest.mark.parametrize(
    "elsewhere",
    [{"provider": "b"}, {"model": "b"}],
    ids=["another provider", "another model of the same one"],
)
def test_calls_to_a_model_that_the_second_provider_never_served_stay(
    elsewhere: dict[str, str],
) -> None:
    # A guard of 40 ms and an answer that waits 8 s at a; b was asked for answers alone and has them in 300 ms.
    facts = guarded(
        ttft_ms=np.full(200, 8_000.0),
        e2e_ms=np.full(200, 9_000.0),
        input_tokens=np.full(200, 500.0),
        output_tokens=np.full(200, 101.0),
    )
    other = calls(100, ttft_ms=300.0, e2e_ms=1300.0, request=-1, **elsewhere)
    both = replace(facts, calls=pl.concat([facts.calls, other]).sort("start_us"))
    answer = second_provider.predict(both, provider="b")
    assert gain(answer) == (8_100.0, pytest.approx(400.0))
    assert answer.cost["moved_ratio"] == 0.5


def test_steps_beyond_the_cap_go_with_what_lies_between() -> None:
    # Four calls of 1 s, 200 ms apart: with two steps the second and third go, and the gaps before and between them.
    four = calls(
        40,
        start_s=np.repeat(np.arange(10) * 20.0, 4) + np.tile([0.0, 1.2, 2.4, 3.6], 10),
        e2e_ms=1000.0,
        ttft_ms=100.0,
        request=np.arange(40) // 4,
        trace_id=[f"{k // 4}" for k in range(40)],
    )
    own = requests_of(
        four, start_us=four["start_us"].gather(range(0, 40, 4)), e2e_ms=4600.0, ttft_ms=3700.0
    )
    answer = step_cap.predict(facts_of(four, requests=own), steps=2)
    assert gain(answer) == (4600.0, pytest.approx(4600.0 - 2600.0))
    assert answer.cost["truncated_ratio"] == 1.0
    assert step_cap.predict(facts_of(four, requests=own), steps=4).cost["truncated_ratio"] == 0.0
    assert answer.bound  # no engine times: the load stays as it was


def test_failover_draws_from_the_other_provider() -> None:
    slow, quick = (
        calls(100, ttft_ms=8000.0, e2e_ms=9000.0, provider="a"),
        calls(100, ttft_ms=300.0, e2e_ms=1300.0, provider="b", request=-1),
    )
    facts = facts_of(
        pl.concat([slow, quick]).sort("start_us"), requests=requests_of(slow), metric="ttft"
    )
    answer = second_provider.predict(facts, provider="b", after_ms=1000.0)
    assert gain(answer) == (8000.0, pytest.approx(1300.0))
    assert answer.cost["moved_ratio"] == 1.0
    assert "at least 20" in second_provider.predict(facts, provider="c").reasons["predicted"]


def test_a_buffered_stream_shows_its_first_token_when_the_engine_made_it() -> None:
    facts = facts_of(
        calls(
            10,
            ttft_ms=3900.0,
            ttft_client_ms=3900.0,
            ttft_engine_ms=200.0,
            e2e_ms=4000.0,
            engine_e2e_ms=3900.0,
        ),
        metric="ttft",
    )
    assert gain(streaming.predict(facts)) == (3900.0, pytest.approx(250.0))
    streamed = facts_of(
        calls(
            10,
            ttft_ms=210.0,
            ttft_client_ms=210.0,
            ttft_engine_ms=205.0,
            e2e_ms=4000.0,
            engine_e2e_ms=3990.0,
        )
    )
    assert streaming.predict(streamed).predicted is None


def test_a_late_answer_whose_engines_span_was_lost_does_not_stay_late() -> None:
    lost = np.arange(10) % 5 == 4
    first = np.where(lost, np.nan, 200.0)
    one = calls(
        10,
        ttft_ms=3900.0,
        ttft_client_ms=3900.0,
        ttft_engine_ms=first,
        e2e_ms=4000.0,
        engine_e2e_ms=np.where(lost, np.nan, 3900.0),
    )
    answer = streaming.predict(facts_of(one, metric="ttft", percentile=95.0))
    p50 = next(
        effect for effect in answer.effects if (effect.metric, effect.quantile) == ("ttft", 0.5)
    )
    assert p50.after == pytest.approx(250.0)
    assert answer.curves[0].after_ms[-1] == pytest.approx(250.0)
    assert answer.reasons["unseen"].startswith(
        "2 of 10 requests have an answer without its engine span"
    )
    # To a model of which no engine tells nothing was lost: it is as it was.
    other = one.with_columns(model=pl.Series(np.where(lost, "hosted", "m")))
    assert "unseen" not in streaming.predict(facts_of(other, metric="ttft")).reasons


def test_the_way_of_a_call_takes_what_is_asked() -> None:
    facts = facts_of(
        calls(
            10,
            ttft_ms=300.0,
            ttft_client_ms=300.0,
            ttft_engine_ms=200.0,
            e2e_ms=1000.0,
            engine_e2e_ms=880.0,
        )
    )
    assert gain(co_location.predict(facts, network_ms=20.0)) == (1000.0, pytest.approx(900.0))
    assert co_location.predict(facts_of(calls(10)), network_ms=20.0).predicted is None


def test_pooled_connections_cost_what_the_quickest_quarter_spends() -> None:
    one = calls(10, e2e_ms=1000.0)
    facts = facts_of(one, requests=requests_of(one, network_ms=[20.0] * 4 + [220.0] * 6))
    assert gain(connection_pooling.predict(facts)) == (1000.0, 800.0)
    assert connection_pooling.predict(facts_of(one)).predicted is None


def test_a_given_way_replaces_the_quickest_quarter() -> None:
    # Every call opens a connection: no quarter shows the way without, so that by itself is only a bound.
    own = requests_of(
        calls(100, e2e_ms=1000.0, ttft_ms=600.0), network_ms=500.0, ttft_network_ms=500.0
    )
    facts = facts_of(calls(100, e2e_ms=1000.0, ttft_ms=600.0), requests=own)
    assert gain(connection_pooling.predict(facts, network_ms=4.0)) == (1000.0, pytest.approx(504.0))
    assert (
        connection_pooling.predict(facts).bound,
        connection_pooling.predict(facts, network_ms=4.0).bound,
    ) == (True, False)


def test_spans_of_lookup_connect_and_tls_are_what_open_connections_save() -> None:
    # Within the call 20 ms of lookup, 30 of connect and 50 of TLS, the connection's own span around them; the 40 ms of way stay. Nobody has it quicker.
    shakes = [
        ("get", "llm", "network", "http.getconn", 920.0, 100.0),
        ("dns", "get", "network", "http.dns", 920.0, 20.0),
        ("tcp", "get", "network", "http.connect", 940.0, 30.0),
        ("tls", "get", "network", "http.tls", 970.0, 50.0),
    ]
    facts = traces(10, [*RAG, *shakes])
    facts = replace(
        facts,
        requests=facts.requests.with_columns(
            network_ms=pl.lit(140.0), ttft_network_ms=pl.lit(120.0)
        ),
    )
    answer = connection_pooling.predict(facts)
    assert gain(answer) == (2000.0, pytest.approx(1900.0))
    ttft = next(e for e in answer.effects if e.metric == "ttft" and e.quantile == 0.5)
    assert (ttft.before, ttft.after, answer.bound, answer.cost) == (
        1020.0,
        pytest.approx(920.0),
        False,
        {"network_floor_ms": pytest.approx(40.0)},
    )


@pytest.mark.parametrize("half", ["engine", "client"])
def test_requests_of_which_half_a_call_was_lost_say_nothing_of_pooled_connections(
    half: str,
) -> None:
    # Every tenth request has lost one of two spans, so that its 400 ms of handshake look like the model's or nobody's; the others spend them on the network.
    lost = np.arange(100) % 10 == 0
    made = calls(
        100,
        e2e_ms=1000.0,
        ttft_ms=500.0,
        engine_e2e_ms=[None if gone and half == "engine" else 600.0 for gone in lost],
        engine_alone=lost if half == "client" else False,
        model=[None if gone and half == "client" else "m" for gone in lost],
    )
    facts = facts_of(
        made,
        percentile=95.0,
        requests=requests_of(
            made, network_ms=np.where(lost, 0.0, 400.0), ttft_network_ms=np.where(lost, 0.0, 400.0)
        ),
    )
    answer = connection_pooling.predict(facts, network_ms=4.0)
    assert gain(answer) == (1000.0, pytest.approx(604.0))
    assert "10 of 100" in answer.reasons["unseen"]


def test_an_engine_whose_clock_is_off_hides_no_handshake_before_the_first_token() -> None:
    # 500 ms of way, all of it before the first token: an early clock has moved 120 of them behind it, the durations of both sides have not.
    made = calls(
        100,
        e2e_ms=1000.0,
        ttft_ms=600.0,
        ttft_client_ms=600.0,
        engine_e2e_ms=500.0,
        ttft_engine_ms=100.0,
    )
    facts = facts_of(made, requests=requests_of(made, network_ms=500.0, ttft_network_ms=380.0))
    ttft = next(
        e
        for e in connection_pooling.predict(facts, network_ms=4.0).effects
        if e.metric == "ttft" and e.quantile == 0.5
    )
    assert (ttft.before, ttft.after) == (600.0, pytest.approx(104.0))


def test_cached_answers_take_the_time_of_a_hit() -> None:
    answer = response_cache.predict(
        facts_of(calls(400, ttft_ms=300.0), percentile=10.0), hit_ratio=0.4, hit_ms=50.0
    )
    assert gain(answer) == (1000.0, 50.0)
    assert answer.method == "estimate"


def test_cold_replicas_answer_as_their_warm_neighbours() -> None:
    n = 400
    instance = np.array(["a"] * n, dtype=object)
    instance[200::2] = "b"
    ttft = np.where((instance == "b") & (np.arange(n) < 260), 5000.0, 200.0)
    facts = facts_of(
        calls(n, ttft_ms=ttft, e2e_ms=ttft + 500.0, instance=instance.tolist()), percentile=95.0
    )
    assert gain(warm_pool.predict(facts)) == (5500.0, 700.0)
    assert warm_pool.predict(facts_of(calls(50, ttft_ms=100.0))).predicted is None


def test_cold_instances_of_the_application_search_as_warm_ones_do() -> None:
    # Calls are as quick as ever; the new instance searches for 3 s in its first minute, the others for 100 ms.
    n = 400
    instance = np.array(["a"] * n, dtype=object)
    instance[200::2] = "b"
    search = np.where((instance == "b") & (np.arange(n) < 260), 3000.0, 100.0)
    made = calls(n, ttft_ms=200.0, e2e_ms=700.0, instance=instance.tolist())
    rows = requests_of(
        made,
        e2e_ms=700.0 + search,
        ttft_ms=200.0 + search,
        retrieval_ms=search,
        ttft_retrieval_ms=search,
    )
    assert gain(warm_pool.predict(facts_of(made, percentile=95.0, requests=rows))) == (
        3700.0,
        800.0,
    )


def test_nothing_to_cancel_is_said() -> None:
    assert "own spans" in cancellation.predict(facts_of(calls(10))).reasons["predicted"]
    assert (
        "nothing to cancel"
        in cancellation.predict(
            facts_of(calls(10, engine_e2e_ms=900.0, ttft_engine_ms=100.0))
        ).reasons["predicted"]
    )


def test_an_engine_works_on_beside_the_call_that_its_request_gave_up() -> None:
    # The client of each request leaves after 400 ms and never learns an id; the engine writes 100 tokens from 100 to 1,100 ms by itself.
    both = calls(
        20,
        start_s=np.repeat(np.arange(10) * 5.0, 2),
        e2e_ms=np.tile([400.0, 1100.0], 10),
        ttft_ms=[None, 100.0] * 10,
        ttft_engine_ms=[None, 100.0] * 10,
        engine_e2e_ms=[None, 1100.0] * 10,
        output_tokens=[None, 100.0] * 10,
        error=[True, False] * 10,
        error_type=["asyncio.CancelledError", None] * 10,
        engine_alone=[False, True] * 10,
        request=np.arange(20) // 2,
        trace_id=[f"{k // 2}" for k in range(20)],
    )
    assert cancellation.stayed_ms(facts_of(both)).tolist() == [400.0] * 20


def test_calls_of_an_engine_that_name_no_model_are_those_of_its_others() -> None:
    both = calls(
        300,
        ttft_ms=100.0,
        ttft_engine_ms=100.0,
        prefill_ms=90.0,
        queue_ms=10.0,
        engine_e2e_ms=1000.0,
        engine_instance="gpu-0",
    )
    both = both.with_columns(model=pl.when(pl.int_range(300) % 3 > 0).then(pl.lit("m")))
    found, why = pools(facts_of(both))
    assert (why, [(pool.model, len(pool)) for pool in found]) == (None, [("m", 300)])


def test_a_call_whose_client_left_found_in_the_cache_what_its_twin_did() -> None:
    # Request k asks twice with the same prompt and gives the second up, so that nobody is told of its hits; every tenth asks with another prompt.
    n = 400
    given_up, other = np.arange(n) % 2 == 1, np.arange(n) % 20 == 1
    both = calls(
        n,
        ttft_ms=100.0,
        ttft_engine_ms=100.0,
        prefill_ms=90.0,
        queue_ms=10.0,
        engine_e2e_ms=1000.0,
        error=given_up,
        request=np.arange(n) // 2,
        input_tokens=np.where(other, 800, 1000),
        cached_tokens=[None if k % 2 else 600.0 for k in range(n)],
        trace_id=[f"{k // 2}" for k in range(n)],
    )
    [pool], _ = pools(facts_of(both))
    assert set(pool.calls.cached_tokens[~other]) == {600}
    assert set(pool.calls.cached_tokens[other]) == {480}  # 600 of 1,000 tokens is the usual part
    # A response that came and names no hits had none.
    [heard], _ = pools(facts_of(both.with_columns(error=pl.lit(False))))
    assert heard.calls.cached_tokens[1] == 0


def traces(n: int, rows: list[tuple[str, str | None, str, str, float, float]]) -> Facts:
    """n requests with the spans (id, parent, stage, name, start ms, duration ms); `llm` is the model call, its first token 100 ms after its start."""
    llm = next(row for row in rows if row[0] == "llm")
    root = rows[0]
    own = calls(
        n,
        start_s=np.arange(n) * 60.0 + llm[4] / 1000.0,
        e2e_ms=llm[5],
        ttft_ms=100.0,
        span_id=["llm"] * n,
    )
    requests = requests_of(
        own, start_us=START_US + np.arange(n) * 60_000_000, e2e_ms=root[5], ttft_ms=llm[4] + 100.0
    )
    spans = pl.DataFrame(
        [
            {
                "trace_id": trace,
                "span_id": span,
                "parent_span_id": parent,
                "stage": stage,
                "name": name,
                "attributes": {},
                "service": "search" if span.startswith("far") else "app",
                "start_us": START_US + k * 60_000_000 + round(start * 1000),
                "duration_ms": took,
            }
            for k, trace in enumerate(own["trace_id"].to_list())
            for span, parent, stage, name, start, took in rows
        ],
        schema_overrides={"attributes": pl.Object},
    )
    return facts_of(own, requests=requests, spans=lambda: spans)


RAG: list[tuple[str, str | None, str, str, float, float]] = [
    ("root", None, "other", "POST /ask", 0.0, 2000.0),
    ("r1", "root", "retrieval", "search a", 10.0, 300.0),
    ("r2", "root", "retrieval", "search b", 312.0, 200.0),
    ("r3", "root", "retrieval", "search c", 514.0, 400.0),
    ("llm", "root", "other", "chat", 920.0, 1000.0),
]


def test_calls_side_by_side_take_the_longest_of_them() -> None:
    # 300 + 2 + 200 + 2 + 400 ms become 400 ms: 504 ms less, before the first token as well.
    answer = fan_out.predict(traces(10, RAG), stage="retrieval")
    assert gain(answer) == (2000.0, pytest.approx(1496.0))
    ttft = next(e for e in answer.effects if e.metric == "ttft" and e.quantile == 0.5)
    assert (ttft.before, ttft.after) == (1020.0, pytest.approx(516.0))


def remote(
    rag: list[tuple[str, str | None, str, str, float, float]],
) -> list[tuple[str, str | None, str, str, float, float]]:
    """The same searches, each made by another service: a client's span, that service's own, and the search in it, 2 ms shorter."""
    out = [row for row in rag if row[2] != "retrieval"]
    for span, parent, stage, name, start, took in rag:
        if stage == "retrieval":
            out += [
                (span, parent, "network", "POST", start, took),
                (f"far-{span}", span, "other", "POST /search", start + 1.0, took - 2.0),
                (f"far-{span}-in", f"far-{span}", stage, name, start + 1.0, took - 2.0),
            ]
    return out


def test_calls_of_another_service_go_side_by_side_like_those_made_here() -> None:
    answer = fan_out.predict(traces(10, remote(RAG)), stage="retrieval")
    assert gain(answer) == (2000.0, pytest.approx(1496.0))
    embedded = [(i, p, s, n.replace("search b", "embed query"), a, d) for i, p, s, n, a, d in RAG]
    assert fan_out.predict(traces(10, remote(embedded)), stage="retrieval").predicted is None


def test_an_embedding_is_never_moved_and_a_gap_is_no_fan_out() -> None:
    embedded = [(i, p, s, n.replace("search b", "embed query"), a, d) for i, p, s, n, a, d in RAG]
    assert fan_out.predict(traces(10, embedded), stage="retrieval").predicted is None
    assert (
        "follow each other" in fan_out.predict(traces(10, RAG), stage="tool").reasons["predicted"]
    )


def test_tool_calls_beyond_the_cap_are_taken_out_of_the_tree() -> None:
    tools = [(i, p, "tool" if s == "retrieval" else s, n, a, d) for i, p, s, n, a, d in RAG]
    # Without the second (200 ms) and third (400 ms) call; the application's own gaps stay.
    answer = tool_cap.predict(traces(10, tools), calls=1)
    assert gain(answer) == (2000.0, pytest.approx(1400.0))
    assert (
        "no request makes more than 3"
        in tool_cap.predict(traces(10, tools), calls=3).reasons["predicted"]
    )

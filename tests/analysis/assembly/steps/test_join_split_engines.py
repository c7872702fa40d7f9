"""A prefilling and a decoding engine serve one request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.assembly.assembling import assembled, root, stages_ms
from tests.collector.oracle_build import SERVER, Made, body, chat
from tests.collector.oracle_store import held, pipeline, send


def test_a_prefill_engine_works_within_the_request_of_the_decode_engine_that_waits_for_it() -> None:
    def made(id: int, name: str, start: float, end: float, parent: int, **attributes: Any) -> Made:
        return Made(
            id,
            name,
            start,
            end,
            parent,
            scope="sglang server",
            service=name.split(" ", maxsplit=1)[0],
            attributes=attributes,
        )

    told = {
        "gen_ai.latency.e2e": 1.0,
        "gen_ai.latency.time_to_first_token": 0.5,
        "module": "sglang::request",
    }
    spans = [
        made(3, "prefill Req 1f", 20, 500, 2, **told),
        made(4, "prefill_waiting", 20, 200, 3),
        made(5, "prefill_forward", 200, 450, 3),
        made(6, "prefill_transfer_kv_cache", 450, 500, 3),
        made(7, "decode Req 1f", 20, 990, 2, **told),
        made(8, "decode_waiting", 500, 510, 7),
        made(9, "decode_forward", 510, 980, 7),
    ]
    requests, [call] = assembled(root(1000), chat(2, 10, 1000, ttft=520), *spans)
    found = {k: v for k, v in stages_ms(requests[0]).items() if v}
    assert found == {
        "network": 20,
        "queue": 190,
        "prefill": 250,
        "kv_transfer": 50,
        "decode": 470,
        "other": 20,
    }
    assert (call["queue_ns"], call["prefill_ns"], call["decode_ns"], call["attempts"]) == (
        190e6,
        250e6,
        470e6,
        None,
    )


def test_the_room_in_which_two_engines_meet_is_no_request_and_names_none() -> None:
    def made(id: int, name: str, start: float, end: float, parent: int, **attributes: Any) -> Made:
        return Made(
            id,
            name,
            start,
            end,
            parent,
            scope="sglang server",
            service=name.split(" ", maxsplit=1)[0],
            attributes=attributes,
        )

    told = {
        "gen_ai.latency.e2e": 1.0,
        "gen_ai.latency.time_to_first_token": 0.5,
        "module": "sglang::request",
        "bootstrap_room": "0x1f",
    }
    [request], [call] = assembled(
        made(1, "Bootstrap Room 0x1f", 0, 1000, 0),
        made(3, "prefill Req 1f", 0, 500, 1, **told),
        made(4, "prefill_forward", 200, 500, 3),
        made(7, "decode Req 1f", 0, 1000, 1, **told),
        made(9, "decode_forward", 500, 1000, 7),
    )
    assert (
        request["route"],
        request["engine_only"],
        request["llm_calls"],
        call["route"],
        call["span_id"],
    ) == (None, True, 1, None, 7)


def half(
    id: int,
    start: float,
    end: float,
    out: int,
    *,
    queue: float,
    prefill: float,
    request_id: str = "chatcmpl-1",
) -> Made:
    """An engine's request in a trace of its own."""
    times = {
        "e2e": end - start,
        "time_to_first_token": queue + prefill,
        "time_in_queue": queue,
        "time_in_model_prefill": prefill,
        "time_in_model_decode": end - start - queue - prefill,
    }
    told = {f"gen_ai.latency.{name}": ms / 1000 for name, ms in times.items()} | {
        "gen_ai.request.id": request_id,
        "gen_ai.usage.completion_tokens": out,
    }
    return Made(
        id, "llm_request", start, end, 0, SERVER, told, service=f"vllm-{id}", scope="vllm", trace=id
    )


def test_engines_that_share_a_request_one_after_the_other_are_one_request_without_a_client() -> (
    None
):
    [request], [call] = assembled(
        half(1, 0, 300, 1, queue=100, prefill=200), half(2, 310, 1000, 10, queue=10, prefill=20)
    )
    assert (request["e2e_ns"], request["ttft_ns"], request["llm_calls"], call["output_tokens"]) == (
        1000e6,
        340e6,
        1,
        10,
    )
    assert {k: v for k, v in stages_ms(request).items() if v} == {
        "queue": 110,
        "prefill": 220,
        "decode": 660,
        "other": 10,
    }
    assert (call["queue_ns"], call["prefill_ns"], call["ttft_ns"]) == (10e6, 20e6, 340e6)


@pytest.mark.parametrize(
    "other",
    [
        half(2, 310, 1000, 10, queue=10, prefill=20, request_id="chatcmpl-2"),
        half(2, 310, 1000, 1, queue=10, prefill=20),
        half(2, 60_000, 61_000, 10, queue=10, prefill=20),
    ],
)
def test_engines_requests_under_other_ids_of_one_kind_or_at_other_times_are_two(
    other: Made,
) -> None:
    assert len(assembled(half(1, 0, 300, 1, queue=100, prefill=200), other)[0]) == 2


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), None])
def test_a_prefill_engine_in_a_trace_of_its_own_is_found_by_where_the_two_meet(
    order: tuple[int, ...] | None,
) -> None:
    def made(
        id: int, name: str, start: float, end: float, parent: int, trace: int, **attributes: Any
    ) -> Made:
        return Made(
            id,
            name,
            start,
            end,
            parent,
            scope="sglang server",
            service=name.split(" ", maxsplit=1)[0],
            attributes=attributes,
            trace=trace,
        )

    told = {
        "gen_ai.latency.e2e": 1.0,
        "gen_ai.latency.time_to_first_token": 0.5,
        "module": "sglang::request",
        "bootstrap_room": "0x5eed",
    }
    other = {**told, "bootstrap_room": "0x0ddba11", "gen_ai.request.id": "c"}
    sent = [
        body(
            made(3, "prefill Req 1f", 20, 500, 0, 1, **{**told, "gen_ai.request.id": "a"}),
            made(4, "prefill_waiting", 20, 200, 3, 1),
            made(5, "prefill_forward", 200, 500, 3, 1),
        ),
        body(
            made(7, "decode Req 2e", 20, 990, 0, 2, **{**told, "gen_ai.request.id": "b"}),
            made(8, "decode_forward", 510, 980, 7, 2),
        ),
        body(made(9, "decode Req 3d", 20, 990, 0, 3, **other)),
    ]
    with pipeline() as one:
        for bodies in [sent] if order is None else [[sent[i]] for i in order]:
            send(one, bodies)
        rows = held(one)
    assert (len(rows.requests), len(rows.calls)) == (2, 2)
    found = {k: rows.requests[0][f"{k}_ms"] for k in ("queue", "prefill", "decode", "other")}
    assert found == {"queue": 180, "prefill": 300, "decode": 470, "other": 20}

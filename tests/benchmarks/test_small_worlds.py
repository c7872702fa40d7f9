"""The small worlds keep their laws: nobody overtakes in a first-come queue, a shared server loses no work, and a bucket lets no more pass than flows in."""

import json
import random
from pathlib import Path

import pytest

from tests.benchmarks.small_worlds import (
    HALF_MS,
    SIGHTS,
    WORLDS,
    bucket,
    mgk,
    seen,
    sharing,
    write_calls,
)


def test_calls_of_an_mgk_begin_in_the_order_in_which_they_came() -> None:
    calls = mgk(servers=lambda _: 2)(random.Random(3))
    begun = [call.call_at + call.front + call.queue for call in calls]
    assert min(call.queue for call in calls) >= -1e-6
    ends = [start + call.prefill + call.decode for start, call in zip(begun, calls, strict=True)]
    assert all(
        sum(begin <= at < end - 1e-3 for begin, end in zip(begun, ends, strict=True)) <= 2
        for at in begun
    )


def test_a_shared_server_does_all_the_work_and_no_call_faster_than_alone() -> None:
    calls = sharing(every=lambda _: 400.0)(random.Random(3))
    for call in calls:
        alone = (call.input / 100.0 + call.output) / 50.0 * 1e3
        assert call.prefill + call.decode >= 0.999 * alone


def test_a_bucket_lets_no_more_tokens_pass_than_flow_in() -> None:
    calls = bucket(every=lambda _: 300.0)(random.Random(3))
    passed = sorted(
        (call.call_at + call.attempts[-1][0], call.input + call.output)
        for call in calls
        if len(call.attempts) < 7
    )
    total = 0.0
    for at, tokens in passed:
        total += tokens
        assert total <= 30_000.0 + 1_800.0 * at / 1e3 + 1.0


@pytest.mark.parametrize("sight", SIGHTS)
def test_what_is_left_out_is_not_written(sight: str, tmp_path: Path) -> None:
    calls = WORLDS[0].make(1.0)(random.Random(1))
    write_calls(tmp_path / "traces.json", seen(calls, sight)[:50], sight)
    told = (tmp_path / "traces.json").read_text()
    services = {
        one["resource"]["attributes"][0]["value"]["stringValue"]
        for one in json.loads(told)["resourceSpans"]
    }
    assert ("vllm" in services) == (sight not in ("client", "no_first"))
    assert ("time_to_first_chunk" in told) == (sight != "no_first")
    assert ("gen_ai.usage" in told) == (sight != "no_tokens")
    if sight == "no_baseline":
        assert all(call.at >= HALF_MS for call in seen(calls, sight))

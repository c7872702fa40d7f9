"""oversized_side_model: fires on a guard that asks a large model, silent when the guard itself is slow or the main call is."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.collector.normalise.stages import ROLE
from tests.analysis.builders import requests, spans_of
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

N = 400
LATE = np.arange(N) >= 200


def guarded(tokens: int = 6) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    frame = requests(
        N, guardrail_ms=np.where(LATE, 2_000.0, 12.0), prefill_ms=200.0, decode_ms=400.0
    )
    guard = spans_of(
        frame, "guardrail.input", "guardrail", 0.0, np.where(LATE, 2_000.0, 12.0), span_id=2
    )
    call = spans_of(
        frame,
        "chat large-70b",
        "guardrail",
        1.0,
        1_990.0,
        span_id=3,
        parent_id=2,
        role=ROLE["llm"],
        model="large-70b",
        output_tokens=tokens,
        keep=LATE,
    )
    return frame, [guard, call]


def test_fires_with_model_and_time() -> None:
    frame, spans = guarded()
    found = run(frame, spans=spans, slo=E2E)
    finding = the(found, "oversized_side_model")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "guardrail",
        "oversized_side_model",
        ["oversized_side_model"],
    )
    assert (
        finding.evidence["model"],
        finding.evidence["output_tokens"],
        finding.evidence["side_ms_slow"],
    ) == ("large-70b", 6.0, pytest.approx(1_990.0))
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after == pytest.approx(2_600.0 - 1_985.0)


def test_a_guard_may_write_its_verdict_with_a_reason() -> None:
    frame, spans = guarded(tokens=40)
    assert causes(run(frame, spans=spans, slo=E2E)) == ["oversized_side_model"]


def test_a_call_that_a_framework_wraps_inside_of_a_guard_counts() -> None:
    """The AI SDK's `ai.generateText` stands between a guardrail and the model call that it makes."""
    frame, (guard, call) = guarded()
    wrapper = spans_of(
        frame,
        "ai.generateText",
        "other",
        1.0,
        1_990.0,
        span_id=4,
        parent_id=2,
        role=ROLE["container"],
        keep=LATE,
    )
    found = run(
        frame,
        spans=[
            guard,
            wrapper,
            call.with_columns(
                parent_id=pl.lit(4, pl.Int64), name=pl.lit("ai.generateText.doGenerate")
            ),
        ],
        slo=E2E,
    )
    assert (found.verdict.stage, causes(found)) == ("guardrail", ["oversized_side_model"])


def test_silent_when_the_call_in_the_guard_writes_at_length() -> None:
    frame, spans = guarded(tokens=200)
    assert causes(run(frame, spans=spans, slo=E2E)) == ["slow_dependency"]


def test_silent_without_a_model_in_the_guard() -> None:
    frame, spans = guarded()
    found = run(frame, spans=spans[:1], slo=E2E)
    assert of(found, "oversized_side_model") is None
    assert found.verdict.stage == "guardrail"


def routed(*, before: bool = False, tokens: int = 3) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """A call of 1.8 s to another model in front of the answer, which nothing names: no span, no operation and no model of a guard."""
    frame = requests(
        N,
        generation_ms=np.where(LATE | before, 1_800.0, 0.0),
        prefill_ms=200.0,
        decode_ms=np.where(LATE, 700.0, 400.0),
    )
    side = spans_of(
        frame,
        "chat gpt-4o",
        "generation",
        0.0,
        1_800.0,
        span_id=2,
        role=ROLE["llm"],
        model="gpt-4o",
        output_tokens=tokens,
        keep=LATE | before,
    )
    main = spans_of(
        frame,
        "chat qwen",
        "decode",
        1_800.0,
        600.0,
        span_id=3,
        role=ROLE["llm"],
        model="qwen",
        output_tokens=200,
    )
    return frame, [side, main]


def test_fires_on_a_short_call_to_a_model_that_nobody_asked_before() -> None:
    frame, spans = routed()
    finding = the(run(frame, spans=spans, slo=E2E), "oversized_side_model")
    assert (
        finding.evidence["operation"],
        finding.evidence["model"],
        finding.evidence["side_ms_reference"],
    ) == ("chat gpt-4o", "gpt-4o", 0.0)


@pytest.mark.parametrize(
    "twin", [{"before": True}, {"tokens": 90}], ids=["it was always asked", "it writes at length"]
)
def test_silent_on_another_model(twin: dict[str, Any]) -> None:
    frame, spans = routed(**twin)
    assert of(run(frame, spans=spans, slo=E2E), "oversized_side_model") is None


@pytest.mark.parametrize(("small", "named"), [("guard-mini", True), ("qwen", False)])
def test_a_side_task_that_moved_to_the_model_of_the_answers_is_known_by_the_small_one_that_is_gone(
    small: str, named: bool
) -> None:
    """A call for 6 tokens in front of each answer, which nothing names: 200 ms until the onset, 1.8 s and qwen's since. Twin: it was qwen's before."""
    frame = requests(
        N,
        generation_ms=np.where(LATE, 1_800.0, 200.0),
        prefill_ms=200.0,
        decode_ms=np.where(LATE, 700.0, 400.0),
    )
    side = [
        spans_of(
            frame,
            "chat",
            "generation",
            0.0,
            took,
            span_id=2,
            role=ROLE["llm"],
            model=model,
            output_tokens=6,
            keep=keep,
        )
        for took, model, keep in ((200.0, small, ~LATE), (1_800.0, "qwen", LATE))
    ]
    main = spans_of(
        frame,
        "chat",
        "decode",
        1_800.0,
        600.0,
        span_id=3,
        role=ROLE["llm"],
        model="qwen",
        output_tokens=200,
    )
    assert (
        of(run(frame, spans=[*side, main], slo=E2E), "oversized_side_model") is not None
    ) is named


def test_a_baseline_that_holds_the_first_of_what_came_asked_no_model_before() -> None:
    """The guard asks a model in a third of the former requests as well, those just before the onset was seen: the others have none."""
    frame, (guard, _) = guarded()
    asks = LATE | (np.arange(N) >= 140)
    call = spans_of(
        frame,
        "chat large-70b",
        "guardrail",
        1.0,
        np.where(LATE, 1_990.0, 10.0),
        span_id=3,
        parent_id=2,
        role=ROLE["llm"],
        model="large-70b",
        output_tokens=6,
        keep=asks,
    )
    assert of(run(frame, spans=[guard, call], slo=E2E), "oversized_side_model") is not None


@pytest.mark.parametrize("first", [180, 0])
def test_the_slowest_of_before_may_be_the_first_victims(first: int) -> None:
    """Before the onset one request in five asks the large model, 0.7 s each: those just before it, or now and then ever since; all do since then."""
    frame, (guard, _) = guarded()
    early = (
        (np.arange(N) >= first) & (np.arange(N) < 200) & (np.arange(N) % (1 if first else 5) == 0)
    )
    took = np.where(LATE, 1_990.0, 700.0)
    frame = frame.with_columns(
        guardrail_ns=pl.Series(
            np.where(early, 710e6, np.where(LATE, 2_000e6, 12e6)).astype(np.int64)
        )
    )
    frame = frame.with_columns(e2e_ns=pl.col("guardrail_ns") + 600_000_000)
    call = spans_of(
        frame,
        "chat large-70b",
        "guardrail",
        1.0,
        took,
        span_id=3,
        parent_id=2,
        role=ROLE["llm"],
        model="large-70b",
        output_tokens=6,
        keep=LATE | early,
    )
    found = run(frame, spans=[guard, call], slo=E2E)
    finding = the(found, "oversized_side_model")
    # What came before ends with the first victims, or one in five of it asked for 0.7 s each.
    assert finding.evidence["side_ms_reference"] == pytest.approx(
        0.0 if first else 700.0 * 0.2, rel=0.05
    )
    assert found.verdict.cause == "oversized_side_model"


def test_a_small_model_that_takes_longer_than_before_is_no_larger_one() -> None:
    frame = requests(
        N, guardrail_ms=np.where(LATE, 2_000.0, 12.0), prefill_ms=200.0, decode_ms=400.0
    )
    check = spans_of(
        frame,
        "chat guard",
        "guardrail",
        0.0,
        np.where(LATE, 2_000.0, 12.0),
        span_id=2,
        role=ROLE["llm"],
        model="guard-mini",
        output_tokens=6,
    )
    assert causes(run(frame, spans=[check], slo=E2E)) == ["slow_dependency"]

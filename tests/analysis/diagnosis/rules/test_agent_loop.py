"""agent_loop: fires on requests with many more steps, silent when the same steps are slower."""

import numpy as np
import polars as pl
import pytest

from tests.analysis.builders import ROLE, requests, spans_of
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

N = 600
LOOPS = (np.arange(N) >= 300) & (np.arange(N) % 4 == 0)


def agents(steps: np.ndarray, step_ms: np.ndarray | float) -> pl.DataFrame:
    return requests(
        N,
        tool_ms=steps * step_ms * 0.5,
        generation_ms=steps * step_ms * 0.5,
        llm_calls=steps,
        tool_calls=steps,
        output_tokens=steps * 20,
    )


def test_fires_on_loops_with_equal_calls() -> None:
    frame = agents(np.where(LOOPS, 9, 2), 300.0)
    spans = [
        spans_of(
            frame,
            "execute_tool search",
            "tool",
            10.0 * k,
            5.0,
            span_id=10 + k,
            keep=LOOPS,
            attributes={
                "gen_ai.tool.name": "search",
                "gen_ai.tool.call.arguments": "[text: 9 characters, 1f]",
            },
        )
        for k in range(9)
    ]
    found = run(frame, spans=spans, slo=E2E)
    finding = the(found, "agent_loop")
    assert (found.verdict.cause, causes(found)) == ("agent_loop", ["agent_loop"])
    # 9 model and 9 tool calls instead of 2 and 2.
    assert (
        finding.evidence["steps_slow"],
        finding.evidence["steps_reference"],
        finding.evidence["steps_p95_reference"],
    ) == (18.0, 4.0, 4.0)
    assert (finding.evidence["equal_calls"], finding.evidence["tool"]) == (9, "search")
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after == pytest.approx(600.0)
    assert finding.fix.predicted.cost == {"cut_ratio": 0.125}
    assert set(finding.fix.parameters) == {"steps"}
    assert f"Stop after {finding.fix.parameters['steps']} steps" == finding.fix.title


def test_silent_when_the_same_steps_are_slower() -> None:
    found = run(agents(np.full(N, 2), np.where(LOOPS, 1_500.0, 300.0)), slo=E2E)
    assert found.verdict.status == "over_budget"
    assert of(found, "agent_loop") is None


@pytest.mark.parametrize(
    ("calls", "since", "named"), [(2, 300, ["agent_loop"]), (1, 300, []), (2, 0, [])]
)
def test_an_answer_that_is_asked_for_again_doubles_the_steps(
    calls: int, since: int, named: list[str]
) -> None:
    """Answers that did not validate are asked for once more; or the one call takes as long; or it was so from the beginning on. One in fifty was before."""
    slow = (np.arange(N) >= since) & (np.arange(N) % 4 == 0)
    steps = np.where(slow, calls, np.where(np.arange(N) % 50 == 1, 2, 1))
    found = run(
        requests(N, generation_ms=np.where(slow, 4_000.0, 2_000.0), llm_calls=steps), slo=E2E
    )
    assert [cause for cause in causes(found) if cause == "agent_loop"] == named


@pytest.mark.parametrize(("stage", "named"), [("generation", ["agent_loop"]), ("guardrail", [])])
def test_a_check_by_a_model_is_no_step(stage: str, named: list[str]) -> None:
    """A second model call from the middle on: another step of the agent, or what looks at the answer."""
    late = np.arange(N) >= 300
    frame = requests(
        N, generation_ms=np.where(late, 4_000.0, 2_000.0), llm_calls=np.where(late, 2, 1)
    )
    spans = [
        spans_of(frame, "chat m", stage, 10.0, 1_900.0, span_id=10, keep=late, role=ROLE["llm"])
    ]
    found = run(frame, spans=spans, slo=E2E)
    assert [cause for cause in causes(found) if cause == "agent_loop"] == named


def test_loops_are_told_among_requests_that_are_slow_for_another_reason() -> None:
    # Every second request waits 4 s for retrieval; of the others a sixth loops. Loops are a quarter of what is slow.
    late = np.arange(N) >= 300
    hung, loops = late & (np.arange(N) % 2 == 0), late & (np.arange(N) % 6 == 1)
    steps = np.where(loops, 9, 2)
    rows = requests(
        N,
        retrieval_ms=np.where(hung, 4_000.0, 50.0),
        tool_ms=steps * 150.0,
        generation_ms=steps * 150.0,
        llm_calls=steps,
        tool_calls=steps,
        output_tokens=steps * 20,
    )
    found = run(rows, slo=E2E)
    assert causes(found) == ["slow_dependency", "agent_loop"]
    assert the(found, "agent_loop").evidence["looping_ratio"] == pytest.approx(0.25)


@pytest.mark.parametrize("loops", [True, False])
def test_steps_are_compared_with_those_of_the_same_route(loops: bool) -> None:
    """One in five is an agent of 5 steps and 1 s, the others chat in one step and up to 2.4 s: the slowest of before. Agents that hang take no more steps."""
    agent, hit = np.arange(N) % 5 == 0, (np.arange(N) >= 300) & (np.arange(N) % 10 == 0)
    steps = np.where(agent, np.where(hit & loops, 15, 3), 1)
    chats = 1_000.0 + 1_400.0 * (np.arange(N) % 7) / 6
    frame = requests(
        N,
        tool_ms=np.where(hit, 6_000.0, np.where(agent, 500.0, 0.0)),
        generation_ms=np.where(agent, 500.0, chats),
        llm_calls=steps,
        tool_calls=np.where(agent, steps - 1, 0),
        output_tokens=20,
        route=np.where(agent, "/agent", "/chat").tolist(),
    )
    found = run(frame, slo=E2E)
    assert found.verdict.status == "over_budget"
    assert causes(found)[0] == ("agent_loop" if loops else "slow_dependency")
    if loops:  # 15 model calls with 14 of tools, where the route takes 3 and 2.
        assert (
            the(found, "agent_loop").evidence["steps_slow"],
            the(found, "agent_loop").evidence["steps_reference"],
        ) == (29.0, 5.0)

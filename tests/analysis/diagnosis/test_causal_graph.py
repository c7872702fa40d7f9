"""The causal graph: complete, without loops among what comes with a cause, and a way from every cause to a stage."""

from __future__ import annotations

import pytest

from overrun.analysis.diagnosis import causal_graph as graph
from overrun.analysis.diagnosis.rules import rules
from overrun.analysis.evidence.fact_table import TABLE

CAUSES = [name for name, node in graph.NODES.items() if node.kind == "cause"]
NAMED = {fact for node in graph.NODES.values() for fact in node.facts}
STAGES = [name for name, node in graph.NODES.items() if node.kind == "stage"]


def test_every_rule_that_names_a_cause_is_a_node_and_every_cause_has_a_rule() -> None:
    assert set(CAUSES) == set(rules())


def test_edges_and_facts_name_what_exists() -> None:
    for edges in (graph.BRINGS, graph.MAY_DRIVE):
        assert set(edges) <= set(graph.NODES)
        assert {other for others in edges.values() for other in others} <= set(graph.NODES)
        assert all(len(others) == len(set(others)) for others in edges.values())
    stages = {f"{graph.OF_STAGE}{name}" for name in STAGES}
    assert {*TABLE.rows, *stages} >= NAMED


def test_every_fact_shows_a_cause_or_a_state_and_every_state_and_stage_has_a_fact() -> None:
    # Failed and cut answers are no cause of latency: what fails or is cut takes no longer for it.
    assert set(TABLE.rows) - NAMED == {"failures", "cut_answers"}
    assert all(node.fact for node in graph.NODES.values() if node.kind != "cause")


def test_a_step_names_that_of_its_facts_which_changed() -> None:
    told = graph.steps(
        "prompt_bloat", "queue", {"prompt_bloat"}, {"queued", "to_read"}.__contains__
    )
    assert [(one.fact, one.seen) for one in told] == [
        ("input", True),
        ("to_read", True),
        ("in_flight", False),
        ("queued", True),
        ("stage.queue", True),
    ]


@pytest.mark.parametrize("cause", CAUSES)
def test_a_cause_reaches_a_stage_and_never_itself(cause: str) -> None:
    assert any(graph.path_to(cause, stage) for stage in STAGES)
    assert not any(graph.brings(other, cause) for other in CAUSES if graph.brings(cause, other))


def test_the_way_passes_what_was_found() -> None:
    assert graph.path_to("prompt_bloat", "queue") == [
        "prompt_bloat",
        "more_to_read",
        "more_work",
        "queue_wait",
        "queue",
    ]
    assert graph.path_to("noisy_tenant", "prefill", {"prompt_bloat"})[1] == "prompt_bloat"
    assert graph.path_to("slow_dependency", "queue") == []


def test_steps_say_what_this_window_shows() -> None:
    told = graph.steps("noisy_tenant", "queue", {"noisy_tenant"}, lambda fact: fact == "waiting")
    assert [(one.node, one.seen) for one in told] == [
        ("noisy_tenant", True),
        ("more_work", False),
        ("queue_wait", True),
        ("queue", True),
    ]


def test_the_drawing_has_every_node_and_edge() -> None:
    drawn = graph.mermaid()
    assert drawn.count("-->") == sum(map(len, graph.BRINGS.values()))
    assert drawn.count("-.->") == sum(map(len, graph.MAY_DRIVE.values()))
    assert all(node.label in drawn for node in graph.NODES.values())

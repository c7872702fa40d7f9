"""A request has the route of its root."""

from __future__ import annotations

from tests.analysis.assembly.assembling import assembled, request_of, root
from tests.collector.oracle_build import SERVER, Made, chat


def test_a_name_with_the_id_of_a_run_in_it_is_one_route() -> None:
    ran = Made(1, "Crew_062679a6-c8da-40ab-8782-ef961a86b6b8.kickoff", 0, 1000)
    assert request_of(ran, chat(2, 200, 900))["route"] == "Crew_*.kickoff"


def test_a_call_has_the_route_of_its_request_whatever_name_a_workflow_gave_it() -> None:
    workflow = chat(2, 10, 90, attributes={"gen_ai.workflow.name": "LangGraph"})
    for top in (root(100), Made(1, "answer", 0, 100)):
        (request,), (call,) = assembled(top, workflow)
        assert call["route"] == request["route"] == ("/chat" if top.kind == SERVER else "answer")

"""What samplers write shows for how many requests a trace stands."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.analysis.assembly.assemble import assemble
from tests.analysis.assembly.assembling import request_of, root, spans_of
from tests.collector.oracle_build import body, chat


@pytest.mark.parametrize(
    ("state", "sampling", "weight"),
    [
        ("ot=th:8", "th:8", 2.0),
        ("x=y,ot=rv:1;th:c", "th:c", 4.0),
        ("ot=th:zz", None, None),
        ("", None, None),
        ("ot=p:3;r:5", "th:e", 8.0),
        ("ot=p:63", None, None),
        ("es=s:0.25", "th:c", 4.0),
        ("es=s:no", None, None),
        ("ot=th:8,overrun=tail:slow", "tail:slow", None),
    ],
)
def test_the_samplers_threshold_is_the_weight(
    state: str, sampling: str | None, weight: float | None
) -> None:
    request = request_of(root(1000, trace_state=state), chat(2, 100, 900))
    assert (request["sampling"], request["sample_weight"]) == (sampling, weight)


@pytest.mark.parametrize(
    ("attributes", "weight", "sampling"),
    [
        ({"meta.refinery.sample_rate": 4}, 4.0, "th:c"),
        ({"SampleRate": "2"}, 2.0, "th:8"),
        ({"SampleRate": 1}, None, None),
        ({"SampleRate": 0}, None, None),
        ({"microsoft.sample_rate": 25.0}, 4.0, "th:c"),
        ({"sampler.type": "probabilistic", "sampler.param": 0.5}, 2.0, "th:8"),
        ({"sampler.type": "const", "sampler.param": 1}, None, None),
        ({"sampler.type": "ratelimiting", "sampler.param": 2.0}, None, "tail:ratelimiting"),
        ({"sampling.probability": 1e-300}, None, None),
    ],
)
def test_a_samplers_attributes_say_how_often_a_request_counts(
    attributes: dict[str, Any], weight: float | None, sampling: str | None
) -> None:
    request = request_of(root(1000, attributes=attributes), chat(2, 100, 900))
    assert (request["sampling"], request["sample_weight"]) == (sampling, weight)


def test_a_tail_samplers_policy_is_told_by_the_scope() -> None:
    sent = ExportTraceServiceRequest.FromString(body(root(1000), chat(2, 100, 900)))
    for scope_spans in (s for r in sent.resource_spans for s in r.scope_spans):
        scope_spans.scope.attributes.add(
            key="tailsampling.policy"
        ).value.string_value = "slow; or, failed"
    [request] = assemble(spans_of(sent.SerializeToString())).requests.to_pylist()
    assert (request["sampling"], request["sample_weight"]) == ("tail:slow_or_failed", None)

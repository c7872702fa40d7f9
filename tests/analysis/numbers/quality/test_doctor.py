"""The check-up says per service what is sent and what to switch on, from what really arrived."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import zstandard

from overrun.analysis.numbers.quality.doctor import Checkup, Service, examine, render, said
from overrun.analysis.numbers.window import Window
from overrun.collector.normalise.stages import dialects
from tests.collector.oracle_build import CLIENT, Made, body, chat
from tests.collector.oracle_otlp import bodies
from tests.collector.oracle_store import pipeline, send

SENDERS = Path(__file__).parents[3] / "collector" / "data" / "senders"


@functools.cache
def checkup(*names: str) -> Checkup:
    """Of these recordings."""
    with pipeline() as one:
        for name in names:
            send(one, bodies(name))
        with one.store.reading() as con:
            return examine(con, Window())


def only(found: Checkup) -> Service:
    [service] = found.services
    return service


@pytest.mark.parametrize(
    ("name", "dialect", "calls", "never"),
    [
        ("semconv-openai-v2", "genai", 7, {"ttft", "cached_tokens", "session", "user"}),
        ("semconv-genai-openai", "genai", 7, {"session", "user"}),
        ("langfuse", "langfuse", 3, {"response_id", "error_type", "route", "version"}),
        ("vercel-ai-sdk", "vercel", 7, {"instance", "version"}),
        ("litellm-sdk", "litellm", 4, {"ttft", "session", "route", "version"}),
        ("vllm-spans", "vllm", 1499, {"version"}),
    ],
)
def test_a_recording_lacks_what_its_sender_leaves_out(
    name: str, dialect: str, calls: int, never: set[str]
) -> None:
    service = only(checkup(name))
    assert dialect in service.dialects
    assert service.model_calls == calls
    assert {m.field for m in service.never_seen} >= never - {"tenant"}
    assert not {m.field for m in service.never_seen} & {
        f for f, share in service.seen.items() if share > 0
    }


def test_what_a_sender_can_switch_on_is_said_in_its_own_words() -> None:
    told = {m.field: m.switch_on for m in only(checkup("semconv-openai-v2")).never_seen}
    assert "genai-openai" in told["ttft"]
    assert (
        "v1 callback"
        in {m.field: m.switch_on for m in only(checkup("litellm-sdk")).never_seen}["ttft"]
    )


@pytest.mark.parametrize(
    ("name", "field", "remedy"),
    [
        ("celery", "ttft", "no call of this service is known to stream"),
        ("openllmetry-anthropic", "ttft", "-genai-anthropic"),
        ("openinference-anthropic", "ttft", "its SDK's own spans"),
        ("litellm-v1", "ttft", "LITELLM_OTEL_V2"),
        ("langsmith", "ttft", "LangSmith's exporter sends no"),
        ("langfuse-js", "response_id", "Langfuse sends none"),
        ("openllmetry-llama-index", "session", "set_association_properties"),
        ("genai-anthropic", "session", "gen_ai.conversation.id"),
    ],
)
def test_what_is_to_be_switched_on_is_true_of_the_package(
    name: str, field: str, remedy: str
) -> None:
    found = sorted(SENDERS.glob(f"{name}/*.traces.pb.zst")) or [SENDERS / f"{name}.traces.zst"]
    with pipeline() as one:
        send(
            one,
            [
                zstandard.ZstdDecompressor().decompress(path.read_bytes(), max_output_size=1 << 24)
                for path in found
            ],
        )
        with one.store.reading() as con:
            services = examine(con, Window()).services
    assert {remedy in m.switch_on for s in services for m in s.never_seen if m.field == field} == {
        True
    }
    assert not any("spans without a stage" in line for s in services for line in said(s)[1])


def test_spans_that_nobody_knows_are_counted_and_the_remedy_is_named() -> None:
    root = Made(1, "GET /", 0, 100, kind=2, attributes={"http.route": "/chat"})
    made = [
        root,
        chat(2, 10, 90, out=None),
        Made(3, "step", 20, 30, 2, kind=CLIENT, attributes={"acme.x": 1}, service="other"),
    ]
    with pipeline() as one:
        send(one, [body(*made)])
        with one.store.reading() as con:
            found = examine(con, Window())
            assert examine(con, Window(service="nobody")).services == []
    app, other = found.services
    assert (app.service, app.model_calls, other.unknown_spans) == ("app", 1, 1)
    assert {"ttft", "output_tokens"} <= {m.field for m in app.never_seen}
    # One span of a trace says the route for all of it.
    assert (app.spans, app.seen["route"], app.seen["tenant"]) == (2, 1.0, 0.0)
    text = render(found)
    assert "other: 1 span, 0 of model calls; dialect: not known" in text
    assert "[attributes] in overrun.toml" in text
    assert "stream_options" in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gen_ai.operation.name", "invoke_agent"),
        ("openinference.span.kind", "AGENT"),
        ("traceloop.span.kind", "workflow"),
    ],
)  # CrewAI, LlamaIndex
def test_agents_without_model_calls_want_an_instrumentation_of_the_client(
    key: str, value: str
) -> None:
    with pipeline() as one:
        send(one, [body(Made(1, "helper", 0, 100, attributes={key: value}))])
        with one.store.reading() as con:
            told = {m.field: m.switch_on for m in only(examine(con, Window())).never_seen}
    assert "the provider's client" in told["model_call"]
    assert "model_call" not in {m.field for m in only(checkup("pydantic-ai-logfire")).never_seen}


def test_an_empty_store_is_said() -> None:
    assert "no spans were received" in render(Checkup(services=[]))


def test_hints_name_fields_that_are_examined() -> None:
    from overrun.analysis.numbers.quality.doctor import _FIELDS

    assert {field for d in dialects() for field, _ in d.hints} <= set(_FIELDS)

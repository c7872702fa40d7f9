"""Names that programs chose stay as they are; what somebody said, or what is private, leaves a template or a hash, wherever a name stands."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overrun.collector.decode.otlp_spans import decode_spans
from overrun.collector.normalise import packing, wording
from overrun.collector.normalise.known_keys import MOST_WORDS, Enumerations
from overrun.collector.normalise.points import decode_points
from overrun.collector.normalise.spans import Rules, normalize
from tests.collector.conftest import T0_NS, attributes, request, span

# Of instrumentations of several languages and of platforms, as they name spans, events, metrics, models, routes and keys.
PROGRAMS_NAMES = [
    "GET /api/users/{id}",
    "POST /v1/chat/completions",
    "chat gpt-4o-2024-08-06",
    "claude-3-5-sonnet-20241022",
    "execute_tool get_weather",
    "invoke_agent Senior Research Analyst",
    "executing api route (app) /api/chat",
    "resolve page components",
    "request handler - /api/foo",
    "SELECT shop.orders",
    "TCP connect 192.168.100.200:8443",
    "DNS lookup",
    "RunnableSequence",
    "ai.streamText.doStream",
    "accounts/fireworks/models/llama-v3p1-70b-instruct",
    "arn:aws:bedrock:eu-west-1::foundation-model/anthropic.claude-3-haiku-20240307-v1:0",
    "550e8400-e29b-41d4-a716-446655440000",
    "chatcmpl-9f86d081884c7d659a2feaa0c55ad015",
    "1735689600123456789",
    "2024-10-02 12:00:01.123",
    "10.244.17.203:8000",
    "ip-10-0-12-113.eu-west-1.compute.internal",
    "vllm:time_to_first_token_seconds",
    "gen_ai.usage.input_tokens",
    "http.request.header.x-request-id",
    "Microsoft.AspNetCore.Hosting.HttpRequestIn",
    "wait for user",
    "Intel(R) Xeon(R) CPU @ 2.20GHz",
]
# What must not be found, and a text that has it.
PRIVATE = [
    ("my knee hurts", "my knee hurts"),
    ("divorce", "Ann asked about her divorce"),
    ("divorce", "execute_tool Ann asked about her divorce"),
    ("Steuern", "wie hoch sind meine Steuern"),
    ("impuestos", "¿cuánto debo de impuestos?"),
    ("税", "这里是关于我的税务问题的一段话请帮助我"),
    ("jane.doe", "mail to jane.doe@example.com"),
    ("jane.doe", "GET /users/jane.doe%40example.com/orders"),
    ("1701234567", "call +491701234567"),
    ("123-4567", "call 555-123-4567"),
    ("4111", "pay 4111 1111 1111 1111"),
    ("4111111111111111", "4111111111111111"),
    ("0532", "DE89 3704 0044 0532 0130 00"),
    ("proj-abcdefgh", "sk-proj-abcdefghijklmnop"),
    ("eyJhbGci", "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"),
    ("hunter2", "postgres://app:hunter2@db/orders"),
    ("hunter2", "login password=hunter2"),
    ("secret", "https://h/find?q=secret"),
    ("rent", "GET /ask/what%20is%20my%20rent"),
    ("rent", "/ask/how-do-i-lower-my-rent-now"),
    ("Smith", "SELECT * FROM users WHERE name = 'Smith' AND age > 3"),
    ("Smith", "insert into users values ('Smith')"),
    ("Smith", '{"name": "Smith"}'),
    ("rent", "please lower\nthe rent"),
]


@pytest.mark.parametrize("text", PROGRAMS_NAMES)
def test_names_of_programs_stay(text: str) -> None:
    assert wording.name(text, b"s") == text
    assert wording.identity(text, b"s") == text


@pytest.mark.parametrize(("words", "text"), PRIVATE)
def test_what_is_private_is_in_no_name(words: str, text: str) -> None:
    kept = wording.name(text, b"s")
    assert words not in kept
    assert kept == wording.name(text, b"s")
    assert len(kept) < len(text) + 50
    if not text.startswith(("SELECT", "insert", "https", "/ask")):
        assert wording.identity(text, b"s").startswith("[text: ")


def test_two_private_sessions_stay_two_and_their_hash_is_of_the_store() -> None:
    one, other = (wording.identity(f"{who}@example.com", b"s") for who in ("ann", "ben"))
    assert one != other
    assert one != wording.identity("ann@example.com", b"t")


def test_templates_keep_what_tells_programs_parts_apart() -> None:
    assert wording.name("mail to ann@example.com") == "mail to {email}"
    assert wording.name("GET /users/ann@example.com/orders/12345678") == (
        "GET /users/{text}/orders/{id}"
    )
    assert wording.name("select a, b from shop.orders where c = 'x' limit 3") == (
        "SELECT shop.orders"
    )
    assert wording.name("execute_tool tell me about my knee").startswith("execute_tool [text: ")


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=60)
    | st.text("aZ09-_ /.?()+%@:=;'\"{[", max_size=40)
    | st.text("0123456789 -+()./a", max_size=24)
)
def test_every_text_that_would_change_is_looked_at(text: str) -> None:
    """The compiled loop that chooses what is looked at one by one misses nothing."""
    _check_chosen(text)


@pytest.mark.parametrize("text", [text for _, text in PRIVATE])
def test_everything_private_is_looked_at(text: str) -> None:
    _check_chosen(text)


def _check_chosen(text: str) -> None:
    column = pa.array([text])
    for name, read in (
        (True, wording.name),
        (True, wording.address),
        (False, wording.identity),
    ):
        if len(text.encode()) <= 256 and read(text) != text:
            assert packing.suspects(column, name).tolist() == [True]
    if wording.is_private(text):
        assert packing.suspects(column, False).tolist() == [True]


@pytest.mark.parametrize("part", ["a", "1", "1 ", "a@", "eyJ", "+1 ", "a.", "-", "A1", "/a", "%40"])
def test_no_text_makes_the_patterns_go_back_and_forth(part: str) -> None:
    """A pattern whose steps grow faster than the text would not end within the suite's limit."""
    wording.name(part * 5_000)
    wording.is_private(part * 5_000)


# --- every place where a name stands ---

NUMBERED = [
    "Zquixo{} asked about her divorce",
    "zquixo{}@example.com",
    "sk-zquixo{}aaaaaaaaaaaaaaaa",
]
_TEXTS = {
    "a span's name": lambda s, t: setattr(s, "name", t),
    "a status message": lambda s, t: setattr(s.status, "message", t),
    "a trace state": lambda s, t: setattr(s, "trace_state", f"a=1,b={t}"),
    "an event's name": lambda s, t: s.events.add(name=t, time_unix_nano=T0_NS),
    "an event's key": lambda s, t: s.events.add(name="e", time_unix_nano=T0_NS).attributes.extend(
        attributes({t: "a"})
    ),
    "an event's value": lambda s, t: s.events.add(name="e", time_unix_nano=T0_NS).attributes.extend(
        attributes({"k": t})
    ),
    "an exception's kind": lambda s, t: s.events.add(
        name="exception", time_unix_nano=T0_NS
    ).attributes.extend(attributes({"exception.type": t})),
    "a link's key": lambda s, t: s.links.add(
        trace_id=b"t" * 16, span_id=b"s" * 8
    ).attributes.extend(attributes({t: 1})),
    "a key": lambda s, t: s.attributes.extend(attributes({t: "a"})),
    "a key of a number": lambda s, t: s.attributes.extend(attributes({t: 3})),
    **{
        key: lambda s, t, key=key: s.attributes.extend(attributes({key: t}))
        for key in (
            *("session.id", "gen_ai.conversation.id", "tenant.id", "http.route", "gen_ai.system"),
            *("gen_ai.request.model", "gen_ai.response.id", "gen_ai.operation.name", "error.type"),
            *("gen_ai.agent.name", "gen_ai.tool.name", "thread.name", "user_agent.original"),
            *("unknown", "unknown.id", "peer.service", "server.address", "baggage.account"),
            *("url.path", "url.full", "db.namespace", "overrun.route", "overrun.prefix_hash"),
        )
    },
}


@pytest.mark.parametrize("text", NUMBERED)
@pytest.mark.parametrize("known", [False, True])
def test_private_texts_are_in_no_row_of_spans(text: str, known: bool) -> None:
    spans = []
    for i, put in enumerate(_TEXTS.values()):
        made = span(i + 1, 1, attributes={"gen_ai.usage.input_tokens": 1})
        put(made, text.format(i))
        spans.append(made)
    resource = {
        "service.name": "s",
        **{key: text.format(i + 500) for i, key in enumerate(RESOURCE)},
    }
    sent = request(spans, resource)
    scope = sent.resource_spans[0].scope_spans[0].scope
    scope.name, scope.version = text.format(600), text.format(601)
    rules = Rules(salt=b"s", words=Enumerations() if known else None)
    found = normalize(decode_spans([sent.SerializeToString()]), rules)
    places = dict(enumerate(_TEXTS)) | {i + 500: key for i, key in enumerate(RESOURCE)}
    kept = " ".join(
        [
            *(str(table.to_pylist()) for table in (found.spans, found.events, found.links)),
            str(found.sources),
            str(found.shapes),
        ]
    ).lower()
    assert [what for i, what in places.items() if f"zquixo{i}" in kept] == []


RESOURCE = (
    *("service.version", "service.namespace", "service.instance.id", "deployment.environment.name"),
    *("host.name", "k8s.pod.name", "team", "process.command", "a key of mine"),
)


@pytest.mark.parametrize("text", NUMBERED)
def test_private_texts_are_in_no_row_of_points(text: str) -> None:
    made = ExportMetricsServiceRequest()
    resource = made.resource_metrics.add()
    resource.resource.attributes.extend(attributes({"service.instance.id": text.format(1)}))
    for i, (name, unit, labels) in enumerate(
        [
            (text.format(2), "s", {"a": 1}),
            ("m", text.format(3), {"a": 1}),
            ("m", "s", {text.format(4): "a"}),
            ("m", "s", {"label": text.format(5)}),
            ("vllm:num_requests_waiting", "", {"model_name": text.format(6)}),
            ("vllm:num_requests_waiting", "", {"instance": text.format(7), "pod": text.format(8)}),
        ]
    ):
        metric = resource.scope_metrics.add().metrics.add(name=name, unit=unit)
        metric.description = text.format(9)
        metric.gauge.data_points.add(time_unix_nano=T0_NS + i, as_double=i).attributes.extend(
            attributes(labels)
        )
    points = decode_points(made.SerializeToString(), Rules(salt=b"s"))
    kept = f"{points.rows} {points.sources}".lower()
    assert [i for i in range(10) if f"zquixo{i}" in kept] == []


def test_with_known_attributes_only_numbers_and_few_words_stay_under_other_keys() -> None:
    rules = Rules(salt=b"s", words=Enumerations())
    sent = [
        {"plan": "gold", "surname": f"Meyer{i}", "n": "12.5", "count": i, "db.namespace": f"v{i}"}
        for i in range(2 * MOST_WORDS)
    ]
    spans = [span(1, i + 1, attributes=values) for i, values in enumerate(sent)]
    found = normalize(decode_spans([request(spans).SerializeToString()]), rules)
    keys = [found.shapes[shape] for shape in found.spans.column("shape").to_pylist()]
    values = [text.split("\x1f") for text in found.spans.column("attribute_values").to_pylist()]
    rows = [dict(zip(k, v, strict=True)) for k, v in zip(keys, values, strict=True)]
    assert {row["plan"] for row in rows} == {"gold"}
    assert {row["n"] for row in rows} == {"12.5"}
    assert [row["count"] for row in rows] == [str(i) for i in range(len(rows))]
    assert sum(row["surname"].startswith("Meyer") for row in rows) == MOST_WORDS
    assert [row["db.namespace"] for row in rows] == [f"v{i}" for i in range(len(rows))]

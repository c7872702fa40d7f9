"""People's words do not reach the disk unless they were asked for: not in the file, not in its log, whatever attribute they hide in."""

import functools
import json
import random
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overrun.collector.config import PrivacySettings
from overrun.collector.decode.otlp_spans import decode_spans
from overrun.collector.ingest.writer import METRICS
from overrun.collector.normalise import limits, log_records, privacy
from overrun.collector.normalise.points import decode_points
from overrun.collector.normalise.spans import Rules, _paths, normalize
from overrun.sample_traces import replay
from tests.collector.conftest import (
    T0_NS,
    Collector,
    attributes,
    collecting,
    one,
    request,
    rows,
    span,
)
from tests.collector.oracle_build import Made, body
from tests.collector.oracle_otlp import RECORDINGS

MARKER = "zebra-crossing-at-midnight"
# Where a sentence stays, for no program's name has its shape: nowhere.
NAMES: dict[str, set[str]] = {"logs": set(), "metrics": set(), "traces": set()}
SHORT, LONG = f"tell me about {MARKER}", f"tell me about {MARKER} " * 20
USER = "jane.doe.4711@example.com"

# Where the known instrumentations put what people and models say.
TEXT_KEYS: list[str] = tomllib.loads(Path(__file__).with_name("keys.toml").read_text())["text_keys"]
URL_KEYS = ("url.full", "http.url", "http.target", "url.path", "http.request.url")


def shapes(text: str) -> list[Any]:
    """A text in every shape that an attribute can have."""
    return [
        text,
        [text],
        {"content": text},
        [{"role": "user", "content": text}],
        json.dumps([{"role": "user", "content": text}]),
    ]


def payload(text: str) -> bytes:
    spans = []
    for i, key in enumerate(TEXT_KEYS):
        spans += [
            span(1, 10 * i + j + 1, attributes={key: value}) for j, value in enumerate(shapes(text))
        ]
    first = 10 * len(TEXT_KEYS)
    for i, key in enumerate(URL_KEYS):
        spans += [
            span(2, first + 3 * i + j, attributes={key: url})
            for j, url in enumerate(
                [
                    f"https://{MARKER}:secret@shop.example/search?q={text}",
                    f"/search?q={text}",
                    f"/search#{text}",
                ]
            )
        ]
    blobs = [
        json.dumps({"prompt": text}),
        json.dumps({"a": {"messages": [{"content": text}]}}),
        str({"input": text}),
        json.dumps(json.dumps({"question": text})),
        '{"prompt":"' + text,
        '\n  {"prompt": "' + text + '"}',
    ]
    spans += [span(3, i + 1, attributes={"hidden_params": blob}) for i, blob in enumerate(blobs)]
    spans += [
        span(3, 20 + i, attributes={"metadata": value})
        for i, value in enumerate([{"prompt": text}, [{"prompt": text}], {"a": {"answer": [text]}}])
    ]
    last = span(4, 1, name=f"GET /search?q={text}", attributes={"http.route": "/search"})
    last.status.code, last.status.message = 2, text
    for name in (
        "exception",
        "gen_ai.user.message",
        "gen_ai.content.prompt",
        "gen_ai.choice",
        "gen_ai.content.completion.chunk",
        "log",
    ):
        last.events.add(time_unix_nano=T0_NS, name=name).attributes.extend(
            attributes(
                {
                    "exception.type": "ValueError",
                    "exception.message": text,
                    "exception.stacktrace": text,
                    "gen_ai.prompt": text,
                    "content": text,
                    "message": {"content": text},
                    "gen_ai.event.content": json.dumps({"content": text}),
                    "event.body": text,
                }
            )
        )
    last.links.add(trace_id=bytes(15) + b"1", span_id=bytes(7) + b"1").attributes.extend(
        attributes({"prompt": text, "input.value": [text]})
    )
    made = request(
        [*spans, last],
        {
            "service.name": "shop",
            "prompt.template": text,
            "app.system_prompt": text,
            "process.command_args": ["run", text],
            "note": json.dumps({"prompt": text}),
        },
    )
    made.resource_spans[0].scope_spans[0].scope.attributes.extend(
        attributes({"instructions": text})
    )
    return made.SerializeToString()


def logs(text: str) -> bytes:
    made = ExportLogsServiceRequest()
    record = made.resource_logs.add().scope_logs.add().log_records.add()
    record.body.string_value = text
    record.attributes.extend(attributes({"gen_ai.prompt": text}))
    return made.SerializeToString()


def metrics(text: str) -> bytes:
    made = ExportMetricsServiceRequest()
    metric = made.resource_metrics.add().scope_metrics.add().metrics.add(name="m", description=text)
    point = metric.gauge.data_points.add(time_unix_nano=T0_NS, as_double=1)
    point.attributes.extend(attributes({"prompt": text}))
    point.exemplars.add(time_unix_nano=T0_NS, as_double=1).filtered_attributes.extend(
        attributes({"prompt": text})
    )
    return made.SerializeToString()


def on_disk(folder: Path) -> bytes:
    """Every byte that the store has on disk: the file, its log, and what it spilled."""
    return b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())


def send_all(collector: Collector, text: str) -> None:
    for signal, content in (
        ("traces", payload(text)),
        ("logs", logs(text)),
        ("metrics", metrics(text)),
    ):
        assert collector.post(signal, content).status_code == 200


@pytest.mark.parametrize("text", [SHORT, LONG], ids=["short", "long"])
def test_a_marker_sentence_in_any_text_is_found_neither_in_the_log_nor_in_the_file(
    tmp_path: Path, text: str
) -> None:
    with collecting(tmp_path / "t.db") as collector:
        send_all(collector, text)
        assert (tmp_path / "t.db.wal").stat().st_size > 10_000
        assert _leaks(collector) == []
        assert MARKER.encode() not in on_disk(tmp_path)
        collector.pipeline.drain()
    # Written at close: compressed columns, so the rows were looked at as well.
    assert MARKER.encode() not in on_disk(tmp_path)


def _leaks(collector: Collector) -> list[tuple[str, Any]]:
    """Rows that hold the marker, per table: names the attribute when the test above fails."""
    out = []
    for table in ("spans", "span_events", "span_links", "sources", "points", "shapes"):
        out += [
            (table, row)
            for row in collector.rows(f"select * from {table} t where t::varchar like '%{MARKER}%'")
        ]
    for key, value in collector.rows(
        "select unnest(map_keys(attributes)), unnest(map_values(attributes)) from v_spans"
    ):
        if MARKER in value:
            out.append((key, value))
    return out


def test_with_store_text_it_is_kept(tmp_path: Path) -> None:
    with collecting(tmp_path / "t.db", privacy=PrivacySettings(store_text=True)) as collector:
        send_all(collector, SHORT)
        assert MARKER.encode() in on_disk(tmp_path)
        assert collector.rows(
            "select count(*) from v_spans where attributes['gen_ai.prompt'] = '" + SHORT + "'"
        ) == [(1,)]
        # Log bodies are never stored, and a user stays a hash.
        assert (
            collector.post(
                "traces", request([span(9, 1, attributes={"user.id": USER})]).SerializeToString()
            ).status_code
            == 200
        )
        assert USER.encode() not in on_disk(tmp_path)


def test_numbers_and_names_under_keys_like_text_stay(tmp_path: Path) -> None:
    kept = {
        "prompt": 7,
        "gen_ai.prompt": 3,
        "input": 2.5,
        "completion": True,
        "prompt.version": "v7",
        "output.mime_type": "application/json",
        "tool.result.size": "12",
        "gen_ai.request.reasoning_effort": "high",
        "usage_details": '{"input": 12, "output": 5}',
        "messages.count": 3,
        "http.response.header.anthropic-ratelimit-input-tokens-remaining": '["29000"]',
        "http.response.header.x-ratelimit-limit-requests": '["500"]',
        "http.response.header.x-request-id": '["req_1"]',
        "http.response.header.openai-processing-ms": '["420"]',
        "k8s.pod.name": "pod-1",
    }
    with collecting(tmp_path / "t.db") as collector:
        assert (
            collector.post(
                "traces", request([span(1, 1, attributes=kept)]).SerializeToString()
            ).status_code
            == 200
        )
        [(found,)] = collector.rows("select attributes from v_spans")
    assert found == {"prompt": "7", "gen_ai.prompt": "3", "input": "2.5", "completion": "true"} | {
        k: str(v)
        for k, v in kept.items()
        if k not in ("prompt", "gen_ai.prompt", "input", "completion")
    }


def test_a_redacted_text_keeps_its_length_and_equal_texts_stay_equal(tmp_path: Path) -> None:
    with collecting(tmp_path / "t.db") as collector:
        values = [
            {"question": SHORT},
            {"question": SHORT},
            {"question": LONG},
            {"unknown": "x" * 128},
            {"unknown": "x" * 129},
        ]
        assert (
            collector.post(
                "traces",
                request(
                    [span(1, i + 1, attributes=a) for i, a in enumerate(values)]
                ).SerializeToString(),
            ).status_code
            == 200
        )
        first, again, long, short, cut = (
            next(iter(a.values()))
            for (a,) in collector.rows("select attributes from v_spans order by span_id")
        )
    assert first == again != long
    assert first.startswith(f"[text: {len(SHORT)} characters, ")
    assert (short, cut.startswith("[text: 129 characters, ")) == ("x" * 128, True)


USER_KEYS = (
    "user.id",
    "enduser.id",
    "gen_ai.user",
    "llm.user",
    "langfuse.user.id",
    "traceloop.association.properties.user_id",
    "ai.telemetry.metadata.userId",
    "metadata.user_api_key_user_id",
    "metadata.user_api_key_end_user_id",
    "user.name",
    "metadata.user_api_key_user_email",
)


def test_users_are_salted_hashes_even_when_they_are_named_twice(tmp_path: Path) -> None:
    spans = [
        span(1, 1, attributes=dict.fromkeys(USER_KEYS, USER)),
        *(span(1, i + 2, attributes={key: USER}) for i, key in enumerate(USER_KEYS)),
    ]
    sent = request(
        spans, {"service.name": "s", "enduser.id": USER, "profile": json.dumps({"userId": USER})}
    ).SerializeToString()
    hashes = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        with collecting(folder / "t.db") as collector:
            assert collector.post("traces", sent).status_code == 200
            hashes += [
                h
                for (h,) in collector.rows(
                    "select distinct user_hash from v_spans where user_hash is not null"
                )
            ]
            assert USER.encode() not in on_disk(folder)
            assert collector.rows(
                "select count(distinct user_hash) from v_spans where attributes is not null"
            ) == [(1,)]
    assert len(set(hashes)) == 2  # every store has a salt of its own
    assert all(re.fullmatch(r"[0-9a-f]{16}", h) for h in hashes)


def test_users_are_kept_as_they_are_when_that_is_asked_for(tmp_path: Path) -> None:
    with collecting(tmp_path / "t.db", privacy=PrivacySettings(hash_users=False)) as collector:
        assert (
            collector.post(
                "traces",
                request(
                    [span(1, 1, attributes={"user.id": USER, "llm.user": "other"})]
                ).SerializeToString(),
            ).status_code
            == 200
        )
        assert collector.rows("select user_hash, attributes['llm.user'] from v_spans") == [
            (USER, "other")
        ]


def test_metric_labels_are_cleaned_like_attributes(tmp_path: Path) -> None:
    with collecting(tmp_path / "t.db") as collector:
        collector.writer.submit(METRICS, metrics(SHORT)).result(30)
        assert MARKER not in str(rows(collector.pipeline, "select * from points"))
        assert one(collector.pipeline, "select count(*) from points") == 1


# --- the functions ---


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abcé日/?#@:=&%. \n", max_size=40), st.text(min_size=1, max_size=20))
def test_nothing_after_the_first_question_mark_or_hash_survives(before: str, secret: str) -> None:
    for sign in "?#":
        bare = privacy.without_query(f"{before}{sign}{secret}")
        assert "?" not in bare
        assert "#" not in bare
        assert bare == privacy.without_query(before)


@settings(max_examples=200, deadline=None)
@given(st.from_regex(r"[a-z]{3,5}://[^/@?#\s]{1,10}@[a-z.]{1,10}/[a-z/]{0,10}", fullmatch=True))
def test_user_info_of_a_url_is_left_out(url: str) -> None:
    scheme, _, rest = url.partition("://")
    assert privacy.without_query(url) == f"{scheme}://{rest.partition('@')[2]}"


@settings(max_examples=300, deadline=None)
@given(st.text())
def test_a_redaction_has_a_bounded_form_and_nothing_of_the_text(text: str) -> None:
    made = privacy.redacted(text)
    assert re.fullmatch(rf"\[text: {len(text)} characters, [0-9a-f]{{16}}\]", made)
    assert made == privacy.redacted(text)
    assert privacy.redacted(text + "x") != made


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40))
def test_any_key_has_an_action(key: str) -> None:
    assert privacy.action(key) in (privacy.KEEP, privacy.STRIP_QUERY, privacy.REDACT, privacy.DROP)
    assert privacy.is_user(key) in (True, False)


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["a", "id", "usage"]), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    st.sampled_from(["prompt", "messages", "toolArgs", "user_id"]),
    st.randoms(),
)
def test_a_text_key_anywhere_inside_a_json_text_is_seen(
    around: Any, key: str, dice: random.Random
) -> None:
    document = {"x": around, key: "words"}
    for _ in range(dice.randint(0, 3)):
        document = dice.choice([{"n": document}, [document], json.dumps(document)])
    assert privacy.holds_text(document if isinstance(document, str) else json.dumps(document))
    assert not privacy.holds_text(json.dumps({"x": around}))


@pytest.mark.parametrize(
    "key",
    [
        "http.request.header.authorization",
        "http.request.header.cookie",
        "http.response.header.set-cookie",
        "db.password",
        "http.request.header.x-api-key",
        "app.client_secret",
        "metadata.user_api_key",
    ],
)
def test_credentials_are_never_stored(key: str) -> None:
    assert privacy.action(key) == privacy.DROP
    assert privacy.clean(key, "Bearer abc", store_text=False, salt=None) is None


@pytest.mark.parametrize(
    "key", ["metadata.user_api_key_team_id", "gen_ai.token.type", "cookie.count", "auth.method"]
)
def test_what_only_sounds_like_a_credential_stays(key: str) -> None:
    assert privacy.action(key) == privacy.KEEP


@pytest.mark.parametrize(
    "key",
    [
        "baggage",
        "db.query.parameter.0",
        "process.command_line",
        "ticket.description",
        "search.q",
        "chat.title",
    ],
)
def test_text_in_less_usual_places_keeps_only_length_and_hash(key: str) -> None:
    assert privacy.clean(key, "my mother is ill", store_text=False, salt=None) == privacy.redacted(
        "my mother is ill"
    )


def test_a_route_is_a_path_and_nothing_else() -> None:
    paths = [
        "/a/b?q=x",
        "https://h/p?q=x",
        "https://h",
        "/**",
        "UNKNOWN",
        "a question",
        '{"q": "x"}',
        "",
        "/",
    ]
    assert _paths(pa.array(paths)).to_pylist() == ["/a/b", "/p", "", "", "", "", "", "", "/"]


@pytest.mark.parametrize(
    "key",
    [
        "user.full_name",
        "user.email",
        "client.address",
        "enduser.name",
        "app.user_id",
        "patient.name",
        "customer_email",
        "contact.phone_number",
    ],
)
def test_who_somebody_is_becomes_a_salted_hash(key: str) -> None:
    assert privacy.clean(key, "Ada", store_text=False, salt=b"s") == privacy.user_hash("Ada", b"s")
    assert privacy.clean("user_agent.name", "Firefox", store_text=False, salt=b"s") == "Firefox"


# --- every place of every recording ---

SENTENCE = "Zquixo{} asked about her divorce"


def _places(message: Any, path: str = "") -> Iterator[tuple[Callable[[str], None], str]]:
    """Every text of an OTLP message: how to change it, and where it stands (an attribute's is under its key, an item's of an array under `[]`)."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for item in value if field.is_repeated else [value]:
                of = item.DESCRIPTOR.name
                yield from _places(
                    item,
                    f"{path} {item.key}"
                    if of == "KeyValue"
                    else f"{path}[]"
                    if of == "AnyValue" and field.is_repeated
                    else path
                    if of in ("AnyValue", "ArrayValue", "KeyValueList")
                    else f"{path} {field.name}",
                )
        elif field.type == field.TYPE_STRING and field.name != "key":
            yield (
                functools.partial(setattr, message, field.name),
                path.strip() if field.name == "string_value" else f"{path} {field.name}".strip(),
            )


def _alone(request: Any, resource: Any, scope: Any, item: Any, where: tuple[str, str, str]) -> Any:
    """A request with nothing but this item of it, and with a text in each place that recordings leave empty."""
    one = type(request)()
    group = getattr(one, where[0]).add()
    group.resource.CopyFrom(resource.resource)
    inner = getattr(group, where[1]).add()
    inner.scope.CopyFrom(scope.scope)
    group.schema_url = inner.schema_url = "https://x"
    made = getattr(inner, where[2]).add()
    made.CopyFrom(item)
    if where[2] == "spans":
        made.trace_state, made.status.message = "a=b", "c"
    return one


def _with_a_sentence_each(signal: str) -> tuple[bytes, list[str]]:
    """One request in which every place of the recordings' items has a numbered sentence once, and the places in the order of the numbers."""
    where = {
        "traces": ("resource_spans", "scope_spans", "spans"),
        "metrics": ("resource_metrics", "scope_metrics", "metrics"),
        "logs": ("resource_logs", "scope_logs", "log_records"),
    }[signal]
    places: list[str] = []
    out = b""
    for name in (n for n in RECORDINGS if not n.startswith("sim-")):
        for payload in (p for p in replay.load(name).payloads[:3] if p.signal == signal):
            for resource in getattr(payload.request, where[0]):
                for scope in getattr(resource, where[1]):
                    for item in getattr(scope, where[2])[:40]:
                        for i, (_, place) in enumerate(
                            list(_places(_alone(payload.request, resource, scope, item, where)))
                        ):
                            if place not in places:
                                one = _alone(payload.request, resource, scope, item, where)
                                list(_places(one))[i][0](SENTENCE.format(len(places)))
                                places.append(place)
                                out += (
                                    one.SerializeToString()
                                )  # requests put one behind the other are one
    return out, places


def test_a_task_that_a_span_is_named_after_is_not_kept() -> None:
    made = [
        Made(
            1,
            "Read https://x/y?z for Ann.task",
            0,
            10,
            scope="opentelemetry.instrumentation.crewai.instrumentation",
        ),
        Made(2, "Cook.agent", 0, 10, scope="opentelemetry.instrumentation.crewai.instrumentation"),
        Made(3, "embed.task", 0, 10, scope="other"),
    ]
    kept = {
        store: normalize(decode_spans([body(*made)]), Rules(store_text=store))
        .spans.column("name")
        .to_pylist()
        for store in (False, True)
    }
    assert kept[False] == [
        f"{privacy.redacted('Read https://x/y?z for Ann')}.task",
        "Cook.agent",
        "embed.task",
    ]
    assert kept[True] == [one.name for one in made]


def test_a_sentence_stays_only_where_a_name_belongs() -> None:
    """Everywhere else in the recorded payloads it is dropped, or its length and hash are all that is kept."""
    rules = Rules(salt=b"s")
    spans, in_spans = _with_a_sentence_each("traces")
    metrics, in_metrics = _with_a_sentence_each("metrics")
    logs, in_logs = _with_a_sentence_each("logs")
    found = normalize(decode_spans([spans]), rules)
    read = [
        ("traces", in_spans, [found.spans, found.events, found.links, found.sources]),
        ("logs", in_logs, log_records.told(logs)),
        ("metrics", in_metrics, [(p.rows, p.sources) for p in [decode_points(metrics, rules)]]),
    ]
    assert (len(in_spans) > 250, len(in_metrics) > 40, len(in_logs) > 5) == (True, True, True)
    for signal, places, kept in read:
        text = " ".join(
            str(part.to_pylist()) if isinstance(part, pa.Table) else str(part) for part in kept
        )
        left = {places[int(number)] for number in re.findall(r"(?i)zquixo(\d+)", text)}
        assert {place.rpartition(" ")[2] for place in left} == NAMES[signal]


@pytest.mark.parametrize(
    ("key", "action"),
    [
        ("agent.generate.argument.0", privacy.REDACT),
        ("agent.generate.argument[0]", privacy.REDACT),
        ("ai_value", privacy.action("ai.value")),
        ("AI.VALUE", privacy.action("ai.value")),
        ("url_full", privacy.STRIP_QUERY),
        ("gen_ai_prompt_0_content", privacy.DROP),
        ("latency.p99", privacy.KEEP),
        ("shard.0", privacy.KEEP),
    ],
)
def test_text_is_known_under_any_spelling_and_number_of_its_key(key: str, action: int) -> None:
    assert privacy.action(key) == action


def test_under_a_key_that_is_too_long_nothing_is_kept_and_none_of_its_words_is_read() -> None:
    long = "a." * limits.MAX_KEY
    assert privacy.action(long) == privacy.DROP
    assert not privacy.is_user(f"{long}user.id")
    assert not privacy.allows_long(f"{long}user.agent")
    assert privacy.allows_long("my.user.agent")

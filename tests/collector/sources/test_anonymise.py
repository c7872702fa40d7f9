"""What leaves a machine in a bug report: numbers, structure and the words of vocabularies, and nothing that somebody called something."""

import json
import re

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from overrun.collector.sources.anonymise import BEGIN_NS, Anonymiser, hidden, vocabulary

T0_NS = 1_790_000_000_000_000_000
# Words of consonants and other scripts, which no vocabulary has; five letters and more, so that no part of a hash is one by chance.
_WORDS = st.text(
    "bcdfghjklmnpqrstvwxzBCDFGHJKLMNPQRSTVWXZßñçждя語文", min_size=5, max_size=18
).filter(
    lambda word: word.lower() not in vocabulary() and not re.fullmatch(r"x?[0-9a-f]+", word.lower())
)
_TEXTS = st.lists(_WORDS, min_size=1, max_size=9).flatmap(
    lambda words: st.sampled_from(" ./-_:@?=&").map(lambda between: between.join(words))
)
_KEYS = st.sampled_from(
    [
        "gen_ai.prompt",
        "gen_ai.input.messages",
        "gen_ai.request.model",
        "gen_ai.response.id",
        "user.id",
        "http.url",
        "db.statement",
        "error.type",
        "exception.message",
        "service.name",
        "overrun.route",
        "openinference.span.kind",
        "metadata",
    ]
)


def attribute(key: str, value: object) -> KeyValue:
    made = KeyValue(key=key)
    if isinstance(value, int):
        made.value.int_value = value
    elif isinstance(value, list):
        made.value.array_value.values.extend(AnyValue(string_value=item) for item in value)
    else:
        made.value.string_value = str(value)
    return made


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    texts=st.lists(_TEXTS, min_size=9, max_size=9),
    keys=st.lists(_KEYS, min_size=4, max_size=4),
    own_key=_TEXTS,
)
def test_no_original_text_longer_than_a_vocabulary_word_survives(
    texts: list[str], keys: list[str], own_key: str
) -> None:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.schema_url = texts[0]
    resource.resource.attributes.extend(
        [attribute("service.name", texts[0]), attribute(own_key, texts[1])]
    )
    scope = resource.scope_spans.add()
    scope.scope.name, scope.scope.version = texts[2], texts[3]
    span = scope.spans.add(
        trace_id=b"a" * 16, span_id=b"b" * 8, name=texts[4], start_time_unix_nano=T0_NS
    )
    span.trace_state = f"vendor={texts[5]}"
    span.status.message = texts[6]
    span.attributes.extend(
        [
            attribute(keys[0], texts[7]),
            attribute(keys[1], json.dumps({own_key: [texts[8], {"content": texts[0]}], "n": 3})),
            attribute(keys[2], [texts[1], texts[2]]),
            attribute(keys[3], texts[3].encode().hex()[:8] + texts[4]),
        ]
    )
    event = span.events.add(name=texts[5])
    event.attributes.append(attribute("exception.stacktrace", texts[6]))
    span.links.add(trace_id=b"c" * 16, span_id=b"d" * 8, trace_state=texts[7])
    metrics = ExportMetricsServiceRequest()
    held = metrics.resource_metrics.add()
    held.resource.attributes.append(attribute("host.name", texts[8]))
    metric = held.scope_metrics.add().metrics.add(name=own_key, description=texts[0], unit=texts[1])
    point = metric.gauge.data_points.add(time_unix_nano=T0_NS, as_int=7)
    point.attributes.append(attribute("model_name", texts[2]))
    bodies = [("traces", request.SerializeToString()), ("metrics", metrics.SerializeToString())]
    left = json.dumps([MessageToDict(message) for _, message in hidden(bodies)], ensure_ascii=False)
    for text in (*texts, own_key):
        for word in re.split(r"[ ./\-_:@?=&]", text):
            assert word not in left, (word, left)


def test_structure_numbers_and_vocabulary_stay_so_that_the_copy_is_read_alike() -> None:
    hide = Anonymiser(T0_NS, key=b"k")
    request = ExportTraceServiceRequest()
    span = (
        request.resource_spans.add()
        .scope_spans.add()
        .spans.add(
            trace_id=b"a" * 16,
            span_id=b"b" * 8,
            name="chat acme-gpt",
            kind=3,
            start_time_unix_nano=T0_NS + 5_000,
            end_time_unix_nano=T0_NS + 9_000,
        )
    )
    span.trace_state = "ot=th:8,vendor=acme"
    span.attributes.extend(
        [
            attribute("gen_ai.operation.name", "chat"),
            attribute("gen_ai.usage.output_tokens", 33),
            attribute("gen_ai.request.model", "acme-gpt"),
            attribute("langfuse.observation.completion_start_time", "2026-09-21T14:13:20.000004Z"),
            attribute("gen_ai.response.finish_reasons", '["stop"]'),
            attribute("llm.is_streaming", "True"),
            attribute("gen_ai.prompt", "tell me about my invoice"),
            attribute("created", (T0_NS + 1) // 1_000_000),
        ]
    )
    [made] = hide.traces(request.SerializeToString()).resource_spans[0].scope_spans[0].spans
    values = {one.key: one.value for one in made.attributes}
    assert made.name.startswith("chat x")
    assert (
        made.name.split()[1] == values["gen_ai.request.model"].string_value
    )  # equal names stay equal
    assert (made.kind, made.trace_state) == (3, "ot=th:8")
    assert made.start_time_unix_nano == BEGIN_NS + 5_000
    assert made.end_time_unix_nano - made.start_time_unix_nano == 4_000
    assert values["gen_ai.usage.output_tokens"].int_value == 33
    assert values["gen_ai.response.finish_reasons"].string_value == '["stop"]'
    assert values["gen_ai.operation.name"].string_value == "chat"
    assert values["langfuse.observation.completion_start_time"].string_value.startswith(
        "2026-01-01T00:00:00.000004"
    )
    assert values["llm.is_streaming"].string_value == "True"
    assert values["gen_ai.prompt"].string_value == "text"
    assert abs(values["created"].int_value * 1_000_000 - BEGIN_NS) < 2_000_000


@pytest.mark.parametrize("word", ["http", "post", "openai", "chat", "vector", "queue", "vllm"])
def test_the_words_that_decide_how_a_span_is_read_are_vocabulary(word: str) -> None:
    assert word in vocabulary()

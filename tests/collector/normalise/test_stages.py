"""Which stage a span belongs to is decided by what it says of itself, first hit wins, and by whole words only."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from overrun.collector.decode.otlp_spans import decode_spans
from overrun.collector.normalise.spans import Rules, normalize
from overrun.collector.normalise.stages import (
    MODEL_STAGES,
    RANK_ATTRIBUTE,
    ROLE,
    ROLES,
    STAGE,
    STAGES,
    of_name,
)
from tests.collector.oracle_build import CLIENT, INTERNAL, SERVER, Made, body
from tests.collector.oracle_store import recording

PRODUCER, CONSUMER = 4, 5


def classified(
    name: str = "x", kind: int = INTERNAL, scope: str = "test", **attributes: Any
) -> tuple[str, str]:
    """Role and stage of one span; `__` in an attribute's name stands for a dot."""
    made = Made(
        1,
        name,
        0,
        10,
        kind=kind,
        scope=scope,
        attributes={k.replace("__", "."): v for k, v in attributes.items()},
    )
    row = normalize(decode_spans([body(made)]), Rules()).spans.to_pylist()[0]
    return ROLES[row["role"]], STAGES[row["stage"]]


NAMES = tomllib.loads((Path(__file__).parent / "names.toml").read_text())["stages"]


@pytest.mark.parametrize(
    ("stage", "name"), [(stage, name) for stage, names in NAMES.items() for name in names]
)
def test_a_name_is_read_by_whole_words(stage: str, name: str) -> None:
    assert classified(name) == ("plain", stage)


@pytest.mark.parametrize(
    "name",
    [
        "http.getconn",
        "http.dns",
        "http.connect",
        "http.tls",
        "dns.lookup",
        "tcp.connect",
        "tls.connect",
        "RESOLVE",
        "CONNECT",
        "SSL handshake",
        "DNS lookup api.example.com",
        "socket connect 10.0.0.7:443",
        "TLS client handshake api.example.com",
    ],
)
def test_steps_to_a_connection_are_network_even_inside_a_call(name: str) -> None:
    assert classified(name) == ("phase", "network")
    assert classified(name, CLIENT, server__address="api.example.com") == ("phase", "network")


@pytest.mark.parametrize(
    "name",
    [
        "http.send",
        "http.headers",
        "http.receive",
        "GET /rag http send",
        "POST /chat http receive",
        "GET /ws websocket send",
        "raw_gen_ai_request",
    ],
)
def test_noise_of_frameworks_is_folded(name: str) -> None:
    assert classified(name)[0] == "folded"


@pytest.mark.parametrize(
    "operation",
    [
        "chat",
        "text_completion",
        "generate_content",
        "completion",
        "acompletion",
        "atext_completion",
        "messages",
        "responses",
    ],
)
@pytest.mark.parametrize("kind", [INTERNAL, CLIENT, SERVER])
def test_a_generation_is_a_model_call_whatever_its_kind_and_name(operation: str, kind: int) -> None:
    assert classified("guardrail retrieve", kind, gen_ai__operation__name=operation) == (
        "llm",
        "generation",
    )


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"gen_ai__operation__name": "execute_tool"}, ("plain", "tool")),
        ({"gen_ai__operation__name": "embeddings"}, ("plain", "retrieval")),
        ({"gen_ai__operation__name": "invoke_agent"}, ("container", "other")),
        ({"gen_ai__operation__name": "guardrail"}, ("plain", "guardrail")),
        ({"llm__request__type": "chat"}, ("llm", "generation")),
        ({"llm__request__type": "rerank"}, ("plain", "retrieval")),
        ({"llm__request__type": "else"}, ("plain", "other")),
        ({"mcp__method__name": "tools/call"}, ("plain", "tool")),
        ({"mcp__method__name": "tools/list"}, ("plain", "network")),
        ({"db__system__name": "postgresql"}, ("plain", "retrieval")),
        ({"db__system": "Qdrant"}, ("plain", "retrieval")),
        ({"db__system": "sqlite", "db__statement": "INSERT INTO t VALUES (1)"}, ("write", "post")),
        (
            {"db__system": "sqlite", "db__statement": "  select insert from t"},
            ("plain", "retrieval"),
        ),
        ({"db__system__name": "x", "db__operation__name": "UPSERT"}, ("write", "post")),
        *[
            ({"db__system": "redis", "db__statement": f"{verb} ? ?"}, ("write", "post"))
            for verb in ("SETEX", "LPUSH", "HSET", "ZADD", "EXPIRE")
        ],
        *[
            ({"db__system": "redis", "db__statement": f"{verb} ?"}, ("plain", "retrieval"))
            for verb in ("GET", "HGETALL", "LRANGE", "FT.SEARCH", "MGET")
        ],
        ({"db__system__name": "mongodb", "db__operation__name": "insertMany"}, ("write", "post")),
        ({"db__system__name": "mongodb", "db__operation__name": "find"}, ("plain", "retrieval")),
        ({"gen_ai__latency__e2e": 1.0}, ("engine", "other")),
        ({"module": "sglang::request"}, ("engine", "other")),
        ({"module": "else"}, ("plain", "other")),
        ({"asgi__event__type": "http.request"}, ("folded", "other")),
        ({"thread_label": "Scheduler"}, ("folded", "other")),
        ({"overrun__stage": "gateway"}, ("plain", "gateway")),
        ({"overrun__stage": "nonsense"}, ("plain", "other")),
    ],
)
def test_attributes_say_what_a_span_is(
    attributes: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert classified(**attributes) == expected


KEY = '{"model_id": null, "cache_key": "d615a807"}'


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("lmnr.span.type", "TOOL", ("plain", "tool")),
        ("agentops.span.kind", "guardrail", ("plain", "guardrail")),
        ("gen_ai.span.kind", "LLM", ("llm", "generation")),
        ("acme.spanType", "tool-call", ("plain", "tool")),
        ("acme.run_type", "Retriever", ("plain", "retrieval")),
        ("acme.observation.type", "EMBEDDING", ("plain", "retrieval")),
        ("acme.span.type", "agent", ("container", "other")),
        ("span.kind", "server", ("plain", "other")),
        ("acme.timespan.type", "llm", ("plain", "other")),
        ("acme.span.kinds", "llm", ("plain", "other")),
        ("event.type", "tool", ("plain", "other")),
    ],
)
def test_a_kind_of_span_is_known_under_any_platforms_key(
    key: str, value: str, expected: tuple[str, str]
) -> None:
    assert classified(**{key: value}) == expected
    # Whoever names its operation outright knows better; a name is a guess.
    assert classified(**{key: value, "gen_ai.operation.name": "rerank"}) == ("plain", "retrieval")
    if expected[0] != "container" and expected[1] != "other":
        assert classified("guardrail", **{key: value}) == expected


@pytest.mark.parametrize(
    ("operation", "kind", "hidden", "expected"),
    [
        ("acompletion", INTERNAL, KEY, ("plain", "gateway")),
        ("acompletion", INTERNAL, '{"cache_key": null}', ("llm", "generation")),
        ("acompletion", INTERNAL, '{"cache_key": "d6', ("llm", "generation")),
        (
            "acompletion",
            SERVER,
            KEY,
            ("container", "other"),
        ),  # the application's own span, which was given the call's values
        ("aembedding", INTERNAL, KEY, ("plain", "retrieval")),
    ],
)
def test_an_answer_out_of_a_cache_of_answers_is_no_model_call(
    operation: str, kind: int, hidden: str, expected: tuple[str, str]
) -> None:
    said = {
        "gen_ai__operation__name": operation,
        "gen_ai__usage__output_tokens": 6,
        "hidden_params": hidden,
    }
    assert classified("litellm_request", kind, "litellm", **said) == expected


def test_the_earlier_rule_wins() -> None:
    chat = {"gen_ai__operation__name": "chat"}
    assert classified(overrun__stage="tool", gen_ai__latency__e2e=1.0, **chat) == ("plain", "tool")
    assert classified(thread_label="x", gen_ai__latency__e2e=1.0) == ("folded", "other")
    assert classified(gen_ai__latency__e2e=1.0, **chat) == ("engine", "other")
    assert classified(db__system="sqlite", **chat) == ("llm", "generation")
    assert classified(db__system="sqlite", gen_ai__operation__name="execute_tool") == (
        "plain",
        "tool",
    )
    assert classified("guardrail", db__system="sqlite") == ("plain", "retrieval")
    assert classified("guardrail", SERVER) == ("plain", "guardrail")
    assert classified("step", SERVER) == ("container", "other")
    assert classified("step", CONSUMER) == ("container", "other")


def test_names_of_topics_queues_and_jobs_are_no_stages() -> None:
    for name in ("publish search-jobs", "autogen create output_topic", "run/tasks.rerank"):
        assert classified(name, PRODUCER) == ("plain", "other")
        assert classified(name, CONSUMER) == ("container", "other")
    assert classified("search-jobs publish", CLIENT, messaging__system="aws_sqs") == (
        "plain",
        "other",
    )
    assert classified(
        "search-jobs receive",
        CLIENT,
        messaging__system="aws_sqs",
        messaging__operation__type="receive",
    ) == ("plain", "queue")
    assert classified("search-jobs", CONSUMER, gen_ai__operation__name="rerank") == (
        "plain",
        "retrieval",
    )


def test_a_client_that_counts_what_a_model_wrote_called_it_whatever_its_name_says() -> None:
    counted = {"gen_ai__usage__output_tokens": 5, "gen_ai__request__model": "m"}
    assert classified("self_check_output m", CLIENT, **counted) == ("llm", "generation")
    # A step of a framework may sum up what was called in it.
    assert classified("self_check_output m", INTERNAL, **counted) == ("plain", "post")
    assert classified("self_check_output m", CLIENT, gen_ai__usage__output_tokens=5) == (
        "plain",
        "post",
    )
    assert classified("search", CLIENT, openinference__span__kind="AGENT", **counted) == (
        "container",
        "other",
    )
    assert classified("self_check m", INTERNAL, **counted) == ("llm", "generation")


def test_a_client_of_http_or_rpc_is_network_and_any_other_kind_is_not() -> None:
    for key in ("http__request__method", "http__method", "url__full", "rpc__system"):
        assert classified("GET", CLIENT, **{key: "GET"}) == ("plain", "network")
        assert classified("GET", INTERNAL, **{key: "GET"}) == ("plain", "other")
        assert classified("GET", SERVER, **{key: "GET"}) == ("container", "other")


@pytest.mark.parametrize(
    ("scope", "name", "expected"),
    [
        ("sglang server", "prefill_waiting", ("phase", "queue")),
        ("sglang server", "prefill_forward", ("phase", "prefill")),
        ("sglang server", "decode_forward", ("phase", "decode")),
        ("sglang server", "decode_loop", ("folded", "other")),
        ("sglang server", "tokenize", ("phase", "prompt")),
        ("sglang server", "decode_transferred", ("phase", "kv_transfer")),
        ("sglang server 2", "prefill_forward", ("plain", "other")),
        ("test", "decode_loop", ("plain", "other")),
        ("vllm.tracing.otel", "Load weights", ("plain", "other")),
        ("vllm", "Tokenize queue", ("plain", "other")),
        ("vllmish", "Tokenize queue", ("plain", "prompt")),
        ("openlit.otel.tracing", "openai.chat.completions", ("llm", "generation")),
        ("openlit.otel.tracing", "openai.embeddings", ("plain", "retrieval")),
        ("openlit.otel.tracing", "chroma.query", ("plain", "retrieval")),
        ("test", "openai.chat.completions", ("plain", "other")),
    ],
)
def test_an_engines_own_span_names_hold_under_its_scope_only(
    scope: str, name: str, expected: tuple[str, str]
) -> None:
    assert classified(name, scope=scope) == expected


@pytest.mark.parametrize(
    ("url", "stage"),
    [
        ("https://api.cohere.com/v2/rerank", "retrieval"),
        ("http://tei:8080/embed?truncate=true", "retrieval"),
        ("https://api.openai.com/v1/embeddings", "retrieval"),
        ("https://x.openai.azure.com/openai/deployments/e/embeddings?api-version=1", "retrieval"),
        ("http://localhost:11434/api/embed", "retrieval"),
        ("https://g/v1beta/models/e:batchEmbedContents", "retrieval"),
        ("https://b/model/amazon.titan-embed-text-v2:0/invoke", "retrieval"),
        ("https://api.openai.com/v1/moderations", "guardrail"),
        ("https://shop/rerank-orders", "network"),
        ("https://shop/embedded", "network"),
        ("https://shop/embed/player.js", "network"),
        ("https://shop/find?next=/v1/rerank", "network"),
        ("http://nemo-guardrails.guardrails.svc:8000/v1/chat/completions", "guardrail"),
    ],
)
@pytest.mark.parametrize("key", ["url__full", "http__url"])
def test_a_path_tells_what_a_client_asked_a_model_for_over_plain_http(
    url: str, stage: str, key: str
) -> None:
    assert classified("POST", CLIENT, http__request__method="POST", **{key: url}) == (
        "plain",
        stage,
    )
    assert classified("POST", SERVER, http__request__method="POST", **{key: url}) == (
        "container",
        "other",
    )


@pytest.mark.parametrize(
    ("url", "model"),
    [
        ("https://api.openai.com/v1/chat/completions", None),
        ("https://api.openai.com/v1/responses", None),
        ("http://vllm-7b.ml.svc:8000/v1/completions", None),
        ("https://api.anthropic.com/v1/messages", None),
        ("https://portkey.corp/anthropic/v1/messages", None),
        (
            "https://x.openai.azure.com/openai/deployments/gpt-eu/chat/completions?api-version=1",
            "gpt-eu",
        ),
        ("https://b/model/anthropic.claude/invoke", "anthropic.claude"),
        ("https://b/model/eu.claude-v1%3A0/converse-stream", "eu.claude-v1:0"),
        ("https://g/v1beta/models/gemini-pro:streamGenerateContent?alt=sse", "gemini-pro"),
        ("http://localhost:11434/api/generate", None),
        ("http://tgi:8080/generate_stream", None),
        ("http://tgi-llama:8080/generate", None),
        ("http://triton:8000/v2/models/llama/generate", "llama"),
    ],
)
@pytest.mark.parametrize("key", ["url__full", "http__url"])
def test_a_clients_request_to_a_models_path_may_be_a_call(
    url: str, model: str | None, key: str
) -> None:
    made = request(url, key)
    assert (ROLES[made["role"]], STAGES[made["stage"]]) == ("model_request", "network")
    assert made["model"] == model
    assert made["provider"] == url.split("/")[2].split(":", maxsplit=1)[0]


@pytest.mark.parametrize(
    "url",
    [
        "https://chat.corp/v1/messages",  # a chat program's own
        "https://forms.corp/v1/responses",
        "http://bff:3000/api/chat",
        "http://reports/generate",
        "https://api.openai.com/v1/files",
        "https://api.openai.com/v1/models",
        "https://shop/find?next=/v1/chat/completions",
        "https://shop/chat/completions-of-the-day",
    ],
)
def test_a_path_that_others_have_too_is_no_call(url: str) -> None:
    assert ROLES[request(url, "url__full")["role"]] == "plain"


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("Bedrock Runtime.ConverseStream", "model_request"),
        ("BedrockRuntime/Converse", "model_request"),
        ("google.cloud.aiplatform.v1.PredictionService/StreamGenerateContent", "model_request"),
        ("google.cloud.aiplatform.v1.PredictionService/Predict", "plain"),
        ("S3.PutObject", "plain"),
    ],
)
def test_the_method_of_an_rpc_may_be_a_call(name: str, role: str) -> None:
    assert classified(name, CLIENT, rpc__system="aws-api") == (role, "network")
    assert classified(name, INTERNAL)[0] == "plain"


def request(url: str, key: str) -> dict[str, Any]:
    """A client's span with this URL, as it is stored."""
    attributes = {"http.request.method": "POST", key.replace("__", "."): url}
    made = Made(1, "POST", 0, 10, kind=CLIENT, attributes=attributes)
    found: dict[str, Any] = normalize(decode_spans([body(made)]), Rules()).spans.to_pylist()[0]
    return found


def test_a_name_with_many_readings_is_read_once_the_same_way() -> None:
    first = of_name("test", "guardrail retrieve prompt")
    assert first is not None
    assert (ROLES[first.role], STAGES[first.stage]) == ("plain", "guardrail")
    assert first.rank > RANK_ATTRIBUTE


def test_codes_are_positions_that_no_stored_row_may_lose() -> None:
    assert STAGES == (
        "network",
        "gateway",
        "retrieval",
        "prompt",
        "guardrail",
        "queue",
        "kv_transfer",
        "prefill",
        "decode",
        "tool",
        "post",
        "wait_user",
        "other",
        "first_token",
        "generation",
    )
    assert ROLES[:7] == ("plain", "container", "llm", "engine", "phase", "folded", "write")
    assert ROLES[7:] == ("model_request", "turn")
    assert [STAGE[s] for s in STAGES] == list(range(15))
    assert [ROLE[r] for r in ROLES] == list(range(9))
    assert set(MODEL_STAGES) <= set(STAGES)


def _counts(name: str) -> dict[tuple[str, str, str], int]:
    out: dict[tuple[str, str, str], int] = {}
    for span in recording(name).spans:
        key = (span["name"].split(" ")[0], span["role"], span["stage"])
        out[key] = out.get(key, 0) + 1
    return out


def test_recorded_spans_of_client_and_engine_have_their_roles() -> None:
    assert _counts("vllm-joined") == {
        ("POST", "container", "other"): 20,
        ("chat", "llm", "generation"): 20,
        ("llm_request", "engine", "other"): 20,
    }
    assert _counts("vllm-spans") == {("llm_request", "engine", "other"): 1499}


@pytest.mark.parametrize("name", ["semconv-openai-v2", "semconv-genai-openai"])
def test_recorded_spans_of_the_rag_app_have_their_stages(name: str) -> None:
    by_stage: dict[tuple[str, str], int] = {}
    for span in recording(name).spans:
        by_stage[span["role"], span["stage"]] = by_stage.get((span["role"], span["stage"]), 0) + 1
    # Per request: a server, a guardrail, an embedding, three HTTP requests, a model call; the rest is noise of the framework.
    assert {k: v for k, v in by_stage.items() if k[0] != "folded"} == {
        ("container", "other"): 7,
        ("plain", "guardrail"): 7,
        ("plain", "retrieval"): 7,
        ("plain", "network"): 21,
        ("llm", "generation"): 7,
    }
    assert sum(by_stage.values()) == 63


def test_recorded_phases_of_sglang_have_their_stages() -> None:
    phases = {
        s["name"]: s["stage"] for s in recording("sglang-spans").spans if s["role"] == "phase"
    }
    assert {phases[n] for n in phases if "waiting" in n} == {"queue"}
    assert (phases["prefill_forward"], phases["decode_forward"], phases["tokenize"]) == (
        "prefill",
        "decode",
        "prompt",
    )
    assert sum(s["role"] == "engine" for s in recording("sglang-spans").spans) == 12


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("db.weaviate.collections.data.insert", "write"),
        ("db.weaviate.batch.crud_batch.flush", "write"),
        ("qdrant.batch_update_points", "write"),
        ("qdrant.delete_payload", "write"),
        ("marqo.add_documents", "write"),
        ("milvus.hybrid_search", "plain"),
        ("db.weaviate.gql.get.do", "plain"),
        ("qdrant.discover_batch", "plain"),
        ("redis.get", "plain"),
    ],
)
def test_what_is_done_with_a_vector_store_is_written_or_found(name: str, role: str) -> None:
    found = of_name("any", name)
    assert found is not None
    assert (found.role, found.stage) == (
        ROLE[role],
        STAGE["post" if role == "write" else "retrieval"],
    )


def test_a_common_word_of_one_sender_makes_no_model_call_of_anothers_span() -> None:
    assert classified("handle", request__outcome="success", model="tesla") == classified("handle")
    assert classified("http-request", request__outcome="success") == classified("http-request")
    assert classified("http-request", scope="dynamo-frontend", request__outcome="success") == (
        "llm",
        "generation",
    )
    assert classified("handle", avg_itl_ms="21.05") == classified("handle")
    assert classified(
        "http-request", scope="front", request__outcome="success", avg_itl_ms="21.05"
    ) == ("llm", "generation")


HTTP = {
    "conventions": {"http__request__method": "POST", "url__full": "https://crm.example/notes"},
    "old conventions": {"http__method": "POST"},
    "Brave": {"http__method": "POST", "http__path": "/notes"},
    "Micrometer": {"method": "POST", "uri": "/notes", "outcome": "SUCCESS"},
}


@pytest.mark.parametrize(
    "name",
    [
        "post",
        "Post",
        "http post",
        "HTTP Post",
        "axios.post",
        "POST",
        "post /prompt/render",
        "create_blog_post",
        "wait",
        "output",
    ],
)
@pytest.mark.parametrize("words", HTTP.values(), ids=HTTP)
def test_http_attributes_come_before_words_of_a_name(name: str, words: dict[str, Any]) -> None:
    assert classified(name, CLIENT, **words) == ("plain", "network")
    assert classified(name, SERVER, **words) == ("container", "other")


def test_what_is_asked_for_over_http_is_named_by_its_name() -> None:
    assert classified("vector_search", CLIENT, http__request__method="POST") == (
        "plain",
        "retrieval",
    )
    assert classified("tool_call", CLIENT, http__request__method="POST") == ("plain", "tool")
    assert classified("post", INTERNAL, method="post", uri="/notes") == ("plain", "post")

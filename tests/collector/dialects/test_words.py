"""What senders say of a span, in each vocabulary's documented words: the columns, the role and the stage that come of it."""

from __future__ import annotations

from typing import Any

import pytest

from overrun.collector.normalise.stages import ROLES, STAGES
from tests.collector.normalise.test_spans import row
from tests.collector.oracle_build import CLIENT, SERVER

MS = 1_000_000
OI_LLM = {"openinference.span.kind": "LLM"}
# (name or scope, attributes) -> columns; `is` is the role and stage.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "tgi": (
        {"name": "generate_stream", "scope": "text-generation-router"},
        {
            "total_time": "1.5s",
            "validation_time": "456.7\u00b5s",
            "queue_time": "12.3ms",
            "inference_time": "1.48s",
            "time_per_token": "30ms",
            "seed": "None",
        },
        {
            "is": ("engine", "other"),
            "engine_e2e_ns": 1500 * MS,
            "queue_ns": 12_300_000,
            "ttft_ns": None,
            "dialect": "tgi",
        },
    ),
    "a queue time of nobody's": (
        {},
        {"queue_time": 12.3},
        {"is": ("plain", "other"), "queue_ns": None},
    ),
    "trt-llm": (
        {"name": "llm_request", "scope": "trt.llm", "kind": SERVER},
        {
            "gen_ai.latency.time_to_first_token": 0.3,
            "gen_ai.latency.e2e": 1.0,
            "gen_ai.latency.time_in_queue": 0.1,
            "gen_ai.usage.prompt_tokens": 7,
            "gen_ai.usage.completion_tokens": 9,
            "gen_ai.request.id": "r1",
        },
        {
            "is": ("engine", "other"),
            "ttft_ns": 300 * MS,
            "queue_ns": 100 * MS,
            "prefill_ns": None,
            "output_tokens": 9,
            "response_id": "r1",
            "dialect": "trtllm",
        },
    ),
    "dynamo": (
        {"name": "transport_roundtrip", "scope": "dynamo_runtime"},
        {},
        {"is": ("plain", "network"), "dialect": "dynamo"},
    ),
    "dynamo's router": (
        {"name": "frontend.route", "scope": "dynamo"},
        {},
        {"is": ("plain", "queue")},
    ),
    "a route of nobody's": ({"name": "route"}, {}, {"is": ("plain", "other"), "dialect": None}),
    "llm-d's proxy": (
        {"name": "llm_d.pd_proxy.request", "kind": SERVER},
        {
            "llm_d.pd_proxy.true_ttft_ms": 55.0,
            "llm_d.pd_proxy.prefill_duration_ms": 40.0,
            "llm_d.pd_proxy.decode_duration_ms": 2050.0,
            "llm_d.pd_proxy.total_duration_ms": 2105.0,
        },
        {
            "is": ("engine", "other"),
            "ttft_ns": 55 * MS,
            "prefill_ns": 40 * MS,
            "decode_ns": 2050 * MS,
            "engine_e2e_ns": 2105 * MS,
            "dialect": "llm-d",
        },
    ),
    "llm-d's prefill": ({"name": "llm_d.pd_proxy.prefill"}, {}, {"is": ("phase", "prefill")}),
    "llm-d's picker": ({"name": "llm_d.epp.scorer.prefix_cache"}, {}, {"is": ("plain", "gateway")}),
    "inference gateway": (
        {"name": "gateway.request", "kind": SERVER},
        {},
        {"is": ("plain", "gateway")},
    ),
    "envoy": (
        {"scope": "envoyproxy/ai-gateway", "kind": SERVER},
        {
            "gen_ai.operation.name": "messages",
            "gen_ai.original.model": "claude",
            "gen_ai.system": "anthropic",
        },
        {
            "is": ("llm", "generation"),
            "model": "claude",
            "provider": "anthropic",
            "dialect": "envoy",
        },
    ),
    "langsmith": (
        {"scope": "langsmith"},
        {
            "langsmith.span.kind": "llm",
            "gen_ai.system": "openai",
            "gen_ai.request.model": "gpt-5",
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.output_tokens": 5,
            "gen_ai.usage.input_token_details": '{"cache_read": 4}',
            "gen_ai.usage.output_token_details": '{"reasoning": 2}',
            "langsmith.request.streaming": True,
            "langsmith.metadata.thread_id": "t",
            "gen_ai.prompt": "secret",
        },
        {
            "is": ("llm", "generation"),
            "model": "gpt-5",
            "cached_tokens": 4,
            "reasoning_tokens": 2,
            "streaming": True,
            "session": "t",
            "dialect": "langsmith",
        },
    ),
    "langsmith's parser": ({}, {"langsmith.span.kind": "parser"}, {"is": ("plain", "post")}),
    "litellm v2": (
        {"scope": "litellm", "kind": CLIENT},
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "group",
            "litellm.provider.model": "gpt-5",
            "litellm.request.streaming": True,
            "gen_ai.response.time_to_first_chunk": 0.2,
            "gen_ai.usage.cache_read.input_tokens": 3,
            "litellm.team.id": "blue",
            "litellm.request.route": "/v1/chat",
        },
        {
            "is": ("llm", "generation"),
            "model": "group",
            "streaming": True,
            "ttft_ns": 200 * MS,
            "cached_tokens": 3,
            "tenant": "blue",
            "route": "/v1/chat",
        },
    ),
    "litellm's guardrail": (
        {"name": "execute_guardrail pii", "scope": "litellm"},
        {},
        {"is": ("plain", "guardrail")},
    ),
    "litellm's authentication": (
        {"name": "auth /chat", "scope": "litellm"},
        {},
        {"is": ("plain", "guardrail")},
    ),
    "langfuse's own usage keys": (
        {"scope": "langfuse-sdk"},
        {
            "langfuse.observation.type": "generation",
            "langfuse.observation.usage_details": '{"input": 10, "input_cached_tokens": 90, "output": 5}',
        },
        {"is": ("llm", "generation"), "input_tokens": 100, "cached_tokens": 90, "output_tokens": 5},
    ),
    "langfuse's level": ({}, {"langfuse.observation.level": "ERROR"}, {"status": 2}),
    "anthropic's own counts": (
        {},
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.usage.input_tokens": 12,
            "gen_ai.usage.cache_read_input_tokens": 900,
            "gen_ai.usage.cache_creation_input_tokens": 8,
        },
        {"input_tokens": 920, "cached_tokens": 900, "cache_write_tokens": 8},
    ),
    "anthropic's sum": (
        {},
        {
            "gen_ai.provider.name": "anthropic",
            "gen_ai.usage.input_tokens": 912,
            "gen_ai.usage.cache_read.input_tokens": 900,
        },
        {"input_tokens": 912, "cached_tokens": 900},
    ),
    "underscores for dots": (
        {},
        {
            "gen_ai_operation_name": "chat",
            "gen_ai_usage_input_tokens": 7,
            "gen_ai:request:model": "m",
            "session_id": "s",
        },
        {
            "is": ("llm", "generation"),
            "input_tokens": 7,
            "model": "m",
            "session": "s",
            "dialect": "genai",
        },
    ),
    "openllmetry of old": (
        {},
        {
            "llm.request.type": "chat",
            "llm.vendor": "OpenAI",
            "llm.request.model": "gpt-4",
            "llm.usage.prompt_tokens": 5,
            "llm.usage.completion_tokens": 6,
        },
        {
            "is": ("llm", "generation"),
            "provider": "openai",
            "model": "gpt-4",
            "input_tokens": 5,
            "output_tokens": 6,
        },
    ),
    "an agent's sums": (
        {},
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.aggregated_usage.input_tokens": 70,
            "gen_ai.aggregated_usage.output_tokens": 7,
        },
        {"is": ("container", "other"), "input_tokens": None, "output_tokens": None},
    ),
    "a span that is pending": (
        {},
        {"logfire.span_type": "pending_span", "gen_ai.operation.name": "chat"},
        {"is": ("folded", "other")},
    ),
    "a tool": ({"kind": CLIENT}, {"gen_ai.tool.name": "weather"}, {"is": ("plain", "tool")}),
    "a chat about a tool": (
        {},
        {"gen_ai.tool.name": "weather", "gen_ai.operation.name": "chat"},
        {"is": ("llm", "generation")},
    ),
    "mcp": (
        {"kind": CLIENT},
        {"mcp.method.name": "tools/call", "gen_ai.tool.name": "weather"},
        {"is": ("plain", "tool"), "operation": "tools/call"},
    ),
    "mcp resource": (
        {"kind": CLIENT},
        {"mcp.method.name": "resources/read"},
        {"is": ("plain", "retrieval")},
    ),
    "mcp's list of tools": (
        {"name": "tools/list", "kind": CLIENT},
        {"mcp.method.name": "tools/list"},
        {"is": ("plain", "network")},
    ),
    "a path without a route": (
        {"name": "POST", "kind": SERVER},
        {"http.request.method": "POST", "url.path": "/chat"},
        {"route": "/chat"},
    ),
    "qdrant search": (
        {"name": "qdrant.query_points", "kind": CLIENT},
        {"db.system": "Qdrant", "db.vector.query.top_k": 5},
        {"is": ("plain", "retrieval")},
    ),
    "pinecone write": (
        {"name": "pinecone.upsert", "kind": CLIENT},
        {"db.system": "Pinecone"},
        {"is": ("write", "post")},
    ),
    "chroma": (
        {"name": "chroma.collection.query", "kind": CLIENT},
        {},
        {"is": ("plain", "retrieval")},
    ),
    "http of old": (
        {"name": "GET", "kind": CLIENT},
        {"http.method": "GET", "http.status_code": 503, "http.url": "http://h/p?q=1"},
        {"is": ("plain", "network"), "http_status": 503, "dialect": "otel"},
    ),
    "http of today": (
        {"name": "GET", "kind": CLIENT},
        {
            "http.request.method": "GET",
            "http.response.status_code": 200,
            "http.request.resend_count": 2,
        },
        {"is": ("plain", "network"), "http_status": 200, "attempts": 3},
    ),
    "next.js' fetch": (
        {"name": "fetch POST http://h/v1", "kind": CLIENT},
        {"http.method": "POST"},
        {"is": ("plain", "network")},
    ),
    "a message that is waited for": (
        {"kind": 5},
        {"messaging.operation.type": "receive"},
        {"is": ("plain", "queue")},
    ),
    "langgraph's router": (
        {"name": "tools_condition", "scope": "openinference.instrumentation.langchain"},
        {"openinference.span.kind": "CHAIN"},
        {"is": ("plain", "other")},
    ),
    "a chain": (
        {"name": "RunnableSequence"},
        {"openinference.span.kind": "CHAIN"},
        {"is": ("container", "other")},
    ),
    "a chain that guards": (
        {"name": "input_guardrail"},
        {"openinference.span.kind": "CHAIN"},
        {"is": ("plain", "guardrail")},
    ),
    "mlflow's quotes": (
        {},
        {"mlflow.spanType": '"RETRIEVER"', "mlflow.trace.session": '"s"'},
        {"is": ("plain", "retrieval"), "session": "s"},
    ),
    "openllmetry's numbered choices": (
        {},
        {
            "llm.request.type": "chat",
            "gen_ai.completion.0.finish_reason": "length",
            "gen_ai.prompt.0.content": "secret",
        },
        {"finish_reason": "length"},
    ),
    "openllmetry's thread": (
        {},
        {
            "traceloop.association.properties.thread_id": "t",
            "traceloop.association.properties.tenant_id": "b",
        },
        {"session": "t", "tenant": "b"},
    ),
    "anthropic's answer": (
        {},
        {
            **OI_LLM,
            "output.value": '{"id":"msg_1","stop_reason":"max_tokens","content":[{"text":"secret"}]}',
        },
        {"finish_reason": "length", "response_id": "msg_1"},
    ),
    "a cut response": (
        {},
        {
            **OI_LLM,
            "output.value": '{"id":"resp_1","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}',
        },
        {"finish_reason": "length", "response_id": "resp_1"},
    ),
    "a whole response": (
        {},
        {
            **OI_LLM,
            "output.value": '{"id":"resp_1","status":"completed","incomplete_details":null}',
        },
        {"finish_reason": "stop"},
    ),
    "an answer about a status": (
        {},
        {**OI_LLM, "output.value": '{"status":"shipped"}'},
        {"finish_reason": None},
    ),
    "gemini's answer": (
        {},
        {
            **OI_LLM,
            "output.value": '{"candidates":[{"finishReason":"MAX_TOKENS"}],"responseId":"r"}',
        },
        {"finish_reason": "length", "response_id": "r"},
    ),
    "bedrock's answer": (
        {},
        {
            **OI_LLM,
            "output.value": '{"stopReason":"end_turn"}',
            "llm.invocation_parameters": '{"inferenceConfig":{"maxTokens":9,"temperature":0.5}}',
        },
        {"finish_reason": "stop", "max_tokens": 9, "temperature": 0.5},
    ),
    "langchain's result": (
        {},
        {
            **OI_LLM,
            "metadata": '{"ls_provider":"openai","ls_model_name":"gpt-5"}',
            "output.value": '{"generations":[[{"generation_info":{"finish_reason":"stop"},"message":{"kwargs":{"response_metadata":{"id":"chatcmpl-1"}}}}]]}',
        },
        {
            "finish_reason": "stop",
            "response_id": "chatcmpl-1",
            "provider": "openai",
            "model": "gpt-5",
        },
    ),
    "kinds in lower case": (
        {},
        {"openinference.span.kind": "guardrail"},
        {"is": ("plain", "guardrail")},
    ),
    "mlflow without a sum": (
        {},
        {
            "mlflow.spanType": '"CHAT_MODEL"',
            "mlflow.spanInputs": '{"model":"gpt","max_tokens":32,"temperature":0.5,"stream":false}',
            "mlflow.spanOutputs": '{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":2}}}',
        },
        {
            "input_tokens": 5,
            "output_tokens": 6,
            "cached_tokens": 2,
            "model": "gpt",
            "max_tokens": 32,
            "temperature": 0.5,
            "streaming": False,
        },
    ),
    "semantic kernel": (
        {},
        {"gen_ai.operation.name": "chat.streaming_completions"},
        {"is": ("llm", "generation")},
    ),
    "openlit": (
        {},
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.is_stream": True,
            "gen_ai.server.time_to_first_token": 0.004,
            "gen_ai.usage.input_tokens": 5,
            "gen_ai.usage.prompt_tokens_details.cache_read": 3,
            "gen_ai.usage.completion_tokens_details.reasoning": 4,
        },
        {"streaming": True, "ttft_ns": 4 * MS, "cached_tokens": 3, "reasoning_tokens": 4},
    ),
    "strands' milliseconds": (
        {},
        {"gen_ai.operation.name": "chat", "gen_ai.server.time_to_first_token": 8},
        {"ttft_ns": 8 * MS},
    ),
    "google's adk": (
        {"name": "call_llm", "scope": "gcp.vertex.agent"},
        {
            "gen_ai.request.model": "gemini",
            "gcp.vertex.agent.llm_request": '{"contents":"secret"}',
            "gcp.vertex.agent.session_id": "s",
        },
        {"is": ("llm", "generation"), "model": "gemini", "session": "s", "dialect": "adk"},
    ),
    "logfire's line at a stream's end": (
        {},
        {"logfire.span_type": "log", "gen_ai.operation.name": "chat"},
        {"is": ("folded", "other")},
    ),
    "an agent's name": (
        {},
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "weather"},
        {"route": "weather"},
    ),
    "spring's strings": (
        {"kind": CLIENT},
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.usage.input_tokens": "12",
            "gen_ai.response.finish_reasons": '["STOP"]',
        },
        {"input_tokens": 12, "finish_reason": "stop"},
    ),
    "a message for a kind": (
        {"status": 2},
        {
            "error.type": "secret told to jane by me",
            "gen_ai.response.finish_reasons": ["secret why it ended here"],
        },
        {"error_type": "[text: 25 characters, b1eff985c7e4e452]"},
    ),
    "a printed tuple": (
        {},
        {"gen_ai.response.finish_reasons": "('length',)"},
        {"finish_reason": "length"},
    ),
    "a printed list": (
        {},
        {"gen_ai.response.finish_reasons": "['length']"},
        {"finish_reason": "length"},
    ),
    "vercel of old": (
        {},
        {
            "ai.operationId": "ai.streamText.doStream",
            "ai.stream.msToFirstChunk": 3.5,
            "ai.usage.promptTokens": float("nan"),
        },
        {"ttft_ns": 3_500_000, "input_tokens": None, "streaming": True},
    ),
    "a statement behind a comment": (
        {"kind": CLIENT},
        {"db.system.name": "x", "db.query.text": "/* c */ INSERT INTO t"},
        {"is": ("write", "post")},
    ),
    "a statement's summary": (
        {"kind": CLIENT},
        {"db.system.name": "x", "db.query.summary": "INSERT orders"},
        {"is": ("write", "post")},
    ),
    "one prompt of a completion": (
        {},
        {"gen_ai.latency.e2e": 1.0, "gen_ai.request.id": "cmpl-1f0a-0"},
        {"response_id": "cmpl-1f0a"},
    ),
    "a completion": ({}, {"gen_ai.response.id": "cmpl-12"}, {"response_id": "cmpl-12"}),
    "one choice of an answer": (
        {},
        {"gen_ai.latency.e2e": 1.0, "gen_ai.request.id": "1_chatcmpl-2e"},
        {"response_id": "chatcmpl-2e"},
    ),
    "a model of vertex": (
        {},
        {"gen_ai.request.model": "projects/p/locations/l/publishers/google/models/gemini-2.5-pro"},
        {"model": "gemini-2.5-pro"},
    ),
    "a model of gemini": (
        {},
        {"gen_ai.request.model": "models/gemini-2.5-pro"},
        {"model": "gemini-2.5-pro"},
    ),
    "a model that is a project's": (
        {},
        {"gen_ai.request.model": "projects/p/locations/l/endpoints/5"},
        {"model": "projects/p/locations/l/endpoints/5"},
    ),
    "a model of a family": (
        {},
        {"gen_ai.request.model": "mock-models/m"},
        {"model": "mock-models/m"},
    ),
    "litellm's answer of a provider without headers": (
        {"scope": "litellm"},
        {
            "gen_ai.operation.name": "chat",
            "llm.is_streaming": "False",
            "hidden_params": '{"api_base": "h", "additional_headers": {}, "litellm_model_name": "g"}',
        },
        {"is": ("llm", "generation")},
    ),
    "an answer's end beside its text": (
        {},
        {"gen_ai.output.messages": '[{"role": "assistant", "finish_reason": "stop"}]'},
        {"finish_reason": "stop"},
    ),
    "gemini cli's failed call": (
        {"status": 2},
        {"gen_ai.operation.name": "llm_call"},
        {"is": ("llm", "generation")},
    ),
    "claude code's request": (
        {"scope": "com.anthropic.claude_code.tracing"},
        {
            "span.type": "llm_request",
            "llm_request.context": "tool",
            "input_tokens": 10,
            "cache_read_tokens": 5,
            "output_tokens": 2,
            "ttft_ms": 20,
            "attempt": 2,
        },
        {
            "is": ("llm", "generation"),
            "input_tokens": 15,
            "cached_tokens": 5,
            "output_tokens": 2,
            "ttft_ns": 20_000_000,
            "attempts": 2,
            "streaming": True,
        },
    ),
    "somebody's own counts": (
        {},
        {"input_tokens": 10, "output_tokens": 2, "attempt": 2},
        {"input_tokens": None, "output_tokens": None, "attempts": None},
    ),
    "codex's request": (
        {"name": "codex.sampling", "scope": "codex_exec"},
        {"codex.turn.phase": "sampling", "conversation.id": "c"},
        {"is": ("llm", "generation"), "session": "c", "streaming": True},
    ),
    "where codex notes an answer's end": (
        {"name": "handle_responses", "scope": "codex_cli_rs"},
        {"gen_ai.usage.output_tokens": 3},
        {"is": ("container", "other")},
    ),
    "codex's list of tools": (
        {"name": "add_core_tool_sources", "scope": "codex_exec"},
        {},
        {"is": ("container", "other")},
    ),
    "guardrails ai's call": (
        {"scope": "guardrails-ai"},
        {
            "type": "guardrails/guard/step/call",
            "guard.name": "g",
            "llm.invocation_parameters": "{}",
            "openinference.span.kind": "GUARDRAIL",
        },
        {"is": ("llm", "generation")},
    ),
    "guardrails ai's check": (
        {"scope": "guardrails-ai"},
        {"type": "guardrails/guard/step/validator"},
        {"is": ("plain", "guardrail")},
    ),
    "langfuse's handler of langchain": (
        {"scope": "langfuse-sdk"},
        {
            "langfuse.observation.type": "generation",
            "langfuse.observation.model.parameters": '{"max_output_tokens": 7}',
            "langfuse.observation.usage_details": '{"input": 50, "output": 3, "total": 110, "input_cache_read": 40, "input_audio": 10, "output_reasoning": 5, "output_audio": 2}',
        },
        {
            "input_tokens": 100,
            "cached_tokens": 40,
            "output_tokens": 10,
            "reasoning_tokens": 5,
            "max_tokens": 7,
        },
    ),
    "litellm's responses": (
        {"scope": "litellm"},
        {"gen_ai.operation.name": "aresponses", "llm.request.type": "aresponses"},
        {"is": ("llm", "generation")},
    ),
    "litellm's messages": (
        {"scope": "litellm"},
        {"gen_ai.operation.name": "anthropic_messages"},
        {"is": ("llm", "generation")},
    ),
    "litellm's search": (
        {"scope": "litellm"},
        {"llm.request.type": "avector_store_search"},
        {"is": ("plain", "retrieval")},
    ),
    "litellm's tool": (
        {"scope": "litellm"},
        {"gen_ai.operation.name": "call_mcp_tool"},
        {"is": ("plain", "tool")},
    ),
    "litellm's choice of a deployment": (
        {"name": "route gpt-5", "scope": "litellm"},
        {},
        {"is": ("plain", "queue")},
    ),
    "a call without an operation": (
        {"name": "Chat Completion with 'gpt'", "kind": CLIENT},
        {"gen_ai.system": "openai", "gen_ai.usage.output_tokens": 3},
        {"is": ("llm", "generation")},
    ),
    "an embedding without an operation": (
        {"name": "openai.embeddings"},
        {"gen_ai.usage.output_tokens": 0},
        {"is": ("plain", "retrieval")},
    ),
    "a chain that counts": (
        {},
        {"openinference.span.kind": "CHAIN", "gen_ai.usage.output_tokens": 3},
        {"is": ("container", "other")},
    ),
    "an agent that searches": (
        {"name": "search_agent"},
        {"openinference.span.kind": "AGENT"},
        {"is": ("container", "other")},
    ),
    "spring's client": (
        {"name": "spring_ai chat_client"},
        {"gen_ai.operation.name": "framework"},
        {"is": ("container", "other")},
    ),
    "a store of memories": (
        {},
        {"gen_ai.operation.name": "create_memory_store"},
        {"is": ("write", "post")},
    ),
    "sglang's room": (
        {"name": "Bootstrap Room 0x1f", "scope": "sglang server"},
        {},
        {"is": ("folded", "other")},
    ),
    "infinity": (
        {},
        {"langfuse.observation.model.parameters": '{"max_tokens": "Infinity", "temperature": 0.7}'},
        {"max_tokens": None, "temperature": 0.7},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_words_mean(case: str) -> None:
    made, attributes, wanted = CASES[case]
    # `row` also holds the stored row against the slow reading of it.
    found = row(*attributes.items(), **made)
    found["is"] = ROLES[found["role"]], STAGES[found["stage"]]
    assert {k: found[k] for k in wanted} == wanted
    assert "secret" not in str(found)


EVENTS = {
    "openinference": ("First Token Stream Event", None),
    "openllmetry": ("gen_ai.content.completion.chunk", 3),
    "openllmetry of old": ("llm.content.completion.chunk", 3),
    "mlflow": ("mlflow.chunk.item.0", 3),
    "mlflow's tenth": ("mlflow.chunk.item.10", 3),
    "vercel": ("ai.stream.firstChunk", None),
    "langsmith": ("new_token", None),
}


@pytest.mark.parametrize("sender", EVENTS)
def test_an_event_tells_of_the_first_token(sender: str) -> None:
    name, chunks = EVENTS[sender]
    found = row(events=[(3, name), (5, name), (9, name)])
    assert (found["ttft_ns"], found["ttft_source"], found["chunks"]) == (3 * MS, 2, chunks)
    if chunks:
        assert (found["chunk_span_ns"], found["chunk_gap_max_ns"]) == (6 * MS, 4 * MS)

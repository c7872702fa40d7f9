"""OpenTelemetry GenAI semantic conventions: the current names, and the older ones that 1.36-era producers must keep.

Source: open-telemetry/semantic-conventions-genai as of late 2026, semantic-conventions 1.2x-1.41, and payloads of
opentelemetry-instrumentation-genai-openai 1.3b0, -openai-v2 2.4b0, -genai-anthropic 1.3b0, -botocore 0.66b1 and of the
spans that the SDK of Anthropic sends by itself (anthropic 2.12.0). A metric name used as a span attribute
(gen_ai.client.operation.time_to_first_chunk) is real: pydantic-ai sends it.
"""

from overrun.collector.dialects import Dialect, EventField, Field, Mark, Metric, SpanName

ORDER = 10
GENERATION = frozenset(
    {
        "chat",
        "text_completion",
        "generate_content",
        "completion",
        "acompletion",
        "atext_completion",
        "messages",
        "responses",
        "response",
        # Gemini CLI's; Semantic Kernel's.
        "llm_call",
        "chat.completions",
        "chat.streaming_completions",
        "text.completions",
        "text.streaming_completions",
    }
)

DIALECT = Dialect(
    precedence=50,
    name="genai",
    prefixes=("gen_ai.",),
    scopes=("openlit.otel",),
    fields=(
        Field("operation", "gen_ai.operation.name"),
        Field("operation", "llm.request.type", rank=1),
        Field("model", "gen_ai.response.model"),
        Field("model", "gen_ai.request.model", rank=1),
        Field("provider", "gen_ai.provider.name"),
        Field("provider", "gen_ai.system", rank=1),
        Field("model", "llm.response.model", rank=2),
        Field("model", "llm.request.model", rank=3),
        Field("provider", "llm.vendor", rank=2),
        Field("response_id", "gen_ai.response.id"),
        Field("input_tokens", "gen_ai.usage.input_tokens", "int"),
        Field("input_tokens", "gen_ai.usage.prompt_tokens", "int", rank=1),
        Field("input_tokens", "llm.usage.prompt_tokens", "int", rank=2),
        Field("output_tokens", "gen_ai.usage.output_tokens", "int"),
        Field("output_tokens", "gen_ai.usage.completion_tokens", "int", rank=1),
        Field("output_tokens", "llm.usage.completion_tokens", "int", rank=2),
        Field("cached_tokens", "gen_ai.usage.cache_read.input_tokens", "int"),
        Field("cached_tokens", "gen_ai.usage.cache_read_input_tokens", "int", rank=1),
        Field("cached_tokens", "gen_ai.usage.cached_tokens", "int", rank=2),
        Field("cache_write_tokens", "gen_ai.usage.cache_write.input_tokens", "int"),
        Field("cache_write_tokens", "gen_ai.usage.cache_creation.input_tokens", "int", rank=1),
        Field("cache_write_tokens", "gen_ai.usage.cache_creation_input_tokens", "int", rank=2),
        Field("cache_write_tokens", "gen_ai.usage.cache_write_input_tokens", "int", rank=3),
        # OpenLIT's, older.
        Field("cached_tokens", "gen_ai.usage.prompt_tokens_details.cache_read", "int", rank=3),
        Field(
            "cache_write_tokens", "gen_ai.usage.prompt_tokens_details.cache_write", "int", rank=4
        ),
        Field(
            "reasoning_tokens", "gen_ai.usage.completion_tokens_details.reasoning", "int", rank=3
        ),
        Field("streaming", "gen_ai.request.is_stream", "bool", rank=3),
        Field("total_tokens", "gen_ai.usage.total_tokens", "int"),
        Field("total_tokens", "llm.usage.total_tokens", "int", rank=1),
        Field("reasoning_tokens", "gen_ai.usage.reasoning.output_tokens", "int"),
        Field("reasoning_tokens", "gen_ai.usage.reasoning_tokens", "int", rank=1),
        Field("reasoning_tokens", "gen_ai.usage.details.reasoning_tokens", "int", rank=2),
        Field("max_tokens", "gen_ai.request.max_tokens", "int"),
        Field("max_tokens", "gen_ai.request.max_completion_tokens", "int", rank=1),
        Field("max_tokens", "llm.request.max_tokens", "int", rank=2),
        Field("temperature", "gen_ai.request.temperature", "float"),
        Field("streaming", "gen_ai.request.stream", "bool"),
        Field("streaming", "gen_ai.is_streaming", "bool", rank=1),
        Field("streaming", "llm.is_streaming", "bool", rank=2),
        # Of AWS's clients: Bedrock's operations.
        Field("streaming", "rpc.method", "streams", rank=12, beside="gen_ai.request.model"),
        # Who tells a first token has streamed (AWS Strands).
        Field("streaming", "gen_ai.server.time_to_first_token", "present", rank=13),
        Field("ttft_ns", "gen_ai.response.time_to_first_chunk", "seconds"),
        Field("ttft_ns", "gen_ai.response.time_to_first_token", "seconds", rank=1),
        Field("ttft_ns", "gen_ai.client.operation.time_to_first_chunk", "seconds", rank=2),
        Field("ttft_ns", "gen_ai.client.inference.time_to_first_chunk", "seconds", rank=3),
        Field("ttft_ns", "gen_ai.server.time_to_first_token", "seconds", rank=4),
        Field("finish_reason", "gen_ai.response.finish_reasons", "first"),
        Field("finish_reason", "gen_ai.response.finish_reason", rank=1),
        # Anthropic's own SDK.
        Field("finish_reason", "anthropic.message.stop_reason", rank=2),
        # Of streams, OpenAI's instrumentation of the experimental conventions tells it beside the text alone.
        Field("finish_reason", "gen_ai.output.messages", rank=40, path=("-1", "finish_reason")),
        Field("error_type", "error.type"),
        Field("attempts", "http.request.resend_count", "resends"),
        Field("attempts", "http.resend_count", "resends", rank=1),
        Field("session", "gen_ai.conversation.id"),
        Field("session", "session.id", rank=1),
        Field("user_hash", "user.id"),
        Field("user_hash", "enduser.id", rank=1),
        Field("user_hash", "gen_ai.user", rank=2),
        Field("user_hash", "gen_ai.request.user", rank=2),
        Field("user_hash", "llm.user", rank=3),
        Field("tenant", "tenant.id"),
        Field("route", "gen_ai.workflow.name", rank=5),
        Field("route", "gen_ai.agent.name", rank=13),
    ),
    marks=(
        Mark("gen_ai.operation.name", "llm", "generation", GENERATION),
        Mark(
            "llm.request.type", "llm", "generation", frozenset({"chat", "completion", "response"})
        ),
        # What Mistral's own SDK calls its requests, once one is answered.
        Mark(
            "mistral_ai.operation.id",
            "llm",
            "generation",
            frozenset(
                {
                    "chat_completion_v1_chat_completions_post",
                    "stream_chat",
                    "agents_completion_v1_agents_completions_post",
                    "stream_agents",
                    "fim_completion_v1_fim_completions_post",
                    "stream_fim",
                }
            ),
        ),
        Mark("gen_ai.operation.name", "plain", "tool", frozenset({"execute_tool", "tool_call"})),
        Mark("gen_ai.tool.name", "plain", "tool", weak=True),
        Mark("gen_ai.operation.name", "plain", "guardrail", frozenset({"guardrail", "moderation"})),
        Mark(
            "gen_ai.operation.name",
            "plain",
            "retrieval",
            frozenset(
                {"retrieval", "embeddings", "embedding", "aembedding", "rerank", "search_memory"}
            ),
        ),
        # `framework` is Spring AI's, around its model calls; `orchestrate_tools` Microsoft.Extensions.AI's, around the calls of one answer; `agent_step` the
        # Vercel AI SDK's; what follows Gemini CLI's.
        Mark(
            "gen_ai.operation.name",
            "container",
            "other",
            frozenset(
                {
                    "invoke_agent",
                    "create_agent",
                    "invoke_workflow",
                    "plan",
                    "framework",
                    "orchestrate_tools",
                    "agent_step",
                    "agent_call",
                    "schedule_tool_calls",
                    "user_prompt",
                }
            ),
        ),
        Mark(
            "gen_ai.operation.name",
            "write",
            "post",
            frozenset(
                {
                    "create_memory",
                    "update_memory",
                    "upsert_memory",
                    "delete_memory",
                    "create_memory_store",
                    "delete_memory_store",
                }
            ),
        ),
        # Senders that name no operation (Logfire's OpenAI wrapper, applications' own spans): whatever counts what it wrote has called a model.
        # Of a client that names a model beside them, whatever words its span's name has (NeMo Guardrails: `self_check_output gpt-4o`).
        *(
            Mark(f"gen_ai.usage.{name}_tokens", "llm", "generation", weak=True)
            for name in ("output", "completion")
        ),
        *(
            Mark(
                f"gen_ai.usage.{name}_tokens",
                "llm",
                "generation",
                beside="gen_ai.request.model",
                client=True,
            )
            for name in ("output", "completion")
        ),
    ),
    # OpenLIT 1.33 reports a call that failed by the span's name alone.
    # What agent frameworks have around the calls of a turn: AWS Strands, Semantic Kernel.
    # LangGraph's own steps (before 0.3) carry the names of nodes, as `ChannelWrite<...,tools>`.
    # Of Splunk's LangChain, LangGraph's router between the model and its tools calls none.
    names=(
        SpanName("(?:Channel(?:Write|Read)|Branch)<.*>", "container", "other"),
        SpanName("step tools_condition", "container", "other", "opentelemetry.util.genai"),
        SpanName("execute_event_loop_cycle", "container", "other", "strands"),
        SpanName("AutoFunctionInvocationLoop", "container", "other", "semantic_kernel"),
        SpanName(
            r"\w+\.(?:chat\.completions?|messages|responses|chat|completions)(?:\.(?:create|stream))?",
            "llm",
            "generation",
            "openlit",
        ),
    ),
    chunk_events=(
        "gen_ai.content.completion.chunk",
        "llm.content.completion.chunk",
        "gen_ai.content.chunk",
    ),
    first_token_events=("first_token", "llm.first_token"),
    event_fields=(
        EventField("error_type", "exception", "exception.type", failed=True),
        EventField("finish_reason", "gen_ai.choice", "finish_reason"),
    ),
    hints=(
        (
            "ttft",
            "opentelemetry-instrumentation-genai-openai or -genai-anthropic, which record it (-openai-v2 and OpenLLMetry's for Anthropic, Bedrock and"
            " Google do not), or the engine's own spans",
        ),
        (
            "finish_reason",
            "the logs exporter too (-openai-v2 reports it for streams in log events only), or opentelemetry-instrumentation-genai-openai",
        ),
    ),
    cached_apart=(
        "opentelemetry.instrumentation.botocore.bedrock-runtime",
        "openlit.instrumentation.anthropic",
    ),
    text_keys=(
        "gen_ai.prompt",
        "gen_ai.completion",
        "gen_ai.system_instructions",
        "gen_ai.tool.definitions",
        "gen_ai.retrieval.query.text",
        "gen_ai.retrieval.documents",
        "gen_ai.tool.description",
        "gen_ai.request.stop_sequences",
    ),
    metrics=(
        # As they are, and as a Prometheus page has them.
        *(
            metric
            for what in ("operation", "inference")
            for suffix in ("", "_seconds")
            for metric in (
                *(
                    Metric(
                        f"gen_ai.client.{what}.duration{suffix}",
                        "client_e2e",
                        where=(("gen_ai.operation.name", name),),
                    )
                    for name in sorted(GENERATION)
                ),
                Metric(f"gen_ai.client.{what}.time_to_first_chunk{suffix}", "client_ttft"),
                Metric(f"gen_ai.client.{what}.time_per_output_chunk{suffix}", "client_chunk_gap"),
            )
        ),
        # Texts to embed are no prompts.
        *(
            Metric(
                f"gen_ai.client.token.usage{suffix}",
                "embedding_length",
                where=(("gen_ai.operation.name", "embeddings"),),
                sum_as="embedding_tokens",
            )
            for suffix in ("", "_token", "_tokens")
        ),
        *(
            Metric(
                f"gen_ai.client.token.usage{suffix}",
                f"client_{name}_length",
                where=(("gen_ai.token.type", name),),
                sum_as=f"client_{name}_tokens",
            )
            for suffix in ("", "_token", "_tokens")
            for name in ("input", "output")
        ),
        *(
            Metric(f"gen_ai.client.inference.usage.{name}_tokens", f"client_{name}_tokens")
            for name in ("input", "output")
        ),
        *(
            metric
            for suffix in ("", "_seconds")
            for metric in (
                Metric(f"gen_ai.server.request.duration{suffix}", "e2e"),
                Metric(f"gen_ai.server.time_to_first_token{suffix}", "ttft"),
                Metric(f"gen_ai.server.time_per_output_token{suffix}", "tpot"),
            )
        ),
    ),
    model_labels=("gen_ai.response.model", "gen_ai.request.model"),
)

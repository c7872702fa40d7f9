"""OpenInference (Arize): span kinds, `llm.*` token counts, parameters as JSON in one attribute. Spans are INTERNAL; there is no TTFT attribute.

Source: Arize-ai/openinference spec and payloads of openinference-instrumentation-openai 0.1.66 and -langchain 0.1.80, and of those for JavaScript (4.2.7,
4.1.1). Python's OpenAI instrumentation marks the first token with a span event, and so does LlamaIndex's, whose span of a stream ended before it; the
LangChain, OpenAI-Agents and JavaScript ones do not.
"""

from overrun.collector.dialects import ENDINGS, Dialect, Field, Mark, SpanName, llama_index

ORDER = 30
# Where LangChain's results hold the message of the first answer.
_MESSAGE = ("generations", "0", "0", "message", "kwargs", "response_metadata")
_OPENAI = "openinference.instrumentation.openai"
_KIND, _PARAMETERS = "openinference.span.kind", "llm.invocation_parameters"
DIALECT = Dialect(
    name="openinference",
    prefixes=(
        "openinference.",
        "llm.token_count.",
        "llm.model_name",
        "llm.request.model_name",
        "llm.response.model_name",
        _PARAMETERS,
        "llm.system",
        "llm.provider",
        "llm.finish_reason",
        "llm.cost.",
        "embedding.",
        "retrieval.",
        "reranker.",
    ),
    scopes=("openinference.instrumentation",),
    fields=(
        Field("operation", _KIND, rank=10),
        Field("model", "llm.response.model_name", rank=10),
        Field("model", "llm.model_name", rank=11),
        Field("model", "llm.request.model_name", rank=12),
        Field("model", "embedding.model_name", rank=13),
        Field("model", "reranker.model_name", rank=14),
        Field("model", _PARAMETERS, rank=15, path=("model",)),
        Field("provider", "llm.provider", rank=10),
        Field("provider", "llm.system", rank=11),
        Field("provider", "metadata", rank=12, path=("ls_provider",)),
        Field("model", "metadata", rank=16, path=("ls_model_name",)),
        Field("input_tokens", "llm.token_count.prompt", "int", rank=10),
        Field("output_tokens", "llm.token_count.completion", "int", rank=10),
        Field("cached_tokens", "llm.token_count.prompt_details.cache_read", "int", rank=10),
        Field("cache_write_tokens", "llm.token_count.prompt_details.cache_write", "int", rank=10),
        Field("total_tokens", "llm.token_count.total", "int", rank=10),
        Field("reasoning_tokens", "llm.token_count.completion_details.reasoning", "int", rank=10),
        # OpenAI's and Gemini's, and Bedrock's, where their answers are what came out (Portkey, Google's ADK, JavaScript).
        Field(
            "cached_tokens",
            "output.value",
            "int",
            rank=20,
            path=("usage", "prompt_tokens_details", "cached_tokens"),
        ),
        Field(
            "cached_tokens", "output.value", "int", rank=21, path=("usage", "cacheReadInputTokens")
        ),
        Field(
            "cache_write_tokens",
            "output.value",
            "int",
            rank=21,
            path=("usage", "cacheWriteInputTokens"),
        ),
        Field(
            "reasoning_tokens",
            "output.value",
            "int",
            rank=20,
            path=("usage", "completion_tokens_details", "reasoning_tokens"),
        ),
        *(
            Field(
                column,
                "output.value",
                "int",
                rank=20,
                path=("usage_metadata", f"{name}_token_count"),
            )
            for column, name in (
                ("cached_tokens", "cached_content"),
                ("reasoning_tokens", "thoughts"),
            )
        ),
        *(
            Field("max_tokens", _PARAMETERS, "int", rank=10, path=(name,))
            for name in (
                "max_tokens",
                "max_completion_tokens",
                "max_output_tokens",
                "max_tokens_to_sample",
            )
        ),
        *(
            Field("max_tokens", _PARAMETERS, "int", rank=11, path=path)
            for path in (
                ("maxTokens",),
                ("inferenceConfig", "maxTokens"),
                ("config", "max_output_tokens"),
                ("generation_config", "max_output_tokens"),
            )
        ),
        Field("max_tokens", "metadata", "int", rank=12, path=("ls_max_tokens",)),
        Field("temperature", _PARAMETERS, "float", rank=10, path=("temperature",)),
        *(
            Field("temperature", _PARAMETERS, "float", rank=11, path=(config, "temperature"))
            for config in ("inferenceConfig", "config", "generation_config")
        ),
        Field("temperature", "metadata", "float", rank=12, path=("ls_temperature",)),
        # LangChain's parameters are the model's, not the call's.
        *(
            Field(
                "streaming",
                "output.value",
                "streams",
                rank=9,
                path=("generations", "0", "0", "message", "id", end),
            )
            for end in ("2", "3")
        ),
        Field("streaming", _PARAMETERS, "bool", rank=10, path=("stream",)),
        Field("response_id", "output.value", rank=10, path=("id",)),
        *(
            Field("response_id", "output.value", rank=11, path=path)
            for path in (
                ("response_id",),
                ("responseId",),
                ("raw", "id"),
                (*_MESSAGE, "id"),
                ("llm_output", "id"),
            )
        ),
        Field("finish_reason", "llm.finish_reason", rank=10),
        *(
            Field("finish_reason", "output.value", rank=rank, path=path)
            for rank, path in enumerate(ENDINGS, 11)
        ),
        Field("finish_reason", "output.value", rank=30, path=(*_MESSAGE, "finish_reason")),
        Field("finish_reason", "output.value", rank=31, path=(*_MESSAGE, "stop_reason")),
        Field(
            "finish_reason",
            "output.value",
            rank=32,
            path=("generations", "0", "0", "generation_info", "finish_reason"),
        ),
        Field("finish_reason", "output.value", "ended", rank=33, path=("output", "-1", "type")),
        Field("finish_reason", "output.value", "ended", rank=34, path=("status",)),
        Field("tenant", "metadata", rank=10, path=("tenant",)),
        Field("tenant", "metadata", rank=11, path=("tenant_id",)),
        Field("user_hash", "metadata", rank=10, path=("user_id",)),
        Field("session", "metadata", rank=10, path=("session_id",)),
        Field("session", "metadata", rank=11, path=("thread_id",)),
        Field("session", "metadata", rank=12, path=("conversation_id",)),
        Field("route", "agent.name", rank=12),
    ),
    marks=(
        Mark(_KIND, "llm", "generation", frozenset({"LLM"})),
        Mark(_KIND, "plain", "guardrail", frozenset({"GUARDRAIL"})),
        Mark(_KIND, "plain", "tool", frozenset({"TOOL"})),
        Mark(_KIND, "plain", "retrieval", frozenset({"RETRIEVER", "RERANKER", "EMBEDDING"})),
        Mark(_KIND, "plain", "prompt", frozenset({"PROMPT"})),
        Mark(_KIND, "plain", "post", frozenset({"EVALUATOR"})),
        Mark(_KIND, "container", "other", frozenset({"AGENT"})),
        Mark(_KIND, "container", "other", frozenset({"CHAIN"}), weak=True),
    ),
    names=(
        # Of OpenAI's client: every answer has the kind of a model call and the name of its type, be it a list of models, a moderation or a file.
        SpanName("ModerationCreateResponse", "plain", "guardrail", _OPENAI, strong=True),
        SpanName(r"\w+\[VectorStoreSearchResponse\]", "plain", "retrieval", _OPENAI, strong=True),
        SpanName(
            r"\w+\[\w+\]|(?:Model|Image|Transcription|Translation|Httpx|File|Upload|Batch|VectorStore|FineTuning|Container|Eval|Video|Assistant|Thread|Run)\w*",
            "plain",
            "network",
            _OPENAI,
            strong=True,
        ),
        # LangGraph's router between the model and its tools: it calls none.
        SpanName("tools_condition", "plain", "other", "openinference.instrumentation.langchain"),
        *llama_index("openinference.instrumentation.llama_index"),
    ),
    first_token_events=("First Token Stream Event",),
    hints=(
        (
            "ttft",
            "openinference-instrumentation-openai for Python beside the framework's, which reports it for streams (LangChain's, OpenAI-Agents' and those"
            " for JavaScript record none); for Anthropic its SDK's own spans (from version 2 on) or opentelemetry-instrumentation-genai-anthropic",
        ),
        (
            "response_id",
            "openinference-instrumentation-openai beside the framework's, or pass traceparent on to the engine",
        ),
    ),
    cached_apart=("@arizeai/openinference-instrumentation-bedrock",),
    # LangChain's cache of answers costs nothing.
    stored_answers=((("output.value", (*_MESSAGE[:-1], "usage_metadata", "total_cost"), 0),),),
    text_keys=(
        "input.value",
        "output.value",
        "llm.prompt_template.template",
        "llm.prompt_template.variables",
        "llm.prompts",
    ),
)

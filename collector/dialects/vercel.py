"""Vercel AI SDK: outer `ai.streamText`/`ai.generateText` spans repeat the tokens of the inner `.doStream`/`.doGenerate` ones, one per attempt.

Source: payloads of ai 5.0.277 and 6.0.326 (names of version 4 from its documentation). Times are in ms; the provider is `openai.chat`-like. Version 7 sends
GenAI names (@ai-sdk/otel), where a call is one span with its retries hidden; what an application says of itself is under `ai.settings.context`.
"""

from overrun.collector.dialects import Dialect, EventField, Field, Mark

ORDER = 33
_OPERATION = "ai.operationId"
# What the application called -> the span of one attempt at the model within it.
_CALLS = {
    "ai.streamText": "doStream",
    "ai.generateText": "doGenerate",
    "ai.streamObject": "doStream",
    "ai.generateObject": "doGenerate",
}
DIALECT = Dialect(
    name="vercel",
    prefixes=("ai.",),
    scopes=("ai",),
    fields=(
        Field("operation", _OPERATION, rank=-1),
        Field("model", "ai.response.model", rank=10),
        Field("model", "ai.model.id", rank=11),
        Field("provider", "ai.model.provider", rank=10),
        Field("response_id", "ai.response.id", rank=10),
        Field("input_tokens", "ai.usage.inputTokens", "int", rank=10),
        Field("input_tokens", "ai.usage.promptTokens", "int", rank=11),
        Field("input_tokens", "ai.usage.tokens", "int", rank=12),
        Field("output_tokens", "ai.usage.outputTokens", "int", rank=10),
        Field("output_tokens", "ai.usage.completionTokens", "int", rank=11),
        Field("cached_tokens", "ai.usage.cachedInputTokens", "int", rank=10),
        Field("cached_tokens", "ai.usage.inputTokenDetails.cacheReadTokens", "int", rank=11),
        Field("cache_write_tokens", "ai.usage.inputTokenDetails.cacheWriteTokens", "int", rank=10),
        # Before version 5 its providers' own words alone.
        *(
            Field(column, "ai.response.providerMetadata", "int", rank=13, path=path)
            for column, path in (
                ("cached_tokens", ("openai", "cachedPromptTokens")),
                ("cached_tokens", ("anthropic", "cacheReadInputTokens")),
                ("cache_write_tokens", ("anthropic", "cacheCreationInputTokens")),
                ("reasoning_tokens", ("openai", "reasoningTokens")),
            )
        ),
        Field("reasoning_tokens", "ai.usage.reasoningTokens", "int", rank=10),
        Field("reasoning_tokens", "ai.usage.outputTokenDetails.reasoningTokens", "int", rank=11),
        Field("max_tokens", "ai.settings.maxOutputTokens", "int", rank=10),
        Field("max_tokens", "ai.settings.maxTokens", "int", rank=11),
        Field("temperature", "ai.settings.temperature", "float", rank=10),
        Field("streaming", _OPERATION, "streams", rank=10),
        Field("ttft_ns", "ai.response.msToFirstChunk", "millis", rank=10),
        Field("ttft_ns", "ai.stream.msToFirstChunk", "millis", rank=11),
        Field("finish_reason", "ai.response.finishReason", rank=10),
        Field("finish_reason", "ai.finishReason", rank=11),
        *(
            Field(column, f"{said}.{name}", rank=10)
            for said in ("ai.telemetry.metadata", "ai.settings.context")
            for column, name in (
                ("session", "sessionId"),
                ("user_hash", "userId"),
                ("tenant", "tenant"),
                ("tenant", "tenantId"),
            )
        ),
        Field("route", "ai.telemetry.functionId", rank=9),
    ),
    marks=(
        Mark(
            _OPERATION,
            "llm",
            "generation",
            frozenset(f"{outer}.{inner}" for outer, inner in _CALLS.items()),
        ),
        Mark(_OPERATION, "container", "other", frozenset(_CALLS)),
        Mark(_OPERATION, "plain", "tool", frozenset({"ai.toolCall"})),
        Mark(
            _OPERATION,
            "plain",
            "retrieval",
            frozenset(
                {
                    "ai.embed",
                    "ai.embed.doEmbed",
                    "ai.embedMany",
                    "ai.embedMany.doEmbed",
                    "ai.rerank",
                    "ai.rerank.doRerank",
                }
            ),
        ),
    ),
    first_token_events=("ai.stream.firstChunk",),
    answers=("ai.response.finishReason",),
    failures=(("ai.response.finishReason", frozenset({"error"})),),
    event_fields=(
        EventField("ttft_ns", "ai.stream.firstChunk", "ai.response.msToFirstChunk", "millis"),
    ),
    hints=(
        ("session", "experimental_telemetry: { metadata: { sessionId } }"),
        ("tenant", "experimental_telemetry: { metadata: { tenant } }"),
        ("user", "experimental_telemetry: { metadata: { userId } }"),
        ("route", "experimental_telemetry: { functionId }"),
    ),
    text_keys=(
        "ai.prompt",
        "ai.prompt.messages",
        "ai.response.text",
        "ai.response.object",
        "ai.response.toolCalls",
        "ai.toolCall.args",
        "ai.toolCall.result",
        "ai.value",
        "ai.values",
        "ai.embedding",
        "ai.embeddings",
        "ai.result.text",
        "ai.result.object",
        "ai.prompt.tools",
    ),
)

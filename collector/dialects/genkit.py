"""Genkit: actions of several kinds (models, tools, retrievers, flows) whose inputs and outputs are documents; a model's output holds its usage.

Source: payloads of genkit 1.42.0 for JavaScript. It tells no first token.
"""

from overrun.collector.dialects import ENDINGS, Dialect, Field, Mark

ORDER = 48
_KIND, _ASKED, _ANSWERED = "genkit:metadata:subtype", "genkit:input", "genkit:output"
# Where a plugin leaves what the provider answered.
_RAW = (("raw",), ("custom",))
DIALECT = Dialect(
    name="genkit",
    prefixes=("genkit:",),
    scopes=("genkit-tracer",),
    fields=(
        Field("operation", _KIND, rank=20),
        *(Field("model", _ANSWERED, rank=20, path=(*raw, "model")) for raw in _RAW),
        Field("model", "genkit:name", rank=21, beside="genkit:metadata:subtype"),
        *(
            Field(column, _ANSWERED, "int", rank=20, path=("usage", name))
            for column, name in (
                ("input_tokens", "inputTokens"),
                ("output_tokens", "outputTokens"),
                ("total_tokens", "totalTokens"),
                ("cached_tokens", "cachedContentTokens"),
                ("reasoning_tokens", "thoughtsTokens"),
            )
        ),
        *(
            Field(
                "cached_tokens",
                _ANSWERED,
                "int",
                rank=21,
                path=(*raw, "usage", "prompt_tokens_details", "cached_tokens"),
            )
            for raw in _RAW
        ),
        *(
            Field(
                "reasoning_tokens",
                _ANSWERED,
                "int",
                rank=21,
                path=(*raw, "usage", "completion_tokens_details", "reasoning_tokens"),
            )
            for raw in _RAW
        ),
        *(
            Field("response_id", _ANSWERED, rank=20, path=(*raw, name))
            for raw in _RAW
            for name in ("id", "responseId")
        ),
        *(
            Field("finish_reason", _ANSWERED, rank=20 + i, path=(*raw, *path))
            for raw in _RAW
            for i, path in enumerate(ENDINGS)
        ),
        Field("finish_reason", _ANSWERED, rank=40, path=("finishReason",)),
        Field("max_tokens", _ASKED, "int", rank=20, path=("config", "maxOutputTokens")),
        Field("temperature", _ASKED, "float", rank=20, path=("config", "temperature")),
        Field("session", "genkit:sessionId", rank=20),
        Field("route", "genkit:name", rank=14, beside="genkit:isRoot"),
    ),
    marks=(
        Mark(_KIND, "llm", "generation", frozenset({"model"})),
        Mark(_KIND, "plain", "tool", frozenset({"tool", "tool.v2"})),
        Mark(_KIND, "plain", "retrieval", frozenset({"retriever", "embedder", "reranker"})),
        Mark(_KIND, "plain", "prompt", frozenset({"prompt", "executable-prompt"})),
        Mark(_KIND, "plain", "post", frozenset({"evaluator"})),
        Mark(_KIND, "write", "post", frozenset({"indexer"})),
        Mark(_KIND, "container", "other", frozenset({"flow", "agent"})),
        Mark("genkit:type", "container", "other", frozenset({"util", "helper"})),
    ),
    hints=(
        (
            "ttft",
            "Genkit records no first token: add the engine's own spans, or an instrumentation of the provider's client",
        ),
    ),
    text_keys=(_ASKED, _ANSWERED),
)

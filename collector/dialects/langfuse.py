"""Langfuse: observation types, usage and parameters as JSON, the first token as an ISO time; errors by level. No response id.

Source: payloads of langfuse 5.0.4 and @langfuse/openai 5.11.1, of their handlers for LangChain, and Langfuse's documentation of usage types. `max_tokens` is
"Infinity" when it was not set.
Usage is either OpenAI's object (cached tokens inside `prompt_tokens`) or Langfuse's own keys, which do not overlap (`input` beside `input_cached_tokens`;
from LangChain `input_cache_read`, `input_audio`, `output_reasoning`).
"""

from overrun.collector.dialects import Dialect, Field, Mark, SpanName

ORDER = 32
_USAGE, _PARAMETERS, _TYPE = (
    "langfuse.observation.usage_details",
    "langfuse.observation.model.parameters",
    "langfuse.observation.type",
)
_CACHED = (("input_cached_tokens",), ("cache_read_input_tokens",), ("input_cache_read",))
_WRITTEN = (("input_cache_creation",), ("cache_creation_input_tokens",))
_REASONING = (("output_reasoning_tokens",), ("output_reasoning",))
_SPOKEN = {side: ((f"{side}_audio_tokens",), (f"{side}_audio",)) for side in ("input", "output")}
DIALECT = Dialect(
    name="langfuse",
    prefixes=("langfuse.",),
    scopes=("langfuse-sdk",),
    fields=(
        Field("operation", _TYPE, rank=10),
        Field("model", "langfuse.observation.model.name", rank=10),
        Field("input_tokens", _USAGE, "int", rank=10, path=("prompt_tokens",)),
        Field(
            "input_tokens",
            _USAGE,
            "int",
            rank=11,
            path=("input",),
            plus=(*_CACHED, *_WRITTEN, *_SPOKEN["input"]),
        ),
        Field("input_tokens", _USAGE, "int", rank=12, path=("input_tokens",)),
        Field("output_tokens", _USAGE, "int", rank=10, path=("completion_tokens",)),
        Field(
            "output_tokens",
            _USAGE,
            "int",
            rank=11,
            path=("output",),
            plus=(*_REASONING, *_SPOKEN["output"]),
        ),
        Field("output_tokens", _USAGE, "int", rank=12, path=("output_tokens",)),
        Field(
            "cached_tokens", _USAGE, "int", rank=10, path=("prompt_tokens_details", "cached_tokens")
        ),
        Field(
            "cached_tokens", _USAGE, "int", rank=11, path=("input_tokens_details", "cached_tokens")
        ),
        *(Field("cached_tokens", _USAGE, "int", rank=12, path=path) for path in _CACHED),
        *(Field("cache_write_tokens", _USAGE, "int", rank=10, path=path) for path in _WRITTEN),
        Field(
            "reasoning_tokens",
            _USAGE,
            "int",
            rank=10,
            path=("completion_tokens_details", "reasoning_tokens"),
        ),
        Field(
            "reasoning_tokens",
            _USAGE,
            "int",
            rank=11,
            path=("output_tokens_details", "reasoning_tokens"),
        ),
        *(Field("reasoning_tokens", _USAGE, "int", rank=12, path=path) for path in _REASONING),
        Field("max_tokens", _PARAMETERS, "int", rank=10, path=("max_tokens",)),
        *(
            Field("max_tokens", _PARAMETERS, "int", rank=11, path=(name,))
            for name in ("max_completion_tokens", "max_output_tokens")
        ),
        Field("temperature", _PARAMETERS, "float", rank=10, path=("temperature",)),
        Field("ttft_ns", "langfuse.observation.completion_start_time", "moment", rank=10),
        Field("streaming", "langfuse.observation.completion_start_time", "present", rank=10),
        Field("finish_reason", "langfuse.observation.metadata.finish_reason", rank=10),
        Field("session", "langfuse.session.id", rank=10),
        Field("user_hash", "langfuse.user.id", rank=10),
        Field("tenant", "langfuse.trace.metadata.tenant", rank=10),
        Field("route", "langfuse.trace.name", rank=7),
    ),
    marks=(
        Mark(_TYPE, "llm", "generation", frozenset({"generation"})),
        Mark(_TYPE, "plain", "guardrail", frozenset({"guardrail"})),
        Mark(_TYPE, "plain", "tool", frozenset({"tool"})),
        Mark(_TYPE, "plain", "retrieval", frozenset({"retriever", "embedding"})),
        Mark(_TYPE, "plain", "post", frozenset({"evaluator"})),
        Mark(_TYPE, "container", "other", frozenset({"agent"})),
        Mark(_TYPE, "container", "other", frozenset({"chain"}), weak=True),
    ),
    names=(
        SpanName(r"OpenAI\.embeddings", "plain", "retrieval", "langfuse-sdk", strong=True),
    ),  # to its JavaScript wrapper, everything is a generation
    wrappers=(
        ("langfuse-sdk", "OpenAI-generation"),
    ),  # of OpenAI's client, beside the handler for LangChain
    failures=(("langfuse.observation.level", frozenset({"ERROR"})),),
    stored_answers=(((_USAGE, ("total_cost",), 0),),),  # LangChain's cache of answers costs nothing
    hints=(
        ("response_id", "Langfuse sends none: pass traceparent on to the engine"),
        ("ttft", "streaming: the first token is reported for streams only"),
    ),
    text_keys=(
        "langfuse.observation.input",
        "langfuse.observation.output",
        "langfuse.trace.input",
        "langfuse.trace.output",
    ),
)

"""LangWatch: span types; what its trackers of OpenAI's and LiteLLM's clients tell of usage, parameters and the first token (ms since 1970) as JSON.

Source: payloads of langwatch 1.4.0 for Python and its attribute names. Its types are those that stages.py knows under any name, but
for `rag`: a retrieval with its contexts. It tells neither response ids nor finish reasons.
"""

from overrun.collector.dialects import Dialect, Field, Mark

ORDER = 42
_TYPE, _METRICS, _PARAMETERS = "langwatch.span.type", "langwatch.metrics", "langwatch.params"
DIALECT = Dialect(
    name="langwatch",
    prefixes=("langwatch.",),
    scopes=("langwatch",),
    fields=(
        Field("operation", _TYPE, rank=20),
        *(
            Field(f"{side}_tokens", _METRICS, "int", rank=20, path=(f"{name}_tokens",))
            for side, name in (("input", "prompt"), ("output", "completion"))
        ),
        Field("reasoning_tokens", _METRICS, "int", rank=20, path=("reasoning_tokens",)),
        Field("cached_tokens", _METRICS, "int", rank=20, path=("cache_read_input_tokens",)),
        Field("max_tokens", _PARAMETERS, "int", rank=20, path=("max_tokens",)),
        Field("temperature", _PARAMETERS, "float", rank=20, path=("temperature",)),
        Field("streaming", _PARAMETERS, "bool", rank=20, path=("stream",)),
        Field("ttft_ns", "langwatch.timestamps", "moment", rank=20, path=("first_token_at",)),
        Field("session", "langwatch.thread.id", rank=20),
        Field("user_hash", "langwatch.user.id", rank=20),
        Field("tenant", "langwatch.customer.id", rank=20),
    ),
    marks=(Mark(_TYPE, "plain", "retrieval", frozenset({"rag"})),),
    hints=(
        (
            "response_id",
            "an instrumentation of the provider's client beside it, or pass traceparent on to the engine",
        ),
    ),
    text_keys=("langwatch.input", "langwatch.output", "langwatch.rag_contexts"),
)

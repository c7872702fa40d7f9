"""Mirascope: GenAI names, and the details of usage in a document of its own.

Source: payloads of mirascope 2.8.2 (`ops.instrument_llm`). It tells no first token.
"""

from overrun.collector.dialects import Dialect, Field

ORDER = 50
_USAGE = "mirascope.response.usage"
DIALECT = Dialect(
    name="mirascope",
    prefixes=("mirascope.",),
    scopes=("mirascope",),
    fields=tuple(
        Field(column, _USAGE, "int", rank=20, path=(name,))
        for column, name in (
            ("cached_tokens", "cache_read_tokens"),
            ("cache_write_tokens", "cache_write_tokens"),
            ("reasoning_tokens", "reasoning_tokens"),
        )
    ),
    text_keys=(
        "mirascope.response.messages",
        "mirascope.response.content",
        "mirascope.trace.arg_values",
        "mirascope.trace.output",
    ),
)

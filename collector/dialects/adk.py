"""Google's Agent Development Kit: its model call is a span by name alone, with GenAI names for model and usage.

Source: google/adk-python, google/adk/telemetry, and payloads of 1.14.1 and of 2.13.0, whose call is a `generate_content` span of the conventions.
"""

from overrun.collector.dialects import Dialect, Field, SpanName

ORDER = 39
_SCOPE = "gcp.vertex.agent"
DIALECT = Dialect(
    name="adk",
    prefixes=(f"{_SCOPE}.",),
    scopes=(_SCOPE,),
    fields=(
        Field("session", f"{_SCOPE}.session_id", rank=10),
        # What versions 1.x leave in the answer: thoughts are beside its output tokens, and in their sum.
        *(
            Field(
                column,
                f"{_SCOPE}.llm_response",
                "int",
                rank=20,
                path=("usage_metadata", f"{name}_token_count"),
            )
            for column, name in (
                ("cached_tokens", "cached_content"),
                ("reasoning_tokens", "thoughts"),
                ("total_tokens", "total"),
            )
        ),
    ),
    names=(
        *(
            SpanName("call_llm", "llm", "generation", scope)
            for scope in (_SCOPE, "openinference.instrumentation.google_adk")
        ),
        SpanName("invocation|agent_run .*", "container", "other", _SCOPE),
    ),
    text_keys=tuple(
        f"{_SCOPE}.{name}"
        for name in ("llm_request", "llm_response", "tool_call_args", "tool_response", "data")
    ),
)

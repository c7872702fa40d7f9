"""Google's Agent Development Kit: its model call is a span by name alone, with GenAI names for model and usage.

Source: google/adk-python, google/adk/telemetry, and payloads of 2.13.0, whose call is a `generate_content` span of the conventions.
"""

from collector.dialects import Dialect, Field, SpanName

ORDER = 39
_SCOPE = "gcp.vertex.agent"
DIALECT = Dialect(
    name="adk",
    prefixes=(f"{_SCOPE}.",),
    scopes=(_SCOPE,),
    fields=(Field("session", f"{_SCOPE}.session_id", rank=10),),
    names=(SpanName("call_llm", "llm", "generation", _SCOPE), SpanName("invocation|agent_run .*", "container", "other", _SCOPE)),
    text_keys=tuple(f"{_SCOPE}.{name}" for name in ("llm_request", "llm_response", "tool_call_args", "tool_response", "data")),
)

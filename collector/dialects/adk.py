"""Google's Agent Development Kit: its model call is a span by name alone, with GenAI names for model and usage.

Source: google/adk-python, google/adk/telemetry. Untested against a real sender. Newer versions put a `generate_content` span of the conventions inside.
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

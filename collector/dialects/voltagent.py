"""VoltAgent: `span.type` says what a span is (stages.py knows its words), `llm.*` what a call counted; a loop with tools is one call with its last counts.

Source: payloads of @voltagent/core 2.10.0.
"""

from overrun.collector.dialects import Dialect, Field, SpanName

ORDER = 51
_SCOPE, _CALL = "@voltagent/core", "llm.operation"
DIALECT = Dialect(
    name="voltagent",
    prefixes=("voltagent.",),
    scopes=(_SCOPE,),
    fields=(
        Field("operation", "span.type", rank=20, beside="operation.id"),
        Field("model", "llm.model", rank=20, beside=_CALL),
        Field("cached_tokens", "llm.usage.cached_tokens", "int", rank=20),
        Field("reasoning_tokens", "llm.usage.reasoning_tokens", "int", rank=20),
        Field("streaming", "llm.stream", "bool", rank=20, beside=_CALL),
        Field("session", "voltagent.conversation_id", rank=20),
    ),
    names=(
        SpanName(r"memory\.(?:\w+\.)*write.*", "write", "post", _SCOPE),
        SpanName(r"memory\.(?:\w+\.)*read.*", "plain", "retrieval", _SCOPE),
    ),
    text_keys=(
        "agent.instructions",
        "agent.messages",
        "agent.messages.ui",
        "agent.stateSnapshot",
        "llm.messages",
        "tool.parameters",
    ),
)

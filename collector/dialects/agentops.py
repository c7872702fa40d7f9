"""AgentOps: span kinds, and GenAI names for model calls, whose kind of request stands where the conventions have an operation.

Source: payloads of agentops 0.4.21 for Python. Its `gen_ai.streaming.time_to_first_token` counts from the answer's headers on and is
not read; the moment of its event `first_token_received` is.
"""

from overrun.collector.dialects import Dialect, Field, Mark

ORDER = 43
DIALECT = Dialect(
    name="agentops",
    prefixes=("agentops.", "gen_ai.streaming."),
    scopes=("agentops",),
    fields=(
        Field("operation", "agentops.span.kind", rank=20),
        Field("streaming", "gen_ai.request.streaming", "bool", rank=20),
    ),
    marks=(
        Mark("gen_ai.request.type", "llm", "generation", frozenset({"chat", "completion"})),
        Mark("gen_ai.request.type", "plain", "retrieval", frozenset({"embedding", "embeddings"})),
    ),
    first_token_events=("first_token_received",),
    text_keys=tuple(
        f"agentops.{kind}.{side}"
        for kind in (
            "entity",
            "task",
            "tool",
            "operation",
            "agent",
            "workflow",
            "session",
            "chain",
            "guardrail",
        )
        for side in ("input", "output")
    ),
)

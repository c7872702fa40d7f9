"""Mastra's OpenTelemetry exporter: GenAI names for its model calls (`model_inference`), which stand in a step of a generation of an agent's run; each run of
text or of a tool call that a model sent is a span of its own.

Source: payloads of @mastra/core 1.71.0 with @mastra/otel-exporter 1.4.0. A failed call is told by its finish reason, not by its status; no response id.
"""

from overrun.collector.dialects import Dialect, Field, Mark

ORDER = 38
_TYPE, _SAID = "mastra.span.type", "mastra.metadata"
DIALECT = Dialect(
    name="mastra",
    prefixes=("mastra.",),
    scopes=("@mastra/otel-exporter",),
    fields=(
        Field("ttft_ns", "mastra.completion_start_time", "moment", rank=10),
        *(
            Field(column, f"{_SAID}.{name}", rank=10)
            for column, name in (
                ("session", "sessionId"),
                ("session", "threadId"),
                ("user_hash", "userId"),
                ("user_hash", "resourceId"),
                ("tenant", "tenant"),
                ("tenant", "tenantId"),
            )
        ),
    ),
    marks=(
        Mark(_TYPE, "folded", "other", frozenset({"model_chunk"})),
        Mark(
            _TYPE,
            "container",
            "other",
            frozenset(
                {"agent_run", "model_generation", "model_step", "workflow_run", "workflow_step"}
            ),
        ),
    ),
    failures=(("gen_ai.response.finish_reasons", frozenset({"error"})),),
)

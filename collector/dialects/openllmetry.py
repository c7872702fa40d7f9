"""OpenLLMetry (Traceloop): workflow, task and tool spans, one span event per stream chunk, GenAI names for the model call itself.

Source: payloads of traceloop-sdk 0.62.4.
"""

from overrun.collector.dialects import Dialect, Field, Mark, Metric, SpanName, llama_index

ORDER = 31
_KIND = "traceloop.span.kind"
DIALECT = Dialect(
    name="openllmetry",
    prefixes=("traceloop.",),
    scopes=("traceloop.tracer",),
    fields=(
        Field("operation", _KIND, rank=10),
        Field("session", "traceloop.association.properties.session_id", rank=10),
        Field("user_hash", "traceloop.association.properties.user_id", rank=10),
        *(
            Field("session", f"traceloop.association.properties.{name}", rank=11)
            for name in ("conversation_id", "thread_id", "chat_id")
        ),
        Field("tenant", "traceloop.association.properties.tenant", rank=10),
        Field("tenant", "traceloop.association.properties.tenant_id", rank=11),
        Field("route", "traceloop.workflow.name", rank=6),
        Field("finish_reason", "gen_ai.response.stop_reason", rank=10),
        Field("finish_reason", "llm.response.finish_reason", rank=11),
        Field("finish_reason", "llm.response.stop_reason", rank=12),
        # Before they followed the conventions, its instrumentations numbered the choices.
        Field("finish_reason", "gen_ai.completion.0.finish_reason", rank=13),
        Field("finish_reason", "llm.completions.0.finish_reason", rank=14),
        Field(
            "finish_reason", "gen_ai.completion.1.finish_reason", rank=15
        ),  # Netra's, whose numbers begin there
    ),
    marks=(
        Mark(_KIND, "plain", "tool", frozenset({"tool"})),
        Mark(_KIND, "container", "other", frozenset({"agent"})),
        Mark(_KIND, "container", "other", frozenset({"workflow", "task"}), weak=True),
    ),
    names=(
        SpanName(
            "execute_task tools_condition",
            "container",
            "other",
            "opentelemetry.instrumentation.langchain",
        ),
        SpanName(r"\w*Tool\.task", "plain", "tool", "opentelemetry.instrumentation.llamaindex"),
        *llama_index("opentelemetry.instrumentation.llamaindex"),
    ),
    cached_apart=("opentelemetry.instrumentation.bedrock",),
    names_tasks=("opentelemetry.instrumentation.crewai",),
    hints=(
        ("session", "Traceloop.set_association_properties({'session_id': ...})"),
        ("tenant", "Traceloop.set_association_properties({'tenant': ...})"),
        ("user", "Traceloop.set_association_properties({'user_id': ...})"),
    ),
    text_keys=("traceloop.entity.input", "traceloop.entity.output"),
    # Its instrumentations measure at the client, whatever the name says.
    metrics=(
        Metric(
            "gen_ai.server.time_to_first_token",
            "client_ttft",
            scope="opentelemetry.instrumentation",
        ),
    ),
)

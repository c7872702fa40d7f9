"""NeMo Guardrails: rails of several types around the checks' model calls and the answer's own; GenAI names for the calls, with the task as the operation.

Source: payloads of nemoguardrails 0.24.1 (`tracing.enabled`, OpenTelemetry).
"""

from overrun.collector.dialects import Dialect, Mark, SpanName

ORDER = 46
_SCOPE = "nemo_guardrails"
DIALECT = Dialect(
    name="nemo",
    prefixes=("guardrails.", "rail."),
    scopes=(_SCOPE,),
    marks=(
        Mark("rail.type", "container", "other", frozenset({"generation", "dialog"})),
        Mark("rail.type", "plain", "retrieval", frozenset({"retrieval"})),
        Mark("rail.type", "plain", "tool", frozenset({"tool", "execution"})),
        Mark(
            "rail.type",
            "plain",
            "guardrail",
            frozenset({"input", "output", "tool_input", "tool_output"}),
        ),
    ),
    names=(
        SpanName(r"guardrails\.(?:request|action)", "container", "other", _SCOPE),
        SpanName(r"guardrails\.rail", "plain", "guardrail", _SCOPE),
    ),
    text_keys=(
        "guardrails.request.input",
        "guardrails.request.output",
        "guardrails.rail.input",
        "guardrails.rail.reason",
    ),
)

"""Agenta: kinds of nodes, and what LiteLLM's callback counted of a call.

Source: payloads of agenta 0.64.1 with its callback for LiteLLM 1.78.7; its other kinds by its constants. Streams are told of only once they were read whole.
"""

from overrun.collector.dialects import Dialect, Field, Mark

ORDER = 53
_NODE, _TOKENS = "ag.type.node", "ag.metrics.unit.tokens"
DIALECT = Dialect(
    name="agenta",
    prefixes=("ag.",),
    scopes=("agenta.tracer",),
    fields=(
        Field("operation", _NODE, rank=20),
        Field("model", "ag.meta.configuration.model", rank=20),
        Field("max_tokens", "ag.meta.configuration.max_tokens", "int", rank=20),
        Field("temperature", "ag.meta.configuration.temperature", "float", rank=20),
        Field("input_tokens", f"{_TOKENS}.prompt", "int", rank=20),
        Field("output_tokens", f"{_TOKENS}.completion", "int", rank=20),
        Field("total_tokens", f"{_TOKENS}.total", "int", rank=20),
    ),
    marks=(
        Mark(_NODE, "llm", "generation", frozenset({"CHAT", "COMPLETION"})),
        Mark(_NODE, "plain", "retrieval", frozenset({"EMBEDDING", "QUERY", "RERANK"})),
        Mark(_NODE, "plain", "tool", frozenset({"TOOL"})),
        Mark(
            _NODE,
            "container",
            "other",
            frozenset({"AGENT", "WORKFLOW", "CHAIN", "TASK"}),
            weak=True,
        ),
    ),
    exceptions_fail=True,
    text_keys=("ag.data.inputs", "ag.data.outputs", "ag.data.internals"),
)

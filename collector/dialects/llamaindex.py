"""LlamaIndex's own spans (llama-index-observability-otel): classes and methods by name alone; no model, no count, no first token.

Source: payloads of llama-index-observability-otel 0.7.0 with llama-index-core 0.14.25. A stream's span ends when it is handed over.
"""

from overrun.collector.dialects import Dialect, SpanName, llama_index

ORDER = 47
_SCOPE = "llamaindex.opentelemetry.tracer"
DIALECT = Dialect(
    name="llamaindex",
    scopes=(_SCOPE,),
    names=(
        *llama_index(_SCOPE),
        SpanName(
            r"(?!\w*(?:Agent|Engine|Program|Synthesizer)\.)\w+\.a?(?:stream_)?(?:chat|complete|chat_with_tools)",
            "llm",
            "generation",
            _SCOPE,
        ),
        SpanName(r"\w*Tool\.a?call", "plain", "tool", _SCOPE),
        SpanName(
            r"\w*(?:Agent|Workflow)\.a?(?:run|init_run|setup_agent|run_agent_step)",
            "container",
            "other",
            _SCOPE,
        ),
    ),
    text_keys=("llamaindex.step.input_summary", "llamaindex.step.output_summary"),
    hints=tuple(
        (
            field,
            "an instrumentation of LlamaIndex (OpenInference's, OpenLLMetry's) instead: its own spans have names and times alone",
        )
        for field in (
            "ttft",
            "model",
            "input_tokens",
            "output_tokens",
            "finish_reason",
            "response_id",
        )
    ),
)

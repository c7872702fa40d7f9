"""Monocle (LF AI): `span.type` says what a span is, entities what it spoke to, and span events carry the texts and the counts.

Source: payloads of monocle_apptrace 0.8.15 for Python with OpenAI's client and LangChain, and its constants. An answer's event begins with a stream's first
chunk, but nothing says which calls were streamed: no first token is read. Of a framework's call the client's span inside shows nothing of its own.
"""

from overrun.collector.dialects import Dialect, EventField, Field, Mark

ORDER = 52
_TYPE, _COUNTS = "span.type", "metadata"
DIALECT = Dialect(
    name="monocle",
    prefixes=("monocle_apptrace.", "entity."),
    scopes=("monocle_apptrace",),
    fields=(
        Field("operation", _TYPE, rank=20, beside="monocle_apptrace.version"),
        Field("model", "entity.2.name", rank=20, beside="entity.1.inference_endpoint"),
        Field("model", "entity.1.name", rank=21, beside="entity.1.type"),
        Field("provider", "entity.1.provider_name", rank=20),
        Field("route", "workflow.name", rank=20, beside="monocle_apptrace.version"),
    ),
    marks=(
        Mark(_TYPE, "llm", "generation", frozenset({"inference", "inference.framework"})),
        Mark(_TYPE, "folded", "other", frozenset({"inference.modelapi"})),
        Mark(
            _TYPE, "plain", "tool", frozenset({"agentic.tool.invocation", "agentic.mcp.invocation"})
        ),
        Mark(
            _TYPE,
            "container",
            "other",
            frozenset(
                {
                    "agentic.turn",
                    "agentic.request",
                    "agentic.invocation",
                    "agentic.delegation",
                    "http.process",
                }
            ),
        ),
        Mark(_TYPE, "plain", "network", frozenset({"http.send"})),
    ),
    event_fields=(
        EventField("input_tokens", _COUNTS, "prompt_tokens", "int"),
        EventField("output_tokens", _COUNTS, "completion_tokens", "int"),
        EventField("cached_tokens", _COUNTS, "cache_read_input_tokens", "int"),
        EventField("cache_write_tokens", _COUNTS, "cache_creation_input_tokens", "int"),
        EventField("finish_reason", _COUNTS, "finish_reason"),
        EventField("http_status", "data.output", "error_code", "status", failed=True),
    ),
    hints=(
        (
            "ttft",
            "an instrumentation of the client beside it (opentelemetry-instrumentation-genai-openai, openinference-instrumentation-openai)",
        ),
    ),
)

"""TruLens: functions that an application marks by what they are (`retrieval`, `generation`, `record_root`), with the counts of the calls within.

Source: payloads of trulens-core 2.16.0 with its provider for OpenAI, and the names in trulens-otel-semconv 2.16.0 (first tokens, rerankers, tools).
"""

from overrun.collector.dialects import Dialect, Field, Mark

ORDER = 48
_OWN = "ai.observability"
_TYPE = f"{_OWN}.span_type"
DIALECT = Dialect(
    name="trulens",
    prefixes=(f"{_OWN}.",),
    scopes=("trulens",),
    fields=(
        Field("operation", _TYPE, rank=20),
        Field("model", f"{_OWN}.cost.model", rank=20),
        Field("input_tokens", f"{_OWN}.cost.num_prompt_tokens", "int", rank=20),
        Field("output_tokens", f"{_OWN}.cost.num_completion_tokens", "int", rank=20),
        Field("reasoning_tokens", f"{_OWN}.cost.num_reasoning_tokens", "int", rank=20),
        Field("streaming", f"{_OWN}.generation.is_streaming", "bool", rank=20),
        Field("ttft_ns", f"{_OWN}.generation.time_to_first_token_ms", "millis", rank=20),
        Field("model", f"{_OWN}.reranking.model_name", rank=21),
        Field("route", f"{_OWN}.app_name", rank=14),
    ),
    marks=(
        Mark(
            _TYPE,
            "container",
            "other",
            frozenset(
                {
                    "record_root",
                    "nested_record_root",
                    "eval_root",
                    "graph_task",
                    "graph_node",
                    "workflow_step",
                    "agent",
                }
            ),
        ),
        Mark(_TYPE, "plain", "tool", frozenset({"MCP", "mcp"})),
        Mark(_TYPE, "plain", "post", frozenset({"eval", "eval_decision"})),
    ),
    hints=(
        (
            "input_tokens",
            "trulens-providers-openai (or of another provider), which counts; or OpenInference's instrumentation of the client beside it",
        ),
    ),
)

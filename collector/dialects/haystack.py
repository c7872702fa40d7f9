"""Haystack's own tracing (its OpenTelemetryTracer): a span per pipeline, component, step of an agent and tool; what a component is says its class.

Source: payloads of haystack-ai 2.9.0 and of 3.4 with opentelemetry-haystack. Model, tokens and first token stand in a component's output, which is only sent
with HAYSTACK_CONTENT_TRACING_ENABLED; the moment of the first chunk names no time zone and is read where it lies in the span, as it does in UTC.
"""

from overrun.collector.dialects import Dialect, Field, Mark, SpanName

ORDER = 38
_TYPE = "haystack.component.type"
# A component's output, an agent's step's, and that of the generators that take plain text; messages of 2.9 and before have underscores.
_ANSWERS = (
    *(
        (key, ("replies", "0", meta))
        for meta in ("meta", "_meta")
        for key in ("haystack.component.output", "haystack.agent.step.llm.output")
    ),
    ("haystack.component.output", ("meta", "0")),
)
_USAGE = {
    "input_tokens": (("prompt_tokens",), ("input_tokens",)),
    "output_tokens": (("completion_tokens",), ("output_tokens",)),
    "cached_tokens": (("prompt_tokens_details", "cached_tokens"), ("cache_read_input_tokens",)),
    "reasoning_tokens": (("completion_tokens_details", "reasoning_tokens"),),
}
DIALECT = Dialect(
    name="haystack",
    prefixes=("haystack.",),
    scopes=("haystack",),
    fields=(
        Field("operation", _TYPE, rank=20),
        *(Field("model", key, rank=20, path=(*meta, "model")) for key, meta in _ANSWERS),
        Field("model", "haystack.component.output", rank=21, path=("meta", "model")),
        *(
            Field("finish_reason", key, rank=20, path=(*meta, "finish_reason"))
            for key, meta in _ANSWERS
        ),
        *(Field("response_id", key, rank=20, path=(*meta, "id")) for key, meta in _ANSWERS),
        *(
            Field("ttft_ns", key, "moment", rank=20, path=(*meta, "completion_start_time"))
            for key, meta in _ANSWERS
        ),
        *(
            Field("streaming", key, "present", rank=20, path=(*meta, "completion_start_time"))
            for key, meta in _ANSWERS
        ),
        *(
            Field(column, key, "int", rank=20, path=(*meta, "usage", *path))
            for column, paths in _USAGE.items()
            for path in paths
            for key, meta in _ANSWERS
        ),
    ),
    marks=(
        Mark(_TYPE, "llm", "generation", pattern=r"(?!.*Image)\w*Generator"),
        Mark(_TYPE, "plain", "retrieval", pattern=r"\w*(?:Retriever|Embedder|Ranker|WebSearch)"),
        Mark(_TYPE, "plain", "prompt", pattern=r"\w*PromptBuilder"),
        Mark(_TYPE, "plain", "tool", pattern=r"\w*ToolInvoker"),
        Mark(
            _TYPE,
            "plain",
            "post",
            pattern=r"\w*(?:AnswerBuilder|OutputAdapter|Validator|Evaluator|Writer)",
        ),
        Mark(_TYPE, "container", "other", pattern=r"Agent|SuperComponent|MultiQuery\w+"),
    ),
    names=(
        SpanName(r"haystack\.agent\.step\.llm", "llm", "generation"),
        SpanName(r"haystack\.agent\.step\.tool", "plain", "tool"),
        SpanName(r"haystack\.agent\.hook\.human_in_the_loop.*", "plain", "wait_user"),
        SpanName(
            r"haystack\.(?:async_)?pipeline\.run|haystack\.agent\.(?:run|step)",
            "container",
            "other",
        ),
        SpanName(r"haystack\.tracing\..*", "folded", "other"),
    ),
    hints=tuple(
        (
            field,
            "HAYSTACK_CONTENT_TRACING_ENABLED=true (Overrun drops its texts), or an instrumentation of the provider's client beside it",
        )
        for field in ("ttft", "model", "input_tokens", "output_tokens", "finish_reason")
    ),
    text_keys=(
        "haystack.component.input",
        "haystack.component.output",
        "haystack.pipeline.input_data",
        "haystack.pipeline.output_data",
        "haystack.agent.input",
        "haystack.agent.output",
        "haystack.agent.step.llm.input",
        "haystack.agent.step.llm.output",
        "haystack.tool.description",
    ),
)

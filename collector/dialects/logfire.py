"""pydantic-ai and Logfire: GenAI names, a metric's name as an attribute for the TTFT, pending spans that repeat the real ones, log lines as
spans that last no time (Logfire's OpenAI wrapper repeats the call in the one that reports the stream's end).

Source: payloads of pydantic-ai-slim 2.68.0 with logfire 5.2.0, and of 1.40.0 with 4.16.0, whose wrappers report a call in the request and the answer
themselves, and no operation, and of 5.x with openai-agents. Aggregated usage on agent spans is not a call's usage.
"""

from overrun.collector.dialects import Dialect, Field, Mark, SpanName

ORDER = 36
_RAW = "gen_ai.usage.raw"  # the provider's own usage object, of its wrappers
_AGENTS = "logfire.openai_agents"
_ASKED, _ANSWERED = "request_data", "response_data"
_APART = (
    ("usage", "cache_read_input_tokens"),
    ("usage", "cache_creation_input_tokens"),
)  # Anthropic's, beside the input tokens
DIALECT = Dialect(
    name="logfire",
    prefixes=("logfire.", "pydantic_ai."),
    scopes=("pydantic-ai",),
    fields=(
        Field("cached_tokens", "gen_ai.usage.details.cache_read_tokens", "int", rank=12),
        Field("cached_tokens", "gen_ai.usage.details.cached_tokens", "int", rank=13),
        *(
            Field("cached_tokens", _RAW, "int", rank=14, path=path)
            for path in (
                ("prompt_tokens_details", "cached_tokens"),
                ("input_tokens_details", "cached_tokens"),
                ("cache_read_input_tokens",),
            )
        ),
        Field("cache_write_tokens", _RAW, "int", rank=14, path=("cache_creation_input_tokens",)),
        *(
            Field(
                "reasoning_tokens",
                _RAW,
                "int",
                rank=14,
                path=(f"{side}_tokens_details", "reasoning_tokens"),
            )
            for side in ("completion", "output")
        ),
        Field("cache_write_tokens", "gen_ai.usage.details.cache_write_tokens", "int", rank=12),
        Field("streaming", "gen_ai.client.operation.time_to_first_chunk", "present", rank=12),
        Field("route", "agent_name", rank=12),
        # Of OpenAI's Agents SDK: the answer of the Responses API as a document; the name and group of a run of its own.
        Field("response_id", "response_id", rank=16, beside=_RAW),
        Field("finish_reason", "response", rank=16, path=("incomplete_details", "reason")),
        Field("finish_reason", "response", "ended", rank=17, path=("output", "-1", "type")),
        Field("finish_reason", "response", "ended", rank=18, path=("status",)),
        Field("route", "name", rank=12, beside="agent_trace_id"),
        Field("session", "group_id", "given", rank=16, beside="agent_trace_id"),
        Field("model", _ASKED, rank=16, path=("model",)),
        Field("streaming", _ASKED, "bool", rank=16, path=("stream",)),
        *(
            Field("max_tokens", _ASKED, "int", rank=16, path=(name,))
            for name in ("max_tokens", "max_completion_tokens", "max_output_tokens")
        ),
        *(
            Field(f"{side}_tokens", _ANSWERED, "int", rank=16, path=("usage", name), plus=plus)
            for side, name, plus in (
                ("input", "prompt_tokens", ()),
                ("input", "input_tokens", _APART),
                ("output", "completion_tokens", ()),
                ("output", "output_tokens", ()),
            )
        ),
        *(
            Field("cached_tokens", _ANSWERED, "int", rank=16, path=("usage", *path))
            for path in (
                ("prompt_tokens_details", "cached_tokens"),
                ("input_tokens_details", "cached_tokens"),
                ("cache_read_input_tokens",),
            )
        ),
        Field(
            "cache_write_tokens",
            _ANSWERED,
            "int",
            rank=16,
            path=("usage", "cache_creation_input_tokens"),
        ),
        *(
            Field(
                "reasoning_tokens",
                _ANSWERED,
                "int",
                rank=16,
                path=("usage", f"{side}_tokens_details", "reasoning_tokens"),
            )
            for side in ("completion", "output")
        ),
    ),
    marks=(Mark("logfire.span_type", "folded", "other", frozenset({"pending_span", "log"})),),
    names=(
        SpanName(
            "(Chat Completion|Responses API|Completion) with .*",
            "llm",
            "generation",
            "logfire.openai",
        ),
        SpanName("Message with .*", "llm", "generation", "logfire.anthropic"),
        # Of OpenAI's Agents SDK.
        SpanName("(?:Chat completion|Responses API)(?: with .*)?", "llm", "generation", _AGENTS),
        SpanName("Function: .*", "plain", "tool", _AGENTS),
        SpanName("Guardrail .*", "plain", "guardrail", _AGENTS),
        SpanName("MCP: list tools .*|Speech → Text.*|Text → Speech", "plain", "network", _AGENTS),
        SpanName(
            "OpenAI Agents trace: .*|Task: .*|Agent run: .*|Turn .*|Text → Speech group|Custom span: .*",
            "container",
            "other",
            _AGENTS,
        ),
    ),
    text_keys=(
        "pydantic_ai.all_messages",
        "final_result",
        "logfire.json_schema",
        "logfire.metrics",
        "logfire.scrubbed",
        "model_request_parameters",
    ),
)

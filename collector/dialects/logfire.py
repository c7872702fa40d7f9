"""pydantic-ai and Logfire: GenAI names, a metric's name as an attribute for the TTFT, pending spans that repeat the real ones, log lines as
spans that last no time (Logfire's OpenAI wrapper repeats the call in the one that tells of the stream's end).

Source: payloads of pydantic-ai-slim 2.68.0 with logfire 5.2.0. Aggregated usage on agent spans is not a call's usage.
"""

from collector.dialects import Dialect, Field, Mark

ORDER = 36
_RAW = "gen_ai.usage.raw"  # the provider's own usage object, of its wrappers
DIALECT = Dialect(
    name="logfire",
    prefixes=("logfire.", "pydantic_ai."),
    scopes=("pydantic-ai",),
    fields=(
        Field("cached_tokens", "gen_ai.usage.details.cache_read_tokens", "int", rank=12),
        Field("cached_tokens", "gen_ai.usage.details.cached_tokens", "int", rank=13),
        *(Field("cached_tokens", _RAW, "int", rank=14, path=path) for path in (
            ("prompt_tokens_details", "cached_tokens"), ("input_tokens_details", "cached_tokens"), ("cache_read_input_tokens",))),
        Field("cache_write_tokens", _RAW, "int", rank=14, path=("cache_creation_input_tokens",)),
        *(Field("reasoning_tokens", _RAW, "int", rank=14, path=(f"{side}_tokens_details", "reasoning_tokens")) for side in ("completion", "output")),
        Field("cache_write_tokens", "gen_ai.usage.details.cache_write_tokens", "int", rank=12),
        Field("streaming", "gen_ai.client.operation.time_to_first_chunk", "present", rank=12),
        Field("route", "agent_name", rank=12),
    ),
    marks=(Mark("logfire.span_type", "folded", "other", frozenset({"pending_span", "log"})),),
    text_keys=("pydantic_ai.all_messages", "final_result", "logfire.json_schema", "logfire.metrics", "logfire.scrubbed", "model_request_parameters"),
)

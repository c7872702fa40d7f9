"""Claude Code: spans of turns, requests to the model, tools and hooks, with names of its own that mean something beside `span.type` alone.

Source: payloads of @anthropic-ai/claude-code 2.1.197 (CLAUDE_CODE_ENHANCED_TELEMETRY_BETA=1). The time to the first token counts from the last attempt's start,
which a span event tells; input tokens leave out the cached ones. Without that setting it sends logs and metrics alone.
"""

from overrun.collector.dialects import Dialect, Field, Mark, Metric

ORDER = 45
_TYPE, _CALL, _SCOPE = "span.type", "llm_request.context", "com.anthropic.claude_code.tracing"
_EVENTS = "com.anthropic.claude_code.events"  # log records, read by sources/log_events.py
_TOKENS = "claude_code.token.usage"
DIALECT = Dialect(
    name="claude_code",
    prefixes=("claude_code.", "llm_request."),
    scopes=(_SCOPE,),
    fields=(
        Field("operation", _TYPE, rank=20, beside=_CALL),
        *(
            Field(column, key, "int", rank=20, beside=_CALL)
            for column, key in (
                ("input_tokens", "input_tokens"),
                ("output_tokens", "output_tokens"),
                ("cached_tokens", "cache_read_tokens"),
                ("cache_write_tokens", "cache_creation_tokens"),
                ("attempts", "attempt"),
            )
        ),
        Field("ttft_ns", "ttft_ms", "millis", rank=20, beside=_CALL),
        # Every request of it streams, and reports it where an answer came.
        Field("streaming", "ttft_ms", "present", rank=20, beside=_CALL),
        Field("http_status", "status_code", "status", rank=20, beside=_CALL),
    ),
    marks=(
        Mark(_TYPE, "llm", "generation", frozenset({"llm_request"})),
        Mark(_TYPE, "plain", "tool", frozenset({"tool.execution", "bash.subprocess", "mcp.rpc"})),
        Mark(_TYPE, "plain", "wait_user", frozenset({"tool.blocked_on_user"})),
        Mark(
            _TYPE,
            "container",
            "other",
            frozenset({"interaction", "hook", "subagent.spawn", "compaction"}),
        ),
    ),
    attempt_events=("gen_ai.request.attempt",),
    cached_apart=(_SCOPE, _EVENTS),
    text_keys=("new_context", "hook_definitions", "full_command"),
    hints=(("ttft", "CLAUDE_CODE_ENHANCED_TELEMETRY_BETA=1 and OTEL_TRACES_EXPORTER=otlp"),),
    metrics=(
        *(
            Metric(_TOKENS, "client_input_tokens", where=(("type", name),), adds=True)
            for name in ("input", "cacheRead", "cacheCreation")
        ),
        Metric(_TOKENS, "client_output_tokens", where=(("type", "output"),), adds=True),
    ),
)

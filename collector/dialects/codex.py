"""Codex CLI: every function of its own is a span; of these one is a request to the model (`codex.sampling`), one a tool's call. The counts of an answer stand
on a span of the moment when it ended, those of a turn on the turn's: no call has them.

Source: payloads of @openai/codex 0.169.0 (`[otel] trace_exporter`). The scope is who began it (`codex_exec`).
"""

from overrun.collector.dialects import Dialect, Field, SpanName

ORDER = 47
_SCOPES = (
    "codex_exec",
    "codex_cli_rs",
    "codex_tui",
    "codex_vscode",
    "codex_sdk_ts",
    "codex_sdk_py",
    "codex_app_server",
    "codex_mcp_server",
)
DIALECT = Dialect(
    name="codex",
    prefixes=("codex.",),
    scopes=_SCOPES,
    fields=(
        Field("session", "conversation.id", rank=20, beside="codex.turn.phase"),
        Field("streaming", "codex.turn.phase", "present", rank=20),
    ),
    names=tuple(
        SpanName(pattern, role, stage, scope, strong=True)
        for scope in _SCOPES
        for pattern, role, stage in (
            (r"codex\.sampling", "llm", "generation"),
            ("dispatch_tool_call_with_state", "plain", "tool"),
            (".*", "container", "other"),
        )
    ),
    hints=(("output_tokens", "nothing for single calls: Codex CLI counts the tokens of a turn"),),
)

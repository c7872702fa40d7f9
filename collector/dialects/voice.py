"""Agents that speak (Pipecat, LiveKit Agents): GenAI names for their model calls, words of their own for who listens and who speaks.

Source: payloads of pipecat-ai 1.14.0 and livekit-agents 1.8.9 for Python. A session with all its turns is one trace, and so one request.
"""

from overrun.collector.dialects import Dialect, Field, SpanName

ORDER = 45
_PIPECAT, _LIVEKIT = "pipecat", "livekit-agents"
_CALL = "gen_ai.operation.name"
DIALECT = Dialect(
    name="voice",
    prefixes=("lk.", "turn."),
    scopes=(_PIPECAT, _LIVEKIT),
    precedence=60,
    fields=(
        # Pipecat's.
        Field("session", "conversation.id", rank=20),
        Field("ttft_ns", "metrics.ttfb", "seconds", rank=20, beside=_CALL),
        Field("streaming", "stream", "bool", rank=20, beside=_CALL),
        Field("session", "lk.room_sid", rank=20),
        Field("session", "lk.job_id", rank=21),
    ),
    names=(
        SpanName("conversation|turn", "container", "other", _PIPECAT),
        SpanName("stt|tts", "plain", "network", _PIPECAT),
        SpanName("user_turn|user_speaking", "plain", "wait_user", _LIVEKIT),
        # From the end of a user's speech until its text is there and the turn is the agent's: inside of the user's turn, and no user is waited for.
        SpanName("eou_wait|eou_detection", "plain", "network", _LIVEKIT),
        SpanName("llm_node|session_start", "container", "other", _LIVEKIT),
        SpanName("llm_request_run", "folded", "other", _LIVEKIT),
        SpanName("[st]t[st]_(?:node|request|request_run)", "plain", "network", _LIVEKIT),
    ),
    text_keys=(
        "lk.pii.user_input",
        "lk.pii.response.text",
        "lk.pii.chat_ctx",
        "lk.pii.response.function_calls",
        "lk.pii.function_tool.arguments",
        "lk.pii.function_tool.output",
    ),
)

"""LangSmith's OTel export: run types as span kinds, GenAI names for model and usage, token details as JSON.

Source: payloads of langsmith 0.15.0 with langchain 1.4.7 and 0.4.8 with 0.3.26 (LANGSMITH_OTEL_ENABLED), whose documents are bytes and hold the details of
usage. It sends no first token.
"""

from overrun.collector.dialects import Dialect, Field, Mark

ORDER = 37
_KIND = "langsmith.span.kind"
# LangChain's result: what the provider said of the first answer.
_ANSWER, _MESSAGE = "gen_ai.completion", ("generations", "0", "0", "message", "kwargs")
_TOLD = (*_MESSAGE, "response_metadata")
_DETAILS = (
    ("cached_tokens", "input", "cache_read"),
    ("cache_write_tokens", "input", "cache_creation"),
    ("reasoning_tokens", "output", "reasoning"),
)
DIALECT = Dialect(
    name="langsmith",
    prefixes=("langsmith.",),
    scopes=("langsmith",),
    fields=(
        Field("operation", _KIND, rank=10),
        Field("model", "langsmith.metadata.ls_model_name", rank=10),
        # Before `gen_ai.system`, which its exporter guesses from the model's name (`langchain` where it cannot).
        Field("provider", "langsmith.metadata.ls_provider", rank=-1),
        Field("max_tokens", "langsmith.metadata.ls_max_tokens", "int", rank=10),
        Field("temperature", "langsmith.metadata.ls_temperature", "float", rank=10),
        *(
            Field(column, f"gen_ai.usage.{side}_token_details", "int", rank=10, path=(name,))
            for column, side, name in _DETAILS
        ),
        *(
            Field(
                column,
                "langsmith.metadata.usage_metadata",
                "int",
                rank=11,
                path=(f"{side}_token_details", name),
            )
            for column, side, name in _DETAILS
        ),
        *(
            Field(
                column,
                _ANSWER,
                "int",
                rank=12,
                path=(*_MESSAGE, "usage_metadata", f"{side}_token_details", name),
            )
            for column, side, name in _DETAILS
        ),
        *(
            Field("finish_reason", _ANSWER, rank=10, path=(*_TOLD, name))
            for name in ("finish_reason", "stop_reason")
        ),
        Field(
            "finish_reason",
            _ANSWER,
            rank=11,
            path=("generations", "0", "0", "generation_info", "finish_reason"),
        ),
        Field("finish_reason", _ANSWER, rank=12, path=(*_TOLD, "incomplete_details", "reason")),
        Field("finish_reason", _ANSWER, "ended", rank=13, path=(*_TOLD, "status")),
        Field("response_id", _ANSWER, rank=10, path=(*_TOLD, "id")),
        Field("model", _ANSWER, path=(*_TOLD, "model_name")),
        Field("streaming", "langsmith.request.streaming", "bool", rank=10),
        Field("streaming", _ANSWER, "streams", rank=11, path=("generations", "0", "0", "type")),
        Field("session", "langsmith.metadata.session_id", rank=10),
        Field("session", "langsmith.metadata.thread_id", rank=11),
        Field("session", "langsmith.metadata.conversation_id", rank=12),
        Field("user_hash", "langsmith.metadata.user_id", rank=10),
        Field("tenant", "langsmith.metadata.tenant", rank=10),
        Field("tenant", "langsmith.metadata.tenant_id", rank=11),
    ),
    marks=(
        Mark(_KIND, "llm", "generation", frozenset({"llm"})),
        Mark(_KIND, "plain", "tool", frozenset({"tool"})),
        Mark(_KIND, "plain", "retrieval", frozenset({"retriever", "embedding"})),
        Mark(
            _KIND, "plain", "prompt", frozenset({"prompt"}), strong=True
        ),  # its operation is `chat`
        Mark(_KIND, "plain", "post", frozenset({"parser"})),
        Mark(_KIND, "container", "other", frozenset({"chain"}), weak=True),
    ),
    first_token_events=("new_token",),
    # Every run's status is OK before it has ended, and OpenTelemetry lets nobody take that back.
    exceptions_fail=True,
    # LangChain's cache of answers costs nothing.
    stored_answers=(
        (
            (
                "gen_ai.completion",
                ("generations", "0", "0", "message", "kwargs", "usage_metadata", "total_cost"),
                0,
            ),
        ),
    ),
    hints=(
        (
            "ttft",
            "LangSmith's exporter sends no first token: pass traceparent on to the engine",
        ),
    ),
)

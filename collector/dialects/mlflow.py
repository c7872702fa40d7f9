"""MLflow: every value is JSON in a string, one span event per stream chunk.

Source: payloads of mlflow 3.17.2's OTLP export.
"""

from collector.dialects import Dialect, Field, Mark

ORDER = 34
_TYPE, _USAGE, _OUTPUTS = "mlflow.spanType", "mlflow.chat.tokenUsage", "mlflow.spanOutputs"
DIALECT = Dialect(
    name="mlflow",
    prefixes=("mlflow.",),
    scopes=("mlflow.tracing",),
    fields=(
        Field("operation", _TYPE, rank=10),
        Field("model", "mlflow.llm.model", rank=10),
        Field("model", "model", rank=20),
        Field("provider", "mlflow.llm.provider", rank=10),
        Field("provider", "mlflow.message.format", rank=11),
        Field("input_tokens", _USAGE, "int", rank=10, path=("input_tokens",)),
        Field("output_tokens", _USAGE, "int", rank=10, path=("output_tokens",)),
        Field("cached_tokens", _USAGE, "int", rank=10, path=("cache_read_input_tokens",)),
        Field("cache_write_tokens", _USAGE, "int", rank=10, path=("cache_creation_input_tokens",)),
        Field("reasoning_tokens", _OUTPUTS, "int", rank=10, path=("usage", "completion_tokens_details", "reasoning_tokens")),
        Field("response_id", _OUTPUTS, rank=10, path=("id",)),
        Field("finish_reason", _OUTPUTS, rank=10, path=("choices", "0", "finish_reason")),
        Field("finish_reason", _OUTPUTS, rank=11, path=("stop_reason",)),
        Field("max_tokens", "max_tokens", "int", rank=20),
        Field("max_tokens", "max_completion_tokens", "int", rank=21),
        Field("temperature", "temperature", "float", rank=20),
        Field("streaming", "stream", "bool", rank=20),
        Field("session", "mlflow.trace.session", rank=10),
        Field("user_hash", "mlflow.trace.user", rank=10),
    ),
    marks=(
        Mark(_TYPE, "llm", "generation", frozenset({"CHAT_MODEL", "LLM"})),
        Mark(_TYPE, "plain", "tool", frozenset({"TOOL"})),
        Mark(_TYPE, "plain", "retrieval", frozenset({"RETRIEVER", "EMBEDDING", "RERANKER"})),
        Mark(_TYPE, "plain", "guardrail", frozenset({"GUARDRAIL"})),
        Mark(_TYPE, "plain", "post", frozenset({"PARSER", "EVALUATOR"})),
        Mark(_TYPE, "container", "other", frozenset({"CHAIN", "AGENT", "WORKFLOW", "TASK"}), weak=True),
    ),
    chunk_events=("mlflow.chunk.item.*",),
    hints=(("session", "mlflow.trace.session, set where traces are not exported over OTLP alone: there update_current_trace loses the root spans"),),
    text_keys=("mlflow.spanInputs", "mlflow.spanOutputs"),
)

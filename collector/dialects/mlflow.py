"""MLflow: every value is JSON in a string, one span event per stream chunk.

Source: payloads of the OTLP export of mlflow 3.17.2 and of 2.20.4, which counts the times of its chunks in microseconds.
"""

from overrun.collector.dialects import ENDINGS, Dialect, Field, Mark, SpanName, llama_index

ORDER = 34
_TYPE, _USAGE, _INPUTS, _OUTPUTS = (
    "mlflow.spanType",
    "mlflow.chat.tokenUsage",
    "mlflow.spanInputs",
    "mlflow.spanOutputs",
)
_SCOPE = "mlflow.tracing"
# The provider's own usage, for versions that do not sum it up: column -> OpenAI's chat, then the words of Anthropic and of the Responses API.
_OF_ANSWER = {
    "input_tokens": (("prompt_tokens",), ("input_tokens",)),
    "output_tokens": (("completion_tokens",), ("output_tokens",)),
    "cached_tokens": (
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("cache_read_input_tokens",),
    ),
    "reasoning_tokens": (
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
    ),
}
DIALECT = Dialect(
    name="mlflow",
    prefixes=("mlflow.",),
    scopes=(_SCOPE,),
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
        Field("total_tokens", _USAGE, "int", rank=10, path=("total_tokens",)),
        Field(
            "reasoning_tokens",
            _OUTPUTS,
            "int",
            rank=30,
            path=("usage_metadata", "thoughts_token_count"),
        ),
        *(
            Field(column, _OUTPUTS, "int", rank=20 + i, path=("usage", *path))
            for column, paths in _OF_ANSWER.items()
            for i, path in enumerate(paths)
        ),
        Field("response_id", _OUTPUTS, rank=10, path=("id",)),
        Field("response_id", _OUTPUTS, rank=11, path=("response_id",)),
        *(
            Field("finish_reason", _OUTPUTS, rank=rank, path=path)
            for rank, path in enumerate(ENDINGS, 10)
        ),
        Field("finish_reason", _OUTPUTS, "ended", rank=30, path=("output", "-1", "type")),
        Field("finish_reason", _OUTPUTS, "ended", rank=31, path=("status",)),
        Field("max_tokens", "max_tokens", "int", rank=20),
        Field("max_tokens", "max_completion_tokens", "int", rank=21),
        Field("temperature", "temperature", "float", rank=20),
        Field("streaming", "stream", "bool", rank=20),
        # What was asked stands in the inputs where it is no attribute.
        Field("model", _INPUTS, rank=21, path=("model",)),
        Field("max_tokens", _INPUTS, "int", rank=22, path=("max_tokens",)),
        Field("max_tokens", _INPUTS, "int", rank=23, path=("max_completion_tokens",)),
        Field("max_tokens", _INPUTS, "int", rank=24, path=("config", "max_output_tokens")),
        Field("temperature", _INPUTS, "float", rank=21, path=("temperature",)),
        Field("temperature", _INPUTS, "float", rank=22, path=("config", "temperature")),
        Field("streaming", _INPUTS, "bool", rank=21, path=("stream",)),
        Field("session", "mlflow.trace.session", rank=10),
        Field("user_hash", "mlflow.trace.user", rank=10),
    ),
    marks=(
        Mark(_TYPE, "llm", "generation", frozenset({"CHAT_MODEL", "LLM"})),
        Mark(_TYPE, "plain", "tool", frozenset({"TOOL"})),
        Mark(_TYPE, "plain", "retrieval", frozenset({"RETRIEVER", "EMBEDDING", "RERANKER"})),
        Mark(_TYPE, "plain", "guardrail", frozenset({"GUARDRAIL"})),
        Mark(_TYPE, "plain", "post", frozenset({"PARSER", "EVALUATOR"})),
        Mark(_TYPE, "container", "other", frozenset({"AGENT"})),
        Mark(_TYPE, "container", "other", frozenset({"CHAIN", "WORKFLOW", "TASK"}), weak=True),
    ),
    # DSPy: a module asks through adapters, as often as it must; what an adapter formats is the prompt.
    names=(
        SpanName(r"\w*Predict\w*\.forward", "container", "other", _SCOPE, strong=True),
        SpanName(r"\w*Adapter\.format", "plain", "prompt", _SCOPE, strong=True),
        *llama_index(_SCOPE),
    ),
    # Out of LiteLLM's cache.
    stored_answers=((("cache_hit", (), "true"), ("litellm_call_id", (), None)),),
    chunk_events=("mlflow.chunk.item.*",),
    first_token_events=("chunk_0",),
    hints=(
        (
            "session",
            "mlflow.trace.session, set where traces are not exported over OTLP alone: there update_current_trace loses the root spans",
        ),
    ),
    text_keys=("mlflow.spanInputs", "mlflow.spanOutputs"),
)

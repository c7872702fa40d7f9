"""LiteLLM: the v1 callback's spans (operations `acompletion`, lists as JSON strings, 31 empty metadata attributes), and the v2 proxy's names.

Source: payloads of litellm 1.106.2 `callbacks=["otel"]`; the v2 names are from the same version's source, untested against a real sender: there,
attempts are events of the proxy's SERVER span, and the model asked for is a model group.
"""

from collector.dialects import Dialect, EventField, Field, Mark, SpanName

ORDER = 35
_USAGE = "metadata.usage_object"
DIALECT = Dialect(
    name="litellm",
    prefixes=("litellm.", "metadata.user_api_key", "hidden_params"),
    scopes=("litellm",),
    fields=(
        Field("model", "litellm.provider.model", rank=10),
        Field("provider", "litellm.provider.name", rank=10),
        Field("provider", "error.llm_provider", rank=11),
        Field("cached_tokens", _USAGE, "int", rank=10, path=("prompt_tokens_details", "cached_tokens")),
        Field("cache_write_tokens", _USAGE, "int", rank=10, path=("cache_creation_input_tokens",)),
        Field("reasoning_tokens", _USAGE, "int", rank=10, path=("completion_tokens_details", "reasoning_tokens")),
        Field("streaming", "litellm.request.streaming", "bool", rank=10),
        Field("error_type", "litellm.provider.error.type", rank=10),
        Field("error_type", "error.code", rank=11),
        Field("http_status", "litellm.provider.error.code", "status", rank=10),
        Field("attempts", "litellm.deployment.attempt", "int", rank=10),
        Field("session", "metadata.session_id", rank=10),
        Field("user_hash", "metadata.user_api_key_user_id", rank=10),
        Field("user_hash", "litellm.end_user.id", rank=11),
        Field("tenant", "metadata.user_api_key_team_id", rank=10),
        Field("tenant", "litellm.team.id", rank=11),
        Field("route", "litellm.request.route", rank=6),
    ),
    marks=(
        Mark("llm.request.type", "llm", "generation", frozenset({"acompletion", "completion", "atext_completion", "text_completion"})),
        Mark("llm.request.type", "plain", "retrieval", frozenset({"aembedding", "embedding", "arerank", "rerank"})),
        Mark("gen_ai.operation.name", "plain", "retrieval", frozenset({"arerank"})),
        Mark("gen_ai.operation.name", "plain", "guardrail", frozenset({"litellm.moderation", "amoderation"})),
        Mark("litellm.guardrail.name", "plain", "guardrail"),
    ),
    names=(SpanName("(execute_)?guardrail.*|auth .*", "plain", "guardrail", "litellm"),),
    hints=(("ttft", "the proxy's v2 tracing or the engine's spans: the v1 callback records no first token"),),
    event_fields=(EventField("attempts", "litellm.request.deployment_selected", "litellm.deployment.attempt", "int"),),
)

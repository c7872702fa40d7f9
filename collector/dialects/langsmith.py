"""LangSmith's OTel export: run types as span kinds, GenAI names for model and usage, token details as JSON.

Source: langsmith 0.14.17 (its exporter's names). Untested against a real sender. It names no first-token attribute.
"""

from collector.dialects import Dialect, Field, Mark

ORDER = 37
_KIND = "langsmith.span.kind"
DIALECT = Dialect(
    name="langsmith",
    prefixes=("langsmith.",),
    scopes=("langsmith",),
    fields=(
        Field("operation", _KIND, rank=10),
        Field("model", "langsmith.metadata.ls_model_name", rank=10),
        Field("provider", "langsmith.metadata.ls_provider", rank=10),
        Field("max_tokens", "langsmith.metadata.ls_max_tokens", "int", rank=10),
        Field("temperature", "langsmith.metadata.ls_temperature", "float", rank=10),
        Field("cached_tokens", "gen_ai.usage.input_token_details", "int", rank=10, path=("cache_read",)),
        Field("cache_write_tokens", "gen_ai.usage.input_token_details", "int", rank=10, path=("cache_creation",)),
        Field("reasoning_tokens", "gen_ai.usage.output_token_details", "int", rank=10, path=("reasoning",)),
        Field("streaming", "langsmith.request.streaming", "bool", rank=10),
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
        Mark(_KIND, "plain", "prompt", frozenset({"prompt"})),
        Mark(_KIND, "plain", "post", frozenset({"parser"})),
        Mark(_KIND, "container", "other", frozenset({"chain"}), weak=True),
    ),
    first_token_events=("new_token",),
)

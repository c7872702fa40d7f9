"""LiteLLM: the v1 callback's spans (operations `acompletion`, lists as JSON strings, 31 empty metadata attributes), and the v2 proxy's names.

Source: payloads of litellm 1.106.2 `callbacks=["otel"]`, of the SDK and of the proxy (v1, and v2 with LITELLM_OTEL_V2). In v2 the attempts are spans beside
each other, or events of the proxy's SERVER span, and the model asked for is a model group. v1 names an operation as LiteLLM's
function (`CallTypes`), with an `a` before asynchronous ones, and the key of an answer out of its cache in the call's hidden parameters (of a streamed answer
they are empty, or tell of no headers and no time of its own). The attempts of a call that it tells of in spans share a call id. The proxy's metrics are by
a page of the same version (and the older names of its documentation): what it says of the models behind it stands apart from what
engines say of themselves.
"""

from overrun.collector.dialects import Dialect, EventField, Field, Mark, Metric, SpanName

ORDER = 35
_USAGE, _HIDDEN, _HEADERS = "metadata.usage_object", "hidden_params", "additional_headers"


def _either(*names: str) -> frozenset[str]:
    """Functions' names, and those of their asynchronous ones."""
    return frozenset(form for name in names for form in (name, f"a{name}"))


_OPERATIONS = ("llm.request.type", "gen_ai.operation.name")
_GENERATE = _either(
    "completion",
    "text_completion",
    "responses",
    "anthropic_messages",
    "generate_content",
    "generate_content_stream",
)
_FIND = _either("embedding", "rerank", "search", "vector_store_search", "query")
DIALECT = Dialect(
    name="litellm",
    prefixes=("litellm.", "metadata.user_api_key", "hidden_params"),
    scopes=("litellm",),
    fields=(
        Field("model", "litellm.provider.model", rank=10),
        Field("provider", "litellm.provider.name", rank=10),
        Field("provider", "error.llm_provider", rank=11),
        Field(
            "cached_tokens", _USAGE, "int", rank=10, path=("prompt_tokens_details", "cached_tokens")
        ),
        Field("cache_write_tokens", _USAGE, "int", rank=10, path=("cache_creation_input_tokens",)),
        Field(
            "reasoning_tokens",
            _USAGE,
            "int",
            rank=10,
            path=("completion_tokens_details", "reasoning_tokens"),
        ),
        Field("streaming", "litellm.request.streaming", "bool", rank=10),
        Field("error_type", "litellm.provider.error.type", rank=10),
        Field("error_type", "error.code", rank=11),
        Field("http_status", "litellm.provider.error.code", "status", rank=10),
        Field("attempts", "litellm.deployment.attempt", "int", rank=10),
        # v1, of its Router: tries of one deployment group, and the groups before it.
        Field(
            "attempts",
            _HIDDEN,
            "resends",
            rank=11,
            path=(_HEADERS, "x-litellm-attempted-retries"),
            plus=((_HEADERS, "x-litellm-attempted-fallbacks"),),
        ),
        Field("depends_on", "litellm.call_id", rank=10),  # one for all the attempts of a call
        Field("session", "metadata.session_id", rank=10),
        # Whom the call was for, then whose key it came with.
        *(
            Field("user_hash", f"{prefix}metadata.user_api_key_end_user_id", rank=9)
            for prefix in ("", "litellm.")
        ),
        Field("user_hash", "litellm.end_user.id", rank=10),
        *(
            Field("user_hash", f"{prefix}metadata.user_api_key_user_id", rank=11)
            for prefix in ("", "litellm.")
        ),
        Field("tenant", "metadata.user_api_key_team_id", rank=10),
        Field("tenant", "litellm.team.id", rank=11),
        Field("route", "litellm.request.route", rank=6),
    ),
    marks=(
        *(Mark(key, "llm", "generation", _GENERATE) for key in _OPERATIONS),
        *(Mark(key, "plain", "retrieval", _FIND) for key in _OPERATIONS),
        *(Mark(key, "plain", "tool", frozenset({"call_mcp_tool"})) for key in _OPERATIONS),
        Mark(
            "gen_ai.operation.name",
            "plain",
            "guardrail",
            frozenset({"litellm.moderation", "amoderation"}),
        ),
        # v2 calls whatever a model was asked for a chat.
        Mark("litellm.call_type", "plain", "retrieval", _FIND, strong=True),
        Mark("litellm.call_type", "plain", "guardrail", _either("moderation"), strong=True),
        Mark(
            "litellm.call_type",
            "plain",
            "network",
            _either("image_generation", "image_edit", "transcription", "speech"),
            strong=True,
        ),
        Mark("litellm.guardrail.name", "plain", "guardrail"),
        Mark(
            "call_type",
            "plain",
            "queue",
            frozenset({"async_get_available_deployment"}),
            strong=True,
        ),  # v1's name for `route`
    ),
    names=(
        SpanName(
            "(execute_)?guardrail.*|auth( .*)?|proxy_pre_call", "plain", "guardrail", "litellm"
        ),
        # v1's own timing of its functions around a call that has a span.
        SpanName("self|router", "folded", "other", "litellm"),
        SpanName("route .*", "plain", "queue", "litellm"),  # choosing a deployment
        SpanName("cache.get .*", "plain", "gateway", "litellm"),
    ),
    # Of streams that nobody was asked for there are no headers of an answer, and no provider's address or (told as if not streamed) no time that it took and
    # no model of LiteLLM's own list, which tells them from providers whose headers it leaves out (Gemini).
    stored_answers=(
        ((_HIDDEN, ("cache_key",), None),),
        ((_HIDDEN, ("api_base",), ""), (_HIDDEN, (_HEADERS,), {})),
        (
            ("llm.is_streaming", (), "False"),
            (_HIDDEN, ("api_base",), None),
            (_HIDDEN, (_HEADERS,), {}),
            (_HIDDEN, ("litellm_overhead_time_ms",), ...),
            (_HIDDEN, ("litellm_model_name",), ...),
        ),
    ),
    hints=(
        (
            "ttft",
            "LITELLM_OTEL_V2=true at the proxy, or the engine's spans: the v1 callback records no first token",
        ),
    ),
    metrics=(
        # Seconds, whatever their names end in.
        Metric("litellm_request_total_latency_metric", "gateway_e2e"),
        Metric("litellm_llm_api_latency_metric", "gateway_call_e2e"),
        Metric("litellm_llm_api_time_to_first_token_metric", "gateway_call_ttft"),
        Metric("litellm_overhead_latency_metric", "gateway_overhead"),
        Metric("litellm_request_queue_time_seconds", "gateway_queue"),
        Metric("litellm_guardrail_latency_seconds", "guardrail"),
        Metric("litellm_deployment_latency_per_output_token", "normalized_tpot"),
        Metric("litellm_in_flight_requests", "gateway_running"),
        Metric("litellm_input_tokens_metric", "gateway_input_tokens"),
        Metric("litellm_output_tokens_metric", "gateway_output_tokens"),
        Metric("litellm_input_cached_tokens_metric", "gateway_cached_tokens"),
        Metric("litellm_output_reasoning_tokens_metric", "gateway_reasoning_tokens"),
        Metric("litellm_cache_hits_metric", "response_cache_hits"),
        Metric("litellm_cache_misses_metric", "response_cache_misses"),
        # 0 healthy, 1 some calls fail, 2 all of them.
        Metric("litellm_deployment_state", "deployment_state"),
        Metric("litellm_deployment_success_responses", "gateway_calls"),
        Metric("litellm_deployment_failure_responses", "gateway_call_failures"),
        Metric("litellm_deployment_cooled_down", "cooldowns"),
        Metric("litellm_deployment_successful_fallbacks", "fallbacks"),
        Metric("litellm_deployment_failed_fallbacks", "failed_fallbacks"),
        Metric("litellm_proxy_total_requests_metric", "gateway_requests"),
        Metric("litellm_proxy_failed_requests_metric", "gateway_failures"),
        *(
            Metric(f"litellm_remaining_{what}{end}", f"remaining_{what}")
            for what in ("requests", "tokens")
            for end in ("_metric", "")
        ),
    ),
    model_labels=("model", "litellm_model_name", "model_group", "requested_model"),
    event_fields=(
        EventField(
            "attempts", "litellm.request.deployment_selected", "litellm.deployment.attempt", "int"
        ),
    ),
)

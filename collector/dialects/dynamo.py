"""NVIDIA Dynamo: the requests of its front end and their routing, and its metrics. Engines behind it speak their own dialects.

Source: payloads of ai-dynamo 1.6.1's front end over its mock engine, with its KV router and without. It did not take up the traceparent of OpenTelemetry's
SDK (whose flags are 03): the request's id is in the answer's. Stages of its front end are by the names of lib/runtime/src/metrics/prometheus_names.rs.
"""

from overrun.collector.dialects import Dialect, Field, Mark, Metric, SpanName

ORDER = 24
_SCOPES = ("dynamo", "dynamo_runtime", "dynamo_llm", "dynamo-runtime", "dynamo-frontend")
_STAGES = {
    "preprocess": "prompt",
    "tokenize": "prompt",
    "route": "queue",
    "transport_roundtrip": "network",
    "postprocess": "post",
    "detokenize": "post",
}
_ENDED = "request.outcome"
_STREAMED = "avg_itl_ms"
ROUTING_PARTS = ("block_hashing", "indexer_find_matches", "seq_hashing", "scheduling")
# The front end's metrics as DYN_METRICS_PREFIX names them: today's default, and the one that NIM sets and older versions had.
_FRONT_ENDS = ("dynamo_frontend", "nv_llm_http_service")
DIALECT = Dialect(
    name="dynamo",
    prefixes=("dynamo.", "dynamo_", _STREAMED),
    scopes=_SCOPES,
    fields=(
        Field("response_id", "x_dynamo_request_id", rank=20),
        Field("response_id", "x_request_id", rank=21),
        Field("response_id", "request_id", "chat_id", rank=22, beside=_ENDED),
        Field("model", "model", rank=22, beside=_ENDED),
        Field("input_tokens", "input_tokens", "int", rank=22, beside=_ENDED),
        Field("output_tokens", "output_tokens", "int", rank=22, beside=_ENDED),
        Field("ttft_ns", "ttft_ms", "millis", rank=22, beside=_ENDED),
    ),
    # A request to the front end is around the call at an engine that the router chooses. Its scope is the service's name, which can be any.
    marks=(Mark(_STREAMED, "llm", "generation", weak=True, beside=_ENDED),),
    names=(
        *(SpanName("http-request", "llm", "generation", scope) for scope in _SCOPES),
        SpanName(r"(?:kv_)?router\.route_request", "container", "other"),
        SpanName(
            r"(?:kv_)?router\.select_worker|kv_router\.(?:compute_\w+|find_matches|schedule)",
            "plain",
            "queue",
        ),
        *(
            SpanName(f"(?:dynamo[._])?(?:frontend[._])?{name}", "plain", stage, scope)
            for name, stage in _STAGES.items()
            for scope in _SCOPES
        ),
    ),
    metrics=(
        # Percent in the name, 0..1 in the value.
        Metric("dynamo_component_gpu_cache_usage_percent", "kv_cache_usage"),
        Metric("dynamo_component_kvstats_gpu_cache_usage_percent", "kv_cache_usage"),
        Metric("dynamo_component_kvstats_gpu_prefix_cache_hit_rate", "prefix_cache_hit_rate"),
        Metric("dynamo_component_kvstats_active_blocks", "kv_blocks_used"),
        Metric("dynamo_component_kvstats_total_blocks", "kv_blocks"),
        Metric("dynamo_component_total_blocks", "kv_blocks"),
        Metric("dynamo_component_network_transit_seconds", "network"),
        # The KV router's own time per request, and its parts.
        Metric("dynamo_router_overhead_total_ms", "routing", scale=1e-3),
        *(
            Metric(f"dynamo_router_overhead_{part}_ms", f"routing_{part}", scale=1e-3)
            for part in ROUTING_PARTS
        ),
        *(
            metric
            for front in _FRONT_ENDS
            for metric in (
                Metric(f"{front}_worker_active_decode_blocks", "kv_blocks_used"),
                Metric(f"{front}_model_total_kv_blocks", "kv_blocks"),
                Metric(f"{front}_model_kv_cache_block_size", "kv_block_tokens"),
                # Waiting for the first response: the router's queue is a part of it.
                Metric(f"{front}_queued_requests", "queue_depth"),
                Metric(f"{front}_router_queue_pending_requests", "queue_depth"),
                Metric(f"{front}_inflight_requests", "running"),
                Metric(f"{front}_kv_hit_rate", "prefix_cache_hit_rate"),
                Metric(f"{front}_cached_tokens", "cached_length", sum_as="cached_prompt_tokens"),
                Metric(f"{front}_model_migration_total", "preemptions"),
                Metric(f"{front}_worker_active_prefill_tokens", "batch_tokens"),
                Metric(f"{front}_output_tokens_total", "output_tokens"),
                Metric(f"{front}_input_sequence_tokens", "input_length", sum_as="prompt_tokens"),
                Metric(f"{front}_output_sequence_tokens", "output_length", sum_as="output_tokens"),
                Metric(f"{front}_requests_total", "finished", where=(("status", "success"),)),
                Metric(
                    f"{front}_requests_total", "rejections", where=(("error_type", "overload"),)
                ),
                Metric(f"{front}_requests_total", "aborts", where=(("status", "error"),)),
                Metric(f"{front}_time_to_first_token_seconds", "ttft"),
                Metric(f"{front}_inter_token_latency_seconds", "itl"),
                Metric(f"{front}_request_duration_seconds", "e2e"),
                Metric(f"{front}_tokenize_seconds", "tokenize"),
                Metric(
                    f"{front}_tokenizer_latency_ms",
                    "tokenize",
                    scale=1e-3,
                    where=(("operation", "tokenize"),),
                ),
                Metric(f"{front}_template_seconds", "template"),
                Metric(f"{front}_detokenize_per_token_us", "detokenize_token", scale=1e-6),
                *(
                    Metric(f"{front}_stage_duration_seconds", indicator, where=(("stage", stage),))
                    for stage, indicator in (
                        ("preprocess", "preprocess"),
                        ("route", "routing"),
                        ("transport_roundtrip", "network"),
                        ("postprocess", "postprocess"),
                    )
                ),
            )
        ),
        # Where the router runs without this front end.
        Metric("dynamo_component_router_requests_total", "finished"),
        Metric("dynamo_component_router_time_to_first_token_seconds", "ttft"),
        Metric("dynamo_component_router_inter_token_latency_seconds", "itl"),
        Metric(
            "dynamo_component_router_input_sequence_tokens", "input_length", sum_as="prompt_tokens"
        ),
        Metric(
            "dynamo_component_router_output_sequence_tokens",
            "output_length",
            sum_as="output_tokens",
        ),
        # A worker, whose engine's own metrics come under the engine's names.
        Metric("dynamo_component_inflight_requests", "running"),
        Metric("dynamo_component_request_duration_seconds", "e2e"),
        Metric("dynamo_component_errors_total", "aborts"),
    ),
    model_labels=("model",),
)

"""vLLM: the one span per request whose queue, prefill and decode times are attributes, and the engine's metrics, with their older names.

Source: vLLM 0.33.0 (vllm/tracing, v1/metrics/loggers.py, v1/engine/output_processor.py) and its list of deprecated metrics.
`time_in_model_prefill` excludes queueing here (SGLang's includes it).
"""

from overrun.collector.dialects import Dialect, Field, Mark, Metric, SpanName

ORDER = 20
# What the steps should have cost by the model's shape: how near that is to the GPU's peak, only its data sheet tells. SGLang counts the same.
ESTIMATED = {
    engine: (
        Metric(f"{engine}:estimated_read_bytes_per_gpu_total", "memory_traffic", adds=True),
        Metric(f"{engine}:estimated_write_bytes_per_gpu_total", "memory_traffic", adds=True),
        Metric(f"{engine}:estimated_flops_per_gpu_total", "flops"),
    )
    for engine in ("vllm", "sglang")
}
# Names, without their prefix, that nobody chose who did not take them over from vLLM.
DISTINCT = (
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "gpu_cache_usage_perc",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
)
DIALECT = Dialect(
    name="vllm",
    prefixes=("gen_ai.latency.",),
    scopes=("vllm",),
    fields=(
        Field("response_id", "gen_ai.request.id", rank=1),
        Field("ttft_ns", "gen_ai.latency.time_to_first_token", "seconds", rank=5),
        Field("engine_e2e_ns", "gen_ai.latency.e2e", "seconds"),
        Field("queue_ns", "gen_ai.latency.time_in_queue", "seconds"),
        Field("prefill_ns", "gen_ai.latency.time_in_model_prefill", "seconds"),
        Field("decode_ns", "gen_ai.latency.time_in_model_decode", "seconds"),
    ),
    marks=(
        Mark("gen_ai.latency.e2e", "engine", "other"),
        Mark("gen_ai.latency.time_to_first_token", "engine", "other"),
        Mark("gen_ai.latency.time_in_queue", "engine", "other"),
    ),
    names=(SpanName("(?!llm_request$).*", "plain", "other", scope="vllm"),),
    metrics=(
        Metric("vllm:kv_cache_usage_perc", "kv_cache_usage"),
        Metric("vllm:gpu_cache_usage_perc", "kv_cache_usage"),
        Metric("vllm:cache_config_info", "kv_capacity", labels=("num_gpu_blocks", "block_size")),
        Metric("vllm:num_requests_waiting", "queue_depth"),
        Metric("vllm:num_requests_waiting_by_reason", "queue_depth"),
        Metric("vllm:num_requests_running", "running"),
        Metric("vllm:num_requests_swapped", "swapped"),
        Metric("vllm:num_preemptions_total", "preemptions"),
        Metric("vllm:prefix_cache_hits_total", "prefix_cache_hits"),
        Metric("vllm:prefix_cache_queries_total", "prefix_cache_queries"),
        Metric("vllm:gpu_prefix_cache_hits_total", "prefix_cache_hits"),
        Metric("vllm:gpu_prefix_cache_queries_total", "prefix_cache_queries"),
        Metric("vllm:gpu_prefix_cache_hit_rate", "prefix_cache_hit_rate"),
        Metric("vllm:cpu_prefix_cache_hit_rate", "prefix_cache_hit_rate"),
        Metric("vllm:cpu_cache_usage_perc", "host_kv_cache_usage"),
        Metric("vllm:external_prefix_cache_hits_total", "external_prefix_cache_hits"),
        Metric("vllm:external_prefix_cache_queries_total", "external_prefix_cache_queries"),
        Metric("vllm:prompt_tokens_total", "prompt_tokens"),
        Metric("vllm:generation_tokens_total", "output_tokens"),
        Metric("vllm:prompt_tokens_cached_total", "cached_prompt_tokens"),
        Metric("vllm:request_success_total", "finished", where=(("finished_reason", "stop"),)),
        Metric("vllm:request_success_total", "finished", where=(("finished_reason", "length"),)),
        Metric(
            "vllm:request_success_total", "finished", where=(("finished_reason", "repetition"),)
        ),
        Metric("vllm:request_success_total", "aborts", where=(("finished_reason", "abort"),)),
        Metric("vllm:request_success_total", "aborts", where=(("finished_reason", "error"),)),
        Metric("vllm:admission_rejections_total", "rejections"),
        Metric("vllm:spec_decode_num_accepted_tokens_total", "spec_accepted_tokens"),
        Metric("vllm:spec_decode_num_draft_tokens_total", "spec_draft_tokens"),
        Metric("vllm:spec_decode_num_drafts_total", "spec_drafts"),
        Metric("vllm:spec_decode_draft_acceptance_rate", "spec_accept_rate"),
        Metric("vllm:avg_generation_throughput_toks_per_s", "throughput"),
        Metric("vllm:iteration_tokens_total", "batch_tokens"),
        Metric("vllm:time_to_first_token_seconds", "ttft"),
        Metric("vllm:inter_token_latency_seconds", "itl"),
        Metric("vllm:time_per_output_token_seconds", "itl"),
        Metric("vllm:request_time_per_output_token_seconds", "tpot"),
        Metric("vllm:e2e_request_latency_seconds", "e2e"),
        Metric("vllm:request_queue_time_seconds", "queue"),
        Metric("vllm:time_in_queue_requests", "queue"),
        Metric("vllm:request_prefill_time_seconds", "prefill"),
        Metric("vllm:request_decode_time_seconds", "decode"),
        Metric("vllm:request_inference_time_seconds", "inference"),
        Metric("vllm:nixl_xfer_time_seconds", "kv_transfer"),
        Metric("vllm:model_execute_time_milliseconds", "model_execute", scale=1e-3),
        Metric("vllm:model_forward_time_milliseconds", "model_forward", scale=1e-3),
        Metric("vllm:request_prompt_tokens", "input_length"),
        Metric("vllm:request_generation_tokens", "output_length"),
        Metric("vllm:request_params_max_tokens", "max_tokens"),
        Metric("vllm:request_prefill_kv_computed_tokens", "uncached_length"),
        *ESTIMATED["vllm"],
        Metric("up", "up"),
        Metric("scrape_duration_seconds", "scrape_duration"),
    ),
    model_labels=("model_name",),
)

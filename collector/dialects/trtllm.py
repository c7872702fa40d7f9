"""TensorRT-LLM: trtllm-serve's spans and metrics, and those of Triton's TensorRT-LLM backend.

Source: NVIDIA/TensorRT-LLM tensorrt_llm/llmapi/otel_tracing.py and tensorrt_llm/metrics/collector.py; triton-inference-server/tensorrtllm_backend and
Triton's metrics guide. Untested against a real sender. The span attributes are vLLM's, without prefill and decode times, so the fields are in vllm.py.
Triton's backend sends no spans of its own; what it counts stands in the labels of four gauges, and its first-response histogram is in milliseconds.
"""

from overrun.collector.dialects import Dialect, Metric

ORDER = 23
_REQUESTS, _BLOCKS = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
DIALECT = Dialect(
    name="trtllm",
    scopes=("trt.llm", "tensorrt_llm"),
    metrics=(
        Metric("trtllm_kv_cache_utilization", "kv_cache_usage"),
        Metric("trtllm_kv_cache_max_blocks", "kv_blocks"),
        Metric("trtllm_kv_cache_tokens_per_block", "kv_block_tokens"),
        Metric("trtllm_kv_cache_hit_rate", "prefix_cache_hit_rate"),
        Metric("trtllm_kv_cache_reused_blocks_total", "kv_blocks_reused"),
        Metric("trtllm_kv_cache_missed_blocks_total", "kv_blocks_missed"),
        Metric("trtllm_num_requests_waiting", "queue_depth"),
        Metric("trtllm_num_requests_running", "running"),
        Metric("trtllm_num_paused_requests", "paused"),
        Metric("trtllm_prompt_tokens_total", "prompt_tokens"),
        Metric("trtllm_generation_tokens_total", "output_tokens"),
        Metric("trtllm_prompt_cached_tokens_total", "cached_prompt_tokens"),
        Metric("trtllm_total_context_tokens", "batch_tokens"),
        *(
            Metric("trtllm_request_success_total", "aborts", where=(("finished_reason", reason),))
            for reason in ("timeout", "cancelled", "abort", "error")
        ),
        Metric("trtllm_request_success_total", "finished"),
        Metric("trtllm_request_error_total", "aborts", adds=True),
        Metric("trtllm_kv_transfer_latency_seconds", "kv_transfer"),  # Dynamo's addition
        Metric("trtllm_spec_decode_num_accepted_tokens_total", "spec_accepted_tokens"),
        Metric("trtllm_spec_decode_num_draft_tokens_total", "spec_draft_tokens"),
        Metric("trtllm_spec_decode_acceptance_length", "spec_accept_length"),
        Metric("trtllm_gpu_memory_usage_bytes", "gpu_mem_used"),
        Metric("trtllm_time_to_first_token_seconds", "ttft"),
        Metric("trtllm_time_per_output_token_seconds", "tpot"),
        Metric("trtllm_e2e_request_latency_seconds", "e2e"),
        Metric("trtllm_request_queue_time_seconds", "queue"),
        Metric("trtllm_request_prefill_time_seconds", "prefill"),
        Metric("trtllm_request_decode_time_seconds", "decode"),
        Metric("trtllm_request_inference_time_seconds", "inference"),
        Metric("trtllm_iteration_latency_seconds", "iteration"),
        # Triton.
        Metric(_BLOCKS, "kv_cache_usage", where=(("kv_cache_block_type", "fraction"),)),
        Metric(_BLOCKS, "kv_blocks_used", where=(("kv_cache_block_type", "used"),)),
        Metric(_BLOCKS, "kv_blocks", where=(("kv_cache_block_type", "max"),)),
        Metric(_BLOCKS, "kv_block_tokens", where=(("kv_cache_block_type", "tokens_per"),)),
        Metric(_REQUESTS, "queue_depth", where=(("request_type", "waiting"),)),
        # What is scheduled runs in this step; what is active may also be paused between two.
        Metric(_REQUESTS, "running", where=(("request_type", "scheduled"),)),
        Metric(
            "nv_trt_llm_inflight_batcher_metrics",
            "batch_tokens",
            where=(("inflight_batcher_specific_metric", "total_context_tokens"),),
        ),
        Metric(
            "nv_trt_llm_disaggregated_serving_metrics",
            "kv_transfer",
            scale=1e-3,
            where=(("disaggregated_serving_type", "kv_cache_transfer_ms"),),
        ),
        Metric("nv_inference_first_response_histogram_ms", "ttft", scale=1e-3),
        # Microseconds of all requests together; over the requests they are a mean.
        Metric("nv_inference_request_duration_us", "e2e_total", scale=1e-6),
        Metric("nv_inference_queue_duration_us", "queue_total", scale=1e-6),
        Metric("nv_inference_compute_infer_duration_us", "inference_total", scale=1e-6),
        Metric("nv_inference_pending_request_count", "queue_depth"),
        Metric("nv_inference_request_success", "finished"),
        Metric("nv_inference_request_failure", "rejections", where=(("reason", "REJECTED"),)),
        Metric("nv_inference_request_failure", "aborts"),
        Metric("nv_gpu_utilization", "gpu_util"),
        Metric("nv_gpu_memory_used_bytes", "gpu_mem_used"),
        Metric("nv_gpu_power_usage", "gpu_power"),
    ),
    model_labels=("model_name", "model"),
)

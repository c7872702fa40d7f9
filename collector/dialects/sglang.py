"""SGLang: a tree of thread and phase spans per request, chained by links, with the engine's own times on the root; and its metrics.

Source: SGLang 0.5.23 (srt/observability/trace.py, req_time_stats.py, metrics_collector.py). The root's `time_in_model_prefill` and
`time_in_model_inference` run from dispatch, so they hold the queue too: the waiting span is the queue, and prefill is the prefill span.
The attributes are vLLM's, so the fields are in vllm.py; here are the span names. One `decode_loop` span per step is folded.
"""

from overrun.collector.dialects import Dialect, Field, Mark, Metric, SpanName
from overrun.collector.dialects.vllm import ESTIMATED

ORDER = 21
_SCOPE = "sglang server"
DIALECT = Dialect(
    name="sglang",
    prefixes=("sglang.",),
    scopes=(_SCOPE,),
    # Where one engine prefills and another decodes, both name the place at which they meet; their requests' ids differ, and often their traces.
    fields=(Field("depends_on", "bootstrap_room", rank=10),),
    marks=(
        Mark("thread_label", "folded", "other"),
        Mark("module", "engine", "other", frozenset({"sglang::request"})),
    ),
    names=(
        SpanName("decode_loop|run_batch_cpu|quick_finish|fake_output", "folded", "other", _SCOPE),
        SpanName(
            "Bootstrap Room .*", "folded", "other", _SCOPE
        ),  # where older versions put both engines' requests
        SpanName("tokenize", "phase", "prompt", _SCOPE),
        SpanName(
            "prefill_waiting|decode_waiting|prefill_bootstrap|decode_bootstrap",
            "phase",
            "queue",
            _SCOPE,
        ),
        SpanName(
            "api_server_dispatch|dpc_dispatch|request_process|prefill_prepare|decode_prepare",
            "phase",
            "other",
            _SCOPE,
        ),
        SpanName("prefill_forward|chunked_prefill|mm_encode", "phase", "prefill", _SCOPE),
        SpanName("decode_forward|spec_draft|spec_verify", "phase", "decode", _SCOPE),
        SpanName("prefill_transfer_kv_cache|decode_transferred", "phase", "kv_transfer", _SCOPE),
    ),
    metrics=(
        Metric("sglang:token_usage", "kv_cache_usage"),
        Metric("sglang:num_queue_reqs", "queue_depth"),
        *(
            Metric(f"sglang:{name}", "queue_depth", adds=True)
            for name in (
                "num_grammar_queue_reqs",
                "num_prefill_bootstrap_queue_reqs",
                "num_decode_prealloc_queue_reqs",
            )
        ),
        # Of which the KV cache is on its way from the engine that reads to the one that writes.
        *(
            Metric(f"sglang:{name}", "kv_transfer_queue_depth", adds=True)
            for name in ("num_prefill_inflight_queue_reqs", "num_decode_transfer_queue_reqs")
        ),
        Metric("sglang:num_running_reqs", "running"),
        Metric("sglang:num_paused_reqs", "paused"),
        # Those that were thrown out and wait again: a level, where newer builds count how often.
        Metric("sglang:num_retracted_reqs", "retracted"),
        Metric("sglang:num_retracted_requests_total", "preemptions"),
        Metric("sglang:cache_hit_rate", "prefix_cache_hit_rate"),
        Metric("sglang:spec_accept_rate", "spec_accept_rate"),
        Metric("sglang:spec_accept_length", "spec_accept_length"),
        Metric("sglang:prompt_tokens_total", "prompt_tokens"),
        Metric("sglang:generation_tokens_total", "output_tokens"),
        Metric("sglang:cached_tokens_total", "cached_prompt_tokens"),
        Metric("sglang:gen_throughput", "throughput"),
        Metric("sglang:num_aborted_requests_total", "aborts"),
        Metric("sglang:num_requests_total", "finished"),
        Metric("sglang:max_total_num_tokens", "kv_capacity"),
        Metric("sglang:cache_config_info", "kv_capacity", labels=("num_pages", "page_size")),
        Metric("sglang:decode_sum_seq_lens", "batch_tokens"),
        Metric("sglang:realtime_tokens_total", "processed_tokens"),
        *(
            Metric(
                f"sglang:{part}_memory_usage_gb", "gpu_mem_used", scale=float(1 << 30), adds=True
            )
            for part in ("weight", "kv_cache", "graph")
        ),
        *ESTIMATED["sglang"],
        Metric("sglang:fwd_occupancy", "gpu_util", scale=0.01),
        Metric("sglang:time_to_first_token_seconds", "ttft"),
        Metric("sglang:inter_token_latency_seconds", "itl"),
        Metric("sglang:request_time_per_output_token_seconds", "tpot"),
        Metric("sglang:e2e_request_latency_seconds", "e2e"),
        Metric("sglang:queue_time_seconds", "queue"),
        Metric(
            "sglang:per_stage_req_latency_seconds", "prefill", where=(("stage", "prefill_forward"),)
        ),
        Metric("sglang:kv_transfer_latency_ms", "kv_transfer", scale=0.001),
        Metric("sglang:prompt_tokens_histogram", "input_length"),
        Metric("sglang:uncached_prompt_tokens_histogram", "uncached_length"),
        Metric("sglang:generation_tokens_histogram", "output_length"),
    ),
    model_labels=("model_name",),
)

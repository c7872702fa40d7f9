"""llama.cpp's server (`llama-server --metrics`). Metrics only: it counts no requests and has no histogram, so no latency of a request is known from its page.

Source: ggml-org/llama.cpp tools/server (README.md, server-task.cpp). `n_busy_slots_per_decode` and `predicted_tokens_seconds` are means since the start and
no indicators. Older builds tell the KV cache's usage, newer ones cached and drafted tokens.
"""

from overrun.collector.dialects import Dialect, Metric

ORDER = 25
DIALECT = Dialect(
    name="llamacpp",
    metrics=(
        Metric("llamacpp:kv_cache_usage_ratio", "kv_cache_usage"),
        Metric("llamacpp:requests_deferred", "queue_depth"),
        Metric("llamacpp:requests_processing", "running"),
        Metric("llamacpp:prompt_tokens_total", "prompt_tokens"),
        Metric("llamacpp:tokens_predicted_total", "output_tokens"),
        # Beside the prompt tokens, which leave out what the cache gave.
        Metric("llamacpp:prompt_tokens_cached_total", "reused_prompt_tokens"),
        Metric("llamacpp:prompt_seconds_total", "prefill_total"),
        Metric("llamacpp:tokens_predicted_seconds_total", "decode_total"),
        Metric("llamacpp:spec_decode_num_accepted_tokens_total", "spec_accepted_tokens"),
        Metric("llamacpp:spec_decode_num_draft_tokens_total", "spec_draft_tokens"),
        Metric("llamacpp:spec_decode_num_drafts_total", "spec_drafts"),
    ),
    model_labels=("model",),
)

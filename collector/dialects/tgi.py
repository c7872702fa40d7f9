"""Hugging Face TGI: one span per request, whose times are printed Rust durations. It says no first token; prefill and decode are one number.

Source: huggingface/text-generation-inference router/src/server.rs and docs/source/reference/metrics.md. Untested against a real sender. Of its metrics,
`tgi_request_mean_time_per_token_duration` is no TPOT (it holds the prefill: inference over tokens), and KV usage, hit rate and TTFT are not told.
"""

from overrun.collector.dialects import Dialect, Field, Mark, Metric

ORDER = 22
DIALECT = Dialect(
    name="tgi",
    prefixes=("time_per_token", "validation_time", "inference_time", "queue_time", "total_time"),
    scopes=("text-generation-router", "text_generation_router", "text-generation-inference"),
    fields=(
        Field("engine_e2e_ns", "total_time", "duration", rank=10),
        Field("queue_ns", "queue_time", "duration", rank=10),
    ),
    # Only these two are TGI's alone; a `queue_time` is anybody's.
    marks=(Mark("time_per_token", "engine", "other"), Mark("validation_time", "engine", "other")),
    text_keys=("parameters",),
    metrics=(
        Metric("tgi_queue_size", "queue_depth"),
        Metric("tgi_batch_current_size", "running"),
        Metric("tgi_batch_current_max_tokens", "batch_tokens"),
        Metric("tgi_batch_max_total_tokens", "kv_capacity"),
        Metric("tgi_request_duration", "e2e"),
        Metric("tgi_request_queue_duration", "queue"),
        Metric("tgi_request_inference_duration", "inference"),
        Metric("tgi_request_validation_duration", "validation"),
        Metric("tgi_request_mean_time_per_token_duration", "normalized_tpot"),
        Metric("tgi_request_max_new_tokens", "max_tokens"),
        # Tokens that speculation gave beside those of the steps.
        Metric("tgi_request_skipped_tokens", "spec_accepted_length", sum_as="spec_accepted_tokens"),
        Metric("tgi_request_input_length", "input_length", sum_as="prompt_tokens"),
        Metric("tgi_request_generated_tokens", "output_length", sum_as="output_tokens"),
        Metric("tgi_request_success", "finished"),
        Metric("tgi_request_failure", "rejections", where=(("err", "overloaded"),)),
        Metric("tgi_request_failure", "aborts"),
    ),
)

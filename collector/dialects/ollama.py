"""Exporters in front of Ollama, which has no metrics page of its own. Metrics only.

Source: the documented names of rbx/ollama-exporter and midu16/ollama-exporter (Python, histograms) and of a Go proxy that counts the same times as totals.
A response's time holds the loading of the model. Untested against a real sender.
"""

from overrun.collector.dialects import Dialect, Metric

ORDER = 26
DIALECT = Dialect(
    name="ollama",
    metrics=(
        Metric("ollama_request_queue_length", "queue_depth"),
        Metric("ollama_active_requests", "running"),
        Metric("ollama_inflight_requests", "running"),
        Metric("ollama_tokens_processed_total", "prompt_tokens"),
        Metric("ollama_prompt_eval_total", "prompt_tokens"),
        Metric("ollama_tokens_generated_total", "output_tokens"),
        Metric("ollama_eval_total", "output_tokens"),
        Metric("ollama_requests_total", "finished"),
        Metric("ollama_requests_failed_total", "aborts"),
        Metric("ollama_response_seconds", "e2e"),
        Metric("ollama_request_latency_seconds", "e2e"),
        Metric("ollama_prompt_eval_duration_seconds", "prefill"),
        Metric("ollama_eval_duration_seconds", "decode"),
        Metric("ollama_load_duration_seconds", "model_load"),
    ),
    model_labels=("model",),
)

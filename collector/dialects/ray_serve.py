"""Ray Serve: requests wait in the handle of a deployment until one of its replicas has room (`max_ongoing_requests`). Metrics only.

Source: docs.ray.io, serve/monitoring.md of Ray 2.5x (histograms in ms), and a page of Ray 2.60.0. What vLLM counts on the same page (`ray_vllm_...`) comes
before these.
"""

from overrun.collector.dialects import Dialect, Metric

ORDER = 93
DIALECT = Dialect(
    name="ray_serve",
    metrics=(
        *(
            Metric(f"ray_serve_{name}_latency_ms", "e2e", scale=1e-3)
            for name in ("http_request", "grpc_request")
        ),
        Metric("ray_serve_deployment_processing_latency_ms", "inference", scale=1e-3),
        Metric("ray_serve_deployment_queued_queries", "queue_depth"),
        Metric("ray_serve_replica_pending_queries", "queue_depth", adds=True),
        Metric("ray_serve_replica_processing_queries", "running"),
        Metric("ray_serve_num_http_requests", "finished"),
        Metric("ray_serve_num_http_error_requests", "aborts"),
    ),
    model_labels=("deployment", "application"),
)

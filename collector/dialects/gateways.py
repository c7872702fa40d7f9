"""Metrics of gateways that have no vocabulary of spans of their own here: SGLang's model gateway and Higress.

Source: sgl-project/sglang#15160 and the gateway's README (`smg_*`, which replaced `sgl_router_*`; first tokens are of gRPC workers alone);
higress-group/higress#1885 and #2595 (`llm_*_duration` add up milliseconds of all requests; over their counts they are means). Untested against real senders.
"""

from overrun.collector.dialects import Dialect, Metric

ORDER = 29
_HIGRESS = "route_upstream_model_consumer_metric_"
DIALECT = Dialect(
    name="gateways",
    metrics=(
        Metric("smg_router_ttft_seconds", "gateway_call_ttft"),
        Metric("smg_router_request_duration_seconds", "gateway_e2e"),
        Metric("smg_router_generation_duration_seconds", "gateway_call_e2e"),
        Metric("smg_router_tpot_seconds", "gateway_call_tpot"),
        Metric("smg_router_requests_total", "gateway_requests"),
        Metric("smg_router_request_errors_total", "gateway_failures"),
        Metric("smg_router_tokens_total", "gateway_input_tokens", where=(("token_type", "input"),)),
        Metric(
            "smg_router_tokens_total", "gateway_output_tokens", where=(("token_type", "output"),)
        ),
        Metric("smg_worker_requests_active", "gateway_running"),
        Metric(f"{_HIGRESS}llm_first_token_duration", "gateway_call_ttft_total", scale=1e-3),
        Metric(f"{_HIGRESS}llm_service_duration", "gateway_call_e2e_total", scale=1e-3),
        Metric(f"{_HIGRESS}llm_stream_duration_count", "gateway_streams"),
        Metric(f"{_HIGRESS}llm_duration_count", "gateway_calls"),
        Metric(f"{_HIGRESS}input_token", "gateway_input_tokens"),
        Metric(f"{_HIGRESS}output_token", "gateway_output_tokens"),
    ),
    model_labels=("model", "ai_model"),
)

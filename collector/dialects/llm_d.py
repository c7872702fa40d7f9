"""llm-d and the Gateway API Inference Extension: gateway and endpoint-picker spans, and the proxy that splits prefill from decode. Times in ms.

Source: llm-d-inference-scheduler (spans of the endpoint picker and of the prefill/decode sidecar) and the endpoint picker's metrics (GAIE v1.5,
pkg/epp/metrics; `inference_model_` before `inference_objective_`; llm-d-router says all of them again under one prefix of its own). Untested against a
real sender.
The sidecar's "true" TTFT runs from the request's arrival to the moment when decoding began.
"""

from overrun.collector.dialects import Dialect, Field, Mark, Metric, SpanName

ORDER = 25
# Today's prefix, then what it replaces and is sent beside it, by what it tells of: the picker's own work, the pool of engines, the requests.
_ROUTER = "llm_d_router_epp"
_PICKERS, _POOLS, _OBJECTIVES = (
    (_ROUTER, "inference_extension"),
    (_ROUTER, "inference_pool"),
    (_ROUTER, "inference_objective", "inference_model"),
)
_PROXY, _SCOPES = (
    "llm_d.pd_proxy.",
    (
        "llm-d",
        "llm_d",
        "llm-d-router",
        "llm-d-inference-scheduler",
        "llm-d-kv-cache",
        "gateway-api-inference-extension",
    ),
)
DIALECT = Dialect(
    name="llm-d",
    prefixes=("llm_d.",),
    scopes=_SCOPES,
    fields=(
        Field("ttft_ns", f"{_PROXY}true_ttft_ms", "millis", rank=6),
        Field("prefill_ns", f"{_PROXY}prefill_duration_ms", "millis", rank=6),
        Field("decode_ns", f"{_PROXY}decode_duration_ms", "millis", rank=6),
        Field("engine_e2e_ns", f"{_PROXY}total_duration_ms", "millis", rank=6),
    ),
    marks=(Mark(f"{_PROXY}total_duration_ms", "engine", "other"),),
    names=(
        SpanName(r"llm_d\.pd_proxy\.prefill", "phase", "prefill"),
        SpanName(r"llm_d\.pd_proxy\.decode", "phase", "decode"),
        SpanName(r"gateway\.request(?:_orchestration)?", "plain", "gateway"),
        SpanName(r"llm_d\.epp\..*", "plain", "gateway"),
    ),
    metrics=(
        *(
            metric
            for pool in _POOLS
            for metric in (
                Metric(f"{pool}_average_kv_cache_utilization", "kv_cache_usage"),
                Metric(f"{pool}_average_queue_size", "queue_depth"),
            )
        ),
        *(
            metric
            for picker in _PICKERS
            for metric in (
                Metric(f"{picker}_flow_control_queue_size", "queue_depth"),
                Metric(f"{picker}_prefix_indexer_hit_ratio", "prefix_cache_hit_rate"),
                Metric(f"{picker}_flow_control_request_queue_duration_seconds", "queue"),
                Metric(f"{picker}_flow_control_pool_saturation", "saturation"),
                Metric(f"{picker}_scheduler_e2e_duration_seconds", "routing"),
            )
        ),
        Metric(f"{_ROUTER}_ready_endpoints", "ready_replicas"),
        Metric("inference_pool_ready_pods", "ready_replicas"),
        *(
            metric
            for objective in _OBJECTIVES
            for metric in (
                Metric(f"{objective}_running_requests", "running"),
                Metric(f"{objective}_request_error_total", "aborts"),
                Metric(f"{objective}_request_ttft_seconds", "ttft"),
                Metric(f"{objective}_request_tpot_seconds", "tpot"),
                Metric(f"{objective}_request_duration_seconds", "e2e"),
                Metric(f"{objective}_normalized_time_per_output_token_seconds", "normalized_tpot"),
                Metric(f"{objective}_request_slo_violation_total", "slo_violations"),
                Metric(f"{objective}_input_tokens", "input_length", sum_as="prompt_tokens"),
                Metric(f"{objective}_output_tokens", "output_length", sum_as="output_tokens"),
                Metric(
                    f"{objective}_prompt_cached_tokens",
                    "cached_length",
                    sum_as="cached_prompt_tokens",
                ),
            )
        ),
    ),
    model_labels=("model_name", "target_model_name"),
)

"""llm-d and the Gateway API Inference Extension: gateway and endpoint-picker spans, and the proxy that splits prefill from decode. Times in ms.

Source: llm-d-inference-scheduler (spans of the endpoint picker and of the prefill/decode sidecar). Untested against a real sender. The
sidecar's "true" TTFT runs from the request's arrival to the moment when decoding began.
"""

from collector.dialects import Dialect, Field, Mark, SpanName

ORDER = 25
_PROXY, _SCOPES = "llm_d.pd_proxy.", ("llm-d", "llm_d", "llm-d-router", "llm-d-inference-scheduler", "llm-d-kv-cache", "gateway-api-inference-extension")
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
)

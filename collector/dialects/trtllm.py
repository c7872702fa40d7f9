"""TensorRT-LLM (trtllm-serve): vLLM's latency attributes under a scope of its own, without prefill and decode times.

Source: NVIDIA/TensorRT-LLM tensorrt_llm/llmapi/otel_tracing.py and its callers. Untested against a real sender. The attributes are vLLM's, so
the fields are in vllm.py. Triton's backend sends no spans of its own; its metrics are in another table.
"""

from collector.dialects import Dialect

ORDER = 23
DIALECT = Dialect(name="trtllm", scopes=("trt.llm", "tensorrt_llm"))

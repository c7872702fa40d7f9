"""NVIDIA NIM for LLMs (1.x): vLLM's names without a prefix, and some of its own. NIM 2.x passes vLLM's page on as it is.

Source: docs.nvidia.com, "Observability for NVIDIA NIM for LLMs". The names carry no prefix, so this table is asked only where a page speaks vLLM's
names without one (collector/normalise/metric_names.py). Untested against a real sender.
"""

from overrun.collector.dialects import Dialect, Metric

ORDER = 24
DIALECT = Dialect(
    name="nim",
    metrics=(
        Metric("nim:num_request_max", "running_limit"),
        Metric("nim:request_success_total", "finished"),
        Metric("nim:request_failure_total", "aborts"),
        # The same requests by the reason for their end: named, so that they are not taken for unknown.
        Metric("nim:request_finish_total", "aborts", where=(("finished_reason", "abort"),)),
    ),
    model_labels=("model_name",),
)

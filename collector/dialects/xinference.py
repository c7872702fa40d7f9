"""Xinference: the page of its workers. Metrics only.

Source: xorbitsai/inference#906 (names and an example of the page). Its first-token time is that of the last request alone, so it stands in no table.
Untested against a real sender.
"""

from overrun.collector.dialects import Dialect, Metric

ORDER = 28
DIALECT = Dialect(
    name="xinference",
    metrics=(
        Metric("xinference:input_tokens_total_counter", "prompt_tokens"),
        Metric("xinference:output_tokens_total_counter", "output_tokens"),
        Metric("xinference:generate_tokens_per_s", "throughput"),
    ),
    model_labels=("model",),
)

"""LMCache: the KV cache that engines keep outside of the GPU. Metrics only, on the engine's own page.

Source: lmcache 0.5.6 (lmcache/observability.py). vLLM counts the same of any connector, and comes first.
"""

from overrun.collector.dialects import Dialect, Metric

ORDER = 92
DIALECT = Dialect(
    name="lmcache",
    metrics=(
        Metric("lmcache:num_hit_tokens_total", "external_prefix_cache_hits"),
        Metric("lmcache:num_requested_tokens_total", "external_prefix_cache_queries"),
    ),
    model_labels=("model_name",),
)

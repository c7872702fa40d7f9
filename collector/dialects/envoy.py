"""Envoy AI Gateway: spans in OpenInference's or OpenTelemetry's words, as it is configured; here is what is its own.

Source: envoyproxy/ai-gateway. Untested against a real sender. Operation names differ from the conventions (`messages`, `responses`) and are read.
"""

from overrun.collector.dialects import Dialect, Field

ORDER = 38
DIALECT = Dialect(
    name="envoy",
    prefixes=("gen_ai.original.",),
    scopes=("envoyproxy/ai-gateway", "envoy-ai-gateway", "ai-gateway"),
    fields=(Field("model", "gen_ai.original.model", rank=30),),
)

"""Future AGI's traceAI: OpenInference's instrumentations under GenAI names, their kinds of spans as `gen_ai.span.kind`, parameters as JSON.

Source: payloads of traceai-openai 0.1.10.
"""

from overrun.collector.dialects import Dialect, Field

ORDER = 54
_PARAMETERS = "gen_ai.request.parameters"
DIALECT = Dialect(
    name="futureagi",
    prefixes=("fi.", _PARAMETERS, "gen_ai.span.kind"),
    fields=(
        Field("operation", "gen_ai.span.kind", rank=20),
        Field("model", _PARAMETERS, rank=20, path=("model",)),
        *(
            Field("max_tokens", _PARAMETERS, "int", rank=20, path=(name,))
            for name in ("max_tokens", "max_completion_tokens", "max_output_tokens")
        ),
        Field("temperature", _PARAMETERS, "float", rank=20, path=("temperature",)),
        Field("streaming", _PARAMETERS, "bool", rank=20, path=("stream",)),
    ),
)

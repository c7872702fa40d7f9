"""AG2 (from 1.0 on): GenAI names, spans that wait for people, and a span per call that keeps accounts of its tokens once more.

Source: payloads of ag2 1.2.1 (TelemetryMiddleware). It tells no first token and no response id.
"""

from overrun.collector.dialects import Dialect, Field, Mark

ORDER = 52
_KIND = "ag2.span.type"
DIALECT = Dialect(
    name="ag2",
    prefixes=("ag2.",),
    scopes=("opentelemetry.instrumentation.ag2",),
    fields=(Field("reasoning_tokens", "gen_ai.usage.thinking_tokens", "int", rank=20),),
    marks=(
        Mark(_KIND, "folded", "other", frozenset({"usage"})),
        Mark(_KIND, "plain", "wait_user", frozenset({"human_input"})),
    ),
    text_keys=("ag2.human_input.prompt", "ag2.human_input.response"),
)

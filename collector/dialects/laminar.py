"""Laminar: span types, and who a trace is for. Its instrumentations of clients are OpenLLMetry's kin and speak GenAI.

Source: payloads of lmnr 0.7.16 for Python. Its types are those that stages.py knows under any name.
"""

from overrun.collector.dialects import Dialect, Field

ORDER = 44
_FOR = "lmnr.association.properties"
DIALECT = Dialect(
    name="laminar",
    prefixes=("lmnr.",),
    scopes=("lmnr.tracer",),
    precedence=60,  # its attributes are on every span, of other instrumentations too
    fields=(
        Field("operation", "lmnr.span.type", rank=30),
        Field("session", f"{_FOR}.session_id", rank=20),
        Field("user_hash", f"{_FOR}.user_id", rank=20),
        *(Field("tenant", f"{_FOR}.metadata.{name}", rank=20) for name in ("tenant", "tenant_id")),
    ),
    text_keys=("lmnr.span.input", "lmnr.span.output"),
)

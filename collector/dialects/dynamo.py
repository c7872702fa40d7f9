"""NVIDIA Dynamo: the stages of its front end by their documented names, under its own scopes. Engines behind it speak their own dialects.

Source: the stage names of lib/runtime/src/metrics/prometheus_names.rs and the tracing guide. Span names are not documented: untested against a real sender.
"""

from collector.dialects import Dialect, Field, SpanName

ORDER = 24
_SCOPES = ("dynamo", "dynamo_runtime", "dynamo_llm", "dynamo-runtime", "dynamo-frontend")
_STAGES = {"preprocess": "prompt", "tokenize": "prompt", "route": "queue", "transport_roundtrip": "network", "postprocess": "post", "detokenize": "post"}
DIALECT = Dialect(
    name="dynamo",
    prefixes=("dynamo.", "dynamo_"),
    scopes=_SCOPES,
    fields=(Field("response_id", "x_dynamo_request_id", rank=20), Field("response_id", "x_request_id", rank=21)),
    names=tuple(SpanName(f"(?:dynamo[._])?(?:frontend[._])?{name}", "plain", stage, scope) for name, stage in _STAGES.items() for scope in _SCOPES),
)

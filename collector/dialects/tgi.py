"""Hugging Face TGI: one span per request, whose times are printed Rust durations. It says no first token; prefill and decode are one number.

Source: huggingface/text-generation-inference router/src/server.rs. Untested against a real sender.
"""

from collector.dialects import Dialect, Field, Mark

ORDER = 22
DIALECT = Dialect(
    name="tgi",
    prefixes=("time_per_token", "validation_time", "inference_time", "queue_time", "total_time"),
    scopes=("text-generation-router", "text_generation_router", "text-generation-inference"),
    fields=(
        Field("engine_e2e_ns", "total_time", "duration", rank=10),
        Field("queue_ns", "queue_time", "duration", rank=10),
    ),
    # Only these two are TGI's alone; a `queue_time` is anybody's.
    marks=(Mark("time_per_token", "engine", "other"), Mark("validation_time", "engine", "other")),
    text_keys=("parameters",),
)

"""For how many requests does a trace stand? Sampling thresholds in its `tracestate`."""

from __future__ import annotations

import pyarrow as pa

from overrun.collector.normalise import readers
from overrun.collector.normalise.sampling_threshold import threshold


def sampling_of(states: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The sampler's threshold from tracestate (`ot=th:HEX`) and the weight that it implies: 2**56 / (2**56 - threshold). Source: OTEP 235.

    Also the older `ot=p:N` (probability 2**-N), Elastic's `es=s:PROBABILITY`, and what samplers' attributes said (collector/normalise/samplers.py).
    """
    if states.null_count == len(states):
        return pa.nulls(len(states), pa.string()), pa.nulls(len(states), pa.float64())
    found = [_threshold(state) for state in states.to_pylist()]
    return pa.array([text for text, _ in found], pa.string()), pa.array(
        [weight for _, weight in found], pa.float64()
    )


def _threshold(state: str | None) -> tuple[str | None, float | None]:
    # What we read from attributes stands last and outranks the rest: a tail sampler's choice is not undone by a known first one.
    for member in reversed((state or "").split(",")):
        vendor, _, content = member.strip().partition("=")
        for part in content.split(";") if vendor in ("ot", "es", "overrun") else ():
            key, _, value = part.partition(":")
            if vendor == "overrun" and key == "tail":
                return part, None
            if (vendor, key) == ("ot", "p") and value.isdecimal() and int(value) < 63:
                value = threshold(0.5 ** int(value)).removeprefix("th:")
            elif (vendor, key) == ("es", "s"):
                value = threshold(readers.number(value) or 0.0).removeprefix("th:")
            elif key != "th":
                continue
            if 0 < len(value) <= 14 and all(c in "0123456789abcdef" for c in value):
                return f"th:{value}", 2**56 / (2**56 - int(value.ljust(14, "0"), 16))
    return None, None

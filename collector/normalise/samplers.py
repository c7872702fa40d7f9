"""How was a span's trace chosen, where its tracestate does not say it? Samplers' own attributes, as one more member of the tracestate: `overrun=...`.

`th:HEX` is a probability, written as OpenTelemetry's rejection threshold of 56 bits (OTEP 235); `tail:NAME` is a policy that looked at what happened.
Sources: Honeycomb Refinery (`meta.refinery.sample_rate`, `SampleRate`), Azure Monitor's SDKs (`microsoft.sample_rate`, percent), Jaeger's clients
(`sampler.type`, `sampler.param`), the OpenTelemetry Collector's tail sampling processor (`tailsampling.policy` on the scope).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.collector.arrays import IntArray
from overrun.collector.decode.columns import RawSpans, Source
from overrun.collector.normalise.grouped import Grouped
from overrun.collector.normalise.sampling_threshold import threshold

_POLICIES = ("tailsampling.policy", "tailsampling.composite_policy")
# Attribute -> the probability that its number means.
_PROBABILITIES: dict[str, Callable[[float], float]] = {
    "meta.refinery.sample_rate": lambda rate: 1.0 / rate,
    "SampleRate": lambda rate: 1.0 / rate,
    "microsoft.sample_rate": lambda percent: percent / 100.0,
    "_MS.sampleRate": lambda percent: percent / 100.0,
    "sampling.probability": lambda probability: probability,
}
_UNSAFE = re.compile(r"[^\w.\-]+")


def with_samplers(
    states: pa.StringArray,
    raw: RawSpans,
    grouped: Grouped,
    numbers: Callable[[Grouped, IntArray], tuple[Any, Any]],
) -> pa.StringArray:
    """The spans' tracestates, with a member more where an attribute of the span or its scope tells of a sampler."""
    told: dict[int, str] = {}
    for key, probability in _PROBABILITIES.items():
        at = grouped.positions(key)
        if at is not None:
            values, ok = numbers(grouped, at)
            told |= {
                int(grouped.owner[i]): threshold(probability(v))
                for i, v in zip(at[ok].tolist(), values[ok].tolist(), strict=True)
                if v > 0
            }
    told |= _jaegers(grouped, numbers)
    policies = [_policy(source) for source in raw.sources]
    if any(policies):
        told |= {
            row: policy
            for row, code in enumerate(raw.source.tolist())
            if (policy := policies[code])
        }
    rows = sorted(row for row, text in told.items() if text)
    if not rows:
        return states
    mask = np.zeros(len(states), dtype=bool)
    mask[rows] = True
    old = states.filter(pa.array(mask)).to_pylist()
    new = [
        f"{state},overrun={told[row]}" if state else f"overrun={told[row]}"
        for row, state in zip(rows, old, strict=True)
    ]
    return pc.replace_with_mask(states, pa.array(mask), pa.array(new, states.type))


def _jaegers(
    grouped: Grouped, numbers: Callable[[Grouped, IntArray], tuple[Any, Any]]
) -> dict[int, str]:
    kinds, params = grouped.positions("sampler.type"), grouped.positions("sampler.param")
    if kinds is None:
        return {}
    told = {
        int(row): f"tail:{kind}"
        for row, kind in zip(grouped.owner[kinds], grouped.text(kinds).to_pylist(), strict=True)
        if kind == "ratelimiting"
    }
    if params is not None:
        random = {
            int(row)
            for row, kind in zip(grouped.owner[kinds], grouped.text(kinds).to_pylist(), strict=True)
            if kind == "probabilistic"
        }
        values, ok = numbers(grouped, params)
        of = zip(grouped.owner[params[ok]].tolist(), values[ok].tolist(), strict=True)
        told |= {int(row): threshold(value) for row, value in of if row in random}
    return told


def _policy(source: Source) -> str:
    """`tail:NAME` of the policy that kept a trace; empty if none is told."""
    said: Sequence[object] = [
        value
        for key, value in source.scope
        if key in _POLICIES and isinstance(value, str) and value
    ]
    return f"tail:{_UNSAFE.sub('_', str(said[0]))[:64]}" if said else ""

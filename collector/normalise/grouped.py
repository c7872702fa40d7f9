"""Where in a batch does which attribute stand? The attributes of its spans, grouped by key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.collector.arrays import BoolArray, IntArray
from overrun.collector.decode import wire
from overrun.collector.decode.columns import Attributes
from overrun.collector.normalise import packing, stages
from overrun.collector.normalise.limits import Limits


class Grouped:
    """The attributes of a batch, grouped by key: `positions(key)` in O(1) after one sort. `consumed` marks what a column took.

    The members of AnyValue are kept apart, so that a value is only ever taken from the few arrays that can hold it.
    """

    def __init__(self, attributes: Attributes, limits: Limits) -> None:
        self.limits = limits
        self.attributes = attributes
        self.owner, self.kind, self.strings = attributes.owner, attributes.kind, attributes.text
        # Numbers and booleans: nobody's words.
        self.is_number: BoolArray = (self.kind >= wire.INT) & (self.kind <= wire.BOOL)
        self.int_values, self.double_values = attributes.number, attributes.fraction
        offsets, data = packing.text_buffers(self.strings)
        self.has_text: BoolArray = offsets[1:] > offsets[:-1]
        # Strings that mean what they say: not a text in quotes, as JSON has it.
        self.is_plain: BoolArray = (self.kind == wire.STRING) & ~(
            self.has_text & (data[np.minimum(offsets[:-1], len(data) - 1)] == ord('"'))
        )
        self.keys: list[str] = attributes.keys
        self.codes = attributes.code
        self.order, self.bounds = packing.group(self.codes, len(self.keys))
        self.code_of = {key: code for code, key in enumerate(self.keys)}
        # Keys of the batch that are spellings of a known one (`gen_ai_usage_input_tokens`), in a fixed order.
        self.spellings: dict[str, list[int]] = {}
        for key in sorted(key for key in self.keys if stages.known_name(key) != key):
            self.spellings.setdefault(stages.known_name(key), []).append(self.code_of[key])
        self.consumed: BoolArray = np.zeros(len(self.codes), dtype=bool)

    def positions(self, key: str) -> IntArray | None:
        """Where the attributes with this key stand, then those with another spelling of it; None if the batch has none."""
        code, spellings = self.code_of.get(key), self.spellings.get(key)
        if spellings is None:
            return None if code is None else self._run(code)
        return np.concatenate([self._run(c) for c in ([] if code is None else [code]) + spellings])

    def _run(self, code: int) -> IntArray:
        run: IntArray = self.order[self.bounds[code] : self.bounds[code + 1]]
        return run

    def text(self, positions: IntArray) -> pa.StringArray:
        """Values as text: strings as they are, numbers and booleans printed, arrays and maps as JSON, bytes as hex, nothing as ""."""
        out = self.strings.take(pa.array(positions))
        kinds = self.kind[positions]
        for kind, values in (
            (wire.INT, self.int_values),
            (wire.DOUBLE, self.double_values),
            (wire.BOOL, self.int_values),
        ):
            if not out.null_count:
                return out
            here = np.asarray(kinds == kind)
            if here.any():
                found = values[positions[here]]
                out = pc.replace_with_mask(
                    out,
                    pa.array(here),
                    pc.cast(
                        pa.array(found.astype(bool) if kind == wire.BOOL else found), pa.string()
                    ),
                )
        if out.null_count:
            missing = out.is_null()
            rest = positions[missing.to_numpy(zero_copy_only=False)]
            out = pc.replace_with_mask(
                out,
                missing,
                pa.array(
                    [self.limits.printed(self.attributes.other(i)) for i in rest.tolist()],
                    pa.string(),
                ),
            )
        return out

    def of_kind(self, positions: IntArray, kind: int) -> BoolArray:
        """Which of these have a value of this kind."""
        return np.asarray(self.kind[positions] == kind, dtype=np.bool_)

    def duplicates(self) -> BoolArray | None:
        """Which attributes repeat a key that their owner already has (the first one stays); None if there are none."""
        again, found = packing.repeats(self.order, self.owner, self.codes)
        return again if found else None

"""Are columns that are built from memory what Arrow would have built?"""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.collector.normalise import packing

TEXTS = st.lists(st.text(max_size=6), max_size=6)


@given(TEXTS, TEXTS, st.data())
def test_gathered_texts_are_those_that_take_gives(
    texts: list[str], more: list[str], data: st.DataObject
) -> None:
    both = texts + more
    at = data.draw(st.lists(st.integers(-1, len(both) - 1), max_size=9))
    take = np.array(at, dtype=np.int64)
    found = packing.gathered(
        take, take >= 0, pa.array(texts, pa.string()), pa.array(more, pa.string())
    )
    found.validate(full=True)
    assert found.to_pylist() == [None if i < 0 else both[i] for i in at]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_masked_numbers_are_those_that_are_filled(values: list[int | None]) -> None:
    numbers = np.array([value or 0 for value in values], dtype=np.int64)
    found = packing.masked(numbers, np.array([value is not None for value in values], dtype=bool))
    found.validate(full=True)
    assert (found.to_pylist(), found.null_count) == (values, values.count(None))


@pytest.mark.parametrize(("texts", "bytes_"), [([], 0), ([None, ""], 0), (["a", None, "häß"], 5)])
def test_the_longest_text_is_counted_in_bytes(texts: list[str | None], bytes_: int) -> None:
    assert packing.longest(pa.array(texts, pa.string())) == bytes_
    assert packing.longest(pa.array(["0123456789", *texts], pa.string())[1:]) == bytes_


def test_an_attribute_repeats_where_its_owner_has_the_key_already() -> None:
    owner, codes = np.array([0, 0, 0, 1, 1]), np.array([0, 1, 0, 0, 1])
    order, _ = packing.group(codes, 2)
    again, found = packing.repeats(order, owner, codes)
    assert (again.tolist(), found) == ([False, False, True, False, False], 1)

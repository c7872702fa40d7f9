"""What stands in what: the fast answers against a walk along the parents, circles included."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.analysis.assembly.nesting import Nesting, calls_inside, is_below, tops, under
from overrun.analysis.words.arrays import IntArray


def walks_to(row: int, ancestor: int, parent: list[int]) -> bool:
    """The obvious walk."""
    for _ in range(len(parent) + 1):
        if row < 0 or row == ancestor:
            return row >= 0
        row = parent[row]
    return False


def array(values: list[int]) -> IntArray:
    """As the spans' parents are kept."""
    return np.array(values, dtype=np.int64)


@given(
    st.integers(1, 12).flatmap(lambda n: st.lists(st.integers(-1, n - 1), min_size=n, max_size=n))
)
def test_what_is_below_is_what_a_walk_finds(parent: list[int]) -> None:
    nested = Nesting(array(parent))
    for a in range(len(parent)):
        for b in range(len(parent)):
            wanted = walks_to(a, b, parent)
            assert (nested.is_below(a, b), is_below(a, b, array(parent))) == (wanted, wanted)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=30), st.data())
def test_calls_inside_are_counted_at_every_depth(choices: list[int], data: st.DataObject) -> None:
    parent = [-1] + [choice % (i + 1) for i, choice in enumerate(choices)]
    calls = data.draw(st.lists(st.integers(0, len(parent) - 1), unique=True))
    found = calls_inside(array(parent), array(calls))
    for row in range(len(parent)):
        assert found[row] == sum(c != row and walks_to(c, row, parent) for c in calls)


@pytest.mark.parametrize("row", [-1, 0, 9_999, 99_999])
def test_the_deepest_row_of_a_long_chain_is_below_the_first(row: int) -> None:
    chain = array(list(range(-1, 99_999)))
    assert Nesting(chain).is_below(row, 0) == (row >= 0)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=30), st.data())
def test_tops_and_what_is_under_are_what_a_walk_finds(
    choices: list[int], data: st.DataObject
) -> None:
    parent = [-1] + [choice % (i + 1) if choice % 4 else -1 for i, choice in enumerate(choices)]
    marked = data.draw(st.lists(st.booleans(), min_size=len(parent), max_size=len(parent)))
    rows = np.arange(len(parent))
    above = [
        [other for other in rows.tolist() if other != row and walks_to(row, other, parent)]
        for row in rows.tolist()
    ]
    assert tops(array(parent)).tolist() == [
        next(other for other in [*of, row] if parent[other] < 0) for row, of in enumerate(above)
    ]
    assert under(array(parent), rows, np.array(marked)).tolist() == [
        any(marked[other] for other in of) for of in above
    ]

"""Which end grown ways share."""

import numpy as np

from overrun.analysis.contrast.edges import joined, shared_end
from overrun.analysis.contrast.segments import EDGE, ITSELF, Segments

GATEWAY, CART, FOOD, STORE, CACHE = range(5)
# service, operation, where, beside, side, stage, service at the other end
PLACES = np.array(
    [
        [GATEWAY, 0, EDGE, 1, 1, 0, CART],
        [GATEWAY, 0, EDGE, 2, 1, 0, FOOD],
        [CART, 1, EDGE, 3, 1, 0, STORE],
        [FOOD, 2, EDGE, 3, 3, 0, STORE],
        [FOOD, 2, EDGE, 4, 1, 0, CACHE],
        [STORE, 3, ITSELF, -1, 0, 0, -1],
    ]
)
USUAL = np.array([2.0, 2.0, 3.0, 3.0, 1.0, 40.0])
OFTEN = np.ones(6)


def _segments() -> Segments:
    none = np.zeros(6, dtype=np.int64)
    ms = np.ones(6)
    return Segments(none, none, none, none, none, none, ms, ms, np.arange(6), PLACES)


def test_the_callee_is_shared_where_every_way_to_it_grew() -> None:
    excess = np.array([0.1, 0.0, 50.0, 60.0, 0.0, 5.0])
    found = shared_end(_segments(), excess, USUAL, OFTEN)
    assert found is not None
    assert (found.service, found.grown, found.ways) == (STORE, 2, 2)
    assert sorted(found.places.tolist()) == [2, 3]
    assert joined(_segments(), found, excess).place.tolist() == [0, 1, 3, 3, 4, 5]


def test_the_caller_is_shared_where_all_that_it_calls_is_farther() -> None:
    found = shared_end(_segments(), np.array([0.0, 1.0, 0.0, 40.0, 50.0, 0.0]), USUAL, OFTEN)
    assert found is not None
    assert (found.service, found.grown) == (FOOD, 2)


def test_one_link_alone_has_no_shared_end() -> None:
    assert shared_end(_segments(), np.array([0.0, 0.0, 50.0, 0.0, 0.0, 0.0]), USUAL, OFTEN) is None


def test_ways_that_all_grow_alike_are_nobodys() -> None:
    excess = np.array([50.0, 50.0, 50.0, 50.0, 50.0, 0.0])
    assert shared_end(_segments(), excess, USUAL, OFTEN) is None


def test_a_seldom_used_way_counts_by_what_a_call_on_it_has_more() -> None:
    excess = np.array([0.0, 0.0, 500.0, 5.0, 0.0, 0.0])
    found = shared_end(_segments(), excess, USUAL, np.array([1.0, 1.0, 1.0, 0.01, 1.0, 1.0]))
    assert found is not None
    assert (found.service, found.grown, found.ways) == (STORE, 2, 2)


def test_the_callee_of_the_only_link_to_it_is_named_where_its_caller_has_others() -> None:
    found = shared_end(_segments(), np.array([0.0, 0.0, 0.0, 0.0, 50.0, 0.0]), USUAL, OFTEN)
    assert found is not None
    assert (found.service, found.grown, found.places.tolist()) == (CACHE, 1, [4])

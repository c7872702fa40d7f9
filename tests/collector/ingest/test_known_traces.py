"""The filter of traces never says "new" of one that it has seen, seldom says "seen" of a new one, and says what it has forgotten."""

import numpy as np

from overrun.collector.ingest.known_traces import KnownTraces


def ids(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2**64, n, dtype=np.uint64), rng.integers(0, 2**64, n, dtype=np.uint64)


def test_what_was_added_is_known_and_what_was_not_seldom_is() -> None:
    known = KnownTraces(0)
    hi, lo = ids(1, 200_000)
    start = np.full(len(hi), 5, dtype=np.int64)
    assert known.add(hi, lo, start, 10).sum() <= 20
    assert known.add(hi, lo, start, 10).all()
    assert known.latest_forgotten_ns == 0


def test_sequential_ids_are_told_apart() -> None:
    known = KnownTraces(0)
    lo = np.arange(100_000, dtype=np.uint64)
    start = np.zeros(len(lo), dtype=np.int64)
    assert not known.add(lo * 0, lo, start, 10).any()
    assert not known.add(lo + 1, lo * 0, start, 10).any()


def test_a_full_generation_goes_and_says_until_when_it_knew() -> None:
    known = KnownTraces(7, traces=100)
    for generation in range(4):
        hi, lo = ids(generation, 100)
        known.add(hi, lo, np.full(100, 1_000 * (generation + 1), dtype=np.int64), 10**6)
        assert known.latest_forgotten_ns == (7, 7, 1_000, 2_000)[generation]
    assert known.add(*ids(3, 100), np.zeros(100, dtype=np.int64), 10**6).all()


def test_a_start_from_the_future_makes_no_other_trace_old() -> None:
    known = KnownTraces(0, traces=10)
    for generation in range(3):
        known.add(*ids(generation, 10), np.full(10, 2**62, dtype=np.int64), 10**6)
    assert known.latest_forgotten_ns == 0

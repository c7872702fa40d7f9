"""Whether a model call may be stored elsewhere: "no" is certain as long as nothing of that time is forgotten."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overrun.collector.ingest import response_ids
from overrun.collector.ingest.response_ids import ResponseIds


def added(known: ResponseIds, ids: list[str], start_ns: int = 1) -> None:
    known.add(pa.array(ids, pa.string()), np.full(len(ids), start_ns, dtype=np.int64))


def elsewhere(known: ResponseIds, ids: list[str], floor_ns: int = 1) -> list[bool]:
    found: list[bool] = known.elsewhere(pa.array(ids, pa.string()), floor_ns).tolist()
    return found


def test_a_call_is_elsewhere_if_more_are_stored_than_are_at_hand() -> None:
    known = ResponseIds(0)
    added(known, ["a", "b", "b", "", "c"])
    added(known, ["c"])
    assert elsewhere(known, ["a", "b", "c", ""]) == [False, True, True, False]
    assert elsewhere(known, ["b", "a", "b", "c", "c"]) == [False] * 5
    assert elsewhere(known, ["never stored"]) == [False]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=120), min_size=1, max_size=6),
    st.lists(st.integers(0, 400), max_size=50),
)
def test_it_agrees_with_counting(batches: list[list[int]], at_hand: list[int]) -> None:
    known = ResponseIds(0)
    for batch in batches:
        added(known, [f"chatcmpl-{i}" for i in batch])
    stored = [i for batch in batches for i in batch]
    wanted = [stored.count(i) > at_hand.count(i) for i in at_hand]
    assert elsewhere(known, [f"chatcmpl-{i}" for i in at_hand]) == wanted


def test_tables_grow_and_what_the_oldest_held_is_known_to_be_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(response_ids, "_FIRST_BITS", 4)
    monkeypatch.setattr(response_ids, "_LAST_BITS", 6)
    monkeypatch.setattr(response_ids, "_SLOTS", 3 << 6)
    known = ResponseIds(0, clock=lambda: 10**18)
    batches = [[f"{i}-{j}" for j in range(8)] for i in range(40)]
    for i, batch in enumerate(batches):
        added(known, batch, start_ns=100 + i)
        assert elsewhere(known, batch, floor_ns=100 + i) == [False] * 8
    assert sum(len(table.slots) for table in known._tables) <= 3 << 6
    assert 100 < known._forgotten_ns < 139
    assert elsewhere(known, ["29-1"], floor_ns=known._forgotten_ns) == [True]
    assert elsewhere(known, batches[-1][:1], floor_ns=known._forgotten_ns + 1) == [False]


def test_before_the_start_of_the_process_nothing_is_certain() -> None:
    known = ResponseIds(latest_ns=500, clock=lambda: 10**18)
    added(known, ["a"], start_ns=900)
    assert elsewhere(known, ["a"], floor_ns=500) == [True]
    assert elsewhere(known, ["a"], floor_ns=501) == [False]


def test_many_calls_of_one_id_are_never_taken_for_few() -> None:
    known = ResponseIds(0)
    added(known, ["a"] * 40)
    assert elsewhere(known, ["a"] * 40) == [True] * 40

"""One budget of bytes, items and memory: who is refused, for how long, and that everything is given back."""

import pytest

from overrun.collector.errors import PayloadTooLarge, QueueFull, StoreUnavailable
from overrun.collector.process.admission import Admission
from overrun.collector.process.footprint import own_memory

MIB = 1 << 20


def test_a_body_that_is_alone_may_take_more_than_the_budget() -> None:
    admission = Admission(max_bytes=10, max_items=10, body_items=100)
    with admission.body() as place:
        place.take(8)
        place.take(8)
        place.take_items(50)
        assert (admission.bytes, admission.items) == (16, 50)
    assert (admission.bytes, admission.items) == (0, 0)


def test_of_two_bodies_the_second_is_asked_to_come_again() -> None:
    admission = Admission(max_bytes=10, max_items=10, body_items=100)
    with admission.body() as first, admission.body() as second:
        first.take(8)
        with pytest.raises(QueueFull, match="queue_mib") as refused:
            second.take(3)
        assert refused.value.retry_after_s > 0
        second.take(2)
        first.take_items(8)
        with pytest.raises(QueueFull, match="queue_items"):
            second.take_items(3)
    assert (admission.bytes, admission.items) == (0, 0)


def test_a_body_with_too_many_items_cannot_come_again() -> None:
    admission = Admission(max_bytes=10, max_items=1_000, body_items=100)
    with admission.body() as place, pytest.raises(PayloadTooLarge, match="max_body_items"):
        place.take_items(101)
    assert admission.items == 0


def test_what_the_queue_has_taken_over_counts_as_items_only() -> None:
    admission = Admission(max_bytes=10, max_items=10, body_items=100)
    with admission.body() as place:
        place.take(10)
        place.take_items(7)
        place.queued()
        assert (admission.bytes, admission.items) == (0, 7)
    assert admission.items == 0


def test_above_the_soft_line_no_body_is_taken_and_above_the_hard_line_none_is_read_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = [50 * MIB]
    admission = Admission(MIB, 10, 10, 100 * MIB, 200 * MIB, lambda: used[0])
    monkeypatch.setattr("overrun.collector.process.admission._LOOK_S", -1.0)
    with admission.body() as place:
        used[0] = 150 * MIB
        place.take(1)
        with pytest.raises(QueueFull, match="memory_soft_mib is 100"), admission.body():
            pass
        assert "memory_soft_mib" in admission.refusal()
        used[0] = 250 * MIB
        with pytest.raises(QueueFull, match="memory_hard_mib is 200") as refused:
            place.take(1)
        assert refused.value.retry_after_s > 0
    used[0] = 50 * MIB
    assert not admission.refusal()


def test_a_second_question_is_refused_before_telemetry_is(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [50 * MIB]
    admission = Admission(MIB, 10, 10, 100 * MIB, 200 * MIB, lambda: used[0])
    monkeypatch.setattr("overrun.collector.process.admission._LOOK_S", -1.0)
    with admission.answer(), admission.answer():
        used[0] = 80 * MIB
        assert not admission.refusal()
        with (
            pytest.raises(StoreUnavailable, match="uses 80 MiB and answers 2 other"),
            admission.answer(),
        ):
            pass
        assert admission.answering == 2
    with admission.answer():  # alone it always may be
        pass
    assert admission.answering == 0


def test_the_memory_of_this_process_is_read() -> None:
    before = own_memory()
    held = bytearray(b"x") * (64 * MIB)
    assert own_memory() - before > 32 * MIB
    del held

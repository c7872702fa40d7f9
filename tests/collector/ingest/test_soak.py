"""A short run of `make bench-soak`: restarts, a disk that is full and a clock that jumps, while senders send and others read."""

from pathlib import Path

from tests.benchmarks import soak


def test_nothing_is_lost_through_restarts_a_full_disk_and_a_clock_jump(tmp_path: Path) -> None:
    soaked = soak.run(tmp_path, seconds=5.0, rate=800.0)
    assert soaked.found.right, soaked.found
    assert soaked.found.stored >= len(soaked.sent.acknowledged) * soak.BODY > 2_000
    assert soaked.refused_while_full > 0
    assert soaked.restarts == 2
    assert soaked.stopped_with == 0
    assert "hours ahead" in soaked.said, "the clock's leap was not seen"
    assert "Traceback" not in soaked.said

"""Does the store hold every acknowledged span, once and as it was sent, while others read? A short run of `make bench-integrity`, which has many."""

import sys
from pathlib import Path

import pytest

from tests.benchmarks.integrity import Mix, one_run
from tests.benchmarks.sent import Template

SIZES = (1, 7, 50, 200, 512)


@pytest.mark.parametrize("kill", [False, True], ids=["ended", "killed"])
def test_every_acknowledged_span_is_stored_once_as_it_was_sent(
    tmp_path: Path, kill: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process that is spawned runs the file of `__main__` again; page tests leave a script of theirs there.
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    mix = Mix(
        8,
        ("http", "grpc"),
        0.3,
        SIZES,
        burst_s=1.5,
        pause_s=1.0,
        readers=2,
        kill=kill,
        slow_disk=False,
    )
    run = one_run(tmp_path, mix, seed=20_261_126, seconds=4.5)
    assert run.found.right, run.found
    assert run.found.stored >= run.acknowledged > 1_000


def test_the_comparison_sees_a_loss_a_copy_and_a_changed_value(tmp_path: Path) -> None:
    """A comparison that cannot fail would prove nothing."""
    from overrun.collector.ingest.writer import TRACES
    from tests.benchmarks.payload import make
    from tests.benchmarks.sent import Found, compare
    from tests.collector.conftest import T0_NS, opened

    template = Template(make(60, end_ns=T0_NS, spans_per_body=60).bodies[0].data)
    sent = [template.sent([mask]) for mask in (1, 2, 3)]
    with opened(tmp_path / "t.db") as pipeline:
        for mask in (1, 2):
            pipeline.writer.submit(TRACES, template.body(mask)).result(60)
    n = template.spans.num_rows
    assert compare(tmp_path / "t.db", sent[:2]) == Found(
        stored=2 * n, lost=0, changed=0, doubled=0, unknown=0
    )
    assert compare(tmp_path / "t.db", sent) == Found(
        stored=2 * n, lost=n, changed=0, doubled=0, unknown=0
    )
    assert compare(tmp_path / "t.db", sent[:1]) == Found(
        stored=2 * n, lost=0, changed=0, doubled=0, unknown=n
    )
    assert compare(tmp_path / "t.db", sent[:1], sent[1:]).right, "sent and never answered"
    with opened(tmp_path / "t.db") as pipeline:
        pipeline.store.connection.execute(
            "insert into spans select * replace (1::bigint << 40 as seq) from spans where rowid = 0"
        )
        pipeline.store.connection.execute(
            "update spans set duration_ns = duration_ns + 1000000 where rowid = 1"
        )
    found = compare(tmp_path / "t.db", sent[:2])
    assert (found.lost, found.changed, found.doubled) == (0, 1, 1)

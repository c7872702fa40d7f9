"""kill -9 at any moment: what was acknowledged is there, once; what was not may be sent again and counts once. `make bench-crash` has more rounds."""

from pathlib import Path

from overrun.collector.ingest.writer import TRACES
from overrun.collector.store.database import open_store
from tests.benchmarks import crash
from tests.benchmarks.sent import Found
from tests.collector.conftest import opened

ROUNDS = 5


def test_acknowledged_spans_survive_kill_9_exactly_once(tmp_path: Path) -> None:
    load, counts = crash.run(tmp_path, ROUNDS, full=False, seed=20_261_121, most=60)
    assert [c for c in counts if not c.right] == []
    assert len(load.acknowledged) > ROUNDS
    db = tmp_path / "t.db"
    with opened(db) as pipeline:
        for number in [
            *load.unsure,
            *sorted(load.acknowledged)[:50],
        ]:  # sent again: stored if it was not, and counted once
            pipeline.writer.submit(TRACES, load.body(number)).result(30)
    sent = len(load.acknowledged | set(load.unsure))
    load.acknowledged |= set(load.unsure)
    assert crash.count(db, load) == Found(
        stored=sent * load.spans, lost=0, changed=0, doubled=0, unknown=0
    )
    store = open_store(db, create=False)
    found = store.connection.execute(
        "select count(*), count(distinct trace_id), (select count(*) from v_spans) from v_requests"
    ).fetchall()
    store.close()
    assert found == [(sent, sent, sent * load.spans)]

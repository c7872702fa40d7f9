"""kill -9 at any moment: what was acknowledged is there, once; what was not may be sent again and counts once. `make bench-crash` has more rounds."""

from pathlib import Path

import pytest

from overrun.collector.ingest.writer import TRACES
from overrun.collector.store.database import open_store
from tests.benchmarks import crash, crash_moments
from tests.benchmarks.sent import Found
from tests.collector.conftest import opened

ROUNDS = 2


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


@pytest.mark.parametrize("moment", ["migration", "rollup", "erasing"])
def test_a_step_that_is_killed_leaves_the_file_whole(tmp_path: Path, moment: str) -> None:
    [verdict] = crash_moments.run(tmp_path, 1, 20_261_127, (moment,))
    assert verdict.right, verdict
    assert verdict.spans > 1_000


def test_the_checks_see_rows_of_no_commit_wrong_rollups_and_leftovers(tmp_path: Path) -> None:
    """A check that cannot fail would prove nothing."""
    db = tmp_path / "t.db"
    with opened(db) as pipeline:
        pipeline.writer.submit(TRACES, crash_moments.whose(1)).result(30)
        pipeline.drain()
    assert crash_moments.unequal_tables(db) == crash_moments.leftovers(db) == ()
    assert crash_moments.folded_wrong(db, whole=False) == ()
    assert crash_moments.folded_wrong(db, whole=True) == ("nothing was folded",)
    store = open_store(db, create=False)
    for sql in (
        "insert into requests select * from requests",
        "update batches set spans = spans + 1",
        "insert into span_values by name select 1 as seq, 1 as start_ns",
        "update llm_calls set batch = batch + 7",
        "insert into rollup_counts by name select 0 as minute_ns, 's' as service, 'chat' as workload, 1 as requests, 0 as errors",
    ):
        store.connection.execute(sql)
    store.close()
    (tmp_path / "t.db.rewritten").touch()
    db.chmod(0o644)
    assert len(crash_moments.unequal_tables(db)) == 4
    (tmp_path / "t.db.rewritten").touch()
    assert crash_moments.leftovers(db) == ("t.db.rewritten", "mode 644")
    assert crash_moments.folded_wrong(db, whole=False) == ("1 minutes are folded wrongly",)

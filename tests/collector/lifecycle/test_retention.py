"""What was received longest ago goes first, by age and by size, with everything made from it; imported history is as fresh as its import."""

import time
from pathlib import Path

import duckdb
import pytest

from overrun.collector.config import RetentionSettings
from overrun.collector.errors import ConfigError, StoreUnavailable
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import LOGS, METRICS, TRACES
from overrun.collector.lifecycle.retention import (
    DAY_NS,
    Retention,
    checkpoint,
    size_bytes,
    used_bytes,
)
from overrun.collector.normalise import log_records
from overrun.collector.normalise.log_records import Note
from overrun.collector.process.steady_clock import CLOCK_LEAP, SteadyClock
from overrun.collector.receive.health import metric_lines
from overrun.collector.store.database import BATCH_BITS
from tests.collector.conftest import (
    MS,
    T0_NS,
    body,
    chat,
    full_disk,
    one,
    opened,
    rows,
    span,
    trace_id,
)
from tests.collector.normalise.test_points import gauge, request

TABLES = (
    "spans",
    "span_values",
    "span_events",
    "span_links",
    "quarantine",
    "points",
    "requests",
    "llm_calls",
    "span_notes",
)


def retention(pipeline: Pipeline, **settings: object) -> Retention:
    return Retention(
        pipeline.store,
        pipeline.writer,
        RetentionSettings(**{"max_age_days": 0.0, "db_max_size": "0", **settings}),
    )  # type: ignore[arg-type]


class Believed(SteadyClock):
    """A clock that has been where it is for long."""

    def now(self, wall_ns: int | None = None) -> int:
        assert wall_ns is not None
        return wall_ns


def much_later(pipeline: Pipeline, max_age_days: float) -> Retention:
    """As `retention`, when so much time has really passed as the round is told."""
    settings = RetentionSettings(max_age_days=max_age_days, db_max_size="0")
    return Retention(pipeline.store, pipeline.writer, settings, Believed())


def fill(pipeline: Pipeline, trace: int) -> None:
    """One commit with something for every table, then its requests."""
    call, odd = chat(trace)[1], span(trace, 9)
    call.events.add(name="e", time_unix_nano=T0_NS)
    call.links.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    odd.end_time_unix_nano = 0
    pipeline.writer.submit(TRACES, body([chat(trace)[0], call, odd])).result(120)
    pipeline.writer.submit(
        METRICS, request(gauge("vllm:num_requests_waiting", float(trace)))
    ).result(120)
    pipeline.writer.submit(
        LOGS, log_records.pack([Note(int.from_bytes(trace_id(trace)[:8]), trace, 2, T0_NS, "stop")])
    ).result(120)
    pipeline.drain()


def backdate(pipeline: Pipeline, through: int, days: float) -> None:
    """Commits up to `through` were received so many days earlier."""
    back = {"by": int(days * DAY_NS), "through": through}
    pipeline.writer.call(
        lambda c: c.execute(
            "update batches set received_ns = received_ns - $by where batch <= $through", back
        )
    ).result()
    pipeline.writer.call(
        lambda c: c.execute(
            "update bodies set received_ns = received_ns - $by", {"by": int(days * DAY_NS)}
        )
    ).result()


def now_ns(pipeline: Pipeline) -> int:
    return int(one(pipeline, "select max(received_ns) from batches"))


def test_what_is_older_than_the_age_goes_with_everything_made_from_it(pipeline: Pipeline) -> None:
    fill(pipeline, 1)
    old = pipeline.writer.last_batch
    fill(pipeline, 2)
    backdate(pipeline, old, days=8)
    done = retention(pipeline, max_age_days=7.0).round(now_ns(pipeline))
    assert (done.batches, done.spans, done.points) == (old, 2, 1)
    assert rows(pipeline, "select trace_id from v_requests") == [(trace_id(2).hex(),)]
    assert {t: one(pipeline, f"select count(*) from {t}") for t in TABLES} == dict.fromkeys(
        TABLES, 1
    ) | {"spans": 2}
    assert pipeline.writer.tally.value("expired_spans") == 2
    assert retention(pipeline, max_age_days=7.0).round(now_ns(pipeline)).batches == 0
    fill(pipeline, 3)
    assert one(pipeline, "select count(*) from v_requests") == 2


def test_imported_history_is_as_old_as_its_import(pipeline: Pipeline) -> None:
    old = span(1, 1, kind=2, attributes={"gen_ai.operation.name": "chat"})
    old.start_time_unix_nano, old.end_time_unix_nano = (
        T0_NS - 900 * DAY_NS,
        T0_NS - 900 * DAY_NS + MS,
    )
    pipeline.writer.submit(TRACES, body([old])).result(120)
    pipeline.drain()
    fill(pipeline, 2)
    assert retention(pipeline, max_age_days=1.0).round(now_ns(pipeline)).batches == 0
    assert one(pipeline, "select count(*) from v_requests") == 2


def test_the_newest_commit_stays_so_that_numbers_go_on(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as pipeline:
        fill(pipeline, 1)
        last = pipeline.writer.last_batch
        backdate(pipeline, last, days=50)
        much_later(pipeline, 7.0).round(now_ns(pipeline) + 60 * DAY_NS)
        assert rows(pipeline, "select batch from batches") == [(last,)]
    with opened(tmp_path / "t.db") as pipeline:
        assert pipeline.writer.last_batch == last
        fill(pipeline, 2)
        assert (
            one(pipeline, f"select count(*) from v_requests where trace_id = '{trace_id(2).hex()}'")
            == 1
        )


def test_a_request_that_got_a_late_span_lives_as_long_as_that(pipeline: Pipeline) -> None:
    fill(pipeline, 1)
    old = pipeline.writer.last_batch
    pipeline.writer.submit(TRACES, body([span(1, 3, 1, name="late")])).result(120)
    pipeline.drain()
    backdate(pipeline, old, days=8)
    retention(pipeline, max_age_days=7.0).round(now_ns(pipeline))
    assert one(pipeline, "select count(*) from requests") == 1


def test_a_file_over_its_size_loses_its_oldest_commits_until_it_fits(tmp_path: Path) -> None:
    """12 commits of 50,000 spans as they would lie in the file."""
    row = "seq, seq as trace_hi, seq as trace_lo, seq as span_id, 0 as parent_id, seq as start_ns, 1 as duration_ns, md5(seq::varchar) as name, 0 as shape"
    per_commit = 50_000
    with opened(tmp_path / "t.db") as pipeline:
        for i in range(1, 13):
            seqs = f"select {i << BATCH_BITS} + range as seq from range({per_commit})"
            pipeline.writer.call(
                lambda c, seqs=seqs: c.execute(
                    f"insert into spans by name select {row} from ({seqs})"
                )
            ).result()  # type: ignore[misc]
            pipeline.writer.call(
                lambda c, i=i: c.execute(f"insert into batches values ({i}, {i}, {per_commit}, 0)")
            ).result()  # type: ignore[misc]
        pipeline.writer.call(checkpoint).result()
        limit = int(used_bytes(pipeline.store) * 0.66)
        keep = retention(pipeline)
        keep._max_bytes = (
            limit  # below what the setting allows: a file of that size would take minutes to make
        )
        done = keep.round(0)
        left = [int(b) for (b,) in rows(pipeline, "select batch from batches order by batch")]
        assert left == list(range(13 - len(left), 13))
        assert 2 <= len(left) <= 8
        assert (
            one(pipeline, "select count(*) from spans")
            == per_commit * len(left)
            == 12 * per_commit - done.spans
        )
        assert used_bytes(pipeline.store) <= limit
        assert keep.round(0).batches == 0


def test_senders_are_answered_while_old_telemetry_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overrun.collector.lifecycle.retention.CHUNK_ROWS", 10)
    with opened(tmp_path / "t.db") as pipeline:
        for i in range(1, 41):
            pipeline.writer.submit(TRACES, body([span(i, n) for n in range(1, 6)])).result(120)
        backdate(pipeline, 40, days=9)
        settings = RetentionSettings(max_age_days=7.0, db_max_size="0", check_s=0.05)
        with Retention(pipeline.store, pipeline.writer, settings, pipeline.clock).running():
            answers = [
                pipeline.writer.submit(TRACES, body([span(i, 1)])).result(120).items
                for i in range(100, 130)
            ]
            while one(pipeline, "select count(*) from batches where batch <= 40"):
                answers.append(
                    pipeline.writer.submit(TRACES, body([span(100 + len(answers), 1)]))
                    .result(120)
                    .items
                )
        assert set(answers) == {1}
        assert one(pipeline, "select count(*) from spans") == len(answers)


def test_hashes_of_a_day_stay_so_that_a_body_sent_again_is_known(pipeline: Pipeline) -> None:
    content = body([span(1, 1)])
    pipeline.writer.submit(TRACES, content).result(120)
    fill(pipeline, 2)
    much_later(pipeline, 7.0).round(now_ns(pipeline) + 30 * DAY_NS)
    assert one(pipeline, "select count(*) from spans where trace_lo = 1") == 0
    assert pipeline.writer.submit(TRACES, content).result(120).duplicate


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", 0),
        ("67108864", 1 << 26),
        ("20GB", 20 << 30),
        ("37.5 MiB", 75 << 19),
        ("2g", 2 << 30),
        ("99999kb", 99_999 << 10),
    ],
)
def test_sizes_are_read(text: str, wanted: int) -> None:
    assert size_bytes(text) == wanted


def test_a_size_that_nothing_fits_in_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"use 32MB or more"):
        size_bytes("1MB")


@pytest.mark.parametrize("text", ["", "big", "-5GB", "5XB", "GB"])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"db_max_size = .* is not a size: use one such as 20GB"):
        size_bytes(text)


def test_a_restart_just_after_a_leap_of_the_clock_expires_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns
    with opened(tmp_path / "t.db") as pipeline:
        fill(pipeline, 1)
        monkeypatch.setattr(time, "time_ns", lambda: now() + 31 * DAY_NS)
        fill(pipeline, 2)
    with opened(tmp_path / "t.db") as pipeline:
        assert retention(pipeline, max_age_days=30.0).round(time.time_ns()).batches == 0
        assert one(pipeline, "select count(*) from batches") == 6


def test_a_clock_that_leaps_ahead_expires_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with opened(path) as pipeline:
        for trace in (1, 2, 3):
            fill(pipeline, trace)
        kept = retention(pipeline, max_age_days=30.0)
        leapt = now_ns(pipeline) + 31 * DAY_NS
        assert kept.round(leapt).batches == 0
        assert one(pipeline, "select count(*) from v_requests") == 3
        assert pipeline.store.meta(CLOCK_LEAP)
    with opened(path) as pipeline:  # nor does a restart, to which the clock may be right again
        assert retention(pipeline, max_age_days=30.0).round(leapt).batches == 0
        assert retention(pipeline, max_age_days=30.0).round(now_ns(pipeline)).batches == 0
        assert one(pipeline, "select count(*) from v_requests") == 3


def test_a_server_that_was_off_for_long_expires_nothing_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with opened(path) as pipeline:
        for trace in (1, 2):
            fill(pipeline, trace)
        backdate(pipeline, pipeline.writer.last_batch, days=40)
    with opened(path) as pipeline:
        assert retention(pipeline, max_age_days=30.0).round(time.time_ns()).batches == 0
        assert pipeline.clock.now() < time.time_ns() - 39 * DAY_NS
        lines = metric_lines(pipeline)
        [ahead] = [line for line in lines if line.startswith("overrun_clock_leap_seconds ")]
        assert float(ahead.split()[1]) > 39 * 86_400


@pytest.mark.parametrize("days", [-60, 60])
def test_one_commit_of_a_wrong_clock_takes_no_other_with_it(pipeline: Pipeline, days: int) -> None:
    """Behind, it looks older than all that came before it; ahead, younger."""
    for trace in (1, 2, 3):
        fill(pipeline, trace)
    at = {"by": days * DAY_NS}
    pipeline.writer.call(
        lambda c: c.execute(
            "update batches set received_ns = received_ns + $by where batch = 5", at
        )
    ).result()
    newest = one(pipeline, "select received_ns from batches where batch = 9")
    assert retention(pipeline, max_age_days=30.0).round(newest).batches == 0


def test_on_a_full_disk_nothing_goes_in_part_and_the_next_round_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as pipeline:
        fill(pipeline, 1)
        old = pipeline.writer.last_batch
        fill(pipeline, 2)
        backdate(pipeline, old, days=8)
        due, at = retention(pipeline, max_age_days=7.0), now_ns(pipeline)
        with full_disk(0), pytest.raises((duckdb.Error, StoreUnavailable)):
            due.round(at)
        assert one(pipeline, "select count(*) from spans") == 4
        assert due.round(at).batches == old
        assert rows(pipeline, "select trace_id from v_requests") == [(trace_id(2).hex(),)]

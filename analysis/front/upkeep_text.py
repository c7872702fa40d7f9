"""What came of erasing, repairing and migrating, in words."""

from __future__ import annotations

from pathlib import Path

from overrun.analysis.words.finding import say_count
from overrun.collector.lifecycle.forget import Forgotten
from overrun.collector.lifecycle.migrate import Migrated
from overrun.collector.lifecycle.repair import Repaired


def forgotten(done: Forgotten) -> str:
    """What was erased, and what may be left of it."""
    erased = f"erased {say_count(done.traces, 'trace')}: {say_count(done.spans, 'span')}, {say_count(done.requests, 'request')}"
    lines = [erased + (f", {say_count(done.points, 'metric point')}" if done.points else "")]
    searched = (
        (done.found_rows, "row", "tables"),
        (done.found_bytes, "place", "file's bytes"),
    )
    places = [
        f"in {say_count(n, unit)} of the {where}" for n, unit, where in searched if n is not None
    ]
    if places:
        lines.append(f"searched for the name afterwards: found {' and '.join(places)}")
    if done.found_rows:
        lines.append(
            "other traces still contain the name, as an attribute or inside a longer text: `overrun store export spans` shows which"
        )
    if done.traces or done.points:
        lines.append(
            "files of `overrun store export --folder` are replaced by its next round, except for hours of which retention has deleted a part: erase there yourself"
        )
    return "\n".join(lines)


def repaired(done: Repaired, db: Path, out: Path) -> str:
    """What was saved of each table, and what is lost."""
    lines = []
    for saved in done.tables:
        lost = "nothing could be read" if saved.lost is None else f"lost {saved.lost:,}"
        if saved.rows or saved.lost != 0:
            lines.append(f"{saved.table}: saved {say_count(saved.rows, 'row')}, {lost}")
    if done.log_bytes_lost:
        lines.append(
            f"the log {db}.wal is damaged: its last {done.log_bytes_lost:,} bytes, with the newest telemetry, are lost"
        )
    whole = not done.log_bytes_lost and all(saved.lost == 0 for saved in done.tables)
    lines.append(
        f"everything could be read: {out} is a whole copy"
        if whole
        else f"{out} holds the readable rows. `overrun doctor --db {out}` lists when the missing spans were received. Send them again if you still have them"
    )
    return "\n".join(lines)


def migrated(done: Migrated, db: Path) -> str:
    """The schema before and after, and which spans are missing."""
    after = f"schema {done.before} -> {done.after}"
    lines = [
        f"{db}: schema {done.before}, nothing to do"
        if done.before == done.after
        else f"{db}: {after}"
    ]
    if done.incomplete_commits:
        missing = f"up to {done.missing_spans:,} acknowledged spans of {done.incomplete_commits:,} commits are missing"
        lines.append(f"{missing}: `overrun doctor --db {db}` lists when they were received")
    return "\n".join(lines)

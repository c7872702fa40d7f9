"""How does a server watch its own store? The runner with this store's reports, in a thread of its own beside the receivers of telemetry.

Of a lake's processes one does, the one that holds the lease of alerts. What is open and what is to be sent is in the store, so the next one goes on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import duckdb
import msgspec

from overrun.analysis.evidence.engine_overview import indicator_points, indicators
from overrun.analysis.evidence.leading_indicators import Indicator, latest
from overrun.analysis.front import report as reports
from overrun.analysis.front.alerts import settings as alert_settings
from overrun.analysis.front.alerts.conditions import seen, warning
from overrun.analysis.front.alerts.delivery import Sent
from overrun.analysis.front.alerts.incidents import Condition, Seen
from overrun.analysis.front.alerts.runner import KEY, Runner, remembered
from overrun.analysis.front.alerts.settings import AlertSettings
from overrun.analysis.front.predictor_watch import Lengths
from overrun.analysis.front.questions import Question
from overrun.analysis.front.report import Report
from overrun.analysis.numbers.outcomes.burn_rate import burn
from overrun.analysis.numbers.requests.request_list import list_requests
from overrun.analysis.numbers.window import RequestFrame, load
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.config import Settings
from overrun.collector.errors import CollectorError
from overrun.collector.ingest.lake_pipeline import LakePipeline
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.rounds import Assembling
from overrun.collector.store.database import set_meta
from overrun.collector.store.lake.catalog import Catalog

log = logging.getLogger("overrun.alerts")
_STORED_S = 60.0
# Of a lake: a process that has not renewed it for so long, or for three evaluations, has lost it.
_LEASE, _LEAST_LEASE_S = "alerts", 30.0
# Warnings are learned so often, from so long a time: breaches are rare.
_LEARN_EVERY_S, _LEARN_FROM = 3_600.0, timedelta(days=1)
# What the newest value of an indicator is read from.
_NEWEST = timedelta(minutes=2)


async def run(
    pipeline: Pipeline | LakePipeline, settings: Settings, watched: Lengths | None
) -> None:
    """Evaluate and send for as long as the server runs; without receivers this returns at once."""
    table = alert_settings.read(settings.alerts)
    if not table.receivers:
        return
    watch = _Watch(pipeline, settings, watched, table)
    if isinstance(pipeline, LakePipeline):
        await _run_while_held(pipeline, table, watch)
        return
    runner = _runner(table, watch, pipeline.store.meta(KEY), watch.note)
    # What an earlier process could not send any more.
    await _round(pipeline, runner, evaluates=False)
    while True:
        await asyncio.sleep(table.every_s)
        await _round(pipeline, runner, evaluates=True)


def _runner(
    table: AlertSettings, watch: _Watch, memory: str | None, note: Callable[[str], None]
) -> Runner:
    return Runner(table, remembered(memory), look=watch.look, details=watch.details, note=note)


async def _run_while_held(pipeline: LakePipeline, table: AlertSettings, watch: _Watch) -> None:
    """As `run`, whenever this process holds the lease of a lake's alerts."""
    catalog, lasts_s = pipeline.lake.catalog, max(3 * table.every_s, _LEAST_LEASE_S)
    runner, epoch = None, -1
    while True:
        try:
            lease = await asyncio.to_thread(catalog.claim, pipeline.holder, lasts_s, _LEASE)
            if lease is None:
                runner = None
            elif runner is None or lease.epoch != epoch:
                epoch = lease.epoch
                memory = await asyncio.to_thread(catalog.note, KEY)
                runner = _runner(table, watch, memory, partial(_note, catalog, epoch))
                await _round(pipeline, runner, evaluates=False)
            else:
                await _round(pipeline, runner, evaluates=True)
        except CollectorError as error:
            log.warning("alerts were not evaluated, trying again: %s", error)
        await asyncio.sleep(table.every_s)


def _note(catalog: Catalog, epoch: int, text: str) -> None:
    catalog.set_note(KEY, text, _LEASE, epoch)


async def _round(pipeline: Assembling, runner: Runner, *, evaluates: bool) -> None:
    """One evaluation and one round of deliveries; where the store cannot be read, only the latter."""
    try:
        sent = await asyncio.to_thread(runner.tick if evaluates else runner.send_due, time.time())
    except (CollectorError, AnalysisError, duckdb.Error, TimeoutError) as error:
        log.warning("alerts were not evaluated, trying again: %s", error)
        pipeline.writer.tally.count("alert_evaluations_failed")
        return
    except Exception:  # the task's edge: the next evaluation follows all the same
        log.exception("alerts were not evaluated, trying again")
        pipeline.writer.tally.count("alert_evaluations_failed")
        return
    _count(pipeline, sent)


def _count(pipeline: Assembling, sent: Sent) -> None:
    for what, n in (
        ("delivered", sent.delivered),
        ("failed", sent.failed),
        ("dropped", sent.dropped),
    ):
        pipeline.writer.tally.count("alert_messages", n, what=what)


class _Watch:
    """The store behind the runner."""

    def __init__(
        self,
        pipeline: Assembling,
        settings: Settings,
        watched: Lengths | None,
        table: AlertSettings,
    ) -> None:
        self._pipeline, self._settings, self._watched = pipeline, settings, watched
        self._since, self._every_s = f"{table.since_s:g}s", table.every_s
        self._learned: Indicator | None = None
        self._learned_at = float("-inf")

    def _question(self, now: float) -> Question:
        moment = datetime.fromtimestamp(now, UTC)
        asked = Question.read({}, self._settings, now=moment, default_since=self._since)
        # What is watched is watched by limits, the usual ones where nobody gave others.
        return replace(asked, slo=msgspec.structs.replace(asked.slo, given=True))

    def look(self, now: float) -> Seen:
        asked = self._question(now)
        with self._pipeline.store.reading() as con:
            report = reports.build(con, asked.window, asked.slo, asked.budgets, with_findings=False)
            burning = burn(con, asked.window, asked.slo, datetime.fromtimestamp(now, UTC))
            early = self._early(con, asked, now)
        found = seen(now, report, burning, self._watched.state() if self._watched else None)
        if early is not None:
            found.conditions.append(early)
        return found

    def _early(
        self, con: duckdb.DuckDBPyConnection, asked: Question, now: float
    ) -> Condition | None:
        """The warning that was learned from the last day, if it is on now."""
        end = datetime.fromtimestamp(now, UTC)

        def read(since: timedelta) -> RequestFrame:
            return load(con, replace(asked.window, start=end - since, end=end))

        if now - self._learned_at >= _LEARN_EVERY_S:
            self._learned_at = now
            learned, _ = indicators(con, read(_LEARN_FROM), asked.slo)
            self._learned = learned[0] if learned else None
        if self._learned is None:
            return None
        frame = read(_NEWEST)
        if frame.rows.is_empty():
            return None
        return warning(
            self._learned, latest(self._learned, indicator_points(con, frame)), self._every_s
        )

    def details(self, now: float) -> tuple[Report | None, str]:
        asked = self._question(now)
        with self._pipeline.store.reading() as con:
            report = reports.build(con, asked.window, asked.slo, asked.budgets, prices=asked.prices)
            slowest = list_requests(con, asked.window, limit=1).rows
        return report, slowest[0].trace_id if slowest else ""

    def note(self, text: str) -> None:
        def write(connection: duckdb.DuckDBPyConnection) -> None:
            set_meta(connection, KEY, text)

        self._pipeline.writer.call(write).result(_STORED_S)

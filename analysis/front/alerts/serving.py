"""How does a server watch its own store? The runner with this store's reports, in a thread of its own beside the receivers of telemetry."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime

import duckdb

from overrun.analysis.front import report as reports
from overrun.analysis.front.alerts import settings as alert_settings
from overrun.analysis.front.alerts.conditions import seen
from overrun.analysis.front.alerts.delivery import Sent
from overrun.analysis.front.alerts.incidents import Seen
from overrun.analysis.front.alerts.runner import KEY, Runner, remembered
from overrun.analysis.front.predictor_watch import Lengths
from overrun.analysis.front.questions import Question
from overrun.analysis.front.report import Report
from overrun.analysis.numbers.outcomes.burn_rate import burn
from overrun.analysis.numbers.requests.request_list import list_requests
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.config import Settings
from overrun.collector.errors import CollectorError
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.store.database import set_meta

log = logging.getLogger("overrun.alerts")
_STORED_S = 60.0


async def run(pipeline: Pipeline, settings: Settings, watched: Lengths | None) -> None:
    """Evaluate and send for as long as the server runs; without receivers this returns at once."""
    table = alert_settings.read(settings.alerts)
    if not table.receivers:
        return
    watch = _Watch(pipeline, settings, watched, f"{table.since_s:g}s")
    runner = Runner(
        table,
        remembered(pipeline.store.meta(KEY)),
        look=watch.look,
        details=watch.details,
        note=watch.note,
    )
    # What an earlier process could not send any more.
    await _round(pipeline, runner, evaluates=False)
    while True:
        await asyncio.sleep(table.every_s)
        await _round(pipeline, runner, evaluates=True)


async def _round(pipeline: Pipeline, runner: Runner, *, evaluates: bool) -> None:
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


def _count(pipeline: Pipeline, sent: Sent) -> None:
    for what, n in (
        ("delivered", sent.delivered),
        ("failed", sent.failed),
        ("dropped", sent.dropped),
    ):
        pipeline.writer.tally.count("alert_messages", n, what=what)


class _Watch:
    """The store behind the runner."""

    def __init__(
        self, pipeline: Pipeline, settings: Settings, watched: Lengths | None, since: str
    ) -> None:
        self._pipeline, self._settings, self._watched, self._since = (
            pipeline,
            settings,
            watched,
            since,
        )

    def _question(self, now: float) -> Question:
        moment = datetime.fromtimestamp(now, UTC)
        return Question.read({}, self._settings, now=moment, default_since=self._since)

    def look(self, now: float) -> Seen:
        asked = self._question(now)
        with self._pipeline.store.reading() as con:
            report = reports.build(con, asked.window, asked.slo, asked.budgets, with_findings=False)
            burning = burn(con, asked.window, asked.slo, datetime.fromtimestamp(now, UTC))
        return seen(now, report, burning, self._watched.state() if self._watched else None)

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

"""What can be asked over HTTP? /api/v1/..., /healthz, /readyz and /metrics beside the OTLP routes, each a thin edge over pure functions.

Parameters are the CLI's flags, both from one table (question_table.py). Work runs in threads with a cursor of its own, so that a long question never stalls ingest.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from overrun.analysis.diagnosis.sampled_causes import Background as Seeking
from overrun.analysis.diagnosis.simulated_gains import Background as Fixes
from overrun.analysis.front import predictor_watch
from overrun.analysis.front import report as reports
from overrun.analysis.front.answer_cache import Kept
from overrun.analysis.front.answering import Answering, Asking, Unwanted
from overrun.analysis.front.http_answers import (
    DEFAULT_SINCE,
    JSON,
    Handler,
    asked,
    client_gone,
    error_answer,
    parameters_of,
    refused,
)
from overrun.analysis.front.ledger import path_of
from overrun.analysis.front.openapi import openapi
from overrun.analysis.front.predictor_watch import Lengths
from overrun.analysis.front.prometheus_metrics import Background, Snapshot
from overrun.analysis.front.question_table import (
    ENTRIES,
    EXPORT,
    EXPORT_FORMATS,
    PLAN,
    PREFIX,
    WHATIF,
    Entry,
)
from overrun.analysis.front.questions import Prepared, Question
from overrun.analysis.numbers.outcomes.burn_rate import burn
from overrun.analysis.whatif.worker import Worker
from overrun.analysis.words.encoding import encode
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.access import auth
from overrun.collector.access.audit import Audit
from overrun.collector.access.auth import Tokens
from overrun.collector.config import Settings
from overrun.collector.errors import CollectorError, StoreUnavailable
from overrun.collector.ingest.rounds import Assembling
from overrun.collector.receive import health
from overrun.collector.store.database import EXPORT as EXPORT_FILE
from overrun.collector.store.database import FileStore

# Questions are mostly work of the interpreter, which takes one core: more at once only hold more rows at once. Those of the what-ifs' process and exports
# wait for others most of the time.
_AT_ONCE, _ASKING_AT_ONCE, _EXPORTS_AT_ONCE = 2, 5, 2
# A large export may take as long as its client reads.
_MOST_EXPORT_S = 3_600.0


def routes(
    pipeline: Assembling,
    settings: Settings,
    worker: Worker,
    tokens: Tokens | None = None,
    watched: Lengths | None = None,
    audit: Audit | None = None,
) -> list[Route]:
    """The read side of the server; with a read token, a client must carry it (health checks excepted). `worker` computes the what-ifs.

    Exports, whole rows with what they carry of people, become lines of the `audit` log.
    """
    tokens = tokens or Tokens()
    store = pipeline.store
    simulate, sought = Fixes(store.reading, worker.ask), Seeking(store.reading)
    # What a server has beside the store, by the names of the parameters of the functions that answer.
    host = {
        "simulate": simulate,
        "sought": sought,
        "recent": sought,
        "ask": worker.ask,
        "begin": worker.begin,
        "watched": watched,
        # A lake is no file, so that no ledger lies beside it.
        "ledger": path_of(store.path) if isinstance(store, FileStore) else None,
    }

    # Kept until something is written or another fix has been simulated: a page that waits for one asks every two seconds.
    def changes() -> int:
        return pipeline.writer.changes + simulate.made

    kept = Kept(changes)
    reading = pipeline.store.reading
    lane = Answering("overrun-answer", reading, at_once=_AT_ONCE, changes=changes)
    patient = Answering("overrun-whatif", reading, at_once=_ASKING_AT_ONCE, changes=changes)
    exports = Answering("overrun-export", reading, at_once=_EXPORTS_AT_ONCE)

    def lane_of(entry: Entry[Any]) -> Answering:
        return patient if entry in (WHATIF, PLAN) else lane

    def answering(entry: Entry[Any]) -> Callable[[Mapping[str, str], Asking[bytes]], bytes]:
        def answer(parameters: Mapping[str, str], asking: Asking[bytes]) -> bytes:
            question = Prepared.read(
                entry, parameters, settings, now=datetime.now(UTC), default_since=DEFAULT_SINCE
            )
            made: list[Any] = []

            def encoded() -> bytes:
                made.append(question.answer(asking.reading, **host))
                return encode(made[0])

            with pipeline.writer.admission.answer():
                if not entry.kept:
                    return encoded()
                # Causes that were sought apart are as old as the clock says.
                return kept.get(
                    question.key,
                    encoded,
                    holds=lambda: getattr(made[0], "findings_age_s", 0.0) == 0.0,
                )

        return answer

    private = [
        *(
            Route(f"{PREFIX}/{entry.path}", asked(answering(entry), entry, lane_of(entry)))
            for entry in ENTRIES.values()
            if entry is not EXPORT
        ),
        Route(f"{PREFIX}/{EXPORT.path}", _export(pipeline, settings, tokens, audit, exports)),
        Route("/metrics", _metrics(pipeline, settings, watched, sought)),
    ]
    return [
        *(Route(r.path, _with_token(r.endpoint, tokens.read)) for r in private),
        Route("/openapi.json", _described),
        *health_routes(pipeline),
    ]


def process_routes(pipeline: Assembling, tokens: Tokens) -> list[Route]:
    """Health and counters of a process that answers no question about the telemetry."""

    async def metrics(request: Request) -> Response:
        lines = await asyncio.to_thread(health.metric_lines, pipeline)
        return Response("\n".join([*lines, ""]), media_type="text/plain; version=0.0.4")

    return [Route("/metrics", _with_token(metrics, tokens.read)), *health_routes(pipeline)]


def health_routes(pipeline: Assembling) -> list[Route]:
    """For monitoring of the process: alive, and ready for telemetry."""
    return [Route("/healthz", _healthz), Route("/readyz", _readyz(pipeline))]


def _with_token(handler: Handler, token: str | None) -> Handler:
    async def guarded(request: Request) -> Response:
        try:
            auth.check(request.headers.get("authorization"), token)
        except auth.Unauthorized as error:
            return error_answer(error.http_status, str(error))
        return await handler(request)

    return guarded


def _export(
    pipeline: Assembling,
    settings: Settings,
    tokens: Tokens,
    audit: Audit | None,
    exports: Answering,
) -> Handler:
    """Rows of a view as a file, written to disk first: the answer is whole or an error, and memory stays flat."""

    def noted(request: Request, rows: int) -> None:
        if audit is not None:
            asked = {name: value[:64] for name, value in request.query_params.items()}
            audit.write(
                "export",
                token=auth.kind_of(request.headers.get("authorization"), tokens),
                peer=request.client.host if request.client else "",
                what={"kind": request.path_params["kind"][:64], **asked},
                status=200,
                counts={"rows": rows},
            )

    def written(given: Mapping[str, str], asking: Asking[_Written]) -> _Written:
        question = Prepared.read(EXPORT, given, settings, now=datetime.now(UTC))
        # Beside the database, where the next start removes what a killed process leaves.
        db = pipeline.store.path.resolve()
        handle, path = tempfile.mkstemp(prefix=f"{db.name}{EXPORT_FILE}", dir=db.parent)
        try:
            with os.fdopen(handle, "wb") as out:
                rows = question.answer(asking.reading, out=out)
        except BaseException:
            os.unlink(path)
            raise
        if asking.given_up:
            os.unlink(path)
            raise Unwanted
        return path, rows, EXPORT_FORMATS[question.values["format"]]

    async def endpoint(request: Request) -> Response:
        try:
            given = parameters_of(request, EXPORT)
            path, rows, media = await exports.get(
                lambda asking: written(given, asking), client_gone(request), within_s=_MOST_EXPORT_S
            )
        except Unwanted:
            return Response(status_code=503)  # nobody reads it
        except (AnalysisError, CollectorError) as error:
            return refused(error)
        except OSError as error:
            return refused(StoreUnavailable(f"the export could not be written: {error.strerror}"))
        await asyncio.to_thread(noted, request, rows)
        return _Temporary(path, media_type=media)

    return endpoint


_Written = tuple[str, int, str]
"""File, rows and media type of an export."""


class _Temporary(FileResponse):
    """A file that goes when it has been sent, or the client has."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(self.path)


async def _described(request: Request) -> Response:
    """What can be asked, as OpenAPI; it holds no data, so it needs no token."""
    return Response(await asyncio.to_thread(openapi), media_type=JSON)


async def _healthz(request: Request) -> Response:
    """Alive: the event loop answers."""
    return Response(b'{"status":"ok"}', media_type=JSON)


def _readyz(pipeline: Assembling) -> Handler:
    asking = ThreadPoolExecutor(1, thread_name_prefix="overrun-ready")  # never behind a report

    async def ready(request: Request) -> Response:
        loop = asyncio.get_running_loop()
        fine, body = await loop.run_in_executor(asking, health.readiness, pipeline)
        return Response(encode(body), 200 if fine else 503, media_type=JSON)

    return ready


def _metrics(
    pipeline: Assembling, settings: Settings, watched: Lengths | None, sought: Seeking
) -> Handler:
    def ask() -> Snapshot:
        now = datetime.now(UTC)
        question = Question.read({}, settings, now=now, default_since=DEFAULT_SINCE)
        with pipeline.store.reading() as con:
            report = reports.build(
                con,
                question.window,
                question.slo,
                question.budgets,
                prices=question.prices,
                sought=sought,
                recent=sought,
            )
            return Snapshot(report, burn(con, question.window, question.slo, now))

    judged = Background(ask)

    async def metrics(request: Request) -> Response:
        lines = await asyncio.to_thread(health.metric_lines, pipeline)
        lines += judged.text()
        lines += predictor_watch.metric_lines(watched.state()) if watched else []
        return Response("\n".join([*lines, ""]), media_type="text/plain; version=0.0.4")

    return metrics

"""Where are long what-ifs computed? In a process of its own at lower priority, so that calibration never stalls what receives data.

It gets the facts as Arrow (polars frames are pickled so), keeps the last calibrated engines, and answers one question at a time. It is started when
somebody asks what can be asked, or at the first question, and ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

import polars as pl

from overrun.analysis.simulator import engine
from overrun.analysis.whatif import catalogue
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Prediction, WhatIfError
from overrun.analysis.words.slo import Slo
from overrun.collector.errors import StoreUnavailable

# Added to the niceness of the worker: 10 leaves it about a tenth of a busy core.
NICENESS: Final = 10
# Questions that may wait for the worker; more are asked to come back.
MOST_WAITING: Final = 4
# Windows whose calibrated engines are kept.
_KEPT: Final = 4
_CLOSING: Final = "the server is shutting down"


class Worker:
    """A worker process and its door. Safe to share between threads."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._count = threading.Lock()
        self._waiting = 0
        self._closing = False
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, facts: Facts, fix: str, texts: Mapping[str, str | None]) -> Prediction:
        """Answer as `fixes.ask` does, in the worker.

        Raises:
            WhatIfError: as `fixes.ask`; or too many questions are waiting, or the worker died. StoreUnavailable: the server ends.
        """
        catalogue.read(fix, texts)  # a bad parameter is refused before anything is sent
        with self._count:
            if self._waiting >= MOST_WAITING:
                raise WhatIfError(
                    f"{self._waiting} what-ifs are already waiting: ask again in a minute"
                )
            self._waiting += 1
        try:
            with self._turn:
                return self._asked(facts, fix, texts)
        finally:
            with self._count:
                self._waiting -= 1

    def begin(self) -> None:
        """Start the process, which makes itself ready for the first question, unless it runs: a second or two that nobody then waits for."""
        if self._turn.acquire(blocking=False):
            try:
                with contextlib.suppress(
                    OSError, StoreUnavailable
                ):  # the question itself will say so
                    self._open()
            finally:
                self._turn.release()

    def close(self) -> None:
        """End the process; whoever waits for an answer, or asks from now on, is told."""
        self._closing = True
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.join(timeout=5.0)
        self._process = self._pipe = None

    def _asked(self, facts: Facts, fix: str, texts: Mapping[str, str | None]) -> Prediction:
        spans = facts.spans if getattr(catalogue.find(fix), "NEEDS_SPANS", False) else None
        sent = (
            facts.requests,
            facts.calls,
            facts.points,
            facts.slo,
            facts.metric,
            facts.failed,
            facts.left_out,
            facts.effort,
            facts.budgets,
            _frames(facts.before),
            spans,
            fix,
            dict(texts),
        )
        try:
            pipe = self._open()
            pipe.send(sent)
            answer = pipe.recv()
        except (EOFError, OSError) as error:
            if self._closing:
                raise StoreUnavailable(_CLOSING) from error
            self._end()
            raise WhatIfError(
                "the what-if's process ended (out of memory?): ask for a shorter window"
            ) from error
        if isinstance(answer, Prediction):
            return answer
        raise WhatIfError(str(answer))

    def _open(self) -> Connection:
        if self._closing:
            raise StoreUnavailable(_CLOSING)
        if self._process is None or not self._process.is_alive() or self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(
                target=_serve, args=(theirs,), name="overrun-whatif", daemon=True
            )
            self._process.start()
            theirs.close()
        return self._pipe


def _serve(pipe: Connection) -> None:
    """The worker's loop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    os.nice(NICENESS)
    catalogue.fixes()
    engine.warm()
    engines: OrderedDict[Any, Any] = OrderedDict()
    while True:
        try:
            (
                requests,
                calls,
                points,
                slo,
                metric,
                failed,
                left_out,
                effort,
                budgets,
                before,
                spans,
                fix,
                texts,
            ) = pipe.recv()
        except (EOFError, OSError):
            return
        facts = Facts(
            requests,
            calls,
            points,
            slo,
            metric,
            failed,
            left_out,
            effort,
            budgets,
            _earlier(before, slo, metric),
            load_spans=partial(_given, spans),
        )
        pipe.send(_answer(engines, facts, fix, texts))


def _frames(before: Facts | None) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame] | None:
    return None if before is None else (before.requests, before.calls, before.points)


def _earlier(
    frames: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame] | None, slo: Slo, metric: str
) -> Facts | None:
    return None if frames is None else Facts(frames[0], frames[1], frames[2], slo, metric)


def _given(spans: pl.DataFrame | None) -> pl.DataFrame:
    return pl.DataFrame() if spans is None else spans


def _answer(
    engines: OrderedDict[Any, Any], facts: Facts, fix: str, texts: dict[str, str | None]
) -> Prediction | str:
    key = (*_key(facts.calls), facts.effort)
    if key in engines:
        facts.__dict__["engines"] = engines[key]
    try:
        answer = catalogue.ask(facts, fix, texts)
    except WhatIfError as error:
        return str(error)
    except Exception as error:
        return f"the what-if failed ({type(error).__name__}: {error})"
    if "engines" in facts.__dict__:
        engines[key] = facts.engines
        while len(engines) > _KEPT:
            engines.popitem(last=False)
    return answer


def _key(calls: pl.DataFrame) -> tuple[int, int]:
    """Tells one set of calls from another."""
    return calls.height, int(
        calls.select("start_us", "e2e_ms", "input_tokens", "output_tokens", "request")
        .hash_rows()
        .sum()
    )

"""What would each fix buy? What-ifs over HTTP: the list of fixes with their parameters, and the answer of one, computed in the worker process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from overrun.analysis.front.http_answers import DEFAULT_SINCE, asked
from overrun.analysis.front.questions import PARAMETERS, Question
from overrun.analysis.front.whatif_answer import gather, in_money
from overrun.analysis.whatif import catalogue
from overrun.analysis.whatif.prediction import WhatIfError
from overrun.analysis.whatif.worker import Worker
from overrun.analysis.words.encoding import encode
from overrun.analysis.words.errors import nearest
from overrun.collector.config import Settings
from overrun.collector.ingest.pipeline import Pipeline


class ParameterInfo(msgspec.Struct, kw_only=True):
    """One parameter of a fix. `kind` is int, float, str or bool; `default` is null where it must be given."""

    name: str
    kind: str
    help: str
    required: bool
    default: Any = None


class FixInfo(msgspec.Struct, kw_only=True):
    """One fix that can be asked for: its question in a sentence, and what it may be given."""

    fix: str
    question: str
    parameters: list[ParameterInfo]


def listed() -> list[FixInfo]:
    """Return every fix with its parameters."""
    return [
        FixInfo(
            fix=fix,
            question=catalogue.summary(fix),
            parameters=[
                ParameterInfo(
                    name=p.name,
                    kind=p.kind.__name__,
                    help=p.help,
                    required=p.required,
                    default=p.default,
                )
                for p in catalogue.parameters(fix)
            ],
        )
        for fix in catalogue.fixes()
    ]


def routes(pipeline: Pipeline, settings: Settings, worker: Worker) -> list[Route]:
    """The endpoints under /api/v1/whatif."""

    def answer(parameters: Mapping[str, str]) -> bytes:
        fix = parameters["fix"]
        own = {parameter.name for parameter in catalogue.parameters(fix)}
        known = (*PARAMETERS, "metric", *own)
        unknown = [
            name for name in parameters if name.replace("-", "_") not in known and name != "fix"
        ]
        if unknown:
            raise WhatIfError(
                f"unknown parameter {unknown[0][:64]!r}: {nearest(unknown[0], known)}"
            )
        given = {
            name.replace("-", "_"): value
            for name, value in parameters.items()
            if name.replace("-", "_") in own
        }
        catalogue.read(fix, given)
        # A fix may have a parameter of a filter's name (tenant): it is then the fix's.
        question = Question.read(
            {name: value for name, value in parameters.items() if name not in own},
            settings,
            now=datetime.now(UTC),
            default_since=DEFAULT_SINCE,
        )
        with pipeline.store.reading() as con:
            facts = gather(con, question, parameters.get("metric") or None)
            if getattr(catalogue.find(fix), "NEEDS_SPANS", False):
                _ = facts.spans
        return encode(in_money(worker.ask(facts, fix, given), facts, question.prices))

    def list_them(parameters: Mapping[str, str]) -> bytes:
        worker.begin()  # who asks what there is will ask for one of them
        return encode(listed())

    async def one(request: Request) -> Response:
        # Each fix has parameters of its own: what is unknown is found once the fix is known.
        return await asked(answer, tuple(request.query_params))(request)

    return [
        Route("/api/v1/whatif", asked(list_them, ())),
        Route("/api/v1/whatif/{fix}", one),
    ]

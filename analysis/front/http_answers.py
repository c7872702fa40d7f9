"""How does an answer leave over HTTP? Endpoints around pure functions, and errors as sentences with a status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from overrun.analysis.front.question_table import Entry
from overrun.analysis.numbers.requests.request_trace import UnknownTrace
from overrun.analysis.words.encoding import encode
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.errors import CollectorError, StoreUnavailable

log = logging.getLogger("overrun.api")
JSON = "application/json"
# Without a window, a server is asked about the last hour.
DEFAULT_SINCE = "1h"
Handler = Callable[[Request], Awaitable[Response]]


class ApiError(msgspec.Struct, kw_only=True):
    """What went wrong, in a sentence that names the value and the remedy."""

    error: str


def asked(answer: Callable[[Mapping[str, str]], bytes], entry: Entry[Any]) -> Handler:
    """An endpoint around a pure answer: unknown parameters and bad values are 400 with a sentence, the rest is 200 JSON."""

    async def endpoint(request: Request) -> Response:
        try:
            given = parameters_of(request, entry)
            body = await asyncio.to_thread(answer, given)
        except UnknownTrace as error:
            return error_answer(404, str(error))
        except (AnalysisError, CollectorError) as error:
            return refused(error)
        except Exception:  # the edge: the caller learns that it failed, the log learns why
            log.exception("answering %s failed", request.url.path)
            return error_answer(500, "the question could not be answered: see the server's log")
        return Response(body, media_type=JSON)

    return endpoint


def parameters_of(request: Request, entry: Entry[Any]) -> dict[str, str]:
    """The texts of a request's query and path by parameter.

    Raises:
        AnalysisError: a part of the path is given in the query as well.
    """
    twice = [name for name in request.query_params if name in request.path_params]
    if twice:
        raise AnalysisError(
            f"unknown parameter {twice[0]!r}: it is a part of the path of {entry.path}"
        )
    return {**request.query_params, **request.path_params}


def refused(error: AnalysisError | CollectorError) -> Response:
    """Bad input, unless the server cannot answer now: then who asks may come again."""
    return error_answer(
        error.http_status if isinstance(error, StoreUnavailable) else 400, str(error)
    )


def error_answer(status: int, sentence: str) -> Response:
    return Response(encode(ApiError(error=sentence)), status, media_type=JSON)

"""How does an answer leave over HTTP? Endpoints around pure functions, and errors as sentences with a status."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from overrun.analysis.front.answering import Answering, Asking, Unwanted
from overrun.analysis.front.question_table import Entry
from overrun.analysis.numbers.requests.request_trace import UnknownTrace
from overrun.analysis.words.encoding import encode
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.errors import CollectorError, StoreUnavailable

log = logging.getLogger("overrun.api")
JSON = "application/json"
# Without a window, a server is asked about the last hour.
DEFAULT_SINCE = "1h"
# An answer is given up after so long, or after twice the time for which a client waits for it.
MOST_ANSWER_S = 120.0
# Handed to the connection at once: what a client does not take yet stays in one place, however many wait for the same answer.
_PIECE = 65_536
Handler = Callable[[Request], Awaitable[Response]]


class ApiError(msgspec.Struct, kw_only=True):
    """What went wrong, in a sentence that names the value and the remedy."""

    error: str


class InPieces(Response):
    """A response that is handed over piece by piece, as the client takes it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        for at in range(0, len(self.body), _PIECE):
            piece = self.body[at : at + _PIECE]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def asked(
    answer: Callable[[Mapping[str, str], Asking[bytes]], bytes],
    entry: Entry[Any],
    answering: Answering,
) -> Handler:
    """An endpoint around a pure answer: unknown parameters and bad values are 400 with a sentence, the rest is 200 JSON.

    The same question at the same time is answered once, and an answer whose clients have gone is given up.
    """

    async def endpoint(request: Request) -> Response:
        try:
            given = parameters_of(request, entry)
            body = await answering.get(
                lambda asking: answer(given, asking),
                client_gone(request),
                within_s=max(MOST_ANSWER_S, 2 * entry.timeout_s),
                key=(entry.path, *sorted(given.items())),
            )
        except Unwanted:
            return Response(status_code=503)  # nobody reads it
        except UnknownTrace as error:
            return error_answer(404, str(error))
        except (AnalysisError, CollectorError) as error:
            return refused(error)
        except Exception:  # the edge: the caller learns that it failed, the log learns why
            log.exception("answering %s failed", request.url.path)
            return error_answer(500, "the question could not be answered: see the server's log")
        return InPieces(body, media_type=JSON)

    return endpoint


async def client_gone(request: Request) -> None:
    """Return once the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


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
    if not isinstance(error, StoreUnavailable):
        return error_answer(400, str(error))
    response = error_answer(error.http_status, str(error))
    response.headers["retry-after"] = str(error.retry_after_s)
    return response


def error_answer(status: int, sentence: str) -> Response:
    return Response(encode(ApiError(error=sentence)), status, media_type=JSON)

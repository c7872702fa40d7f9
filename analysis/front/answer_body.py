"""What does the body of an answer hold, and what can go wrong before it is here? What commands over a file share with the client, which loads an HTTP library."""

from __future__ import annotations

from typing import Final

import msgspec

from overrun.analysis.front.question_table import PREFIX, Answer, Entry
from overrun.analysis.words.encoding import decode
from overrun.analysis.words.errors import AnalysisError

DEFAULT_URL: Final = "http://127.0.0.1:4318"
# A report over a million requests takes about a second; a minute distinguishes a slow server from a dead one.
TIMEOUT_S: Final = 60.0


class ClientError(AnalysisError):
    """Base of what can go wrong between this process and the server."""


class Unreachable(ClientError):
    """No server answers at the address."""


class Refused(ClientError):
    """The server answered that it will not: a bad parameter, an unknown trace, a missing token, or a failure of its own."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class TooOld(ClientError):
    """The server does not know the question, or answers in another version's words."""


def decoded(entry: Entry[Answer], body: bytes) -> Answer:
    """Return the answer that a body holds.

    Raises:
        TooOld: it is in the words of another version.
    """
    try:
        answer: Answer = decode(body, entry.answer_type())
    except msgspec.MsgspecError as error:
        raise TooOld(
            f"the answer to {PREFIX}/{entry.path} is in a form that is not known here ({error}): use the same version of Overrun on both sides"
        ) from error
    return answer

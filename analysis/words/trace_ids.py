"""What may somebody write as the id of a trace? Its hexadecimal digits, some of them, or the form in which a sender writes them."""

from __future__ import annotations

import re
from typing import Final

from overrun.analysis.words.errors import AnalysisError

_LEAST_DIGITS: Final = 4
# Digits only: int() would also take a sign, `0x` and underscores. W3C's traceparent, X-Ray's root, UUIDs, MLflow's ids and plain digits.
_FORMS: Final = (
    re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}"),
    re.compile(r"(?:root=)?1-([0-9a-f]{8})-([0-9a-f]{24})"),
    re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})"),
    re.compile(r"(?:tr-)?([0-9a-f]{4,32})"),
)


class BadTraceId(AnalysisError):
    """A trace id that is not 32 hex digits."""


def digits(trace_id: str) -> str:
    """The hexadecimal digits in a trace id: as they are, as a UUID, or in the words of W3C's traceparent, X-Ray or MLflow."""
    cleaned = trace_id.strip().lower()
    for form in _FORMS:
        if found := form.fullmatch(cleaned):
            return "".join(found.groups())
    raise BadTraceId(
        f"trace id {trace_id[:64]!r} is not 32 hexadecimal digits, nor the first {_LEAST_DIGITS} or more of them: copy it from a report's exemplars"
    )

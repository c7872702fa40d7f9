"""How do traces that another tool exported become OTLP? A decoded JSON document in, export requests of OTLP/JSON out; what it is follows from its keys.

One file of this folder a form: `documents(value)` says what requests a document holds, None if it is not of that form. Prompts and answers that a form carries
beside the attributes are left out; attributes go the way of all attributes. What none knows is named by `unread.py`.
"""

from __future__ import annotations

from typing import Any

from overrun.collector.errors import BadPayload
from overrun.collector.sources.account import Account
from overrun.collector.sources.exports import (
    agents_sdk,
    app_insights,
    call_logs,
    clickhouse,
    jaeger,
    langfuse,
    langsmith,
    logged,
    mlflow,
    phoenix,
    rows,
    signoz,
    tempo,
    xray,
    zipkin,
)

_FORMS = (
    tempo.documents,
    jaeger.documents,
    zipkin.documents,
    langfuse.documents,
    langsmith.documents,
    mlflow.documents,
    phoenix.documents,
    clickhouse.documents,
    signoz.documents,
    agents_sdk.documents,
    app_insights.documents,
    call_logs.documents,
    xray.documents,
    logged.documents,
)


def belongs_together(value: Any) -> bool:
    """Whether what stands in a line needs the other lines of its file."""
    return agents_sdk.is_item(value)


def as_otlp(value: Any) -> list[dict[str, Any]] | None:
    """The requests in a document of a known form that is not OTLP itself; None if it is of none.

    Raises:
        BadPayload: it is of a known form, but a value in it is of another type.
    """
    return known(value)[1]


def known(value: Any) -> tuple[str, list[dict[str, Any]] | None]:
    """Of which form a document is, and the requests in it; None if it is of none.

    Raises:
        BadPayload: as `as_otlp`.
    """
    for form in _FORMS:
        named = form.__module__.rpartition(".")[2].replace("_", " ").title()
        try:
            found = form(value)
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise BadPayload(
                f"it looks like an export of {named}, but {str(error)[:200]}"
            ) from error
        if found is not None:
            return named, found
    return "", None


def of_rows(
    value: Any, notes: list[str] | None = None, account: Account | None = None
) -> list[dict[str, Any]] | None:
    """The requests in rows of spans or calls whose columns nobody declared; None of anything else. The last way: it goes by the words of their names alone.
    What had to be concluded is added to `notes`, what its columns were is written into `account`.

    Raises:
        BadPayload: a value in it is of another type than its name says.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    try:
        found = rows.documents(value, notes, account)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadPayload(f"it looks like rows of calls, but {str(error)[:200]}") from error
    if found is None and (what := rows.lacking(value)):
        raise BadPayload(f"it looks like {what}")
    return found

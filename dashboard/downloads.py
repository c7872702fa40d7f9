"""How is what is shown taken away? Buttons for CSV and JSON; a file is made when its button is pressed, and pressing it draws nothing again."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from overrun.analysis.words.encoding import FORMULA_STARTS, encode


def as_csv(what: str, name: str, columns: Mapping[str, Sequence[Any]]) -> None:
    """Offer columns as a CSV file."""
    _button(what, f"{name}.csv", "text/csv", lambda: csv_of(columns))


def as_json(what: str, name: str, answer: Any) -> None:
    """Offer an answer of the API as it came."""
    _button(what, f"{name}.json", "application/json", lambda: encode(answer).decode())


def as_file(what: str, name: str, mime: str, make: Callable[[], bytes]) -> None:
    """Offer a file of any kind."""
    _button(what, name, mime, make)


def csv_of(columns: Mapping[str, Sequence[Any]]) -> str:
    """Return columns as CSV text with a header; lists are joined by spaces, texts from telemetry are never formulas."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in zip(*columns.values(), strict=True))
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list | tuple):
        joined = " ".join(f"{part:g}" if isinstance(part, float) else str(part) for part in value)
        return joined if all(isinstance(part, int | float) for part in value) else _inert(joined)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return _inert(value) if isinstance(value, str) else value


def _inert(text: str) -> str:
    return f"'{text}" if text.startswith(tuple(FORMULA_STARTS)) else text


def _button(what: str, file: str, mime: str, make: Callable[[], str] | Callable[[], bytes]) -> None:
    st.download_button(
        f"{what} as {file.rpartition('.')[2].upper()}",
        make,
        file_name=f"overrun-{file}",
        mime=mime,
        on_click="ignore",
        type="tertiary",
        key=f"get-{file}",
        icon=":material/download:",
    )

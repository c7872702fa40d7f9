"""What does each column of an export mean? One text per kind and column, for the page that the site makes of them and for whoever reads the files.

Names and types come from the views; a test holds these texts to the columns that an export really has.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import duckdb
import msgspec

from overrun.analysis.front.export import KINDS
from overrun.analysis.numbers.window import query
from overrun.collector.store.answers import fetch_batches


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of an export: its name, its Arrow type and its meaning."""

    name: str
    type: str
    meaning: str


_WORDS: Final = tomllib.loads(
    Path(__file__).with_name("export_columns.toml").read_text(encoding="utf-8")
)
ROW: Final[Mapping[str, str]] = _WORDS["rows"]


def _stages() -> dict[str, str]:
    """The time of each stage, of the whole request and up to the first token."""
    whole = {
        f"{stage}_ms": f"{text[0].upper()}{text[1:]}, on the critical path."
        for stage, text in _WORDS["stages"].items()
    }
    whole["wait_user_ms"] += " It is no part of `e2e_ms`; the other stages sum to `e2e_ms` exactly."
    first = {
        f"ttft_{stage}_ms": f"Part of `{stage}_ms` before the first token of the answer."
        for stage in _WORDS["stages"]
    }
    first["ttft_wait_user_ms"] += " It is no part of `ttft_ms`; the others sum to `ttft_ms`."
    return whole | first


def _meanings(kind: str) -> dict[str, str]:
    """The columns of a kind: those that it shares with others, those of stages, its own."""
    own = dict(_WORDS["kinds"][kind])
    shared = [_WORDS["groups"][name] for name in own.pop("uses", ())]
    stages = _stages() if kind == "requests" else {}
    return {name: text for part in (*shared, stages, own) for name, text in part.items()}


MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {kind: _meanings(kind) for kind in ROW}


def columns(con: duckdb.DuckDBPyConnection, kind: str) -> list[Column]:
    """Return the columns of one kind in the order of its files. A column without a meaning here has an empty one."""
    nothing = {"start": None, "end": None}
    schema = fetch_batches(con, query(KINDS[kind]), nothing, 1).schema
    meanings = MEANINGS[kind]
    return [
        Column(name=field.name, type=str(field.type), meaning=meanings.get(field.name, ""))
        for field in schema
    ]

"""Each column of an export has a meaning, and each meaning a column."""

from pathlib import Path

import pytest

from overrun.analysis.front import export_columns
from overrun.analysis.front.export import KINDS
from overrun.collector.store.database import open_store


@pytest.fixture(scope="module")
def listed() -> dict[str, list[export_columns.Column]]:
    store = open_store(Path(":memory:"), create=True)
    with store.reading() as con:
        found = {kind: export_columns.columns(con, kind) for kind in KINDS}
    store.close()
    return found


def test_every_exported_column_has_a_meaning_and_no_other_has(
    listed: dict[str, list[export_columns.Column]],
) -> None:
    assert {kind: {c.name for c in columns} for kind, columns in listed.items()} == {
        kind: set(meanings) for kind, meanings in export_columns.MEANINGS.items()
    }
    assert set(export_columns.ROW) == set(KINDS)


def test_a_meaning_fits_a_table_and_is_a_sentence(
    listed: dict[str, list[export_columns.Column]],
) -> None:
    told = [column for columns in listed.values() for column in columns]
    assert [c.name for c in told if not c.meaning.endswith(".") or "|" in c.meaning] == []

"""What telemetry says is never a formula of a spreadsheet."""

import io

import polars as pl

from overrun.analysis.front.export import _inert


def test_no_text_of_a_table_begins_like_a_formula() -> None:
    texts = ["=HYPERLINK(1)", "+1", "-2", "@SUM(1)", "\t=1", "\n=1", "＝1", "chat gpt-4o", "", None]
    frame = pl.DataFrame({"name": texts, "=key": texts, "n": [-1.5] * len(texts)})
    out = io.BytesIO()
    _inert(frame).write_csv(out)
    read = pl.read_csv(io.BytesIO(out.getvalue()))
    assert read["name"].to_list()[:7] == [f"'{text}" for text in texts[:7]]
    assert read["name"].to_list()[7] == "chat gpt-4o"
    assert read["n"].to_list() == [-1.5] * len(texts)

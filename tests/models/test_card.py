"""The card says what was measured, escapes what strangers named, and opens without a network."""

import json
import re
from pathlib import Path

import polars as pl

from overrun.models.train import TrainReport, TrainSettings, train_to_folder
from tests.models import synthetic


def test_the_card_holds_the_measured_scores(small_report: TrainReport) -> None:
    made = json.loads((small_report.folder / "card.json").read_text())
    assert made["schema"] == "overrun.predictor-card/1"
    assert made["overall"]["answered"]["mae"] == small_report.test.overall.answered.mae
    assert {route["route"]: route["verdict"]["skill"] for route in made["routes"]} == {
        "chat": "good",
        "noise": "none",
        "session": "good",
    }
    assert [point["rows"] for point in made["learning_curve"]] == [250, 500, 1_000, 1_050]
    assert made["rows_for_skill"] == 250


def test_the_page_shows_them_and_loads_nothing(small_report: TrainReport) -> None:
    page = (small_report.folder / "card.html").read_text()
    chat = next(route for route in small_report.test.routes if route.route == "chat")
    assert f"<td>{chat.answered.mae:.1f}</td>" in page
    assert page.count("<svg") == 2
    assert not re.search(r"(src|href)=|https?://|@import", page)
    assert len(page) < 30_000


def test_a_route_named_by_a_stranger_is_escaped(tmp_path: Path) -> None:
    trace = synthetic.trace(600).with_columns(route=pl.lit("<script>alert(1)</script>"))
    report = train_to_folder(trace, tmp_path / "a", settings=TrainSettings(max_rounds=5))
    page = (report.folder / "card.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page

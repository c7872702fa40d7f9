"""Do all pages and the terminal tell the same incident? One onset, one judged metric, one pair of figures per fix, for each incident of the demo."""

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from streamlit.testing.v1 import AppTest

from overrun.analysis.front import demo, report_brief, report_document
from overrun.analysis.front.file_import import import_files
from overrun.analysis.front.report import Report
from overrun.collector.config import load
from overrun.collector.store.database import open_store
from overrun.dashboard import nav
from overrun.sample_traces.replay import RECORDINGS_PATH, manifest
from tests.dashboard.fake_api import FakeApi, fake_api
from tests.dashboard.test_pages import plain, shown, words

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:streamlit.*")
# Data health speaks of the store, Length of a predictor. What-ifs are asked where the fix is arithmetic: an engine takes seconds to calibrate.
PAGES = [place.name for place in nav.PLACES if place.name not in ("health", "length", "whatif")]
ARITHMETIC = "sim-slow-vector-store"
# A moment that is called the beginning of the breach.
BEGAN = re.compile(
    r"(?<!No request )(?:since|onset|Since|began at|crossed [\d.]+ m?s at|went over [\d.]+ m?s at)\s(?:\d{4}-\d\d-\d\d )?(\d\d:\d\d:\d\d)"
)
PAIR = re.compile(r"P(\d+) (?:since the onset )?([\d.]+ m?s) (?:→|->) (?:at most )?([\d.]+ m?s)")
JUDGED = re.compile(r"\b(TTFT|ITL|TPOT|E2E) P(\d+)")


@pytest.fixture(scope="module", params=demo.INCIDENTS)
def incident(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[FakeApi, str]]:
    """A recording in a store of its own behind an API."""
    file = tmp_path_factory.mktemp("story") / "a.db"
    settings = load(None, environment={}, flags={"collector.db": str(file)})
    import_files(
        [RECORDINGS_PATH / request.param], settings, url=None, progress=lambda at, total: None
    )
    store = open_store(file, create=False)
    with store.reading() as con, fake_api(con) as api:
        yield api, request.param
    store.close()


def texts(
    api: FakeApi, name: str, report: Report, window: dict[str, str], patch: pytest.MonkeyPatch
) -> dict[str, tuple[str, str]]:
    """Per page its text and its first box; the terminal's report counts as two more pages."""
    query = {"fix": report.findings[0].fix.whatif or ""} if report.findings[0].fix else {}
    told = {}
    for page in [*PAGES, *(["whatif"] if name == ARITHMETIC else [])]:
        app = shown(api, patch, page, **window, **(query if page == "whatif" else {}))
        told[page] = (_plain(app), _box(app))
    for form, text in (
        ("brief", report_brief.render(report, width=100)),
        ("details", report_document.render(report, width=200)),
    ):
        told[form] = (" ".join(text.split()), "")
    return told


def _plain(app: AppTest) -> str:
    return " ".join(html.unescape(plain(app)).split())


def _box(app: AppTest) -> str:
    found = re.search(r'<div class="ov-box.*?</div>', words(app), re.DOTALL)
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", found[0] if found else "")).split())


def test_all_pages_tell_one_story(
    incident: tuple[FakeApi, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, name = incident
    window = {
        "from": "2000-01-01T00:00:00Z",
        "to": "2100-01-01T00:00:00Z",
        "slo": str(manifest()[name]["slo"]),
    }
    held = api.answer("holdings", window)
    window |= {"from": _text(held.oldest), "to": _text(held.newest, 60)}
    report: Report = api.answer("report", window)
    verdict = report.verdict
    assert verdict.onset is not None
    told = texts(api, name, report, window, monkeypatch)
    onset = verdict.onset.astimezone(UTC).strftime("%H:%M:%S")
    began = {page: set(BEGAN.findall(text)) for page, (text, _) in told.items()}
    assert {page: found for page, found in began.items() if found - {onset}} == {}
    assert began["verdict"] == began["compare"] == began["brief"] == {onset}
    judged = (str(verdict.metric).upper(), f"{report.slo.percentile:g}")
    boxes = {page: set(JUDGED.findall(box)) for page, (_, box) in told.items()}
    assert {page: found for page, found in boxes.items() if found - {judged}} == {}
    fix = report.findings[0].fix
    assert fix is not None
    pairs = {
        page: {found for found in PAIR.findall(_of_fix(text, fix.title)) if found[0] == judged[1]}
        for page, (text, _) in told.items()
    }
    known = set().union(*pairs.values())
    assert len(known) == 1, pairs
    assert all(pairs[page] for page in ("verdict", "findings", "brief")), pairs


def _of_fix(text: str, title: str) -> str:
    """What stands shortly behind a fix's title."""
    return " ".join(part[:260] for part in text.split(f"{title}")[1:])


def _text(time: datetime | None, later_s: int = 0) -> str:
    assert time is not None
    seconds = int(time.timestamp()) + later_s
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

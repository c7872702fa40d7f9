"""Does every form of an answer begin with the open diagnosis, with three confidences, on a screen, harmless whatever its names hold?"""

import json
import re

import msgspec
import pytest

from overrun.analysis.front import agent_tools, report_brief, report_document, report_top
from overrun.analysis.front.alerts import messages
from overrun.analysis.front.alerts.incidents import Incident, Notice
from overrun.analysis.front.explanation_lines import explained
from overrun.analysis.front.report import Report, build
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.explanation import Explanation
from overrun.analysis.words.slo import parse_slo
from overrun.dashboard.views import verdict
from tests.analysis.builders import T0, insert, store, vllm_gauges, vllm_spans

HOSTILE = "\x1b[31m<script>alert(1)</script>\u202e[x](https://evil.example)`" + "A" * 3000
LABELS = ["WHERE", "WHAT", "CHANGED", "CAUSE", "DO", "NOT"]


FOUND = """{"source": "spans", "mode": "stretch", "metric": "e2e", "onset": "2026-11-20T10:00:00Z", "before_ms": 5200.0, "now_ms": 19600.0,
 "n_bad": 159, "n_good": 261, "sentence": "NAME takes 13.9 s longer since 10:00:00 UTC", "place_confidence": 0.97, "regularity_confidence": 0.95,
 "places": [{"stage": "retrieval", "service": "articles-chat", "operation": "NAME", "where": "itself", "excess_ms": 13900.0, "share": 0.98,
  "interval": [0.95, 0.99], "words": "NAME in articles-chat"}],
 "regularities": [{"trait": "filter", "words": "only searches that carry a filter", "late": 159, "late_with": 159, "others": 261, "others_with": 0,
  "carried": 0.93, "p": 1e-20, "tried": 310, "alike": ["collection"]}],
 "changed": [{"what": "image", "before": "v1", "after": "v2"}, {"what": "filter", "before": null, "after": "tenant"},
  {"what": "cache", "before": "on", "after": null}],
 "mechanism": {"id": "missing_index", "words": "an index missing for the filtered field", "confidence": 0.5, "refuted": ["load", "cold instance"],
  "untested": ["the collection's indexes"]},
 "refuted": [{"id": "load", "words": "load", "figure": "rate x 1.0"}],
 "advice": {"do": ["create a payload index for that field"], "undo": "the release v2", "look": ["the two traces"],
  "avoid": ["a time-out: it would cut all filtered searches"]}}"""


def explanation(name: str = "POST points/search") -> Explanation:
    return msgspec.json.decode(FOUND.replace("NAME", json.dumps(name)[1:-1]), type=Explanation)


@pytest.fixture(scope="module")
def plain() -> Report:
    con = store()
    insert(con, vllm_spans())
    vllm_gauges(con)
    made = build(con, Window(), parse_slo("ttft:1000 e2el:5000"))
    assert made.verdict.cause_status == "known"
    return msgspec.structs.replace(made, explanation=None)


def of(report: Report, found: Explanation) -> Report:
    """The report with an explanation, and with no cause that a rule knows."""
    unknown = msgspec.structs.replace(report.verdict, cause_status="not_known")
    return msgspec.structs.replace(report, explanation=found, verdict=unknown)


def test_a_cause_that_a_finding_knows_leads_before_an_explanation(plain: Report) -> None:
    known = msgspec.structs.replace(plain, explanation=explanation())
    lines = report_brief.render(known).splitlines()
    labels = [line[:9].strip() for line in lines if re.match(r"[A-Z]+\??\b", line)]
    assert labels[:4] == ["SLOW", "WHY", "DO", "GAIN"]


def test_each_label_says_its_part_and_its_own_confidence() -> None:
    said = explained(explanation())
    assert list(said) == LABELS
    assert said["WHERE"] == (
        "retrieval: POST points/search in articles-chat, 13.9 s of the 14.2 s that slow requests have more (98 %, 95 % to 99 %); sure 97 %"
    )
    assert "159 of 159 late, 0 of 261 others (carries 93 %, p < 1e-12, 310 traits" in said["WHAT"]
    assert said["WHAT"].endswith("parted alike by collection); sure 95 %")
    assert said["CHANGED"] == (
        "image v1 -> v2; filter tenant is new; cache on is gone at 10:00:00 UTC"
    )
    assert said["CAUSE"] == (
        "an index missing for the filtered field (2 tests could not refute it); sure 50 %. "
        "not testable from here: the collection's indexes. tried and not so: load (rate x 1.0)"
    )
    assert said["DO"].startswith("undo first: the release v2. create a payload index")
    assert said["NOT"] == "a time-out: it would cut all filtered searches"


def test_what_is_not_known_is_said_with_its_reason_and_never_made_up() -> None:
    why = {"places": "too few slow requests", "mechanism": "nothing that is known fits"}
    said = explained(
        Explanation(source="metrics", mode="none", metric="e2e", sentence="", reasons=why)
    )
    assert said == {
        "WHERE": "not known: too few slow requests",
        "CAUSE": "not known: nothing that is known fits",
    }


@pytest.mark.parametrize("width", [72, 80, 100])
@pytest.mark.parametrize("name", ["POST points/search", HOSTILE])
def test_the_answer_fits_on_a_screen_and_begins_with_it(
    plain: Report, name: str, width: int
) -> None:
    lines = report_brief.render(of(plain, explanation(name)), width=width).splitlines()
    assert len(lines) <= report_brief.MOST_LINES
    assert max(map(len, lines)) <= width
    labels = [line[:9].strip() for line in lines if re.match(r"[A-Z]+\??\b", line)]
    assert labels[:7] == ["SLOW", *LABELS]
    assert labels[-1] == "MORE"
    assert not {"WHY", "GAIN"} & set(labels)


def test_every_form_begins_with_the_same_lines(plain: Report) -> None:
    report, said = of(plain, explanation()), explained(explanation())
    for form in (
        report_document.render(report, width=400),
        report_top.render(report, width=400),
        report_document.to_markdown(report),
        report_document.to_html(report),
    ):
        flat = " ".join(form.split())
        assert "takes 13.9 s longer since 10:00:00 UTC" in flat
        places = [flat.index(label) for label in LABELS]
        assert places == sorted(places)
        assert said["NOT"].casefold() in flat.casefold()
        assert "NOW " not in form
    page = verdict.headline(report) + verdict.answers(report, ())
    assert re.findall("<dt>([A-Z][a-z]+)</dt>", page)[:6] == [one.capitalize() for one in LABELS]
    assert "takes 13.9 s longer since 10:00:00 UTC" in page
    fields = agent_tools.brief(report)["explanation"]
    assert fields == json.loads(report_brief.to_json(report))["explanation"]
    sure = [fields[f"{part}_confidence"] for part in ("place", "regularity", "mechanism")]
    assert sure == [0.97, 0.95, 0.5]
    assert "explanation" not in agent_tools.brief(plain)


def test_an_alert_says_it_in_place_of_the_former_cause(plain: Report) -> None:
    now = T0.timestamp()
    told = Incident(
        id="i", group="requests", severity="warning", summary="s", began=now, held=now, keys=[]
    )
    notice = Notice(incident=told, event="fired", at=now)
    details = messages.describe(notice, of(plain, explanation()), "", "").details
    assert details["verdict"].startswith("POST points/search takes 13.9 s longer")
    assert not {"confidence", "do now", "fix"} & details.keys()
    assert details["cause"].startswith("an index missing")


def test_hostile_names_reach_no_form_as_markup(plain: Report) -> None:
    report = of(plain, explanation(HOSTILE))
    texts = [report_document.render(report), report_brief.render(report)]
    assert not any(set(text) & set("\x1b\u202e[]") for text in texts)
    for page in (report_document.to_html(report), verdict.answers(report, ())):
        assert "<script" not in page
    assert not re.search(r"(?<!\\)\[x\]\(", report_document.to_markdown(report))
    assert max(len(words) for words in explained(explanation(HOSTILE)).values()) < 1_000

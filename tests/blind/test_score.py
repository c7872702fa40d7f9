"""Is the judge of blind rounds fair? Each judgement on small answers, and that a first look is never changed."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.blind import __main__ as blind
from tests.blind.score import Said, Truth, counts, read_truth, said, score

_TRUTH = Truth(
    slo="e2el:3000",
    place=[["vector|qdrant"], ["search"]],
    partly=["retrieval"],
    regularity=["filter"],
    mechanism=["index"],
    wrong=["cold"],
    helps=["payload index"],
    harms=["time-?out"],
)


def _said(**words: Any) -> Said:
    usual = {"where": "", "regularity": "", "name": "", "confidence": 0.0, "advice": ""}
    return Said(**{**usual, **words})


@pytest.mark.parametrize(
    ("where", "judged"),
    [
        ("the SEARCH in qdrant", "right"),
        ("retrieval", "partly"),
        ("search in elastic; retrieval", "partly"),
        ("decode", "wrong"),
        ("", "wrong"),
    ],
)
def test_a_place_needs_all_of_its_parts(where: str, judged: str) -> None:
    assert score("x", _TRUTH, _said(where=where)).place == judged


@pytest.mark.parametrize(
    ("regularity", "name", "confidence", "judged"),
    [
        ("all carry a filter", "", 0.0, "right"),
        ("", "missing index", 0.4, "right"),
        ("", "missing index", 0.9, "right"),
        ("", "cold instance", 0.4, "unnamed"),
        ("", "cold instance", 0.5, "wrong"),
        ("all carry a filter", "cold instance", 0.9, "wrong"),
        ("all carry a filter", "slow dependency", 0.9, "right"),
        ("", "slow dependency", 0.9, "wrong"),
        ("", "", 0.0, "unnamed"),
    ],
)
def test_a_name_is_wrong_from_half_on(
    regularity: str, name: str, confidence: float, judged: str
) -> None:
    answer = _said(regularity=regularity, name=name, confidence=confidence)
    assert score("x", _TRUTH, answer).cause == judged


@pytest.mark.parametrize(
    ("advice", "judged"),
    [
        ("create a payload index", "helps"),
        ("set a timeout; create a payload index", "harmful"),
        ("look at two traces", "harmless"),
    ],
)
def test_harmful_advice_outweighs_help(advice: str, judged: str) -> None:
    assert score("x", _TRUTH, _said(advice=advice)).advice == judged


def test_the_open_diagnosis_is_read_before_the_verdict() -> None:
    verdict = {
        "stage": "decode",
        "why": "Decode is slow.",
        "sentence": "",
        "cause": "long_outputs",
        "changed": [],
        "mitigation": "Cap answers.",
    }
    finding = {
        "rule": "long_outputs",
        "headline": "longer",
        "confidence": 0.9,
        "fix": {"title": "Cap max_tokens"},
    }
    old = said({"verdict": verdict, "findings": [finding]})
    assert old.where == "decode; Decode is slow."
    assert (old.name, old.confidence) == ("long outputs; longer", 0.9)
    assert old.advice == "Cap answers.; Cap max_tokens"
    explanation = {
        "sentence": "search is slow",
        "places": [{"words": "search in qdrant", "instances": [], "stage": "retrieval"}],
        "regularities": [{"words": "carry a filter", "alike": ["route /a"]}],
        "changed": [{"what": "version", "before": "1", "after": None}],
        "mechanism": {"id": "missing index", "words": "an index is missing", "confidence": 0.4},
        "advice": {"do": ["create an index"], "undo": None, "avoid": ["a time-out"]},
        "state_words": "",
    }
    new = said({"verdict": verdict, "findings": [], "explanation": explanation})
    assert new.where == "search is slow; search in qdrant; retrieval"
    assert new.regularity == "carry a filter; route /a; version: 1 -> None"
    assert (new.name, new.confidence) == ("missing index; an index is missing", 0.4)
    assert new.advice == "create an index; Cap answers."


def test_counts_name_each_judgement() -> None:
    scores = [score("a", _TRUTH, _said(where="decode", name="cold", confidence=0.9))]
    assert counts(scores) == {
        "incidents": 1,
        "place wrong": 1,
        "cause wrong": 1,
        "advice harmless": 1,
    }


def test_a_truth_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "truth.toml").write_text('slo = ""\nplace = []\nplaces = []\n')
    with pytest.raises(ValueError, match="places"):
        read_truth(tmp_path)


def test_a_first_look_is_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = "Blind round one: incidents whose cause or regularity is right"
    (tmp_path / "first_look.json").write_text(json.dumps([{"what": what}]))
    monkeypatch.setattr(blind, "RESULTS", tmp_path)
    assert blind.main([str(tmp_path), "--round", "one", "--write"]) == 2
    assert json.loads((tmp_path / "first_look.json").read_text()) == [{"what": what}]

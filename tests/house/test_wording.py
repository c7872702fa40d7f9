"""User-visible sentences use the field's standard terms: a short list of habits that a tired reader has to translate, each with what to write instead."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import ROOT

HABITS: Final = {
    r"far side": "name it: endpoint, provider, engine or receiver",
    r"tell|tells|told|telling": "write report, record, show, predict or distinguish",
    r"says?|said|saying": "write report, record, list or show",
    r"whoever|whom|nobody|everybody|somebody|anybody": "name the subject: user, client, request, call",
    r"who (?:is|was|waits|leaves|left|comes|gets|asks|has|reads|finds)": "name the subject",
    r"whatever": "write 'any' with its noun",
    r"anew": "write 'again', or a verb with re-",
    r"come again": "write 'retry later'",
    r"(?:hold|holds|held|holding) (?:\w+ )?up(?! to)": "write 'delay'",
    r"what (?:it|they) (?:is|are|was|were|took|takes|had|cost|costs|brings?)": "write the noun, such as 'its former value'",
    r"sooner": "write 'earlier'",
    r"by a call or two|as ever|of old": "give the number or the time",
}
# Reports and rules speak; documents may also quote.
_IN_DOCUMENTS: Final = [habit for habit in HABITS if not habit.startswith("says?")]
_DOCUMENTS: Final = ("README.md", "docs/GLOSSARY.md", "docs/OPERATIONS.md", "docs/SECURITY.md")
_PACKAGES: Final = (
    *("analysis", "collector", "dashboard", "models"),
    *("overrun/cli.py", "overrun/command_table.py", "overrun/commands.toml"),
)
# Their module docstrings are pages and help texts.
_PAGES: Final = ("diagnosis/rules", "whatif/fixes")
_SENTENCE: Final = re.compile(r"[A-Za-z]{2,} [a-z]{2,}")
# Lists of words by which texts are recognised.
_WORDS: Final = ("normalise/wording.py", "normalise/prompt_shape.py")
# Queries, styles and scripts are no sentences.
_CODE: Final = re.compile(
    r"\b(?:select|insert|delete|update|create)\b .*\b(?:from|into|set|table)\b|[{};]\n|=>|<style",
    re.I | re.S,
)


def _found(text: str, habits: list[str]) -> Iterator[tuple[str, str]]:
    for habit in habits:
        for match in re.finditer(rf"\b(?:{habit})\b", text, re.IGNORECASE):
            near = text[max(0, match.start() - 40) : match.end() + 40]
            yield habit, " ".join(near.split())


def _files() -> list[Path]:
    return [
        path
        for name in _PACKAGES
        for path in (
            [ROOT / name] if (ROOT / name).is_file() else sorted((ROOT / name).rglob("*.py"))
        )
    ]


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what a file may show to a user, with its line: strings of several words without their placeholders, and the docstrings that become help or pages."""
    if path.suffix == ".toml":
        lines = path.read_text(encoding="utf-8").splitlines()
        yield from ((at, line) for at, line in enumerate(lines, 1) if not line.startswith("#"))
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    page = any(part in path.as_posix() for part in _PAGES)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            shown = page and node is tree.body[0]
            skipped |= set() if shown else {id(node.value)}
        if isinstance(node, ast.FunctionDef) and path.name == "cli.py" and node.decorator_list:
            first = node.body[0]
            skipped -= {id(first.value)} if isinstance(first, ast.Expr) else set()
            if ast.get_docstring(node):
                yield node.lineno, ast.get_docstring(node) or ""
        if isinstance(node, ast.JoinedStr):
            parts = [part for part in node.values if isinstance(part, ast.Constant)]
            skipped |= {id(part) for part in parts}
            yield node.lineno, "{}".join(str(part.value) for part in parts)
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and id(node) not in skipped:
            yield node.lineno, text


@pytest.mark.parametrize("package", _PACKAGES)
def test_no_sentence_that_users_see_has_a_habit_to_translate(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {HABITS[habit]} (…{near}…)"
        for path in _files()
        if path.relative_to(ROOT).as_posix().startswith(package)
        and not path.as_posix().endswith(_WORDS)
        for line, text in sentences(path)
        if _SENTENCE.search(text) and not _CODE.search(text)
        for habit, near in _found(text, list(HABITS))
    ]
    assert not wrong, "\n".join(wrong)


def test_no_document_for_users_has_one() -> None:
    wrong = [
        f"{name}: {HABITS[habit]} (…{near}…)"
        for name in _DOCUMENTS
        for habit, near in _found((ROOT / name).read_text(encoding="utf-8"), _IN_DOCUMENTS)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_measure_finds_what_it_is_for(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        '"""Told in a docstring."""\nx = f"the far side of {told} waits"\n# told\ny = "told"\n'
    )
    [(line, text)] = [one for one in sentences(bad) if _SENTENCE.search(one[1])]
    assert (line, text) == (2, "the far side of {} waits")
    assert [habit for habit, _ in _found(text, list(HABITS))] == ["far side"]
    assert not list(_found("a household holds 3 upper limits, foretold", list(HABITS)))

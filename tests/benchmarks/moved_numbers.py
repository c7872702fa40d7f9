"""Which numbers of the rules matter? Moves each by a third, up and down, and asks every rule that uses it again on the referees (`referee_set`).

    python -m tests.benchmarks.moved_numbers --simulated KEPT --laboratory CAPTURES --corpus WORK --write

For each number: the windows in which an answer of a rule changes, in which the verdict names another cause, and in which a right verdict is lost or gained. With
`--write` they go into docs/results, and docs/NUMBERS.md is made from them. A number that moves no answer on any referee has no measured reason to be what it is.
Numbers of the evidence (`analysis/evidence`) are not moved: each of them needs every rule to be asked again.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from overrun.analysis.diagnosis import diagnose as diagnosing
from overrun.analysis.diagnosis.ranking import run_rules
from overrun.analysis.diagnosis.rules import rules
from overrun.analysis.evidence.case import Case
from overrun.analysis.words.finding import SEED, Diagnosis, NotEnoughData, RuledOut
from tests.benchmarks import referee_set, results
from tests.benchmarks.results import ROOT, Figure, measured, read, record

PAGE: Final = ROOT / "docs" / "NUMBERS.md"
THIRD: Final = 1.0 / 3.0
SHARED: Final = ("overrun.analysis.evidence.", "overrun.analysis.words.finding")

Answer = Diagnosis | list[Diagnosis] | NotEnoughData | RuledOut | None


class Constant(NamedTuple):
    """A named number of a rule, or one that several rules share (`rule` is then the file that has it), and the comment in front of it; `rules` use it."""

    rule: str
    name: str
    value: float
    why: str
    rules: tuple[str, ...]


class Effect:
    """What moving a number did: answers, verdicts, right ones lost and gained, each a count of windows."""

    def __init__(self) -> None:
        self.answers = self.verdicts = self.lost = self.gained = 0


def constants() -> list[Constant]:
    """Return every `NAME: Final = number` of the rules, after those of the evidence that any of them imports by name (`rule` is then the file of these)."""
    own = [one for rule, module in rules().items() for one in _named(rule, module)]
    users: dict[tuple[str, str], list[str]] = {}
    for rule, module in rules().items():
        for node in ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(SHARED):
                for name in node.names:
                    users.setdefault((str(node.module), name.name), []).append(rule)
    shared = [
        one._replace(rules=tuple(users[path, one.name]))
        for path in sorted({path for path, _ in users})
        for one in _named(path.rpartition(".")[2], import_module(path))
        if (path, one.name) in users
    ]
    return shared + own


def _named(rule: str, module: ModuleType) -> list[Constant]:
    out: list[Constant] = []
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        value = getattr(module, node.target.id)
        if isinstance(value, bool) or not isinstance(value, int | float) or value == SEED:
            continue
        above = node.lineno - 2
        comment: list[str] = []
        while above >= 0 and lines[above].startswith("#"):
            comment.insert(0, lines[above].lstrip("# "))
            above -= 1
        # Numbers that follow one another share the comment in front of the first.
        if not comment and out and out[-1].rule == rule and ": Final" in lines[node.lineno - 2]:
            comment = [out[-1].why]
        out.append(Constant(rule, node.target.id, value, " ".join(comment), (rule,)))
    return out


def moved(value: float, by: float) -> float | int:
    """Return a number moved by a part of itself; a whole one by one at least."""
    if not isinstance(value, int):
        return value * (1.0 + by)
    return value + max(1, round(abs(by) * abs(value))) * (1 if by > 0.0 else -1)


def first_case(question: referee_set.Question) -> Iterator[Case]:
    """Yield what rules look at first in a window, while its store is open."""
    seen: list[Case] = []
    original = diagnosing._case

    def kept(*given: Any) -> Case:
        seen.append(original(*given))
        return seen[-1]

    with referee_set.opened(question) as answer, patch.object(diagnosing, "_case", kept):
        answer()
        if seen:
            yield seen[0]


def first_named(case: Case, answers: Mapping[str, Answer]) -> str | None:
    """Return the cause that ranks first among answers of the rules to one case."""

    class Said:
        def __init__(self, answer: Answer) -> None:
            self._answer = answer

        def diagnose(self, _: Case) -> Answer:
            return self._answer

    ranked = run_rules(case, {name: Said(one) for name, one in answers.items()})  # type: ignore[misc]
    return ranked.causes[0].finding.rule if ranked.causes else None


def told(answer: Answer) -> Any:
    """Return what of an answer counts: what it is and, of a cause, what it claims."""
    if isinstance(answer, list):
        return [told(one) for one in answer]
    if not isinstance(answer, Diagnosis):
        return type(answer).__name__
    claims = {stage: round(ms, 1) for stage, ms in answer.claims_ms.items() if ms > 0.0}
    return answer.finding.stage, claims, answer.driven


def effects(
    questions: list[referee_set.Question],
) -> tuple[dict[tuple[str, str], Effect], int]:
    """Return the effect of moving each number, by rule and name, and how many windows were asked about."""
    every = constants()
    out = {(one.rule, one.name): Effect() for one in every}
    asked = 0
    for question in questions:
        try:
            for case in first_case(question):
                _move_all(case, question, every, out)
            asked += 1
        except ValueError as why:
            print(f"left out: {question.name} ({why})", flush=True)
    return out, asked


def _move_all(
    case: Case,
    question: referee_set.Question,
    every: list[Constant],
    out: dict[tuple[str, str], Effect],
) -> None:
    modules = rules()
    usual: dict[str, Answer] = {name: module.diagnose(case) for name, module in modules.items()}
    first = first_named(case, usual)
    right = first in question.causes or (first is None and not question.causes)
    for one in every:
        effect = out[one.rule, one.name]
        hits = set()
        for by in (THIRD, -THIRD):
            answers = _asked(case, usual, one, moved(one.value, by))
            if answers is None:
                hits.add("answers")
                continue
            if all(told(answers[rule]) == told(usual[rule]) for rule in one.rules):
                continue
            hits.add("answers")
            named = first_named(case, answers)
            if named != first:
                hits.add("verdicts")
                now = named in question.causes or (named is None and not question.causes)
                hits |= (
                    {"lost"} if right and not now else {"gained"} if now and not right else set()
                )
        for what in hits:
            setattr(effect, what, getattr(effect, what) + 1)


def _asked(
    case: Case, usual: Mapping[str, Answer], one: Constant, value: float
) -> dict[str, Answer] | None:
    """Return the answers with a number moved in every rule that uses it; None where one of them cannot do with that value."""
    modules = rules()
    try:
        with ExitStack() as moved_there:
            for rule in one.rules:
                moved_there.enter_context(patch.object(modules[rule], one.name, value))
            return {**usual, **{rule: modules[rule].diagnose(case) for rule in one.rules}}
    except (ValueError, IndexError, ZeroDivisionError):
        return None


def figures(
    found: Mapping[tuple[str, str], Effect], every: list[Constant], n: int, conditions: str
) -> list[Figure]:
    """Return a figure per number: the windows, of n, in which the verdict changes."""
    return [
        measured(
            f"{one.rule}.{one.name}",
            found[one.rule, one.name].verdicts,
            of=n,
            more={
                "value": one.value,
                "answers": found[one.rule, one.name].answers,
                "lost": found[one.rule, one.name].lost,
                "gained": found[one.rule, one.name].gained,
            },
            script="python -m tests.benchmarks.moved_numbers --write",
            conditions=conditions,
            page=False,
        )
        for one in every
    ]


HEAD: Final = """\
# The numbers of the rules

Each named number of a rule was moved by a third, up and down, and every rule that uses it was asked again on {n} windows with known causes: simulated faults,
cases of public reports, and captures of the laboratory if at hand. First come the numbers that several rules share, under the file that has them. *Answers*: windows in
which a rule answers otherwise. *Verdicts*: windows in which another cause ranks first. *Lost* and *gained*: right verdicts. Of {whole} numbers {some} move an
answer on these windows and {most} a verdict. Made from [docs/results](results) by `python -m tests.benchmarks.moved_numbers --page`.

| file | number | value | answers | verdicts | lost | gained | what it is |
|---|---|---|---|---|---|---|---|
"""


def page() -> str:
    """Return docs/NUMBERS.md: a row for every number that the rules have."""
    known, every = {one.what: one for one in read("numbers")}, constants()
    rows, some, most = [], 0, 0
    for one in every:
        found = known.get(f"{one.rule}.{one.name}")
        cells = ["not measured", "", "", ""]
        if found is not None:
            cells = [
                str(found.more["answers"]),
                str(found.value),
                str(found.more["lost"]),
                str(found.more["gained"]),
            ]
            some += bool(found.more["answers"])
            most += bool(found.value)
        why = one.why.replace("|", "/")
        rows.append(f"| {one.rule} | `{one.name}` | {one.value:g} | {' | '.join(cells)} | {why} |")
    n = next((one.of for one in known.values()), 0)
    return HEAD.format(n=n, whole=len(every), some=some, most=most) + "\n".join(rows) + "\n"


def main() -> None:
    """Move every number, print what it does, and record it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    referee_set.add_folders(parser)
    parser.add_argument("--page", action="store_true", help="only write docs/NUMBERS.md anew")
    results.add_write_flag(parser)
    given = parser.parse_args()
    if not given.page:
        questions = referee_set.all_questions(
            given.simulated, given.laboratory, given.corpus, given.worlds
        )
        every, (found, n) = constants(), effects(questions)
        for one in every:
            effect = found[one.rule, one.name]
            print(
                one.rule,
                one.name,
                one.value,
                effect.answers,
                effect.verdicts,
                effect.lost,
                effect.gained,
            )
        worlds = {
            name: sum(q.world == name for q in questions)
            for name in sorted({q.world for q in questions})
        }
        conditions = ", ".join(f"{many} windows of the {name}" for name, many in worlds.items())
        if given.write:
            record("numbers", figures(found, every, n, conditions))
    if given.write or given.page:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

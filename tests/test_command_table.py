"""Commands are made of words, signatures and questions: none of the three says what another does not know, and a question gets a command by its words alone."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from overrun import cli, command_table
from overrun.analysis.front import question_table as table
from overrun.analysis.whatif import catalogue
from overrun.command_table import WORDS, Flags

OTHERS = (
    "examples",
    "sections",
    "groups",
    "renamed",
    "types",
    "short",
    "values",
    "advanced",
    "flags",
)
COMMANDS = {name: words for name, words in WORDS.items() if name not in OTHERS}
KNOWN = {"asks", "without", "outputs", "examples", "help", "flags"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_words_of_a_command_name_what_there_is(name: str) -> None:
    words = COMMANDS[name]
    assert set(words) <= KNOWN
    entry = table.ENTRIES[words["asks"]] if "asks" in words else None
    if words.get("without", "all") != "all":
        assert entry is not None
        assert set(words["without"]) <= set(entry.names)
    if entry is not None:
        assert set(words.get("outputs", ())) <= {*entry.forms, "json", "junit", "github"}
    assert [one.startswith(f"overrun {name}") for one in words["examples"]] == [True, True]


GROUP = typer.main.get_command(cli.app)


def every(group: Any = GROUP, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and group."""
    yield words
    if hasattr(group, "list_commands"):
        context = group.make_context("overrun", [], resilient_parsing=True)
        for name in group.list_commands(context):
            yield from every(group.get_command(context, name), (*words, name))


def test_the_first_screen_has_ten_commands_and_the_groups() -> None:
    listed = [name for names in WORDS["sections"].values() for name in names]
    names = GROUP.list_commands(GROUP.make_context("overrun", [], resilient_parsing=True))
    assert sorted(listed) == sorted(names)
    assert len(WORDS["sections"]["Commands"]) == 10


@pytest.mark.parametrize("words", list(every()), ids=" ".join)
def test_every_help_ends_with_two_examples_and_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked, helped = (
        CliRunner().invoke(cli.app, list(one)).stdout for one in ((*words, "-h"), ("help", *words))
    )
    assert asked == helped
    shown, examples = asked.split("Examples:\n")
    assert [line[:10] for line in examples.splitlines()] == ["  overrun "] * 2
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.search(r"<\w+|\[\[|>\.\.\.", shown)
    if words[:1] == ("whatif",) and len(words) > 1:
        own = [one.name for one in catalogue.parameters(words[1].replace("-", "_"))]
        typed = dict(re.findall(r"--([\w-]+) ('[^']*'|\S+)", examples.splitlines()[0]))
        given = {n.replace("-", "_"): text.strip("'") for n, text in typed.items()}
        catalogue.read(words[1].replace("-", "_"), {n: given.get(n) for n in own})


@pytest.mark.parametrize("old", WORDS["renamed"])
def test_an_old_name_works_and_says_the_new_one(old: str) -> None:
    new = WORDS["renamed"][old]
    done, now = (CliRunner().invoke(cli.app, [*name.split(), "-h"]) for name in (old, new))
    assert (done.exit_code, done.stdout) == (0, now.stdout)
    assert done.stderr == f"overrun: `overrun {old}` is now `overrun {new}`\n"


def test_a_question_has_a_command_by_its_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        WORDS, "goodput", {"asks": "goodput", "help": "Good requests by group.", "without": ["to"]}
    )
    app = typer.Typer(name="overrun")
    kept: list[Flags] = []
    named = command_table.registrar(app, lambda function, **given: function(**given))

    def answer(asked: Flags) -> None:
        kept.append(asked)

    named("goodput")(answer)
    named("explain facts")(answer)
    done = CliRunner().invoke(app, ["goodput", "--route", "/a", "--from", "-2h", "--url", "u"])
    assert done.exit_code == 0, done.output
    [flags] = kept
    assert flags.entry is table.GOODPUT
    given = {name: text for name, text in flags.texts.items() if text}
    assert (given, flags.url, flags.output) == ({"route": "/a", "from": "-2h"}, "u", "text")
    assert "Good requests by group." in CliRunner().invoke(app, ["goodput", "--help"]).stdout

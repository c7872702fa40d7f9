"""Commands are made of words, signatures and questions: none of the three says what another does not know, and a question gets a command by its words alone."""

import pytest
import typer
from typer.testing import CliRunner

from overrun import cli, command_table
from overrun.analysis.front import question_table as table
from overrun.command_table import WORDS, Flags

COMMANDS = {n: w for n, w in WORDS.items() if n not in ("sections", "groups", "flags")}
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
    assert all(f"overrun {name}".split()[1] in example for example in words.get("examples", ()))


def test_every_command_is_in_one_section_and_every_section_names_commands() -> None:
    listed = [name for names in WORDS["sections"].values() for name in names]
    group = typer.main.get_command(cli.app)
    names = group.list_commands(group.make_context("overrun", [], resilient_parsing=True))
    assert sorted(listed) == sorted(names)


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
    named("facts")(answer)
    done = CliRunner().invoke(app, ["goodput", "--route", "/a", "--from", "-2h", "--url", "u"])
    assert done.exit_code == 0, done.output
    [flags] = kept
    assert flags.entry is table.GOODPUT
    given = {name: text for name, text in flags.texts.items() if text}
    assert (given, flags.url, flags.output) == ({"route": "/a", "from": "-2h"}, "u", "text")
    assert "Good requests by group." in CliRunner().invoke(app, ["goodput", "--help"]).stdout

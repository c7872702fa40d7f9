"""The files of vocabularies: each is read as a whole, and a mistake in one names its place and the nearest known word."""

from __future__ import annotations

import re
import tomllib
from importlib import resources

import pytest

from overrun.collector import dialects
from overrun.collector.dialects.reading import vocabulary
from overrun.collector.errors import ConfigError

FILES = [file for file in resources.files(dialects).iterdir() if file.name.endswith(".toml")]


def test_every_file_of_the_folder_is_a_vocabulary_in_its_order() -> None:
    documents = {file.name: tomllib.loads(file.read_text("utf-8")) for file in FILES}
    in_order = sorted(documents, key=lambda name: (documents[name]["order"], name))
    assert [one.name for one in dialects.load()] == [documents[name]["name"] for name in in_order]
    assert len({one.name for one in dialects.load()}) == len(FILES) > 50


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_of_a_file_is_lost_and_its_source_is_said(file: resources.abc.Traversable) -> None:
    text = file.read_text("utf-8")
    document = tomllib.loads(text)
    made = vocabulary(document, file.name)
    keys = {f.key for f in made.fields}
    assert keys == document.get("attributes", {}).keys()
    assert {m.name for m in made.metrics} == document.get("metrics", {}).keys()
    rules = document.get("stages", [])
    assert len(made.marks) == sum("attribute" in rule for rule in rules)
    assert len(made.names) == sum(
        len(rule.get("scopes", [""])) for rule in rules if "attribute" not in rule
    )
    for pattern in (*(m.pattern for m in made.marks), *(n.pattern for n in made.names)):
        re.compile(pattern)
    assert text.startswith("# ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prefixs = []", "unknown key 'prefixs': did you mean prefixes?"),
        ('scopes = "x"', "scopes = 'x' is not a list of texts"),
        ("scopes = [1]", "scopes = [1] is not a list of texts"),
        ('order = "first"', "order = 'first' is not a number"),
        (
            'attributes."a.b" = { field = "ttft", unit = "sec" }',
            "[attributes] 'a.b': ttft is a time",
        ),
        ('attributes.a = { field = "model", reader = "txt" }', "did you mean text?"),
        ('attributes.a = { field = "model", rank = "1" }', "rank = '1' is not a number"),
        ('stages = [{ stage = "tool", patern = "x" }]', "did you mean pattern?"),
        ('stages = [{ stage = "tool", pattern = "x", name = "y" }]', "it selects no spans"),
        ('metrics.a = { indicator = "x", unit = "MHZ" }', "did you mean MHz?"),
        ('events = [{ event = "x", field = "model" }]', "attribute is missing"),
        ('hints.tft = "x"', "did you mean ttft?"),
        ('stored_answers = [[{ atribute = "x" }]]', "did you mean attribute?"),
    ],
)
def test_a_mistake_names_its_place_and_the_nearest_word(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as error:
        vocabulary(tomllib.loads(f'name = "x"\n{text}'), "dialects/x.toml")
    assert str(error.value).startswith("dialects/x.toml")

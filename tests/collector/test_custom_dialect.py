"""An operator's own attributes and stage rules come first, without code; a mistake in them is named with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overrun.collector.config import described, load
from overrun.collector.decode.otlp_spans import decode_spans
from overrun.collector.dialects import READERS, reading
from overrun.collector.errors import ConfigError
from overrun.collector.normalise import stages
from overrun.collector.normalise.spans import INT_COLUMNS, TEXT_COLUMNS, TOTAL, Rules, normalize
from overrun.collector.normalise.stages import ROLES, STAGES
from tests.collector.oracle_build import Made, body

TOML = """
[attributes]
"acme.tokens.in" = "input_tokens"
"acme.first_ms" = { field = "ttft", unit = "ms" }
"acme.began" = { field = "ttft", unit = "time" }
"acme.usage" = [{ field = "output_tokens", path = "usage.out" }, { field = "cached_tokens", path = "usage.cached" }]
"acme.customer" = "tenant"
acme.who = "user"

[[stages]]
stage = "guardrail"
attribute = "acme.step"
values = ["safety", "pii"]

[[stages]]
stage = "model_call"
attribute = "acme.model"

[[stages]]
stage = "retrieval"
name = "acme.*.lookup"

[[stages]]
stage = "ignore"
name = "heartbeat"
scope = "acme"
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """The words hold for the process: the next test is to have none."""
    yield
    stages.learn(None)


@pytest.fixture
def words(tmp_path: Path) -> None:
    path = tmp_path / "overrun.toml"
    path.write_text(TOML)
    settings = load(path, {})
    assert settings.words is not None
    # Whoever looked before is not stuck with what held then.
    row()
    stages.learn(settings.words)


def row(name: str = "x", scope: str = "", **attributes: Any) -> dict[str, Any]:
    """The stored row of one span; `__` stands for a dot."""
    made = Made(
        1,
        name,
        0,
        1000,
        scope=scope,
        attributes={key.replace("__", "."): value for key, value in attributes.items()},
    )
    found = normalize(decode_spans([body(made)]), Rules(salt=b"salt")).spans.to_pylist()[0]
    return dict(found) | {"is": (ROLES[found["role"]], STAGES[found["stage"]])}


@pytest.mark.usefixtures("words")
def test_own_attributes_become_fields() -> None:
    found = row(
        acme__tokens__in=7,
        acme__first_ms=12.5,
        acme__usage='{"usage": {"out": 3, "cached": 2}}',
        acme__customer="blue",
        acme__who="ann",
    )
    assert {
        k: found[k]
        for k in ("input_tokens", "ttft_ns", "output_tokens", "cached_tokens", "tenant", "dialect")
    } == {
        "input_tokens": 7,
        "ttft_ns": 12_500_000,
        "output_tokens": 3,
        "cached_tokens": 2,
        "tenant": "blue",
        "dialect": "own",
    }
    assert found["user_hash"] not in (None, "ann")
    assert row(acme__began="2026-11-18T11:06:40.25Z")["ttft_ns"] == 250_000_000


@pytest.mark.usefixtures("words")
def test_own_attributes_come_before_everybodys() -> None:
    assert row(acme__tokens__in=7, gen_ai__usage__input_tokens=9)["input_tokens"] == 7
    assert row(acme__tokens__in="many", gen_ai__usage__input_tokens=9)["input_tokens"] == 9


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize(
    ("span", "wanted"),
    [
        ({"acme__step": "safety"}, ("plain", "guardrail")),
        ({"acme__step": "else"}, ("plain", "other")),
        ({"acme__step": "pii", "gen_ai__operation__name": "chat"}, ("plain", "guardrail")),
        ({"acme__model": 1}, ("llm", "generation")),
        ({"name": "acme.docs.lookup"}, ("plain", "retrieval")),
        ({"name": "acme.lookup"}, ("plain", "other")),
        ({"name": "heartbeat"}, ("plain", "other")),
        ({"name": "heartbeat", "scope": "acme.core"}, ("folded", "other")),
        ({"acme__step": "pii", "overrun__stage": "tool"}, ("plain", "tool")),
    ],
)
def test_own_rules_come_before_everybodys(span: dict[str, Any], wanted: tuple[str, str]) -> None:
    assert row(**span)["is"] == wanted


def test_without_a_file_nothing_is_known_of_them() -> None:
    found = row(acme__tokens__in=7, acme__step="safety")
    assert (found["input_tokens"], found["is"], found["dialect"]) == (
        None,
        ("plain", "other"),
        None,
    )


def test_the_settings_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "overrun.toml"
    path.write_text(TOML)
    shown = "\n".join(described(load(path, {})))
    assert all(
        word in shown
        for word in (
            "acme.usage.usage.out = 'output_tokens'",
            "guardrail: attribute 'acme.step' ['pii', 'safety']",
            "under scope 'acme'",
        )
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '[attributes]\na = "input_token"',
            "unknown field 'input_token': did you mean input_tokens?",
        ),
        ('[attributes]\na = "ttft"', "ttft is a time, so it needs a unit"),
        ('[attributes]\na = { field = "ttft", unit = "min" }', "not 'min'"),
        ('[attributes]\na = { field = "model", unit = "ms" }', "model has no unit"),
        (
            '[attributes]\na = { field = "model", pth = "x" }',
            "unknown key 'pth': did you mean path?",
        ),
        ("[attributes]\na = 7", "write the name of a field"),
        ("[attributes]\na = []", "names no field"),
        ("attributes = 7", "is a value"),
        ("stages = 7", r"write \[\[stages\]\]"),
        ('[stages]\nstage = "tool"', r"write \[\[stages\]\]"),
        (
            '[[stages]]\nstage = "retreival"\nname = "x"',
            "unknown stage 'retreival': did you mean retrieval?",
        ),
        ('[[stages]]\nstage = "tool"', "it selects no spans"),
        ('[[stages]]\nstage = "tool"\nname = "x"\nattribute = "y"', "it selects no spans"),
        ('[[stages]]\nstage = "tool"\nattribute = "y"\nvalue = 7', "is not a text"),
        ('[[stages]]\nstage = "tool"\nname = 7', "is not a text"),
        ('[[stages]]\nstage = "tool"\nnames = "x"', "unknown key 'names': did you mean name?"),
        ("[attribute]\n", "did you mean attributes?"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "overrun.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says) as error:
        load(path, {})
    assert str(path) in str(error.value)


def test_every_field_of_the_table_is_a_column_with_a_reader() -> None:
    columns = {*INT_COLUMNS, *TEXT_COLUMNS, TOTAL, "temperature", "streaming"}
    assert {column for column, _ in reading.FIELDS.values()} | set(
        reading.TIMES.values()
    ) == columns
    assert {reader for _, reader in reading.FIELDS.values()} | set(reading.UNITS.values()) <= set(
        READERS
    )

"""What a rule advises at once names its price in the same sentence: requests refused, answers cut, calls lost, room that is gone."""

import ast
import re
from pathlib import Path

import pytest

from overrun.analysis.diagnosis.rules import rules

_TAKES = re.compile(r"429|reject|refuse|\bdrain|\brestart|max_tokens|step limit", re.IGNORECASE)
_PRICE = re.compile(
    r"instead of an answer|no answer|refused|are lost|loses|less room|without an answer|cut answer|are cut|Continue with the others|keep their"
)


def _mitigations(path: str) -> list[str]:
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    return [
        ast.unparse(node.args[1])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Action"
    ]


@pytest.mark.parametrize("rule", sorted(rules()))
def test_what_takes_something_away_names_it(rule: str) -> None:
    for said in _mitigations(str(rules()[rule].__file__)):
        if _TAKES.search(said):
            assert _PRICE.search(said), said

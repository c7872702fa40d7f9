"""The bill of materials lists every locked package with its checksums, licence and place in the graph."""

from tests.conftest import ROOT
from tests.sbom import document, locked

LOCK = """\
one-package==1.0.0 \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
    # via overrun (pyproject.toml)
two_package==2.0.0 ; sys_platform == 'win32' \\
    --hash=sha256:{a}
    # via
    #   one-package
    #   overrun (pyproject.toml)
""".format(a="a" * 64, b="b" * 64)


def test_a_lock_is_read_with_checksums_and_who_needs_whom() -> None:
    assert locked(LOCK) == {
        "one-package": {
            "version": "1.0.0",
            "sha256": ["a" * 64, "b" * 64],
            "needed_by": ["overrun"],
        },
        "two-package": {
            "version": "2.0.0",
            "sha256": ["a" * 64],
            "needed_by": ["one-package", "overrun"],
        },
    }


def test_the_document_covers_the_lock_and_says_licences() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    made = document(text)
    names = {component["name"] for component in made["components"]}
    assert names == set(locked(text))
    assert {"duckdb", "numpy", "starlette"} <= names
    assert all(component["hashes"] for component in made["components"])
    licensed = [component for component in made["components"] if component.get("licenses")]
    assert len(licensed) > 0.9 * len(names)
    graph = {entry["ref"]: entry["dependsOn"] for entry in made["dependencies"]}
    [own] = [refs for of, refs in graph.items() if of.startswith("pkg:pypi/overrun@")]
    assert any(ref.startswith("pkg:pypi/duckdb@") for ref in own)
    assert made == document(text)

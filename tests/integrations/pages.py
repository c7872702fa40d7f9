"""What does a page of docs/integrations give people to paste? Its blocks, the lines of its shell block, and the sentence on what was seen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "docs" / "integrations"
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE: Final = re.compile(r"(?:#|//) ([\w.-]+)(?:[:,].*)?\n")


@dataclass(frozen=True)
class Block:
    """One block of code: its language, its text, and the file that its first line names."""

    kind: str
    text: str

    @property
    def file(self) -> str | None:
        """The name in a first line such as `# config.yaml`."""
        named = _FILE.match(self.text)
        return named[1] if named else None


@dataclass(frozen=True)
class Page:
    """One page."""

    name: str
    text: str

    @property
    def blocks(self) -> list[Block]:
        """Its blocks of code, from the top."""
        return [Block(kind, text) for kind, text in _BLOCK.findall(self.text)]

    @property
    def commands(self) -> list[str]:
        """The lines of its shell blocks; a line that ends in a backslash goes on."""
        shell = "\n".join(block.text for block in self.blocks if block.kind == "sh")
        lines = shell.replace("\\\n", " ").splitlines()
        return [re.sub(r"\s+# .*$", "", line) for line in lines if line.strip()]

    def said(self, label: str) -> str | None:
        """What stands after a label such as `Seen`, up to the end of its paragraph."""
        found = re.search(
            rf"^\*\*{label}\*\*:? (.*?)(?:\n\n|\Z)", self.text, re.DOTALL | re.MULTILINE
        )
        return " ".join(found[1].split()) if found else None


def read(name: str) -> Page:
    """The page of a name."""
    return Page(name, (FOLDER / f"{name}.md").read_text(encoding="utf-8"))


def names() -> list[str]:
    """All pages but the index."""
    return sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")

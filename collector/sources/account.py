"""What was a file read as, and what came of its rows? Filled in while it is read; what it became is counted where it is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from overrun.collector.sources import access_statuses


@dataclass(slots=True)
class Account:
    """The account of one file: `what` it was recognised as and by what (`why`), its rows and how many were of use (`lost` says why the first was not),
    how many first tokens lay outside of their calls, its HTTP statuses, and its columns: those that were used, that were not, and that were recognised
    and contradicted by every row. `is_concluded` where words of columns decided, and no form."""

    name: str = ""
    what: str = ""
    why: str = ""
    rows: int = 0
    used: int = 0
    lost: str = ""
    firsts: int = 0
    firsts_outside: int = 0
    is_concluded: bool = False
    statuses: Counter[int] = field(default_factory=Counter)
    columns: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    contradicted: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def read_as(self, what: str, why: str = "") -> None:
        """Say what the file is; the first that is said counts."""
        if not self.what:
            self.what, self.why = what, why

    def note(self, text: str) -> None:
        """Add what a reader of the figures must know of the file."""
        self.notes.append(f"{self.name}: {text}" if self.name else text)

    def lines(self) -> list[str]:
        """The account in words, one statement a line; what is not known is left out."""
        out = [f"{self.name}: read as {self.what}" + (f" ({self.why})" if self.why else "")]
        if self.rows:
            left = f", {self.rows - self.used:,} of no use ({self.lost})" if self.lost else ""
            out.append(f"{self.rows:,} {'row' if self.rows == 1 else 'rows'}{left}")
        if self.statuses:
            out.append(f"statuses {access_statuses.counted(self.statuses.elements())}")
        for kind, names in (
            ("columns used", self.columns),
            ("not used", self.unused),
            ("contradicted by every row", self.contradicted),
        ):
            if names:
                out.append(
                    f"{kind}: {', '.join(names[:_MOST_NAMED])}{', ...' if len(names) > _MOST_NAMED else ''}"
                )
        if self.firsts_outside:
            out.append(
                f"first tokens outside of their calls left out: {self.firsts_outside:,} of {self.firsts:,}"
            )
        return out


_MOST_NAMED = 12  # columns of each kind


def merged(alike: Sequence[Account]) -> Account:
    """One account of files that were read alike."""
    first = alike[0]
    if len(alike) == 1:
        return first
    firsts = [sum(one.firsts for one in alike), sum(one.firsts_outside for one in alike)]
    return Account(
        name=f"{first.name} and {len(alike) - 1:,} more",
        what=first.what,
        why=first.why,
        rows=sum(one.rows for one in alike),
        used=sum(one.used for one in alike),
        lost=next((one.lost for one in alike if one.lost), ""),
        firsts=firsts[0],
        firsts_outside=firsts[1],
        statuses=sum((one.statuses for one in alike), Counter()),
        columns=list(dict.fromkeys(name for one in alike for name in one.columns)),
        unused=list(dict.fromkeys(name for one in alike for name in one.unused)),
        contradicted=list(dict.fromkeys(name for one in alike for name in one.contradicted)),
    )

"""Which number of an access line is its HTTP status? Lines in, a status a line out, decided over all lines and never by one.

A status is labelled (`status=200`, or behind `HTTP/1.1"`), or it stands in a place, counted in words from the address, in which every line has a registered
status. Milliseconds behind a comma, a worker's number or a count of tokens are none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Final

# IANA's registry, as Python has it, and what proxies and providers answer beside it: nginx 499, Cloudflare 520 to 526, AWS's balancers 460, 463 and 561,
# Anthropic 529.
REGISTERED: Final = frozenset(map(int, HTTPStatus)) | {460, 463, 499, *range(520, 527), 529, 561}
_LABELLED = re.compile(
    r"""\bHTTP/[\d.]{1,5}["']?[\s,:|-]{1,4}(\d{3})(?![\w.])"""
    r"""|(?i:\b(?:http|response|result)?[_. -]?(?:status|code)(?:[_. -]?code)?)["']?\s{0,2}[=:]\s{0,2}["']?(\d{3})(?![\w.])"""
)
_WORD = re.compile(r"""[^\s|"'()\[\]<>;]+""")
_NUMBER = re.compile(r"([1-9][0-9]{2})[,:]?")
_LONGEST = 8_000  # characters of a line
_MOST_PLACES = 60  # words of a line, on each side of the address
# Of the lines; the others are cut off or of another logger. By chance a place of three digits has registered statuses in one line of twelve.
_LEAST_SHARE = 0.9
_Place = tuple[bool, int]  # whether it is behind the address, words from there


def statuses(lines: Sequence[tuple[str, str]]) -> list[int | None]:
    """The status of each line, of what stands before and behind its address; None where it has none."""
    labelled = [_labelled(f"{before} {behind}") for before, behind in lines]
    if any(labelled):
        return labelled
    placed = [dict(_placed(before, behind)) for before, behind in lines]
    place = _decided(placed)
    return [None if place is None else one.get(place) for one in placed]


def counted(found: Iterable[int]) -> str:
    """Statuses with how often each came, in words."""
    return ", ".join(f"{count:,} x {status}" for status, count in sorted(Counter(found).items()))


def _labelled(line: str) -> int | None:
    match = _LABELLED.search(line[:_LONGEST])
    status = int(match[1] or match[2]) if match else 0
    return status if status in REGISTERED else None


def _placed(before: str, behind: str) -> Iterable[tuple[_Place, int | None]]:
    """The words of a line by their places, those that are registered statuses as numbers."""
    for is_behind, text in ((True, behind[:_LONGEST]), (False, before[-_LONGEST:])):
        words = _WORD.findall(text)
        for at, word in enumerate((words if is_behind else words[::-1])[:_MOST_PLACES]):
            found = _NUMBER.fullmatch(word)
            number = int(found[1]) if found else 0
            yield (is_behind, at), number if number in REGISTERED else None


def _decided(lines: Sequence[dict[_Place, int | None]]) -> _Place | None:
    """The place in which the lines have a status: the only one, or else the word next to the address; None where nothing decides."""
    counts = Counter(place for line in lines for place, status in line.items() if status)
    places = [place for place, count in counts.items() if count >= _LEAST_SHARE * len(lines)]
    if len(places) == 1:
        return places[0]
    return next((place for place in places if place == (True, 0)), None)

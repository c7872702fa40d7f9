"""When was each saved metrics page read? By the times of its samples, by its name, by `--every`, else by the file's time, if that can be true.

A scraped page has no reading time. Copies and checkouts give all files the time of the copy: read so, forty pages are one moment, and every rate
and every onset made of them is nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from overrun.collector.errors import ImportFailed

# No scraper reads one engine's page more often than this; files that are written by a copy lie closer together.
_CLOSEST_S = 0.1
_EPOCH = re.compile(r"(?<!\d)(1[0-9]{9}|2[0-9]{9})(\d{3})?(?!\d)")
_ISO = re.compile(
    r"(20\d\d)-?([01]\d)-?([0-3]\d)[T _-]?([0-2]\d)[:_-]?([0-5]\d)[:_-]?([0-5]\d)(?:\.\d+)?(Z)?"
)


def page_times(
    pages: Iterable[Path], every_s: float | None, say_their_own: Callable[[Path], bool]
) -> dict[Path, int]:
    """The time (nanoseconds since 1970) of each page; pages of an engine (`engines_of`) are in the order of their names.

    `every_s` is how far apart they were read, the last one at its file's time. `say_their_own` reads a page and says whether its samples carry times.

    Raises:
        ImportFailed: the reading times of a folder's pages are not known; names the remedy.
    """
    pages = list(pages)
    engines = engines_of(pages)
    folders: dict[tuple[Path, str], list[Path]] = {}
    for page in pages:
        folders.setdefault((page.resolve().parent, engines.get(page, "")), []).append(page)
    out: dict[Path, int] = {}
    for (folder, _), found in folders.items():
        out |= _of_folder(folder, sorted(found, key=lambda page: page.name), every_s, say_their_own)
    return out


def _of_folder(
    folder: Path, pages: list[Path], every_s: float | None, say_their_own: Callable[[Path], bool]
) -> dict[Path, int]:
    written = {page: page.stat().st_mtime_ns for page in pages}
    if every_s is not None:
        last, step_ns = max(written.values()), int(every_s * 1e9)
        return {page: last - (len(pages) - 1 - at) * step_ns for at, page in enumerate(pages)}
    named = {page: time_ns for page in pages if (time_ns := _named(page.name)) is not None}
    if len(set(named.values())) == len(pages):
        return named
    between_s = (max(written.values()) - min(written.values())) / 1e9
    distinct = len(set(written.values())) == len(pages)
    if (
        len(pages) > 1
        and (not distinct or between_s < (len(pages) - 1) * _CLOSEST_S)
        and not say_their_own(pages[0])
    ):
        moment = datetime.fromtimestamp(max(written.values()) / 1e9, UTC).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        )
        raise ImportFailed(
            f"{len(pages)} pages in {folder.name} all have the same file time ({moment}), so their reading times are not known. Give the time "
            "between pages with `overrun store import --every 15s` (in the order of their names), or name them by their time (1795640636.prom, "
            "20261126T005910Z.prom), or copy them with their times (cp -p, rsync -t, tar; git keeps none). Put the pages of each engine into a "
            "separate folder"
        )
    return written


def _named(name: str) -> int | None:
    """The time in a file's name: seconds or milliseconds since 1970, or an ISO time, of UTC where it names no zone."""
    if found := _ISO.search(name):
        try:
            year, month, day, hour, minute, second = map(int, found.groups()[:6])
            said = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
            return int(said.timestamp()) * 1_000_000_000
        except ValueError:
            return None
    found = _EPOCH.search(name)
    return None if found is None else int(found[1]) * 1_000_000_000 + int(found[2] or 0) * 1_000_000


def engines_of(pages: Iterable[Path]) -> dict[Path, str]:
    """The engine of each page by its file's name, where one folder holds the pages of several (`gpu0-001.prom`, `gpu1-001.prom`); else the folder is the engine.

    A name's words that begin with a letter name the engine, and its numbers the moment. Where nearly every page has words of its own, they are no names.
    """
    by_folder: dict[Path, dict[Path, str]] = {}
    for path in pages:
        words = [
            word
            for word in re.split(r"[^A-Za-z0-9]+", path.name.partition(".")[0])
            if word[:1].isalpha()
        ]
        by_folder.setdefault(path.parent, {})[path] = "-".join(words)
    found: dict[Path, str] = {}
    for folder, named in by_folder.items():
        names = set(named.values())
        if len(names) > 1 and 2 * len(names) <= len(named) and "" not in names:
            found |= {path: f"{folder.resolve().name}/{name}" for path, name in named.items()}
    return found

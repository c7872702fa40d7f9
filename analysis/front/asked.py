"""What is asked, of which source, in which form? One object for the command line, for agents and for Python, and the one place that refuses what does not go together.

Nothing heavy is imported: what cannot be asked is refused before a database, a compiler or an HTTP library is loaded.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic

from overrun.analysis.front.question_table import Answer, Entry, Texts
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.config import Settings
from overrun.collector.errors import StoreMissing
from overrun.collector.sources.remote.address import Address, is_address

OTLP = "an OTLP file or a folder of them"
# What stands behind the checksum of a DuckDB file.
_STORE = (8, b"DUCK")


@dataclass(frozen=True, slots=True)
class Source:
    """Where answers come from: the store `db`, the server at `url`, `files` of telemetry, a window of the other tools at `remote` (narrowed by `match`, kept in `db`
    where that is given), or, with none of them, the server at its usual port or else overrun.db here. `named` is what was typed.
    """

    settings: Settings
    db: Path | None = None
    url: str | None = None
    files: Sequence[Path] = ()
    remote: Sequence[Address] = ()
    match: str = ""
    named: Sequence[str] = ()

    @property
    def is_stored(self) -> bool:
        """Whether a question can be asked of it as it is."""
        return not (self.files or self.remote)

    def flags(self) -> str:
        """What names this source on a command line, with a space before it; nothing where every command finds it."""
        if self.named:
            return f" {shlex.join([*self.named, *(['--match', self.match] if self.match else [])])}"
        if self.db is not None:
            return f" --db {shlex.quote(str(self.db))}"
        return f" --url {shlex.quote(self.url)}" if self.url is not None else ""


def source_of(
    named: Sequence[str],
    settings: Settings,
    db: Path | None = None,
    url: str | None = None,
    match: str = "",
) -> Source:
    """The source that a command names: files, folders, a store, a server, or addresses of other tools; or `db` or `url` in place of them.

    Raises:
        AnalysisError, CollectorError: it is not there, or several are named that do not go together.
    """
    addresses = [Address.read(text) for text in named if is_address(text)]
    paths = [Path(text) for text in named if not is_address(text)]
    there(paths, f"{OTLP}, a store, or an address such as prometheus:http://127.0.0.1:9090")
    tools = [one for one in addresses if one.kind]
    servers = [one.url for one in addresses if not one.kind]
    stores = [path for path in paths if _is_store(path)]
    files = [path for path in paths if path not in stores]
    kinds = (files, tools, stores, servers)
    if sum(map(bool, kinds)) > 1 or len(servers) > 1 or len(stores) > 1:
        raise AnalysisError(
            f"{', '.join(named)} were given together: name files, or one store, or one server, or addresses of other tools"
        )
    if match and not tools:
        raise AnalysisError("--match narrows what is read of another tool: name its address")
    if named and (url is not None or (db is not None and not tools)):
        raise AnalysisError("more than one of SOURCE, --db and --url was given: use one of them")
    if not tools:
        refuse_place(db, url)
    db, url = stores[0] if stores else db, servers[0] if servers else url
    return Source(settings, db, url, files, tools, match, named)


def _is_store(path: Path) -> bool:
    at, mark = _STORE
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(at + len(mark))[at:] == mark


def refuse_place(db: Path | None, url: str | None) -> None:
    """Refuse more than one source, and a store that is not there.

    Raises:
        AnalysisError, StoreMissing: named with the remedy.
    """
    if db is not None and url is not None:
        raise AnalysisError("--db and --url were both given: ask the file or the server")
    if db is not None and not (db.exists() and db.stat().st_size):
        raise StoreMissing.at(db)


def there(paths: Iterable[Path | None], what: str) -> None:
    """Refuse a path that was given and holds nothing.

    Raises:
        AnalysisError: it is named, with `what` should be there.
    """
    for path in paths:
        if path is not None and not path.exists():
            raise AnalysisError(f"there is nothing at {path}: name {what}")


@dataclass(frozen=True, slots=True)
class Asked(Generic[Answer]):
    """A question with its window, filters and limits (`texts` by name of the parameter), its source, and the form of the answer, at most `width` columns wide.

    `colour` marks labels with ANSI codes.
    """

    entry: Entry[Answer]
    texts: Texts
    source: Source
    form: str = "json"
    width: int = 100
    colour: bool = False

    @classmethod
    def read(
        cls, entry: Entry[Answer], given: Mapping[str, object], source: Source, form: str = "json"
    ) -> Asked[Answer]:
        """From names and values as any caller writes them (`Entry.texts`).

        Raises:
            AnalysisError: an unknown name, a value that cannot be read, or an unknown form.
        """
        refuse_form(entry, form)
        texts = entry.texts(given)
        entry.read(texts)
        return cls(entry, texts, source, form)

    def but(
        self, form: str | None = None, source: Source | None = None, **texts: str | None
    ) -> Asked[Answer]:
        """The same with another form, source or other values of parameters."""
        return replace(
            self,
            form=form or self.form,
            source=source or self.source,
            texts={**self.texts, **texts},
        )

    def of(self, entry: Entry[Any], form: str, texts: Texts | None = None) -> Asked[Any]:
        """Another question of the same source."""
        return replace(self, entry=entry, form=form, texts=self.texts if texts is None else texts)


def refuse_form(entry: Entry[Any], form: str, forms: Sequence[str] = ()) -> None:
    """Refuse a form that a question is not answered in; `forms` are those of a command that writes the answer itself.

    Raises:
        AnalysisError: the form, with those that are known.
    """
    known = list(forms) or [*entry.forms, "json"]
    if form not in known:
        raise AnalysisError(
            f"--output {form!r} is not known: use {', '.join(known[:-1])} or {known[-1]}"
        )

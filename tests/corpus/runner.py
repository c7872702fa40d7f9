"""What does a case of the corpus ask, and how is it answered? `case.toml` of a folder in, the steps done and every right value compared.

A case is what somebody's telemetry did to us once: its input, the commands, and what is right, as data. README.md beside this file has the format.
Nothing here knows a case; a new one is a new folder.
"""

from __future__ import annotations

import json
import math
import os
import runpy
import shutil
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from typer.testing import CliRunner

from overrun.cli import app
from overrun.collector.store.database import open_store
from overrun.collector.store.store import Store
from tests.conftest import StartServer, empty_store

FOLDER = Path(__file__).parent
_STEPS = ("import", "post", "run")
_TESTS = ("is", "near", "at_least", "at_most", "one_of", "contains", "without")
_COMMON = {"fresh", "says", "right"}
_KEYS = {
    "import": {"import", "exit", *_COMMON},
    "post": {"post", "to", "type", "encoding", "status", *_COMMON},
    "run": {"run", "on", "exit", *_COMMON},
}
_RIGHT = {"json", "sql", "tolerance", *_TESTS}


def cases() -> list[Path]:
    """The folders that hold a case."""
    return sorted(path.parent for path in FOLDER.glob("*/case.toml"))


class Case:
    """One case in a folder of its own, where its files are copied (or made by its `make.py`) before the first step."""

    def __init__(
        self, folder: Path, work: Path, start_server: StartServer, now_s: float | None = None
    ) -> None:
        self.folder, self.work, self.db = folder, work, work / "case.db"
        self._now_s = time.time() if now_s is None else now_s
        self.told: dict[str, Any] = tomllib.loads((folder / "case.toml").read_text())
        if unknown := self.told.keys() - {"title", "kind", "source", "times", "config", "step"}:
            raise ValueError(f"{folder.name}: case.toml has no key {unknown}")
        self._start_server = start_server
        self._server: Any = None
        self._store: Store | None = None  # while queries of one step follow one another
        self._said = ""
        self._answer: Any = None

    def run(self) -> None:
        """Do the steps; raises AssertionError with the case's words where a value is wrong."""
        self.prepare()
        for number, step in enumerate(self.told["step"], 1):
            kind = next((name for name in _STEPS if name in step), None)
            if kind is None or step.keys() - _KEYS[kind]:
                raise ValueError(
                    f"{self.folder.name}, step {number}: not a step, or a key that is not known: {sorted(step)}"
                )
            if step.get("fresh"):
                self._stop()
                self.db = self.work / f"case-{number}.db"
            do: Mapping[str, Callable[[dict[str, Any]], None]] = {
                "import": self._import,
                "post": self._post,
                "run": self._command,
            }
            do[kind](step)
            for words in step.get("says", ()):
                assert " ".join(words.split()) in " ".join(self._said.split()), (
                    f"{self._where(number)} does not say {words!r}, but: {self._said[:2000]}"
                )
            for right in step.get("right", ()):
                self._check(number, right)
        self._stop()

    def prepare(self) -> None:
        """Lay out the files of the case, made and dated."""
        for path in sorted(self.folder.rglob("*")):
            own = path.name in ("case.toml", "make.py") or "__pycache__" in path.parts
            if path.name.endswith(".tar.xz"):
                shutil.unpack_archive(path, self.work, filter="data")
            elif path.is_file() and not own:
                to = self.work / path.relative_to(self.folder)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, to)
        if (self.folder / "make.py").exists():
            runpy.run_path(str(self.folder / "make.py"))["make"](self.work)
        for pattern, told in self.told.get("times", {}).items():
            # Files of one folder follow one another; the last one of each is so old.
            by_folder: dict[Path, list[Path]] = {}
            for path in sorted(self.work.glob(pattern)):
                by_folder.setdefault(path.parent, []).append(path)
            for files in by_folder.values():
                for at, path in enumerate(reversed(files)):
                    when = self._now_s - told.get("last_age_s", 0) - at * told["step_s"]
                    os.utime(path, (when, when))
        if "config" in self.told:
            (self.work / "overrun.toml").write_text(self.told["config"])

    def _where(self, number: int) -> str:
        return f"{self.folder.name} ({self.told.get('title', '')}), step {number}"

    def _configured(self) -> list[str]:
        return ["--config", str(self.work / "overrun.toml")] if "config" in self.told else []

    def _import(self, step: dict[str, Any]) -> None:
        self._empty()
        self._overrun(["import", *self.files(step["import"])], step.get("exit", 0))

    def _empty(self) -> None:
        """A store that holds nothing, unless there is one: copied, as making it takes a tenth of a second."""
        if not self.db.exists():
            shutil.copy(empty_store(), self.db)

    def files(self, patterns: list[str]) -> list[str]:
        """The paths that patterns name, in order; a pattern without any stays as it is."""
        return [
            str(path)
            for pattern in patterns
            for path in (sorted(self.work.glob(pattern)) or [self.work / pattern])
        ]

    def _command(self, step: dict[str, Any]) -> None:
        if "on" in step:
            command, *flags = step["run"]
            self._overrun([command, *self.files(step["on"]), *flags], step.get("exit", 0), ())
        else:
            self._overrun(step["run"], step.get("exit", 0))

    def _overrun(
        self, arguments: list[str], code: int, asked: tuple[str, ...] | None = None
    ) -> None:
        self._stop()
        where = ("--db", str(self.db)) if asked is None else asked
        done = CliRunner().invoke(app, [*arguments, *where, *self._configured()])
        self._said = done.output
        assert done.exit_code == code, (
            f"{self.folder.name}: `overrun {' '.join(arguments)}` ended with {done.exit_code}: {done.output[:2000]}"
        )
        try:
            self._answer = json.loads(done.stdout)
        except ValueError:
            self._answer = None

    def _post(self, step: dict[str, Any]) -> None:
        if self._server is None:
            self._stop()
            self._empty()
            self._server = self._start_server(self.db, environment={"OVERRUN_QUIET_S": "0.1"})
        headers = {"content-type": step.get("type", "application/json")} | (
            {"content-encoding": step["encoding"]} if "encoding" in step else {}
        )
        answer = httpx.post(
            f"{self._server.http}{step.get('to', '/v1/traces')}",
            content=(self.work / step["post"]).read_bytes(),
            headers=headers,
            timeout=60,
        )
        self._said = answer.text
        assert answer.status_code == step.get("status", 200), (
            f"{self.folder.name}: {answer.status_code} {answer.text[:2000]}"
        )
        self._answer = (
            answer.json()
            if answer.headers.get("content-type", "").startswith("application/json")
            else None
        )

    def _stop(self) -> None:
        """Nobody has the store open any more."""
        if self._store is not None:
            self._store.close()
            self._store = None
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _check(self, number: int, right: dict[str, Any]) -> None:
        if right.keys() - _RIGHT or ("sql" in right) == ("json" in right):
            raise ValueError(f"{self._where(number)}: not a right value: {right}")
        found = (
            at_path(self._answer, right["json"]) if "json" in right else self._query(right["sql"])
        )
        tests = [name for name in _TESTS if name in right]
        if not tests:
            raise ValueError(f"{self._where(number)}: nothing is compared: {right}")
        for name in tests:
            assert holds(name, found, right[name], right.get("tolerance", 0.0)), (
                f"{self._where(number)}: {right.get('json') or right.get('sql')} is {found!r}, right is {name} {right[name]!r}"
            )

    def _query(self, query: str) -> Any:
        """The only value, else the rows as lists."""
        if self._store is None:
            self._stop()
            self._store = open_store(self.db, create=False)
        rows = [[*row] for row in self._store.connection.execute(query).fetchall()]
        return rows[0][0] if len(rows) == 1 and len(rows[0]) == 1 else rows


def at_path(value: Any, path: str) -> Any:
    """What stands at `a.b.0.c` of a JSON value; `a[b=c]` is the first item of list `a` whose `b` is `c`. None where there is nothing."""
    for part in path.split("."):
        name, _, wanted = part.rstrip("]").partition("[")
        value = (
            value[int(name)]
            if isinstance(value, list) and name.lstrip("-").isdigit() and int(name) < len(value)
            else (value.get(name) if isinstance(value, dict) else None)
        )
        if wanted and isinstance(value, list):
            key, _, of = wanted.partition("=")
            value = next((item for item in value if str(item.get(key)) == of), None)
    return value


def holds(test: str, found: Any, right: Any, tolerance: float) -> bool:
    """Whether a value is right: `near` allows the tolerance (as a ratio of the right value), "null" stands for nothing."""
    if test == "near":
        if isinstance(right, list):
            return (
                isinstance(found, list)
                and len(found) == len(right)
                and all(holds(test, f, r, tolerance) for f, r in zip(found, right, strict=True))
            )
        if isinstance(right, str) or found is None:
            return bool(found == (None if right == "null" else right))
        return isinstance(found, int | float) and math.isclose(
            found, right, rel_tol=tolerance, abs_tol=1e-9
        )
    if test == "is":
        return bool(found == _plain(right))
    if test in ("at_least", "at_most"):
        return found is not None and bool(found >= right if test == "at_least" else found <= right)
    if test == "one_of":
        return found in _plain(right)
    inside = str(right) in (found if isinstance(found, str) else json.dumps(found, default=str))
    return inside if test == "contains" else not inside


def _plain(value: Any) -> Any:
    return (
        [_plain(item) for item in value]
        if isinstance(value, list)
        else None
        if value == "null"
        else value
    )

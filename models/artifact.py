"""How does a trained predictor travel from the training machine into a router?

As one folder without pickle: `manifest.json` (what it is, where it has skill, the hash of everything else), per quantile
an ONNX, a UBJ and a flat-tree JSON file, `history.json` (recent outputs per route, the fallback), `conformal.json` (how far
to move each quantile), `ngram_ridge.f16` (the verbosity score's weights, if prompts were opted in), `card.json` and
`card.html` (what was measured), and `golden.jsonl` (inputs with the answers of the training library). Written by
`overrun.models.train`, read by `overrun.models.predict`; this module needs the standard library alone.
"""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from overrun.models.errors import ArtifactError

SCHEMA: Final = "overrun.predictor/1"
MANIFEST: Final = "manifest.json"
CARD: Final = "card.json"
CARD_PAGE: Final = "card.html"
HISTORY: Final = "history.json"
CONFORMAL: Final = "conformal.json"
VERBOSITY: Final = "ngram_ridge.f16"
GOLDEN: Final = "golden.jsonl"
# The quantiles of an answer, ascending; an artifact holds a model for each.
QUANTILES: Final = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}
# The promise to routers, and the bound on what a damaged or hostile folder can make a router read.
MAX_BYTES: Final = 2_000_000
_RETRAIN: Final = "train the artifact again with `overrun length train`, or copy the folder again"
_WANTED_KEYS: Final = {
    "schema",
    "version",
    "features",
    "quantiles",
    "routes",
    "bucket_edges",
    "files",
}


@dataclass(frozen=True, slots=True)
class Artifact:
    """A folder whose every byte matched its hash: the manifest, and the other files by name."""

    folder: Path
    manifest: dict[str, Any]
    files: dict[str, bytes]

    @property
    def version(self) -> str:
        """Twelve hex digits that name this artifact: the hash of its manifest, and through it of every file."""
        return str(self.manifest["version"])

    def json_file(self, name: str) -> Any:
        """Return the decoded JSON file `name`.

        Raises:
            ArtifactError: the file is absent or not JSON.
        """
        try:
            return json.loads(self.files[name])
        except (KeyError, ValueError, RecursionError) as error:
            raise ArtifactError(
                f"{self.folder / name} is not readable as JSON ({error}): {_RETRAIN}"
            ) from error

    def json_lines(self, name: str) -> list[Any]:
        """Return the decoded lines of `name`.

        Raises:
            ArtifactError: the file is absent or a line is not JSON.
        """
        try:
            return [json.loads(line) for line in self.files[name].splitlines()]
        except (KeyError, ValueError, RecursionError) as error:
            raise ArtifactError(
                f"{self.folder / name} is not readable as JSON lines ({error}): {_RETRAIN}"
            ) from error


def model_file(quantile: str, kind: str) -> str:
    """Return the file name of one model: `model_file("p50", "onnx")` is `model_p50.onnx`."""
    return f"model_{quantile}.{kind}"


def canonical_json(value: object) -> bytes:
    """Return `value` as JSON bytes, equal for equal values: sorted keys, no spaces, no NaN, final newline."""
    return (
        json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    )


def golden_lines(inputs: list[list[float]], expected: list[list[float]]) -> bytes:
    """Return golden vectors as JSON lines: `inputs` as the models take them (null is missing), log tokens by quantile."""
    rows = (
        {
            "inputs": [None if value != value else value for value in row],
            "expected": dict(zip(QUANTILES, own, strict=True)),
        }
        for row, own in zip(inputs, expected, strict=True)
    )
    return b"".join(canonical_json(row) for row in rows)


def write_artifact(
    folder: Path,
    manifest: Mapping[str, Any],
    files: Mapping[str, bytes],
    check: Callable[[Path], object],
) -> Artifact:
    """Write the folder and return it; an older artifact of that name is replaced only once the new one is complete.

    `manifest` lacks `schema`, `version` and `files`, which are added here. `check` is called on the finished folder
    before it takes its name, and may raise to refuse it: an artifact that does not load is never left behind.

    Raises:
        ArtifactError: the artifact is larger than `MAX_BYTES`, or `folder` exists and is not an artifact, or
            cannot be written.
    """
    _refuse_foreign(folder)
    complete = dict(manifest) | {
        "schema": SCHEMA,
        "files": {name: _fingerprint(data) for name, data in files.items()},
    }
    complete["version"] = _version(complete)
    contents = {
        **files,
        MANIFEST: json.dumps(complete, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n",
    }
    total = sum(map(len, contents.values()))
    if total > MAX_BYTES:
        raise ArtifactError(
            f"the artifact would be {total:,} bytes, expected at most {MAX_BYTES:,}: train with fewer trees"
        )
    staging = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    try:
        staging.mkdir(parents=True)
        for name, data in contents.items():
            (staging / name).write_bytes(data)
        check(staging)
        _swap(staging, folder)
    except OSError as error:
        raise ArtifactError(
            f"{folder} cannot be written ({error.strerror}): choose another --out"
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return load_artifact(folder)


def load_artifact(folder: Path) -> Artifact:
    """Return the artifact in `folder` after checking schema, sizes and hashes.

    Raises:
        ArtifactError: something is missing, damaged or of another schema; names the file, what was seen, what is wanted
        and the remedy.
    """
    manifest = _load_manifest(folder)
    files: dict[str, bytes] = {}
    for name, wanted in _listed(folder, manifest).items():
        data = _read(folder / name, MAX_BYTES - sum(map(len, files.values())))
        seen = _fingerprint(data)
        if seen != wanted:
            raise ArtifactError(
                f"{folder / name} is damaged: {seen['bytes']} bytes with sha256 {seen['sha256'][:12]}, "
                f"expected {wanted['bytes']} bytes with {str(wanted['sha256'])[:12]}: {_RETRAIN}"
            )
        files[name] = data
    needed = {HISTORY, CONFORMAL, GOLDEN} | {model_file(quantile, "onnx") for quantile in QUANTILES}
    if missing := needed - files.keys():
        raise ArtifactError(
            f"{folder / MANIFEST} does not list {', '.join(sorted(missing))}: {_RETRAIN}"
        )
    return Artifact(folder, manifest, files)


def _listed(folder: Path, manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The files of a manifest with their fingerprints."""
    listed, path = manifest["files"], folder / MANIFEST
    if not isinstance(listed, dict) or not all(
        isinstance(wanted, dict) and wanted.keys() == {"bytes", "sha256"}
        for wanted in listed.values()
    ):
        raise ArtifactError(f"{path} does not list bytes and sha256 of each file: {_RETRAIN}")
    for name in listed:
        if name.startswith(".") or not name.isprintable() or {"/", "\\"} & set(name):
            raise ArtifactError(
                f"{path} lists the file {name!r}, expected a plain file name: {_RETRAIN}"
            )
    return listed


def _load_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not folder.is_dir():
        raise ArtifactError(
            f"{folder} is not a folder, expected an artifact folder written by `overrun length train`"
        )
    try:
        manifest = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is not JSON ({error}): {_RETRAIN}") from error
    if not isinstance(manifest, dict):
        raise ArtifactError(
            f"{path} holds {type(manifest).__name__}, expected a JSON object: {_RETRAIN}"
        )
    if manifest.get("schema") != SCHEMA:
        raise ArtifactError(
            f"{path} has schema {manifest.get('schema')!r}, this build reads {SCHEMA!r}: {_RETRAIN}"
        )
    if missing := _WANTED_KEYS - manifest.keys():
        raise ArtifactError(f"{path} lacks {', '.join(sorted(missing))}: {_RETRAIN}")
    wanted = _version(manifest)
    if manifest["version"] != wanted:
        raise ArtifactError(
            f"{path} was changed after it was written: version {manifest['version']!r}, expected {wanted!r}: {_RETRAIN}"
        )
    return manifest


def _version(manifest: Mapping[str, Any]) -> str:
    body = {key: value for key, value in manifest.items() if key != "version"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:12]


def _fingerprint(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _read(path: Path, most: int = MAX_BYTES) -> bytes:
    """A file of at most `most` bytes; a pipe or a device would keep its reader for ever."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ArtifactError(f"{path} is not a regular file: {_RETRAIN}")
            data = file.read(most + 1)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read ({error.strerror}): {_RETRAIN}") from error
    if len(data) > most:
        raise ArtifactError(
            f"{path} is {max(found.st_size, len(data)):,} bytes, expected at most {most:,} "
            f"({MAX_BYTES:,} in the folder): {_RETRAIN}"
        )
    return data


def _refuse_foreign(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / MANIFEST).is_file()):
        raise ArtifactError(
            f"{folder} exists and is not a predictor artifact, expected a new or empty folder: choose another --out"
        )


def _swap(staging: Path, folder: Path) -> None:
    """Give `staging` the name `folder`; an old one steps aside first: a folder cannot be renamed onto a full one."""
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(old)
    staging.rename(folder)
    shutil.rmtree(old, ignore_errors=True)

"""Packs a folder of captured OTLP bodies into a recording, so that its files and manifest entry can be made again.

In: folders holding `NNN.traces.pb`, `NNN.metrics.pb`, `NNN.logs.pb` (uncompressed export requests). Out: the same
bodies as `recordings/<name>/*.pb.zst` and the `files` list of that recording in MANIFEST.toml. What a person writes
there (title, origin, scenario, right answer) is kept; a new recording gets empty fields to fill in.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zstandard
from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]

from overrun.sample_traces.replay import MANIFEST_PATH, RECORDINGS_PATH, REQUESTS, manifest, parse

LEVEL = 19  # read once a demo, written once ever: 301 kB for all recordings instead of 1,871 kB
HEADER = """\
# What each recording is and which answer is right.
# `files` is written by `python -m overrun.sample_traces.record`, the rest by hand.
# Sizes and hashes are those of the uncompressed payload. The first recording ends last when all are replayed.
"""
EMPTY = {"title": "", "origin": [], "licence": "", "scenario": "", "slo": "chat", "answer": {}}


class RecordError(Exception):
    """A folder cannot become a recording; the text names the file and the reason."""


def collect(folders: Sequence[Path]) -> dict[str, bytes]:
    """All payloads of `folders` by file name, sorted; RecordError if two share a name, one is damaged, or none is."""
    bodies: dict[str, bytes] = {}
    for path in (
        path for folder in folders for signal in REQUESTS for path in folder.glob(f"*.{signal}.pb")
    ):
        if path.name in bodies:
            raise RecordError(
                f"{path}: another folder has a {path.name} too; number one of them differently"
            )
        try:
            parse(path.name, path.read_bytes())
        except DecodeError as error:
            raise RecordError(f"{path} is no OTLP export request: {error}") from error
        bodies[path.name] = path.read_bytes()
    if not bodies:
        raise RecordError(f"no NNN.traces|metrics|logs.pb in {', '.join(map(str, folders))}")
    return dict(sorted(bodies.items()))


def pack(bodies: dict[str, bytes], folder: Path) -> list[dict[str, Any]]:
    """Writes `bodies` compressed into `folder`, removes what else was there; returns the manifest's `files`."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in set(folder.glob("*.pb.zst")) - {folder / f"{name}.zst" for name in bodies}:
        stale.unlink()
    for name, body in bodies.items():
        (folder / f"{name}.zst").write_bytes(zstandard.ZstdCompressor(level=LEVEL).compress(body))
    return [
        {"name": name, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
        for name, body in bodies.items()
    ]


def dump(recordings: dict[str, dict[str, Any]]) -> str:
    """The manifest as TOML text; knows only the shapes that occur in it, with one file a line."""
    blocks = [HEADER]
    for name, facts in recordings.items():
        lines = [f"[recording.{name}]"]
        lines += [f"{key} = {_value(value)}" for key, value in facts.items() if key != "files"]
        lines += ["files = [", *(f"    {_value(entry)}," for entry in facts["files"]), "]"]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{key} = {_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    # JSON's texts, numbers and booleans are TOML's too.
    return json.dumps(value, ensure_ascii=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 when the recording was written, 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m overrun.sample_traces.record",
        description="Pack OTLP bodies into a recording.",
    )
    parser.add_argument("name", help="name of the recording, also its folder")
    parser.add_argument(
        "folders", nargs="+", type=Path, help="folders with NNN.traces|metrics|logs.pb"
    )
    options = parser.parse_args(arguments)
    try:
        bodies = collect(options.folders)
    except RecordError as error:
        print(error, file=sys.stderr)
        return 2
    recordings = manifest() if MANIFEST_PATH.exists() else {}
    facts = recordings.setdefault(options.name, dict(EMPTY))
    facts["files"] = pack(bodies, RECORDINGS_PATH / options.name)
    MANIFEST_PATH.write_text(dump(recordings), encoding="utf-8")
    print(
        f"{options.name}: {len(bodies)} payloads, {sum(map(len, bodies.values())):,} bytes before compression"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Small recordings of captures: what the collector got and what the client saw, for a score without an engine.

A phase's bodies of one signal are one body, as protobuf messages put one after the other are one message.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import msgspec
import zstandard
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.lab import score
from tests.lab.phases import PHASES

FOLDER = Path(__file__).parent / "recordings"
SIGNALS = ("traces", "metrics")
TRUTH, ABOUT = "truth.json.txt", "about.json"
LEVEL = 19


class About(msgspec.Struct, kw_only=True):
    """What a recording's files do not hold."""

    engine: str
    late_steps: float  # see score.late_steps


def pack(capture: Path, to: Path, engine: str) -> None:
    """Write the recording of one capture below `to`."""
    phases = [score.read(capture, name) for name in PHASES]
    for name in PHASES:
        (to / name).mkdir(parents=True)
        for signal in SIGNALS:
            bodies = [
                gzip.decompress(path.read_bytes())
                for path in sorted((capture / name).glob(f"*.{signal}.pb.gz"))
            ]
            joined = b"".join(bodies)
            packed = without_paths(joined) if signal == "traces" else joined
            _write(to / name / f"{signal}.pb.zst", packed)
        _write(to / name / f"{TRUTH}.zst", (capture / name / TRUTH).read_bytes())
    about = About(engine=engine, late_steps=score.late_steps(capture, phases))
    (to / ABOUT).write_bytes(msgspec.json.encode(about) + b"\n")


def without_paths(body: bytes) -> bytes:
    """The spans of an export request without the attributes that name the machine's source files."""
    request = ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                kept = [a for a in span.attributes if not a.key.startswith("code.")]
                del span.attributes[:]
                span.attributes.extend(kept)
    return bytes(request.SerializeToString())


def unpack(names: Sequence[str], to: Path) -> list[Path]:
    """Lay the recordings of these experiments out as captures below `to`; those that are not recorded are left out."""
    made = []
    for recording in sorted(path for name in names for path in (FOLDER / name).glob("*")):
        capture = to / recording.parent.name / recording.name
        for name in PHASES:
            (capture / name).mkdir(parents=True, exist_ok=True)
            for signal in SIGNALS:
                packed = (recording / name / f"{signal}.pb.zst").read_bytes()
                (capture / name / f"{signal}.pb.zst").write_bytes(packed)
            truth = zstandard.decompress((recording / name / f"{TRUTH}.zst").read_bytes())
            (capture / name / TRUTH).write_bytes(truth)
        (capture / ABOUT).write_bytes((recording / ABOUT).read_bytes())
        made.append(capture)
    return made


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(zstandard.ZstdCompressor(level=LEVEL).compress(content))

"""Does any input end, stall or bloat the decoders? Recorded and made bodies, broken in many ways, through every way in.

Each input goes the way of live traffic: trace bytes through the fast decoder and the normaliser, held against the slow decoder; metric bytes
through the points decoder; JSON through its conversion. Allowed outcomes are rows or BadPayload. A stall of ten seconds ends the process with a
stack; memory is read at the end of each tenth.

    python -m tests.benchmarks.fuzz                   # 100,000 inputs
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector import decode, decode_upb, nested, otlp_json
from collector.decode import RawSpans
from collector.errors import BadPayload
from collector.normalize import Rules, normalize
from collector.points import decode_points
from sample_traces import replay
from tests.collector.oracle_otlp import plain_columns

STALL_S = 10.0
SPANS = 4  # of one seed body: small ones are broken in more interesting places per second
RULES = Rules(salt=b"salt")


@dataclass
class Outcome:
    """What became of the inputs."""

    inputs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    slowest_ms: float = 0.0
    disagreements: list[bytes] = field(default_factory=list)
    crashes: list[tuple[str, bytes]] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)


def seeds() -> dict[str, list[bytes]]:
    """Small bodies of every recording, by signal."""
    out: dict[str, list[bytes]] = {"traces": [], "metrics": []}
    for name in replay.manifest():
        for payload in replay.load(name).payloads[:4]:
            if payload.signal == "traces":
                out["traces"] += list(_cut_traces(payload.request))
            elif payload.signal == "metrics":
                out["metrics"] += list(_cut_metrics(payload.request))
    return out


def _cut_traces(request: ExportTraceServiceRequest) -> Iterator[bytes]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            made = ExportTraceServiceRequest()
            kept = made.resource_spans.add()
            kept.resource.CopyFrom(resource.resource)
            inner = kept.scope_spans.add()
            inner.scope.CopyFrom(scope.scope)
            inner.spans.extend(scope.spans[:SPANS])
            yield made.SerializeToString()


def _cut_metrics(request: ExportMetricsServiceRequest) -> Iterator[bytes]:
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for at in range(0, min(len(scope.metrics), 40), SPANS):
                made = ExportMetricsServiceRequest()
                kept = made.resource_metrics.add()
                kept.resource.CopyFrom(resource.resource)
                kept.scope_metrics.add().metrics.extend(scope.metrics[at : at + SPANS])
                yield made.SerializeToString()


# --- ways to break bytes ---


def _flip(data: bytearray, dice: random.Random) -> bytearray:
    for _ in range(dice.randint(1, 8)):
        if data:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return data


def _cut(data: bytearray, dice: random.Random) -> bytearray:
    return data[: dice.randrange(len(data) + 1)]


def _take_out(data: bytearray, dice: random.Random) -> bytearray:
    at = dice.randrange(len(data) + 1)
    del data[at : at + dice.randint(1, 16)]
    return data


def _put_in(data: bytearray, dice: random.Random) -> bytearray:
    at = dice.randrange(len(data) + 1)
    data[at:at] = dice.choice((b"\xff" * 10, b"\x00" * 9, b"\x80" * 12, dice.randbytes(dice.randint(1, 20)), b"\x0a\xff\xff\xff\xff\x0f", b"\x12\x00" * 6))
    return data


def _repeat(data: bytearray, dice: random.Random) -> bytearray:
    at = dice.randrange(len(data) + 1)
    piece = data[at : at + dice.randint(1, 64)]
    data[at:at] = piece * dice.randint(1, 20)
    return data


def _noise(data: bytearray, dice: random.Random) -> bytearray:
    return bytearray(dice.randbytes(dice.randint(0, 200)))


def _extreme(data: bytearray, dice: random.Random) -> bytearray:
    """Eight bytes become a hostile number: times and ids are eight bytes wide."""
    at = dice.randrange(max(len(data) - 8, 1))
    data[at : at + 8] = dice.choice((b"\xff" * 8, b"\x00" * 8, b"\xff" * 7 + b"\x7f", b"\x00" * 7 + b"\x80", b"\x01" + b"\x00" * 7))
    return data


_WAYS: tuple[Callable[[bytearray, random.Random], bytearray], ...] = (_flip, _flip, _cut, _take_out, _put_in, _repeat, _noise, _extreme)


def broken(data: bytes, dice: random.Random) -> bytes:
    """The bytes after one to three breaks."""
    out = bytearray(data)
    for _ in range(dice.randint(1, 3)):
        out = dice.choice(_WAYS)(out, dice)
    return bytes(out)


# --- ways in ---


def traces(data: bytes, out: Outcome) -> str:
    """Through both decoders and the normaliser; they must agree where both read, and the fast one may read only what the slow one reads."""
    fast, slow = _decoded(decode, data), _decoded(decode_upb, data)
    if fast is not None:
        normalize(fast, RULES)
        if (slow is not None and plain_columns(fast) != plain_columns(slow)) or (slow is None and not has_group(data)):
            out.disagreements.append(data)
    return "refused" if fast is None else f"read {min(len(fast), 1)}"


def has_group(data: bytes) -> bool:
    """Whether a tag of protobuf's long gone groups stands in the bytes: an unknown one that is closed wrongly is skipped by the fast decoder."""
    return any(byte & 7 in (3, 4) for byte in data)


def _decoded(decoder: object, data: bytes) -> RawSpans | None:
    try:
        raw: RawSpans = decoder.decode_spans([data])  # type: ignore[attr-defined]
        nested.check(raw)
    except BadPayload:
        return None
    return raw


def metrics(data: bytes, out: Outcome) -> str:
    """Through the points decoder."""
    return f"read {min(len(decode_points(data, RULES).rows), 1)}"


def as_json(signal: str) -> Callable[[bytes, Outcome], str]:
    """Through the conversion from JSON, and then as protobuf."""

    def go(data: bytes, out: Outcome) -> str:
        return {"traces": traces, "metrics": metrics}[signal](otlp_json.to_protobuf(signal, data), out)

    return go


def run(inputs: int, seed: int, *, memory: bool = True) -> Outcome:
    """So many inputs from a seed: the same ones each time."""
    dice = random.Random(seed)
    bodies = seeds()
    kinds: dict[str, tuple[list[bytes], Callable[[bytes, Outcome], str]]] = {"traces": (bodies["traces"], traces), "metrics": (bodies["metrics"], metrics)}
    for signal in ("traces", "metrics"):
        documents = [json.dumps(MessageToDict(otlp_json.REQUESTS[signal]().FromString(b))).encode() for b in bodies[signal]]
        kinds[f"{signal} JSON"] = (documents, as_json(signal))
    names, weights = list(kinds), (6, 2, 1, 1)
    out = Outcome()
    for i in range(inputs):
        kind = dice.choices(names, weights)[0]
        data = broken(dice.choice(kinds[kind][0]), dice)
        if i % 100 == 0:
            faulthandler.dump_traceback_later(STALL_S + 50, exit=True)
        started = time.perf_counter()
        try:
            said = kinds[kind][1](data, out)
        except BadPayload:
            said = "refused"
        except Exception as error:  # what this looks for
            said = "crashed"
            out.crashes.append((f"{kind}: {type(error).__name__}: {error}", data))
        out.slowest_ms = max(out.slowest_ms, (time.perf_counter() - started) * 1e3)
        out.kinds[f"{kind} {said}"] += 1
        out.inputs += 1
        if memory and (i + 1) % max(inputs // 10, 1) == 0:
            out.rss_mib.append(_rss_mib())
    faulthandler.cancel_dump_traceback_later()
    return out


def _rss_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    started = time.monotonic()
    out = run(chosen.inputs, chosen.seed)
    took_s = time.monotonic() - started
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, seed {chosen.seed}: {out.inputs:,} inputs in {took_s:.0f} s")
    print(", ".join(f"{kind} {n:,}" for kind, n in sorted(out.kinds.items())))
    print(f"crashes {len(out.crashes)}, decoders disagree {len(out.disagreements)}, slowest {out.slowest_ms:.0f} ms, "
          f"memory after each tenth {' '.join(f'{m:.0f}' for m in out.rss_mib)} MiB")
    for what, data in out.crashes[:5]:
        print(what[:300], data[:200].hex())
    for data in out.disagreements[:5]:
        print("disagree", data.hex()[:2_000])
    grown = out.rss_mib[-1] - out.rss_mib[0] if out.rss_mib else 0.0
    return int(bool(out.crashes or out.disagreements or grown > 100))


if __name__ == "__main__":
    sys.exit(main())

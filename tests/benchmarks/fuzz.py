"""Does any input end, stall or bloat the decoders? Recorded and made bodies, broken in many ways, through every way in.

Each input goes the way of live traffic: trace bytes through the fast decoder and the normaliser, held against the slow decoder; metric bytes
through the points decoder; JSON through its conversion. Allowed outcomes are rows or BadPayload. A stall ends the process with
a stack; memory is read at the end of each tenth.

    python -m tests.benchmarks.fuzz                   # 100,000 inputs
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.collector.decode import nested, otlp_json, otlp_spans, otlp_spans_upb
from overrun.collector.decode.columns import RawSpans
from overrun.collector.errors import BadPayload
from overrun.collector.normalise.points import decode_points
from overrun.collector.normalise.spans import Rules, normalize
from overrun.sample_traces import replay
from tests.benchmarks.results import add_write_flag, measured, record
from tests.collector.oracle_otlp import as_otlp_json, plain_columns

STALL_S = 10.0
TOGETHER = 16  # bodies normalised at once
SPANS = 4  # of one seed body: small ones are broken in more interesting places per second
RULES = Rules(salt=b"salt")


@dataclass
class Outcome:
    """What became of the inputs."""

    inputs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    slowest_ms: float = 0.0  # of the processor, whatever else the machine does
    slowest: bytes = b""
    disagreements: list[bytes] = field(default_factory=list)
    crashes: list[tuple[str, bytes]] = field(default_factory=list)
    readable: list[bytes] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)


def seeds() -> dict[str, list[bytes]]:
    """Small bodies of every recording, by signal; of metrics those that points are kept of."""
    out: dict[str, list[bytes]] = {"traces": [], "metrics": []}
    for name in replay.manifest():
        for payload in replay.load(name).payloads[:4]:
            if payload.signal == "traces":
                out["traces"] += list(_cut_traces(payload.request))
            elif payload.signal == "metrics":
                out["metrics"] += [
                    body
                    for body in _cut_metrics(payload.request)
                    if decode_points(body, RULES).rows
                ]
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
    data[at:at] = dice.choice(
        (
            b"\xff" * 10,
            b"\x00" * 9,
            b"\x80" * 12,
            dice.randbytes(dice.randint(1, 20)),
            b"\x0a\xff\xff\xff\xff\x0f",
            b"\x12\x00" * 6,
        )
    )
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
    data[at : at + 8] = dice.choice(
        (
            b"\xff" * 8,
            b"\x00" * 8,
            b"\xff" * 7 + b"\x7f",
            b"\x00" * 7 + b"\x80",
            b"\x01" + b"\x00" * 7,
        )
    )
    return data


_WAYS: tuple[Callable[[bytearray, random.Random], bytearray], ...] = (
    _flip,
    _flip,
    _cut,
    _take_out,
    _put_in,
    _repeat,
    _noise,
    _extreme,
)


def broken(data: bytes, dice: random.Random) -> bytes:
    """The bytes after one to three breaks."""
    out = bytearray(data)
    for _ in range(dice.randint(1, 3)):
        out = dice.choice(_WAYS)(out, dice)
    return bytes(out)


# --- ways to twist what stays well formed ---

_TEXTS = (
    "",
    "\x00",
    "x" * 3_000,
    "größe 模型 \U0001f40d",
    "[",
    '{"a":',
    '["stop"]',
    "NaN",
    "-1",
    "1e999",
    "True",
    "http://u:p@h/p?q=1#f",
    "\x1f\x1b0",
    "gen_ai.usage.output_tokens",
)
_NUMBERS = (
    0,
    1,
    -1,
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    1_790_000_000_000_000_000,
)
_DOUBLES = (0.0, -0.0, -1.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"))


def twisted(message: Message, dice: random.Random) -> None:
    """Some fields of a message become what no sender should send and one will."""
    for _ in range(dice.randint(1, 5)):
        _twist(message, dice, 0)


def _twist(message: Message, dice: random.Random, depth: int) -> None:
    fields = [f for f in message.DESCRIPTOR.fields if f.message_type is None or depth < 14]
    if not fields:
        return
    inner = [f for f in fields if f.message_type is not None]
    field = dice.choice(inner if inner and dice.random() < 0.85 else fields)
    held = getattr(message, field.name)
    if field.message_type is None:
        _set(message, field, dice)
    elif not field.is_repeated:
        held.SetInParent()
        _twist(held, dice, depth + 1)
    elif held and dice.random() < 0.1:
        del held[dice.randrange(len(held))]
    elif held and dice.random() < 0.1:
        held.add().CopyFrom(dice.choice(list(held)))
    else:
        _twist(
            dice.choice(list(held)) if held and dice.random() < 0.9 else held.add(), dice, depth + 1
        )


def _set(message: Message, field: FieldDescriptor, dice: random.Random) -> None:
    if field.type == FieldDescriptor.TYPE_STRING:
        value: object = dice.choice(_TEXTS)
    elif field.type == FieldDescriptor.TYPE_BYTES:
        value = dice.randbytes(dice.choice((0, 1, 7, 8, 9, 16, 17, 300)))
    elif field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        value = dice.choice(_DOUBLES)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        value = dice.random() < 0.5
    else:
        bits, signed = _WIDTHS[field.cpp_type]
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        value = min(max(dice.choice(_NUMBERS), low), high)
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


_WIDTHS = {
    FieldDescriptor.CPPTYPE_INT32: (32, True),
    FieldDescriptor.CPPTYPE_INT64: (64, True),
    FieldDescriptor.CPPTYPE_UINT32: (32, False),
    FieldDescriptor.CPPTYPE_UINT64: (64, False),
    FieldDescriptor.CPPTYPE_ENUM: (31, False),
}


# --- ways in ---


def traces(data: bytes, out: Outcome) -> str:
    """Through both decoders and the normaliser; they must read alike, or both refuse."""
    fast, slow = _decoded(otlp_spans, data), _decoded(otlp_spans_upb, data)
    if fast is not None:
        out.readable.append(data)
        if len(out.readable) == TOGETHER:
            normalise(out)
    if (fast is None) != (slow is None) or (
        fast is not None and slow is not None and plain_columns(fast) != plain_columns(slow)
    ):
        out.disagreements.append(data)
    return "refused" if fast is None else f"read {min(len(fast), 1)}"


def normalise(out: Outcome) -> None:
    """What was read of late, together, as the bodies of one commit are."""
    bodies, out.readable = out.readable, []
    normalize(otlp_spans.decode_spans(bodies), RULES)


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
        return {"traces": traces, "metrics": metrics}[signal](
            otlp_json.to_protobuf(signal, data), out
        )

    return go


_WAYS_IN: dict[str, Callable[[bytes, Outcome], str]] = {
    "traces": traces,
    "metrics": metrics,
    "traces JSON": as_json("traces"),
    "metrics JSON": as_json("metrics"),
}


def one_input(kind: str, bodies: dict[str, list[bytes]], dice: random.Random) -> bytes:
    """A seed body twisted, broken, or both."""
    signal, _, form = kind.partition(" ")
    message = otlp_json.REQUESTS[signal]()
    message.ParseFromString(dice.choice(bodies[signal]))
    how = dice.random()
    if how < 0.8:
        twisted(message, dice)
    data = as_otlp_json(message) if form else bytes(message.SerializeToString())
    return broken(data, dice) if how > 0.6 else data


def run(inputs: int, seed: int, *, memory: bool = True) -> Outcome:
    """So many inputs from a seed: the same ones each time."""
    dice = random.Random(seed)
    bodies = seeds()
    out = Outcome()
    for signal in (
        "traces",
        "metrics",
    ):  # what is loaded and prepared at first use is no input's fault
        _WAYS_IN[signal](bodies[signal][0], Outcome())
    for i in range(inputs):
        kind = dice.choices(list(_WAYS_IN), (6, 2, 1, 1))[0]
        data = one_input(kind, bodies, dice)
        if i % 100 == 0:
            faulthandler.dump_traceback_later(STALL_S * 10, exit=True)
        started = time.process_time()
        try:
            said = _WAYS_IN[kind](data, out)
        except BadPayload:
            said = "refused"
        except Exception as error:  # what this looks for
            said = "crashed"
            out.crashes.append((f"{kind}: {type(error).__name__}: {error}", data))
        took_ms = (time.process_time() - started) * 1e3
        if took_ms > out.slowest_ms:
            out.slowest_ms, out.slowest = took_ms, data
        out.kinds[f"{kind} {said}"] += 1
        out.inputs += 1
        if memory and (i + 1) % max(inputs // 10, 1) == 0:
            out.rss_mib.append(_rss_mib())
    normalise(out)
    faulthandler.cancel_dump_traceback_later()
    return out


def _rss_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    add_write_flag(parser)
    chosen = parser.parse_args(arguments)
    started = time.monotonic()
    out = run(chosen.inputs, chosen.seed)
    took_s = time.monotonic() - started
    print(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, seed {chosen.seed}: {out.inputs:,} inputs in {took_s:.0f} s"
    )
    print(", ".join(f"{kind} {n:,}" for kind, n in sorted(out.kinds.items())))
    print(
        f"crashes {len(out.crashes)}, decoders disagree {len(out.disagreements)}, slowest {out.slowest_ms:.0f} ms of CPU ({len(out.slowest)} bytes), "
        f"memory after each tenth {' '.join(f'{m:.0f}' for m in out.rss_mib)} MiB"
    )
    for what, data in out.crashes[:5]:
        print(what[:300], data[:200].hex())
    for data in out.disagreements[:5]:
        print("disagree", data.hex()[:2_000])
    if chosen.write:
        figure = partial(
            measured, script="make bench-fuzz", conditions=f"seed {chosen.seed}, {took_s:.0f} s"
        )
        found = [
            figure("Crashes", len(out.crashes), of=out.inputs),
            figure(
                "Disagreements of the fast and the slow decoder",
                len(out.disagreements),
                of=out.inputs,
            ),
            figure("Slowest input, CPU", round(out.slowest_ms), "ms"),
        ]
        if out.rss_mib:
            after = {"after the last": round(out.rss_mib[-1])}
            found.append(
                figure("Memory after the first tenth", round(out.rss_mib[0]), "MiB", more=after)
            )
        record("fuzz", found)
    grown = out.rss_mib[-1] - out.rss_mib[0] if out.rss_mib else 0.0
    return int(bool(out.crashes or out.disagreements or grown > 100))


if __name__ == "__main__":
    sys.exit(main())

"""Does any input end, stall or bloat the decoders? Recorded and made bodies, broken in many ways, through every way in.

Each input goes the way of live traffic: trace bytes through the fast decoder and the normaliser, held against the slow decoder, many bodies at once as in a
commit (fuzz_traces.py); metric bytes through the points decoder; log bytes through theirs; JSON through its conversion, and where it was not broken it must
read as its protobuf does. Allowed outcomes are rows or BadPayload. One input in ten goes to a running server instead, several at a time (fuzz_wire.py). A stall
ends the process with a stack; memory is read at the end of each tenth.

    python -m tests.benchmarks.fuzz                   # 100,000 inputs
    python -m tests.benchmarks.fuzz --minutes 10 --seed 3 --write --add    # added to what docs/results has
"""

from __future__ import annotations

import argparse
import faulthandler
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.collector.decode import items, otlp_json, otlp_spans_upb
from overrun.collector.errors import BadPayload
from overrun.collector.normalise import log_records
from overrun.collector.normalise.points import decode_points
from overrun.sample_traces import replay
from tests.benchmarks import fuzz_traces, fuzz_wire, results
from tests.benchmarks.fuzz_breaks import broken, twisted
from tests.benchmarks.fuzz_traces import RULES
from tests.benchmarks.hardening import rss_mib
from tests.benchmarks.results import Figure, add_write_flag, measured, record
from tests.collector.oracle_otlp import as_otlp_json, plain_columns

STALL_S = 10.0
TOGETHER = 64  # trace bodies read at once
WAITS = "waits"
SPANS = 4  # of one seed body: small ones are broken in more interesting places per second
MOST_ITEMS = 250_000
CRASHES = "Crashes"
DISAGREEMENTS = "Disagreements of the fast and the slow decoder"


@dataclass
class Outcome:
    """What became of the inputs."""

    inputs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    slowest_ms: float = 0.0  # of the processor, whatever else the machine does
    slowest: bytes = b""
    disagreements: list[bytes] = field(default_factory=list)
    crashes: list[tuple[str, bytes]] = field(default_factory=list)
    waiting: list[bytes] = field(default_factory=list)  # trace bodies, to be read together
    waiting_kinds: list[str] = field(default_factory=list)  # of each, how it came
    rss_mib: list[float] = field(default_factory=list)


Way = Callable[[bytes, Outcome], str]


def seeds() -> dict[str, list[bytes]]:
    """Small bodies of every recording, by signal; of metrics those that points are kept of."""
    out: dict[str, list[bytes]] = {"traces": [], "metrics": [], "logs": [answer_log()]}
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
            else:
                out["logs"].append(payload.request.SerializeToString())
    return out


def answer_log() -> bytes:
    """A log record that says why an answer ended."""
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.time_unix_nano = 1_790_000_000_000_000_000
    record.event_name = "gen_ai.choice"
    record.trace_id, record.span_id = bytes(range(16)), bytes(range(8))
    record.attributes.add(key="finish_reason").value.string_value = "stop"
    record.body.kvlist_value.values.add(key="finish_reason").value.string_value = "length"
    return bytes(request.SerializeToString())


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


# --- ways in ---


def traces(data: bytes, out: Outcome) -> str:
    """Wait for others, to be read with them through both decoders and the normaliser; the decoders must read alike, or both refuse."""
    out.waiting.append(data)
    return WAITS


def traces_together(out: Outcome) -> None:
    """The bodies that wait, as those of one commit."""
    bodies, kinds = out.waiting, out.waiting_kinds
    out.waiting, out.waiting_kinds = [], []
    if not bodies:
        return
    started = time.process_time()
    read = fuzz_traces.read(bodies)
    out.disagreements += read.disagreements
    out.crashes += read.crashes
    out.kinds.update(f"{kind} {read.said[at]}" for at, kind in enumerate(kinds))
    # Were it one of them that took long, it took longer than their mean.
    _note_slowest(out, (time.process_time() - started) * 1e3 / len(bodies), bodies[0])


def _note_slowest(out: Outcome, took_ms: float, data: bytes) -> None:
    if took_ms > out.slowest_ms:
        out.slowest_ms, out.slowest = took_ms, data


def metrics(data: bytes, out: Outcome) -> str:
    """Through the points decoder."""
    return f"read {min(len(decode_points(data, RULES).rows), 1)}"


def logs(data: bytes, out: Outcome) -> str:
    """Through what reads log records; what it makes of them goes to the writer as a body of its own."""
    notes = log_records.told(data)[1]
    assert log_records.unpack(log_records.pack(notes)) == notes
    return f"read {min(len(notes), 1)}"


def as_json(signal: str) -> Way:
    """Through the conversion from JSON, and then as protobuf."""

    def go(data: bytes, out: Outcome) -> str:
        return _PLAIN[signal](otlp_json.to_protobuf(signal, data), out)

    return go


_PLAIN: dict[str, Way] = {"traces": traces, "metrics": metrics, "logs": logs}
_WAYS_IN: dict[str, Way] = {
    **_PLAIN,
    **{f"{signal} JSON": as_json(signal) for signal in _PLAIN},
}
_WEIGHTS = (6, 2, 1, 1, 1, 0.5)


def what_it_says(signal: str, data: bytes) -> object:
    """All that is read of a body, for one equality; None where it is refused."""
    try:
        if signal == "traces":
            raw = fuzz_traces.decoded(otlp_spans_upb, [data])
            return None if raw is None else plain_columns(raw)
        if signal == "metrics":
            points = decode_points(data, RULES)
            return repr((points.rows, points.rejected))  # NaN is NaN here
        return log_records.told(data)
    except BadPayload:
        return None


def disagree(signal: str, text: bytes, data: bytes) -> bool:
    """Whether a body in JSON and the same one in protobuf are read in two ways."""
    try:
        converted = otlp_json.to_protobuf(signal, text)
    except BadPayload:
        return what_it_says(signal, data) is not None
    return what_it_says(signal, converted) != what_it_says(signal, data)


def one_input(
    kind: str, bodies: dict[str, list[bytes]], dice: random.Random
) -> tuple[bytes, bytes | None]:
    """A seed body twisted, broken, or both; and where it is JSON that was not broken, the same as protobuf."""
    signal, _, form = kind.partition(" ")
    message = otlp_json.REQUESTS[signal]()
    message.ParseFromString(dice.choice(bodies[signal]))
    how = dice.random()
    if how < 0.8:
        twisted(message, dice)
    plain = bytes(message.SerializeToString())
    data = as_otlp_json(message) if form else plain
    if how > 0.6:
        return broken(data, dice), None
    return data, plain if form else None


def run(
    inputs: int,
    seed: int,
    *,
    memory: bool = True,
    wire: fuzz_wire.Wire | None = None,
    within_s: float = math.inf,
) -> Outcome:
    """So many inputs from a seed: the same ones each time. With `wire`, one in ten goes to a server; none begins after `within_s`."""
    dice = random.Random(seed)
    bodies = seeds()
    out = Outcome()
    until = time.monotonic() + within_s
    for signal in _PLAIN:  # what is loaded and prepared at first use is no input's fault
        _WAYS_IN[signal](bodies[signal][0], Outcome())
    fuzz_traces.read([bodies["traces"][0]])
    # A stack of whatever stalls; on a machine that has no time for this process it is none.
    faulthandler.dump_traceback_later(STALL_S * 100, exit=True)
    for i in range(inputs):
        if time.monotonic() > until:
            break
        if i % 100 == 0:
            faulthandler.dump_traceback_later(STALL_S * 100, exit=True)
        if wire is not None and i % 10 == 9:
            wire.begin(f"{seed}.{i}")
        else:
            in_process(bodies, dice, out)
        out.inputs += 1
        if memory and (i + 1) % max(inputs // 10, 1) == 0:
            out.rss_mib.append(_rss_mib())
    traces_together(out)
    if wire is not None:
        out.kinds.update(wire.ended())
        out.crashes += wire.crashes
    faulthandler.cancel_dump_traceback_later()
    return out


def in_process(bodies: dict[str, list[bytes]], dice: random.Random, out: Outcome) -> None:
    """One input through the functions themselves; a trace body waits for others."""
    kind = dice.choices(list(_WAYS_IN), _WEIGHTS)[0]
    data, plain = one_input(kind, bodies, dice)
    started = time.process_time()
    try:
        if " " not in kind:
            items.count(kind, data, MOST_ITEMS)
        said = _WAYS_IN[kind](data, out)
        if plain is not None and disagree(kind.partition(" ")[0], data, plain):
            out.disagreements.append(data)
    except BadPayload:
        said = "refused"
    except Exception as error:  # what this looks for
        said = "crashed"
        out.crashes.append((f"{kind}: {type(error).__name__}: {error}", data))
    _note_slowest(out, (time.process_time() - started) * 1e3, data)
    if said != WAITS:
        out.kinds[f"{kind} {said}"] += 1
        return
    out.waiting_kinds.append(kind)
    if len(out.waiting) == TOGETHER:
        traces_together(out)


def _rss_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def figures(
    out: Outcome, held_s: float, server_mib: float, conditions: str, *, add: bool
) -> list[Figure]:
    """The headlines for docs/results; with `add`, together with the runs that are recorded there."""
    earlier = {figure.what: figure for figure in results.read("fuzz")} if add else {}

    def figure(what: str, value: float, unit: str = "", **more: Any) -> Figure:
        return measured(what, value, unit, script="make bench-fuzz", **more)

    def summed(what: str, found: int) -> Figure:
        was = earlier.get(what)
        runs = f"{was.more.get('runs', '')}; {conditions}" if was else conditions
        before = int(was.value) if was and not isinstance(was.value, tuple) else 0
        inputs = out.inputs + (was.of or 0 if was else 0)
        return figure(what, before + found, of=inputs, more={"runs": runs.removeprefix("; ")})

    def highest(what: str, found: float, unit: str, **more: Any) -> Figure:
        was = earlier.get(what)
        before = was.value if was and not isinstance(was.value, tuple) else 0
        return figure(what, max(before, found), unit, **more)

    found = [
        summed(CRASHES, len(out.crashes)),
        summed(DISAGREEMENTS, len(out.disagreements)),
        highest("Slowest input, CPU", round(out.slowest_ms), "ms"),
        highest("Longest that an input held a server, CPU", round(held_s, 2), "s"),
        highest("Peak memory of the server", round(server_mib), "MiB", page=False),
    ]
    if out.rss_mib:
        after = {"after the last": round(out.rss_mib[-1])}
        first = round(out.rss_mib[0])
        found.append(figure("Memory after the first tenth", first, "MiB", more=after))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin none after these")
    add_write_flag(parser)
    parser.add_argument(
        "--add", action="store_true", help="with --write: add to the inputs that are recorded"
    )
    chosen = parser.parse_args(arguments)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="overrun-fuzz-") as folder:
        wire = fuzz_wire.Wire(Path(folder), seeds())
        out = run(chosen.inputs, chosen.seed, wire=wire, within_s=chosen.minutes * 60)
        server_mib = rss_mib(wire.pid)
        if wire.close():
            out.crashes.append(("the server did not end as it should", b""))
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
        print(what[:4_000], data[:200].hex())
    for data in out.disagreements[:5]:
        print("disagree", data.hex()[:2_000])
    conditions = f"seed {chosen.seed}, {out.inputs:,} inputs in {took_s:,.0f} s"
    if chosen.write:
        record("fuzz", figures(out, wire.slowest_s, server_mib, conditions, add=chosen.add))
    grown = out.rss_mib[-1] - out.rss_mib[0] if out.rss_mib else 0.0
    return int(bool(out.crashes or out.disagreements or grown > 100))


if __name__ == "__main__":
    sys.exit(main())

"""Does the store hold every acknowledged span, once and as it was sent, whatever the load? Many short runs, each another mix.

Each run starts a server on a file of its own and draws the number of connections (1 to 64), the protocol (HTTP, gRPC or both), gzip, the sizes of bodies (1 to
2,000 spans), bursts and pauses, readers beside it, and how the server ends (SIGTERM or kill -9). Some runs go on past a million spans, when the file is opened
anew. With `--slow-disk` every fsync takes 20 to 200 ms longer (strace, where it is installed). Afterwards every acknowledged span is looked up (sent.py).

    python -m tests.benchmarks.integrity                    # 200 runs of 15 s
    python -m tests.benchmarks.integrity --runs 20 --seconds 10
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import multiprocessing
import os
import random
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.ingest import GRPC_METHOD, SERVE, STOP_TIMEOUT_S, Server, wait_assembled
from tests.benchmarks.payload import make
from tests.benchmarks.results import add_write_flag, measured, record
from tests.benchmarks.sent import Found, Template, compare

SIZES = (1, 7, 50, 200, 512, 2_000)
MAX_PROCESSES = 2
ROOT = Path(__file__).parents[2]
REFUSED = {429, 502, 503, 504}

Sent = tuple[int, int]
"""Template and mask of a body."""


@dataclass(frozen=True)
class Mix:
    """How one run is loaded."""

    connections: int
    protocols: tuple[str, ...]
    gzip_share: float
    sizes: tuple[int, ...]
    burst_s: float
    pause_s: float
    readers: int
    kill: bool
    slow_disk: bool

    @classmethod
    def drawn(cls, dice: random.Random, *, slow_disk: bool) -> Mix:
        """One of many."""
        sizes = (
            (512,)
            if dice.random() < 0.4
            else tuple(dice.sample(SIZES, dice.randint(1, len(SIZES))))
        )
        return cls(
            dice.choice((1, 2, 4, 8, 8, 16, 32, 64)),
            dice.choice((("http",), ("grpc",), ("http", "grpc"))),
            dice.choice((0.0, 0.0, 0.5)),
            sizes,
            dice.choice((1.0, 3.0, 100.0)),
            dice.choice((0.5, 3.0)),
            dice.choice((0, 0, 1, 3)),
            dice.random() < 0.5,
            slow_disk and dice.random() < 0.3,
        )


# --- the senders ---


class Http:
    """A connection that says whether a body was acknowledged (True), refused (False), or neither (None)."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=60)

    def send(self, body: bytes, *, packed: bool) -> bool | None:
        headers = {"content-type": "application/x-protobuf"} | (
            {"content-encoding": "gzip"} if packed else {}
        )
        try:
            self._connection.request(
                "POST", "/v1/traces", gzip.compress(body, 1) if packed else body, headers
            )
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return None
        assert answer.status == 200 or answer.status in REFUSED, answer.status
        return answer.status == 200

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class Grpc:
    """As Http, over gRPC."""

    def __init__(self, address: str) -> None:
        import grpc  # type: ignore[import-untyped, unused-ignore]

        self._grpc = grpc
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_send_message_length", -1),
        ]
        self._channel = grpc.insecure_channel(address, options)
        self._call = self._channel.unary_unary(GRPC_METHOD)

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def send(self, body: bytes, *, packed: bool) -> bool | None:
        try:
            self._call(
                body, timeout=60, compression=self._grpc.Compression.Gzip if packed else None
            )
        except self._grpc.RpcError as error:
            return (
                False
                if error.code()
                in (self._grpc.StatusCode.RESOURCE_EXHAUSTED, self._grpc.StatusCode.UNAVAILABLE)
                else None
            )
        return True


SENDERS: dict[str, Any] = {"http": Http, "grpc": Grpc}


def work(
    mix: Mix,
    addresses: dict[str, str],
    bodies: list[bytes],
    connections: int,
    seed: int,
    seconds: float,
    out: Any,
) -> None:
    """A client process: puts (acknowledged, unsure) bodies and the number of refusals into `out`."""
    templates = [Template(data) for data in bodies]
    acknowledged: list[Sent] = []
    unsure: list[Sent] = []
    refusals = [0]
    began = time.monotonic()

    def lane(number: int) -> None:
        dice = random.Random(f"{seed}.{number}")
        protocol = mix.protocols[number % len(mix.protocols)]
        sender = SENDERS[protocol](addresses[protocol])
        waiting: Sent | None = None
        while (now := time.monotonic() - began) < seconds:
            into = now % (mix.burst_s + mix.pause_s)
            if into > mix.burst_s:
                time.sleep(mix.burst_s + mix.pause_s - into)
                continue
            sent = waiting or (dice.randrange(len(templates)), dice.getrandbits(63) | 1)
            answer = sender.send(
                templates[sent[0]].body(sent[1]), packed=dice.random() < mix.gzip_share
            )
            waiting = sent if answer is False else None
            (acknowledged if answer else unsure).append(sent)
            if not answer:
                refusals[0] += answer is False
                time.sleep(0.1)

    threads = [threading.Thread(target=lane, args=(n,)) for n in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out.put((acknowledged, unsure, refusals[0]))


def read(address: str, stop: threading.Event, *, since: str = "1h", every_s: float = 0.2) -> None:
    """A reader: asks for reports and lists until `stop`, and rests `every_s` after each round."""
    paths = (
        f"/api/v1/report?since={since}",
        f"/api/v1/requests?since={since}&limit=50",
        f"/api/v1/stages?since={since}",
    )
    while not stop.wait(every_s):
        for path in paths:
            connection = http.client.HTTPConnection(address, timeout=60)
            try:
                connection.request("GET", path)
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                return
            finally:
                connection.close()


# --- one run ---


@dataclass(frozen=True)
class Run:
    """What one run showed."""

    mix: Mix
    acknowledged: int
    refusals: int
    found: Found


def one_run(folder: Path, mix: Mix, seed: int, seconds: float, server_command: str = SERVE) -> Run:
    """Load a server, end it, and compare its file with what was acknowledged."""
    bodies = [
        make(size, end_ns=time.time_ns(), seed=size, spans_per_body=size).bodies[0].data
        for size in mix.sizes
    ]
    command = server_command
    if mix.slow_disk:
        delay = random.Random(seed).choice((20, 60, 200)) * 1_000
        command = f"strace -f -qq -o /dev/null -e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_exit={delay} {command}"
    server = Server(command, folder)
    spawn = multiprocessing.get_context("spawn")
    out = spawn.Queue()
    shares = [
        share
        for share in (
            mix.connections - mix.connections // MAX_PROCESSES,
            mix.connections // MAX_PROCESSES,
        )
        if share
    ]
    clients = [
        spawn.Process(
            target=work,
            args=(mix, server.addresses, bodies, share, 1_000 * seed + i, seconds, out),
            daemon=True,
        )
        for i, share in enumerate(shares)
    ]
    stop = threading.Event()
    readers = [
        threading.Thread(target=read, args=(server.addresses["http"], stop))
        for _ in range(mix.readers)
    ]
    try:
        for client in clients:
            client.start()
        for reader in readers:
            reader.start()
        heard = [out.get(timeout=seconds + 300) for _ in clients]
        if not mix.kill:
            wait_assembled(f"http://{server.addresses['http']}", 30.0)
    finally:
        stop.set()
        _end(server, signal.SIGKILL if mix.kill else signal.SIGTERM, slowed=mix.slow_disk)
        for client in clients:
            client.join(60)
        for reader in readers:
            reader.join(60)
    templates = [Template(data) for data in bodies]
    acknowledged = [sent for part, _, _ in heard for sent in part]
    unsure = [sent for _, part, _ in heard for sent in part]
    found = compare(server.db, _of(templates, acknowledged), _of(templates, unsure))
    return Run(
        mix,
        sum(templates[t].spans.num_rows for t, _ in acknowledged),
        sum(refusals for _, _, refusals in heard),
        found,
    )


def _end(server: Server, how: signal.Signals, *, slowed: bool) -> None:
    """End the server itself: what slows its disk is the process above it, and ends with it."""
    if not slowed:
        server.stop(how)
        return
    _, pid, *_ = server.tree()
    os.kill(pid, how)
    server.process.wait(STOP_TIMEOUT_S)


def _of(templates: list[Template], sent: list[Sent]) -> list[Any]:
    masks: dict[int, list[int]] = defaultdict(list)
    for template, mask in sent:
        masks[template].append(mask)
    return [templates[template].sent(of) for template, of in masks.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--slow-disk", action="store_true", help="delay fsync in some of the runs (needs strace)"
    )
    parser.add_argument("--server", default=SERVE, help="command; {db} is the database file")
    add_write_flag(parser)
    parser.add_argument(
        "--stop-at-first", action="store_true", help="end with the first run that is not right"
    )
    chosen = parser.parse_args(arguments)
    if chosen.slow_disk and shutil.which("strace") is None:
        parser.error("--slow-disk needs strace: install it, or leave the flag out")
    shlex.split(chosen.server)
    total: dict[str, int] = defaultdict(int)
    began = time.monotonic()
    for seed in range(chosen.seed, chosen.seed + chosen.runs):
        dice = random.Random(seed)
        mix = Mix.drawn(dice, slow_disk=chosen.slow_disk)
        seconds = (
            3 * chosen.seconds if seed % 10 == 0 else chosen.seconds
        )  # past a million spans the file is opened anew
        with tempfile.TemporaryDirectory(prefix="overrun-integrity-") as folder:
            run = one_run(Path(folder), mix, seed, seconds, chosen.server)
        for name, n in {
            "acknowledged": run.acknowledged,
            "refusals": run.refusals,
            **asdict(run.found),
        }.items():
            total[name] += n
        total["runs"] += 1
        total["runs_wrong"] += not run.found.right
        print(
            f"{seed}: {mix.connections} x {'+'.join(mix.protocols)}, {run.acknowledged:,} acknowledged, {run.refusals} refused, {run.found}",
            flush=True,
        )
        if chosen.stop_at_first and not run.found.right:
            break
    took_s = round(time.monotonic() - began)
    print(json.dumps({"took_s": took_s, "seed": chosen.seed, **total}))
    if chosen.write:
        sent = f"{total['acknowledged']:,} spans acknowledged, {total['refusals']:,} bodies refused"
        mixes = f"{total['runs']} runs of {chosen.seconds:g} s, {sent}, seed {chosen.seed}"
        record(
            "integrity",
            [
                measured(what, total[key], "spans", script="make bench-integrity", conditions=mixes)
                for what, key in (
                    ("Acknowledged spans lost", "lost"),
                    ("Acknowledged spans stored with another value", "changed"),
                    ("Spans stored twice", "doubled"),
                    ("Spans stored that were never sent", "unknown"),
                )
            ],
        )
    return int(bool(total["runs_wrong"]))


if __name__ == "__main__":
    sys.exit(main())

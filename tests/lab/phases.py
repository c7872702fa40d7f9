"""Run one phase after the other: start what the setup needs, send the schedule, keep telemetry and truth."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import httpx
import msgspec

from tests.lab import lengths
from tests.lab.application import MODEL, STOPPING_S, words
from tests.lab.capture import Capture
from tests.lab.client import Seen
from tests.lab.experiments import Experiment, Setup
from tests.lab.load import schedule
from tests.lab.servers import Engine, Server, free_port, start_engine, start_module

PHASES = ("healthy", "fault", "fixed")
SETTLE_S = 8.0  # the last spans are on their way, one more page is read
WARM_UP = 3  # requests to each new engine before it is captured


class Phase(msgspec.Struct, kw_only=True):
    """What is known of a phase besides the files beside it."""

    name: str
    begin_unix: float
    end_unix: float
    refused_bodies: int
    load_average: tuple[float, float, float]
    seen: list[Seen]


class Bench:
    """The running servers. Engines go on while the next phase needs the same ones."""

    def __init__(self, environment: Path, model: Path, folder: Path, capture: Capture) -> None:
        self.environment, self.model, self.folder = environment, model, folder
        self.capture = capture
        self._engines: tuple[Engine, ...] = ()
        self._servers: list[Server] = []

    def close(self) -> None:
        """Stop all engines."""
        for server in self._servers:
            server.stop()
        self._servers, self._engines = [], ()

    def engines(self, wanted: tuple[Engine, ...]) -> list[Server]:
        """Servers for `wanted`, new ones where the running ones differ, each warm."""
        if wanted != self._engines:
            ports = [server.port for server in self._servers]
            self.close()
            for number, engine in enumerate(wanted):
                port = ports[number] if engine.same_address and number < len(ports) else None
                started = start_engine(
                    self.environment, self.model, engine, self.capture.url, self.folder, port
                )
                self._servers.append(started)
            for server, engine in zip(self._servers, wanted, strict=True):
                server.wait("/health")
                if not engine.cold_s:
                    warm_up(server)
            self._engines = wanted
        return self._servers

    def run(self, name: str, setup: Setup, seed: int) -> Phase:
        """One phase below `folder/name`."""
        target = self.folder / name
        target.mkdir(parents=True)
        engines = self.engines(setup.engines)
        beside: list[Server] = []
        try:
            urls = self._ways(setup, engines, beside)
            application = self._application(name, setup, urls, seed)
            beside.append(application)
            application.wait("/", 60.0)
            self.capture.engines = {s.url.removeprefix("http://"): s.url for s in engines}
            self.capture.folder = target
            return self._send(name, setup, seed, application, target)
        finally:
            self.capture.folder, self.capture.engines = None, {}
            for server in beside:
                server.stop()

    def _ways(
        self, setup: Setup, engines: Sequence[Server], beside: list[Server]
    ) -> tuple[str, ...]:
        """The URLs that the application calls: the engines' own, or those of a gateway or link before each."""
        urls = []
        for server in engines:
            url = server.url
            if setup.held_bytes or setup.tls:
                arguments = [url, str(setup.held_bytes)]
                if setup.tls:
                    arguments.append(str(self._certificate()))
                port = free_port()
                beside.append(start_module("gateway", [str(port), *arguments], port, self.folder))
                beside[-1].wait_port(60.0)
                url = f"{'https' if setup.tls else 'http'}://127.0.0.1:{port}"
            if setup.one_way_ms:
                port, target = free_port(), url.rsplit(":", 1)[1]
                arguments = [str(port), target, str(setup.one_way_ms)]
                beside.append(start_module("link", arguments, port, self.folder))
                beside[-1].wait_port(60.0)
                url = f"{url.rsplit(':', 1)[0]}:{port}"
            urls.append(url)
        return tuple(urls)

    def _certificate(self) -> Path:
        """A certificate of this run with its key, for 127.0.0.1."""
        path = self.folder / "certificate.pem"
        if not path.exists():
            command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=laboratory"
            files = ["-keyout", str(path), "-out", str(path) + ".crt"]
            subject = ["-addext", "subjectAltName=IP:127.0.0.1"]
            subprocess.run([*command.split(), *subject, *files], check=True, capture_output=True)
            path.write_text(path.read_text() + Path(files[3]).read_text())
        return path

    def _application(self, name: str, setup: Setup, urls: tuple[str, ...], seed: int) -> Server:
        port = free_port()
        artifact, limit = "", 0.0
        if setup.app.order:
            made = lengths.trained(setup.load, seed, self.folder)
            artifact = str(made)
            if setup.app.order == "lanes":
                limit = lengths.longest_short(setup.load, seed, made, len(urls))
        settings = msgspec.structs.replace(
            setup.app,
            port=port,
            engines=urls,
            provider=setup.engines[0].kind,
            telemetry=self.capture.url,
            certificate=str(self._certificate()) if setup.tls else "",
            artifact=artifact,
            lane_tokens=limit,
            version=setup.app.version if name != "fault" else "2",
            salt=f"{self.folder}-{name}-{time.time()}",
        )
        path = self.folder / f"application-{port}.json"
        path.write_bytes(msgspec.json.encode(settings))
        return start_module("application", [str(path)], port, self.folder)

    def _send(self, name: str, setup: Setup, seed: int, app: Server, target: Path) -> Phase:
        requests = target / "schedule.json.txt"
        requests.write_bytes(msgspec.json.encode([asdict(r) for r in schedule(setup.load, seed)]))
        truth = target / "seen.json.txt"
        command = [sys.executable, "-m", "tests.lab.client", app.url, str(requests), str(truth)]
        begin = time.time()
        subprocess.run([*command, str(setup.give_up_s)], check=True)
        end = time.time()
        app.stop(2 * STOPPING_S)  # flushes its spans
        time.sleep(SETTLE_S)
        phase = Phase(
            name=name,
            begin_unix=begin,
            end_unix=end,
            refused_bodies=self.capture.refused,
            load_average=os.getloadavg(),
            seen=msgspec.json.decode(truth.read_bytes(), type=list[Seen]),
        )
        truth.unlink()
        (target / "truth.json.txt").write_bytes(msgspec.json.encode(phase))
        return phase


def warm_up(server: Server) -> None:
    """Send a few calls that no phase counts."""
    for number in range(WARM_UP):
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": words(f"warm-{number}", 300)}],
            "max_tokens": 8,
        }
        httpx.post(server.url + "/v1/chat/completions", json=body, timeout=60).raise_for_status()


def run(bench: Bench, experiment: Experiment, seed: int, seconds: float | None) -> None:
    """All three phases. `seconds` shortens their schedules."""
    for name in PHASES:
        setup: Setup = getattr(experiment, name)
        if seconds is not None:
            setup = replace(setup, load=replace(setup.load, seconds=seconds))
        phase = bench.run(name, setup, seed)
        failed = sum(one.error is not None for one in phase.seen)
        taken = phase.end_unix - phase.begin_unix
        print(f"  {name}: {len(phase.seen)} requests in {taken:.0f} s, {failed} failed", flush=True)

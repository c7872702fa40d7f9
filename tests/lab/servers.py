"""Start and stop what an experiment needs: engines, gateways, the application and the collector."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.lab.application import MODEL

READY_S = 240.0
STOP_S = 20.0


class NotReady(RuntimeError):
    """A process ended or did not answer in time."""


@dataclass(frozen=True)
class Engine:
    """One inference server. `law` and `speed` set the pace of vLLM's steps (engine/overrun_lab_pace.py); llama.cpp's runs as fast as it can. `flags` are
    the server's own."""

    flags: tuple[str, ...] = ()
    law: str = "roofline"
    speed: float = 1.0
    kind: str = "vllm"  # or llama.cpp
    pause_every_s: float = 0.0  # 0: never
    pause_ms: float = 0.0
    cold_s: float = 0.0  # so long after its first step it takes `cold_factor` times as long
    cold_factor: float = 1.0
    tokenise_us: float = 0.0  # what the front end needs for each token of a prompt, beside its own
    same_address: bool = False  # takes the port of the engine that it replaces


_PORTS = itertools.count(21_800)


def free_port() -> int:
    """A port below the range of outgoing connections that nobody listens on; no port is given twice in a run, as a new pod has a new address.

    Raises:
        NotReady: none is free.
    """
    for port in itertools.takewhile(lambda port: port < 32_000, _PORTS):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                continue
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise NotReady("no free port between 21800 and 32000")


class Server:
    """One process with its log; ends with its whole group."""

    def __init__(
        self, name: str, command: Sequence[str], port: int, log: Path, env: Mapping[str, str]
    ) -> None:
        self.name, self.port, self.log = name, port, log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                list(command),
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
                start_new_session=True,
            )

    @property
    def url(self) -> str:
        """Its base URL on loopback."""
        return f"http://127.0.0.1:{self.port}"

    def wait(self, path: str, ready_s: float = READY_S) -> None:
        """Return when `path` is answered at all.

        Raises:
            NotReady: with the end of the log.
        """
        end = time.monotonic() + ready_s
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                if httpx.get(self.url + path, timeout=2).status_code < 500:
                    return
            except httpx.HTTPError:
                time.sleep(0.3)
        tail = self.log.read_text(errors="replace")[-2000:]
        self.stop()
        raise NotReady(f"{self.name} was not ready within {ready_s:.0f} s. Its log ends:\n{tail}")

    def wait_port(self, ready_s: float) -> None:
        """Return when a connection is accepted.

        Raises:
            NotReady: with the end of the log.
        """
        end = time.monotonic() + ready_s
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.1)
        tail = self.log.read_text(errors="replace")[-2000:]
        self.stop()
        raise NotReady(f"{self.name} was not ready within {ready_s:.0f} s. Its log ends:\n{tail}")

    def stop(self, patience_s: float = STOP_S) -> None:
        """SIGTERM to the group, SIGKILL after `patience_s`."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                return
            try:
                self.process.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue
            if number == signal.SIGTERM:
                continue  # children of the group may still be there


def start_llama(environment: Path, engine: Engine, folder: Path, port: int) -> Server:
    """A server of llama.cpp, which has metrics and no spans.

    Raises:
        NotReady: it is not built.
    """
    binary, model = environment / "bin" / "llama-server", environment / "tiny.gguf"
    if not binary.exists() or not model.exists():
        raise NotReady("llama.cpp's server is not built: `make lab-llama` builds it (20 minutes)")
    command = [
        *(str(binary), "-m", str(model), "--host", "127.0.0.1", "--port", str(port)),
        *("--threads", "1", "--threads-http", "2", "--metrics", "--no-webui", *engine.flags),
    ]
    return Server(f"llama.cpp on {port}", command, port, folder / f"llama-{port}.log", {})


def start_engine(
    environment: Path,
    model: Path,
    engine: Engine,
    telemetry: str,
    folder: Path,
    port: int | None = None,
) -> Server:
    """A server of `model` that sends spans to `telemetry` (OTLP/HTTP base URL), where it can; without a `port` on a new one."""
    port = port or free_port()
    if engine.kind == "llama.cpp":
        return start_llama(environment, engine, folder, port)
    pace = {
        "law": engine.law,
        "speed": engine.speed,
        "seed": port,
        "pause_every_s": engine.pause_every_s,
        "pause_ms": engine.pause_ms,
        "cold_s": engine.cold_s,
        "cold_factor": engine.cold_factor,
        "tokenise_us": engine.tokenise_us,
    }
    env = {
        "OVERRUN_LAB_PACE": json.dumps(pace),
        "OVERRUN_LAB_STEPS": str(folder / f"steps-{port}.txt"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_TARGET_DEVICE": "cpu",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": "vllm",
        "OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id=127.0.0.1:{port}",
    }
    command = [
        str(environment / "bin" / "vllm"),
        *("serve", str(model), "--served-model-name", MODEL),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--max-model-len", "8192", "--enforce-eager"),
        *("--distributed-executor-backend", "uni", "--enable-prompt-tokens-details"),
        *("--otlp-traces-endpoint", telemetry + "/v1/traces"),
        *engine.flags,
    ]
    return Server(f"vLLM on {port}", command, port, folder / f"vllm-{port}.log", env)


def start_module(name: str, arguments: Sequence[str], port: int, folder: Path) -> Server:
    """One of the laboratory's own programs, in this interpreter's environment."""
    command = [sys.executable, "-m", f"tests.lab.{name}", *arguments]
    return Server(name, command, port, folder / f"{name}-{port}.log", {})


def start_collector(folder: Path, port: int, settings: Mapping[str, Any] | None = None) -> Server:
    """`overrun serve` with a store below `folder`."""
    command = [
        *(sys.executable, "-m", "overrun", "serve", "--db", str(folder / "overrun.db")),
        *("--http-port", str(port), "--grpc-port", "0"),
    ]
    for url in (settings or {}).get("scrape", ()):
        command += ["--scrape", url]
    return Server("overrun serve", command, port, folder / "collector.log", {})

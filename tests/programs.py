"""`overrun` in a process of its own, without the second that importing takes: forked from a process that has imported it.

`python -m tests.programs` is that process. It reads requests from a socket and answers each with the id of the process that it forked, later with its exit code.
"""

import atexit
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).parents[1]
# What a server and a report import once they run.
_IMPORTED = (
    "overrun.cli",
    "overrun.analysis.front.serve",
    "overrun.analysis.front.report",
    "h11",
    "uvloop",
)
# Read while modules are imported, so a process that wants another value has to import them itself.
_READ_AT_IMPORT = ("PYTHON", "NUMBA", "OMP_", "XDG_", "HOME", "MALLOC", "POLARS")


class Program:
    """A running `overrun`, with the parts of `subprocess.Popen` that tests use. Its output is text."""

    def __init__(self, nursery: "Nursery", pid: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[str] = os.fdopen(stdout, errors="replace")
        self.stderr: IO[str] = os.fdopen(stderr, errors="replace")
        self._nursery = nursery
        self._ended = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        with self._nursery.lock:
            if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
                self.returncode = self._nursery.ask({"ended": self.pid})
                os.close(self._ended)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        if self.returncode is None and not select.select([self._ended], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"overrun, process {self.pid}", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The process that has imported everything, and forks."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._socket, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.programs", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
        )
        theirs.close()
        self._answers = self._socket.makefile("r")

    def start(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> Program:
        """`overrun ARGUMENTS` in a folder, with an environment of its own."""
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        wanted = {"arguments": list(arguments), "folder": str(folder), "with": dict(environment)}
        try:
            with self.lock:
                pid = self.ask(wanted, [its_out, its_err])
                return Program(self, pid, out, err)
        finally:
            os.close(its_out)
            os.close(its_err)

    def ask(self, wanted: Mapping[str, object], descriptors: Sequence[int] = ()) -> int:
        """A number for a request: the process that began, or the code with which one ended."""
        line = json.dumps(wanted).encode()
        socket.send_fds(self._socket, [len(line).to_bytes(4, "little")], descriptors)
        self._socket.sendall(line)
        return int(self._answers.readline())

    def close(self) -> None:
        """Ends the process."""
        self._answers.close()
        self._socket.close()
        self._process.wait(60)


@functools.cache
def _nursery() -> Nursery:
    made = Nursery()
    atexit.register(made.close)
    return made


def may_fork(environment: Mapping[str, str]) -> bool:
    """Whether a process with these additions to the environment may be forked: none is read while modules are imported."""
    return not any(name.startswith(_READ_AT_IMPORT) for name in environment)


def start(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Program:
    """`overrun ARGUMENTS`, begun in `folder` with the whole `environment`; standard input is empty."""
    return _nursery().start(arguments, folder, environment)


def run(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """`overrun ARGUMENTS` to its end."""
    program = start(arguments, folder, environment)
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append(program.stderr.read()))
    reader.start()
    printed = program.stdout.read()
    reader.join()
    program.stdout.close()
    program.stderr.close()
    return subprocess.CompletedProcess(["overrun", *arguments], program.wait(), printed, said[0])


def fresh(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Lines of Python in an interpreter that has imported nothing of ours."""
    command, given = [sys.executable, "-c", code], os.environ | environment
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT, env=given
    )


def _become(wanted: Mapping[str, object], out: int, err: int) -> NoReturn:
    """This process, just forked, is `overrun` from here on."""
    code = 1
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)
        os.environ.clear()
        os.environ.update(wanted["with"])  # type: ignore[call-overload]
        os.chdir(str(wanted["folder"]))
        sys.argv = ["overrun", *wanted["arguments"]]  # type: ignore[misc]
        from overrun.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    _exit_as_python(code)


def _exit_as_python(code: int) -> NoReturn:
    """What the interpreter does at its end: threads, `atexit`, buffers."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = code or 120
    os._exit(code)


def _serve(asked: socket.socket) -> None:
    import importlib

    from overrun.collector.process import footprint

    footprint.start_light()
    for name in _IMPORTED:
        importlib.import_module(name)
    _load_kernels()
    gc.collect()
    gc.freeze()
    while True:
        head, descriptors, _, _ = socket.recv_fds(asked, 4, 2)
        if not head:
            return
        wanted = json.loads(_exactly(asked, int.from_bytes(head, "little")))
        if "ended" in wanted:
            _, status = os.waitpid(wanted["ended"], 0)
            answer = os.waitstatus_to_exitcode(status)
        elif answer := os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
        else:
            asked.close()
            _become(wanted, *descriptors)
        asked.sendall(f"{answer}\n".encode())


def _load_kernels() -> None:
    """What the first body would wait for, but for the store: DuckDB's threads would not be there in a forked process."""
    from overrun.collector.decode import items
    from overrun.collector.normalise import spans

    spans.warm()
    items.count("traces", spans.example_body(), 1)
    items.count_json(b"{}")


def _exactly(asked: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += asked.recv(size - len(data))
    return data


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))

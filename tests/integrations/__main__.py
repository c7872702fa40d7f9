"""Run the pages of docs/integrations as a person would paste them, with the real packages, and keep what was sent.

`python -m tests.integrations [NAME ...]` installs a page's packages in an environment of its own below `.venv/integrations`, runs each line of its shell
block in a new folder with the application of `apps/NAME` and a model server on loopback, and writes `recorded/`. Ports are replaced by free ones.
`--lock` pins the packages first, `--seen` writes the pages' sentence on what was seen.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from overrun.collector.store.database import open_store
from tests.integrations import model_server, pages, recording
from tests.integrations.cases import CASES, Case
from tests.integrations.keeper import Keeper
from tests.integrations.seen import seen

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
INSTALLED: Final = ROOT / ".venv" / "integrations"
LOCKS: Final = HERE / "locks"
UV: Final = str(ROOT / ".venv" / "bin" / "uv")
TIMES: Final = 60  # a P95 needs 59
PATIENCE_S: Final = 90.0
_BEFORE: Final = {"python": "app.py", "js": "app.mjs"}  # what a block stands at the start of


def free_port() -> int:
    """A port that nothing listens at."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def packages(page: pages.Page, manager: str) -> list[str]:
    """What the page installs with `pip` or `npm`."""
    lines = [line for line in page.commands if line.startswith(f"{manager} install ")]
    return [word for line in lines for word in shlex.split(line)[2:] if not word.startswith("-")]


def lock(names: Sequence[str]) -> None:
    """Write the pins of all pages that share a file with these."""
    LOCKS.mkdir(exist_ok=True)
    for pins in {CASES[name].pins for name in names} - {"node"}:
        wanted = sorted(
            {
                package
                for name, case in CASES.items()
                if case.pins == pins
                for package in packages(pages.read(name), "pip")
            }
        )
        (LOCKS / f"{pins}.in").write_text("\n".join(wanted) + "\n")
        subprocess.run(
            [
                *(UV, "pip", "compile", str(LOCKS / f"{pins}.in"), "--python-version", "3.11"),
                *("--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"),
                *("--quiet", "--upgrade", "--output-file", str(LOCKS / f"{pins}.lock")),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )


def install(page: pages.Page, case: Case) -> Path:
    """The page's packages, as pinned; returns the folder of their programs."""
    folder = INSTALLED / page.name
    if wanted := packages(page, "npm"):
        folder.mkdir(parents=True, exist_ok=True)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(HERE / "apps" / page.name / file, folder)
        assert set(json.loads((folder / "package.json").read_text())["dependencies"]) >= set(wanted)
        flags = ["--omit-lockfile-registry-resolved=true", "--ignore-scripts", "--no-audit"]
        subprocess.run(["npm", "ci", *flags, "--no-fund", "--silent"], cwd=folder, check=True)
        return folder / "node_modules" / ".bin"
    subprocess.run([UV, "venv", "--quiet", "--allow-existing", str(folder)], check=True)
    subprocess.run(
        [
            *(UV, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python")),
            *("--constraint", str(LOCKS / f"{case.pins}.lock"), *packages(page, "pip")),
        ],
        check=True,
    )
    return folder / "bin"


class Run:
    """One page, line after line, in a folder of its own."""

    def __init__(self, page: pages.Page, case: Case, programs: Path, folder: Path) -> None:
        self.page, self.case, self.folder = page, case, folder
        self.models = model_server.serve()
        threading.Thread(target=self.models.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{self.models.server_address[1]}"
        self.environment = {
            name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ
        } | {
            "PATH": f"{programs}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "OPENAI_BASE_URL": f"{base}/v1",
            "OPENAI_API_BASE": f"{base}/v1",
            "OPENAI_API_KEY": "none",
            "OLLAMA_HOST": base,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "DO_NOT_TRACK": "1",
        }
        self.ports = {"8000": str(free_port()), "4000": str(free_port())}
        self.keeper: Keeper | None = None
        self.running: list[subprocess.Popen[bytes]] = []
        self.printed: dict[str, str] = {}

    def lay_out(self) -> None:
        """The application, with the page's block of code before it, and the files that the page names."""
        shutil.copytree(HERE / "apps" / self.page.name, self.folder, dirs_exist_ok=True)
        if (modules := INSTALLED / self.page.name / "node_modules").exists():
            (self.folder / "node_modules").symlink_to(modules)
        for block in self.page.blocks:
            text = self._with_ports(block.text)
            if block.kind in _BEFORE:
                app = self.folder / _BEFORE[block.kind]
                app.write_text(text + app.read_text())
            elif block.file is not None:
                (self.folder / block.file).write_text(text)

    def line(self, line: str) -> None:
        """Run one line."""
        if line.startswith(("pip install ", "npm install ")):
            return
        if line.startswith("export "):
            done = self._shell(f"{self._with_ports(line)}; env --null")
            self.environment = dict(
                one.split("=", 1) for one in done.stdout.decode().split("\0") if "=" in one
            )
        elif line.startswith("overrun serve "):
            self._serve(line)
        elif line.startswith("overrun "):
            self._stop_application()
            done = self._shell(self._with_ports(line))
            self.printed[line] = done.stdout.decode()
            if done.returncode not in (0, 1):
                raise RuntimeError(f"{line}: {done.stderr.decode()}")
        elif line.rstrip().endswith("&"):
            self._application(self._with_ports(line).rstrip().rstrip("&"))
        else:
            done = self._shell(self._with_ports(line))
            if done.returncode:
                raise RuntimeError(f"{line}: {done.stderr.decode()[-3000:]}")

    def _with_ports(self, text: str) -> str:
        if self.keeper is not None:
            text = text.replace("127.0.0.1:4318", f"127.0.0.1:{self.keeper.port}")
        for written, port in self.ports.items():
            text = re.sub(rf"\b{written}\b", port, text)
        return text

    def _shell(self, line: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def _serve(self, line: str) -> None:
        port = free_port()
        flags = f" --http-port {port} --grpc-port 0"
        self._start(self._with_ports(line).rstrip().rstrip("&") + flags)
        _wait(port)
        self.keeper = Keeper(port)

    def _application(self, line: str) -> None:
        self._start(line)
        ask = self.case.ask
        if ask is None:
            return
        port = next(port for port in self.ports.values() if port in line)
        _wait(int(port))
        for number in range(TIMES):
            _ask(f"http://127.0.0.1:{port}{ask}", number, self.environment)

    def _start(self, line: str) -> None:
        log = (self.folder / f"log{len(self.running)}.txt").open("wb")
        self.running.append(
            subprocess.Popen(
                ["bash", "-c", f"exec {line}" if "=" not in line.split(maxsplit=1)[0] else line],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )

    def _stop_application(self) -> None:
        """End what the page started beside `overrun serve`, so that it sends the rest, and wait until its traces are assembled."""
        if len(self.running) > 1:
            for process in self.running[1:]:
                _end(process)
            del self.running[1:]
        if not self.printed:
            time.sleep(5.0)

    def close(self) -> None:
        """End everything."""
        for process in reversed(self.running):
            _end(process)
        self.models.shutdown()


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(15)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _wait(port: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError(f"nothing listens at port {port} after {PATIENCE_S:.0f} s")


def _ask(url: str, number: int, environment: Mapping[str, str]) -> None:
    body = None
    if "/v1/" in url:
        asked = {"model": "tiny", "messages": [{"role": "user", "content": f"Question {number}"}]}
        body = json.dumps(asked | {"stream": True}).encode()
    headers = {
        "content-type": "application/json",
        "authorization": f"Bearer {environment.get('LITELLM_MASTER_KEY', 'none')}",
    }
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
        answer.read()


def versions(programs: Path, page: pages.Page) -> Mapping[str, str]:
    """The versions of the packages that the page names, as installed."""
    named = packages(page, "npm")
    if named:
        modules = programs.parent
        return {n: json.loads((modules / n / "package.json").read_text())["version"] for n in named}
    done = subprocess.run(
        [UV, "pip", "list", "--format", "json", "--python", str(programs / "python")],
        capture_output=True,
        check=True,
    )
    known = {one["name"]: one["version"] for one in json.loads(done.stdout)}
    return {name: known[name.partition("[")[0]] for name in packages(page, "pip")}


def run(name: str, folder: Path) -> tuple[str, Run, Mapping[str, str]]:
    """Run a page; returns the sentence on what was seen, and what was printed."""
    page, case = pages.read(name), CASES[name]
    programs = install(page, case)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made = Run(page, case, programs, folder)
    try:
        laid_out = False
        for line in page.commands:
            made.line(line)
            if made.keeper is not None and not laid_out:
                made.lay_out()
                laid_out = True
    finally:
        made.close()
    assert made.keeper is not None
    recording.keep(name, made.keeper.bodies, [str(folder), str(INSTALLED / name), str(ROOT)])
    with closing(open_store(folder / "overrun.db", create=False)) as store:
        sentence = seen(store.cursor(), case.service)
    return sentence, made, versions(programs, page)


def write_seen(name: str, sentence: str, found: Mapping[str, str]) -> None:
    """Put the sentence and the versions into the page."""
    path = pages.FOLDER / f"{name}.md"
    text = path.read_text(encoding="utf-8")
    versions = f"{', '.join(' '.join(one) for one in found.items())}."
    for label, said in (("Seen", sentence), ("Run with", versions)):
        text = re.sub(
            rf"^\*\*{label}\*\*:.*?(?=\n\n|\Z)",
            lambda _, line=f"**{label}**: {said}\n": line.rstrip(),
            text,
            flags=re.DOTALL | re.MULTILINE,
        )
    path.write_text(text.rstrip() + "\n", encoding="utf-8")


def main() -> int:
    """Run the pages that are named, or all; 1 if one shows something else than it says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[], help=", ".join(CASES))
    parser.add_argument("--lock", action="store_true", help="pin the packages anew")
    parser.add_argument("--seen", action="store_true", help="write what was seen into the pages")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "integrations")
    parser.add_argument("--verbose", action="store_true")
    flags = parser.parse_args()
    wrong = 0
    if flags.lock:
        lock(flags.names or list(CASES))
    for name in flags.names or CASES:
        sentence, made, found = run(name, flags.folder / name)
        print(f"{name}: {sentence}\n  {', '.join(' '.join(one) for one in found.items())}")
        if flags.verbose:
            print("\n".join(made.printed.values()))
        if flags.seen:
            write_seen(name, sentence, found)
        elif pages.read(name).said("Seen") != sentence:
            wrong += 1
            print(f"  the page says: {pages.read(name).said('Seen')}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

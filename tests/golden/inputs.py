"""What is the golden record made from? Every recording, corpus case, laboratory capture and simulated incident, each as one or more stores.

An input gives the same store whenever it is made: file times are fixed, and so is the salt of hashed names.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import zstandard

from overrun.analysis.front.file_import import import_files
from overrun.collector.config import load
from overrun.collector.errors import CollectorError
from overrun.collector.store.database import open_store
from overrun.sample_traces.simulate import Job, make, write
from overrun.sample_traces.simulator.faults import SCENARIOS
from overrun.sample_traces.simulator.scenarios import SEVERITIES
from tests.conftest import ROOT, empty_store
from tests.corpus.runner import Case, cases
from tests.lab import recordings, score
from tests.lab.phases import PHASES

# 2026-01-15 10:00 UTC: the time of files whose case asks for an age.
NOW_S: Final = 1_768_471_200.0
DURATION_S: Final = 240.0
SEEDS: Final = (101, 102)
_SALT: Final = "5a" * 16


@dataclass(frozen=True)
class Asked:
    """One store and the window of it that is asked about; `settings` are flags of the configuration, `command` a command on files in place of a store."""

    name: str
    db: Path
    window: dict[str, str | None]
    config: Path | None = None
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Input:
    """A name, and what makes its stores in an empty folder. `thorough`: every what-if is asked, and fixes are simulated."""

    name: str
    make: Callable[[Path], Iterator[Asked]]
    thorough: bool = False


def inputs() -> list[Input]:
    """Every input, in the order of its name within its kind."""
    return [*_recordings(), *_corpus(), *_captures(), *_simulated()]


def small() -> list[Input]:
    """Those that the suite answers anew: one or two of each kind, one of them with every what-if; some 20 s of CPU."""
    wanted = {
        *("recording/vllm-joined", "recording/sim-prefix-cache-lost", "laboratory/bloat"),
        *("corpus/call-pool-exhausted", "corpus/file-vllm-log", "corpus/constant-lost-syn"),
        "simulated/slow_dependency-medium-101",
    }
    some = [one for one in inputs() if one.name in wanted]
    return [replace(one, thorough=one.name == "recording/vllm-joined") for one in some]


def _recordings() -> list[Input]:
    folder = ROOT / "sample_traces" / "recordings"
    return [
        Input(f"recording/{path.name}", partial(_of_files, path), thorough=True)
        for path in sorted(folder.iterdir())
        if path.is_dir()
    ]


def _of_files(folder: Path, work: Path) -> Iterator[Asked]:
    db = store(work / "store.db")
    _take_in(sorted(path for path in folder.rglob("*") if _telemetry(path)), db)
    yield Asked("", db, {})


def _telemetry(path: Path) -> bool:
    return path.is_file() and path.name.split(".")[1:2] in (["traces"], ["metrics"], ["logs"])


def _corpus() -> list[Input]:
    return [Input(f"corpus/{path.name}", partial(_of_case, path)) for path in cases()]


def _of_case(folder: Path, work: Path) -> Iterator[Asked]:
    """The stores of a case after its last import, one for each fresh start; commands on files as they stand."""
    case = Case(folder, work, _no_server, now_s=NOW_S)
    case.prepare()
    config = work / "overrun.toml" if "config" in case.told else None
    last: Asked | None = None
    for number, step in enumerate(case.told["step"], 1):
        if "import" in step:
            if step.get("fresh") or last is None:
                if last is not None:
                    yield last
                last = Asked(f"-{number}", store(work / f"golden-{number}.db"), {}, config)
            _take_in([Path(one) for one in case.files(step["import"])], last.db, config)
        elif "on" in step:
            command, *flags = step["run"]
            on = (command, *case.files(step["on"]), *flags)
            yield Asked(f"-{number}", work / "none.db", {}, config, on)
        elif "run" in step and last is not None and "--slo" in step["run"]:
            last.window["slo"] = step["run"][step["run"].index("--slo") + 1]
    if last is not None:
        yield last


def _no_server(*_: Any, **__: Any) -> Any:
    raise RuntimeError("the golden record starts no server")


def _captures() -> list[Input]:
    folder = recordings.FOLDER
    return [
        Input(f"laboratory/{path.name}", partial(_of_capture, path.name))
        for path in sorted(folder.iterdir())
        if path.is_dir()
    ]


def _of_capture(name: str, work: Path) -> Iterator[Asked]:
    """The healthy and the broken phase of each repetition, asked about the broken one with the limits of the healthy one."""
    for capture in recordings.unpack([name], work):
        db = store(capture / "golden.db")
        for phase in PHASES[:2]:
            for packed in sorted((capture / phase).glob("*.pb.zst")):
                plain = packed.with_suffix("")
                plain.write_bytes(zstandard.decompress(packed.read_bytes()))
                _take_in([plain], db)
        healthy, fault = (score.read(capture, phase) for phase in PHASES[:2])
        flags = score.window(fault)
        window: dict[str, str | None] = {"from": flags[1], "to": flags[3]}
        yield Asked(f"-{capture.name}", db, window | {"slo": score.limits(healthy)})


def _simulated() -> list[Input]:
    return [
        Input(f"simulated/{name}-{severity}-{seed}", partial(_of_job, name, severity, seed))
        for name in SCENARIOS
        for severity in SEVERITIES
        for seed in SEEDS
    ]


def _of_job(name: str, severity: str, seed: int, work: Path) -> Iterator[Asked]:
    job = Job(scenario=name, severity=severity, seed=seed, duration_s=DURATION_S, fixes=False)
    made = make(job)
    write(made, work / "otlp")
    db = store(work / "store.db")
    _take_in(sorted((work / "otlp").glob("*.pb")), db)
    shutil.rmtree(work / "otlp")
    yield Asked("", db, {"slo": str(made.truth["slo"])})


def store(path: Path) -> Path:
    """A store that holds nothing and hashes names with a fixed salt."""
    shutil.copy(empty_store(), path)
    made = open_store(path, create=False)
    made.connection.execute("update meta set value = $salt where key = 'salt'", {"salt": _SALT})
    made.close()
    return path


def _take_in(paths: list[Path], db: Path, config: Path | None = None) -> None:
    """Import files; what is refused is refused again each time, and the rest is answered."""
    settings = load(config, flags={"collector.db": str(db)})
    try:
        import_files(paths, settings, url=None, progress=lambda at, total: None)
    except CollectorError:
        return

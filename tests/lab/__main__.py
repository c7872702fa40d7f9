"""`python -m tests.lab`: run experiments on real engines and score what the product makes of them."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import msgspec

from tests.benchmarks import results
from tests.lab import phases, recordings, score, summary
from tests.lab.capture import Capture
from tests.lab.drawn import named
from tests.lab.experiments import EXPERIMENTS, HELD_BACK
from tests.lab.servers import NotReady, free_port, start_collector

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv" / "lab"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("names", nargs="*", help="experiments to run (default: seats)")
    parser.add_argument("--all", action="store_true", help="all but the held-back experiments")
    parser.add_argument(
        "--held-back", action="store_true", help="the held-back ones, looked at last"
    )
    parser.add_argument("--list", action="store_true", help="list the experiments")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="length of each phase's schedule")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "lab", help="captures go here")
    parser.add_argument("--score-only", action="store_true", help="score captures that are there")
    parser.add_argument("--recordings", action="store_true", help="score the small recordings")
    parser.add_argument("--pack", metavar="ENGINE", help="make recordings of the captures")
    results.add_write_flag(parser)
    parser.add_argument("--environment", type=Path, default=ENVIRONMENT)
    parser.add_argument("--model", type=Path, help="a model folder (default: a tiny random one)")
    return parser.parse_args()


def chosen(arguments: argparse.Namespace) -> list[str]:
    """Names of the experiments, checked."""
    names = list(arguments.names)
    if arguments.all:
        names += [name for name in EXPERIMENTS if name not in HELD_BACK]
    if arguments.held_back:
        names += HELD_BACK
    names = names or ["seats"]
    unknown = [name for name in names if named(name) is None]
    if unknown:
        sys.exit(
            f"no experiment is called {unknown[0]!r}: choose of {', '.join(EXPERIMENTS)}, drawn_NUMBER"
        )
    return names


def run(arguments: argparse.Namespace, names: list[str]) -> None:
    """Run each experiment as often as asked."""
    for name in names:
        experiment = named(name)
        assert experiment is not None, "checked by `chosen`"
        for repetition in range(arguments.repetitions):
            folder = arguments.out / name / f"{arguments.seed + repetition}"
            if folder.exists():
                sys.exit(f"{folder} exists: remove it, or choose another --seed or --out")
            folder.mkdir(parents=True)
            print(f"{name}, repetition {repetition + 1}: {experiment.what}", flush=True)
            collector = start_collector(folder, free_port())
            collector.wait("/healthz", 120.0)
            capture = Capture(free_port(), collector.url)
            capture.start()
            model = arguments.model or arguments.environment / "model"
            bench = phases.Bench(arguments.environment, model, folder, capture)
            try:
                phases.run(bench, experiment, arguments.seed + repetition, arguments.seconds)
            finally:
                bench.close()
                capture.stop()
                collector.stop()


def pack(arguments: argparse.Namespace, names: list[str]) -> None:
    """Make a recording of each capture that has none yet."""
    for name in names:
        for capture in sorted((arguments.out / name).glob("*")):
            to = recordings.FOLDER / name / capture.name
            if not to.exists():
                recordings.pack(capture, to, arguments.pack)


def scored(arguments: argparse.Namespace, names: list[str]) -> list[score.Score]:
    """Score all repetitions that are there, and print a line for each."""
    found = []
    for name in names:
        for folder in sorted((arguments.out / name).glob("*")):
            one = score.score(folder)
            found.append(one)
            marks = " ".join(
                f"{what} {'right' if right else 'WRONG'} ({value})"
                for what, right, value in (
                    ("stage", one.stage_right, one.stage),
                    ("cause", one.cause_right, one.cause),
                    ("advice", one.advice_right, ", ".join(one.advice) or None),
                )
            )
            print(f"{name} {folder.name}: {marks}")
            if one.disturbed:
                print(
                    f"  not counted: {one.late_steps:.0%} of the steps were held up, requests were sent up to {one.late_sends_ms:.0f} ms late"
                )
            if one.harmless:
                print(
                    f"  not counted: the fault makes P95 {one.worse_ratio:.2f} times the fixed one"
                )
            for said in one.alarms:
                print(f"  alarm in a healthy window: {said}")
            for kept in one.promised:
                print(
                    f"  routing, {kept.figure}: {kept.promised:+.0%} promised, {kept.measured:+.0%} measured"
                )
            for p in one.predicted:
                words = f"predicted {p.predicted:,.0f} {p.interval}" if p.predicted else p.refused
                print(
                    f"  {p.metric} P95: {p.before:,.0f} -> {p.after:,.0f} ms by the client, {p.reported or 0:,.0f} reported, {words}"
                )
    return found


def main() -> None:
    """Run, then score."""
    arguments = parse()
    if arguments.list:
        for name, experiment in EXPERIMENTS.items():
            print(f"{name:14}{experiment.what}{' (held back)' if name in HELD_BACK else ''}")
        return
    names = chosen(arguments)
    if arguments.pack:
        pack(arguments, names)
        return
    if arguments.recordings:
        recordings.unpack(names, arguments.out)
    begin = time.monotonic()
    try:
        if not arguments.recordings and not arguments.score_only:
            if not (arguments.environment / "bin" / "vllm").exists():
                sys.exit("the engine is not installed: `make lab` installs it (about 4 GB)")
            run(arguments, names)
    except NotReady as error:
        sys.exit(str(error))
    found = scored(arguments, names)
    counted = [one for one in found if not one.disturbed and not one.harmless]
    experiments = sorted({one.experiment for one in counted})
    figures = summary.figures(
        counted,
        f"{len(counted)} repetitions of {', '.join(experiments)}; {arguments.seconds or 110:g} s a phase",
    )
    for figure in figures:
        of = "" if figure.of is None else f" of {figure.of}"
        print(f"{figure.what}: {figure.value}{of} {figure.unit}".rstrip())
    if arguments.write:
        results.record("lab", figures)
    (arguments.out / "scores.json").write_bytes(msgspec.json.encode(found))
    print(f"{len(found)} repetitions in {time.monotonic() - begin:.0f} s; {arguments.out}")


if __name__ == "__main__":
    main()

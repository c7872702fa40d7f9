"""Which stored windows have a known cause, and what does the diagnosis say of each? The small set of referees that numbers of the rules are moved on.

Simulated windows that `tests.benchmarks.faults --keep DIR` left, captures of the laboratory (`tests.lab`), and the cases of `tests/corpus` that import files and
ask for one report with a cause. A window is read once; what rules look up is kept, so that it can be asked again and again.
"""

from __future__ import annotations

import functools
import itertools
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from overrun.analysis.diagnosis.diagnose import Diagnosed, diagnose
from overrun.analysis.diagnosis.sampled_causes import sampled_requests
from overrun.analysis.evidence.observed import Lookups
from overrun.analysis.incident.limit_fit import usual
from overrun.analysis.numbers.outcomes.percentile_limits import most_missed
from overrun.analysis.numbers.window import RequestFrame, count, make_window
from overrun.analysis.words.slo import NOT_GIVEN, parse_slo
from overrun.collector.store.database import open_store
from tests.benchmarks import small_worlds
from tests.benchmarks.results import Figure, add_write_flag, measured, record
from tests.corpus.runner import FOLDER, Case
from tests.lab import score
from tests.lab.drawn import named

# The part of the requests that may miss a limit, by the default target.
MAY_MISS: Final = 0.05


class Question(NamedTuple):
    """A stored window with its right answers; `causes` is empty where nothing is wrong, and then any cause is an alarm. `world` says who made it."""

    world: str
    name: str
    db: Path
    slo: str | None
    from_: str | None
    to: str | None
    causes: frozenset[str]
    stages: frozenset[str]


class Said(NamedTuple):
    """What the verdict said: status, stage, cause, how sure it is (0..1; None without a cause), every cause that was found as ranked, and the evidence of the
    first: `share` of the excess that it explains, that of the next one (0 without one), and whether there was a baseline."""

    status: str
    stage: str | None
    cause: str | None
    confidence: float | None
    named: tuple[str, ...]
    share: float | None = None
    next_share: float = 0.0
    baseline: bool = False
    seen: Mapping[str, float] = MappingProxyType({})
    sentence: str = ""

    def right(self, asked: Question) -> bool:
        """Whether a right cause was named, or none where nothing is wrong (or where "none" is among the right ones)."""
        if not asked.causes:
            return self.status not in ("over_budget", "failing", "traffic_lost")
        return self.cause in asked.causes or (self.cause is None and "none" in asked.causes)


def simulated(folder: Path) -> list[Question]:
    """The windows that `faults --keep` left in a folder."""
    out = []
    for path in sorted(folder.glob("*/truth.json")):
        truth = json.loads(path.read_bytes())
        seed, duration_s = (float(part) for part in path.parent.name.split("-") if _number(part))
        middle = datetime.fromisoformat(truth["end"]) - timedelta(seconds=0.55 * duration_s)
        whole = seed % 2 == 0
        out.append(
            Question(
                "simulator",
                path.parent.name,
                path.parent / "case.db",
                truth["slo"],
                None if whole else middle.isoformat(),
                None if whole else truth["end"],
                frozenset({*truth["causes"], *truth["accepted"]}),
                frozenset(truth["stages"]),
            )
        )
    return out


def _number(part: str) -> bool:
    try:
        float(part)
    except ValueError:
        return False
    return True


def laboratory(folder: Path) -> list[Question]:
    """The captures of the laboratory in a folder; those that harm nobody are left out."""
    out = []
    for repetition in sorted(folder.glob("*/*/")):
        experiment = named(repetition.parent.name)
        if experiment is None or not (repetition / "fault" / "truth.json.txt").exists():
            continue
        healthy, fault, fixed = (
            score.read(repetition, name) for name in ("healthy", "fault", "fixed")
        )
        if (
            max(score.p95(fault, m) / score.p95(fixed, m) for m in score.METRICS)
            < score.LEAST_WORSE
        ):
            continue
        db = repetition / "score-healthy-fault.db"
        if not db.exists():
            db = score.store(repetition, "healthy", "fault")
        _, begin, _, end = score.window(fault)
        out.append(
            Question(
                "laboratory",
                f"{experiment.name}-{repetition.name}",
                db,
                score.limits(healthy),
                begin,
                end,
                frozenset(experiment.causes),
                frozenset({experiment.stage}),
            )
        )
    return out


def corpus(work: Path) -> list[Question]:
    """The cases of `tests/corpus` that import files and ask for one report whose cause is known; their stores are made in `work`."""
    out = []
    for path in sorted(FOLDER.glob("*/case.toml")):
        told = tomllib.loads(path.read_text())
        asked = _asked(told)
        if asked is None:
            continue
        flags, causes, stages = asked
        place = work / path.parent.name
        db = place / "case.db"
        if not db.exists():
            place.mkdir(parents=True, exist_ok=True)
            case = Case(path.parent, place, _no_server)
            case.prepare()
            case._import(told["step"][0])
        named = dict(zip(flags[::2], flags[1::2], strict=True))
        out.append(
            Question(
                "corpus",
                path.parent.name,
                db,
                named.get("--slo"),
                named.get("--from"),
                named.get("--to"),
                causes,
                stages,
            )
        )
    return out


def worlds(
    folder: Path,
    seeds: Sequence[int] = (1,),
    *,
    hard: bool = False,
    sights: Sequence[str] = small_worlds.SIGHTS,
) -> list[Question]:
    """The windows of `small_worlds`, each as its sender might see it, `hard` with few requests hit; stores are made in a folder where they are not there yet.

    Changes that let no more requests miss the limit than may are left out: they harm nobody.
    """
    out = []
    for world, seed in itertools.product(small_worlds.WORLDS, seeds):
        broken = bool(world.right[""])
        strength = small_worlds.hard_strength(world, seed) if hard and broken else 1.0
        for sight in sights:
            db, slo, missed = small_worlds.stored(world, sight, folder, seed, strength=strength)
            if broken and missed <= MAY_MISS:
                continue
            right = world.right.get(sight, world.right[""])
            name = f"{world.change}-{sight}-{seed}"
            out.append(Question(world.law, name, db, slo, None, None, right, world.stages))
    return out


def _asked(told: dict[str, Any]) -> tuple[list[str], frozenset[str], frozenset[str]] | None:
    """Return the flags, the right causes and the right stages of a case that imports once and then asks for one report; None for any other."""
    steps = told["step"]
    if len(steps) != 2 or "import" not in steps[0] or "config" in told:
        return None
    command, *flags = steps[1].get("run", ("",))
    flags = [flag for pair in zip(flags[::2], flags[1::2], strict=False) for flag in pair]
    kept = [
        part
        for name, value in zip(flags[::2], flags[1::2], strict=True)
        if name in ("--slo", "--from", "--to")
        for part in (name, value)
    ]
    right = {
        one["json"]: [one["is"]] if "is" in one else one["one_of"]
        for one in steps[1].get("right", ())
        if "json" in one and ("is" in one or "one_of" in one)
    }
    causes = [cause for cause in right.get("verdict.cause", ()) if isinstance(cause, str)]
    if command != "report" or not causes or len(kept) + 2 < len(flags):
        return None
    causes = ["none" if cause == "null" else cause for cause in causes]
    return kept, frozenset(causes), frozenset(right.get("verdict.stage", ()))


def _no_server(*_: Any, **__: Any) -> Any:
    raise AssertionError("these cases start no server")


TOKENS: Final = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
# What a window may lack: nothing, token counts, engine metrics, half of the traces, all that came before it.
LACKING: Final = ("", "no_tokens", "no_metrics", "one_in_two", "no_baseline")


@contextmanager
def opened(asked: Question, lacking: str = "") -> Iterator[Callable[[], Said]]:
    """The question over its store, read once: each call diagnoses anew, by the rules and numbers of that moment, without simulated fixes. `lacking` is one of
    `LACKING`, and is left out."""
    store = open_store(asked.db, create=False)
    try:
        with store.reading() as con:
            window = make_window(
                now=datetime.now(UTC),
                from_=asked.from_,
                to=asked.to,
                baseline="none" if lacking == "no_baseline" else "auto",
            )
            slo = parse_slo(asked.slo) if asked.slo else NOT_GIVEN
            slo = most_missed(con, window, slo) if slo.also else slo
            stored = sampled_requests(con, window, slo, count(con, window))
            if stored.sampled.refused or stored.even.rows.is_empty():
                raise ValueError(f"{asked.name} stores no requests that stand for all")
            slo = slo if slo.given else usual(stored.even, slo)
            looked = _kept(_less(stored.lookups(con, slo), lacking))
            even = _less_of(stored.even, lacking)
            baseline = stored.baseline and replace(
                stored.baseline, frame=_less_of(stored.baseline.frame, lacking)
            )

            def answer() -> Said:
                return said(
                    diagnose(
                        even,
                        slo,
                        looked,
                        baseline=baseline,
                        coverage=stored.sampled.coverage_of(stored.even),
                    )
                )

            yield answer
    finally:
        store.close()


def _less(looked: Lookups, lacking: str) -> Lookups:
    """The same lookups without what a window lacks."""
    if lacking not in ("no_tokens", "one_in_two"):
        return looked
    return replace(looked, calls=lambda *given: _without(looked.calls(*given), lacking))


def _less_of(frame: RequestFrame, lacking: str) -> RequestFrame:
    """The same window without what it lacks."""
    if lacking == "no_metrics":
        return replace(frame, points=frame.points.clear())
    more = frame.read_more
    return replace(
        frame,
        rows=_without(frame.rows, lacking),
        read_more=None if more is None else lambda columns: _without(more(columns), lacking),
    )


def _without(rows: pl.DataFrame, lacking: str) -> pl.DataFrame:
    """Rows of requests or calls without token counts, or of half of the traces."""
    if lacking == "no_tokens":
        named = [name for name in TOKENS if name in rows.columns]
        return rows.with_columns(pl.lit(None).cast(rows[name].dtype).alias(name) for name in named)
    if lacking == "one_in_two" and "trace_key" in rows.columns:
        return rows.filter(pl.col("trace_key").hash(7) % 2 == 0)
    return rows


def said(found: Diagnosed) -> Said:
    """Return what of a diagnosis is compared with the truth."""
    sure = {one.rule: one.confidence for one in found.findings}
    verdict = found.verdict
    chosen = {one.rule for one in verdict.candidates}
    shares = {
        one.rule: float(one.evidence.get("share_of_excess", 0.0))
        for one in found.findings
        if one.rule in chosen
    }
    return Said(
        verdict.status,
        verdict.stage,
        verdict.cause,
        sure.get(verdict.cause or ""),
        tuple(one.rule for one in found.findings if one.severity != "info"),
        shares.get(verdict.cause or ""),
        max((share for rule, share in shares.items() if rule != verdict.cause), default=0.0),
        found.baseline is not None,
        next(
            (
                one.evidence["seen"]
                for one in found.findings
                if one.rule == verdict.cause and one.evidence.get("seen")
            ),
            {},
        ),
        verdict.sentence,
    )


def _kept(looked: Lookups) -> Lookups:
    """The same lookups, each answer kept."""
    known: dict[Any, Any] = {}

    def once(name: str, of: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(of)
        def asked(*given: Any) -> Any:
            key = (name, *map(_key, given))
            if key not in known:
                known[key] = of(*given)
            return known[key]

        return asked

    names = [name for name in ("calls", "spans", "prompts", "traits") if getattr(looked, name)]
    return replace(
        looked,
        trace_ids=lambda _: [],
        **{name: once(name, getattr(looked, name)) for name in names},
    )


def _key(value: Any) -> Any:
    """What stands for an argument of a lookup: of rows or keys their number and the sum of their hashes."""
    if isinstance(value, pl.DataFrame):
        return value.height, int(value.hash_rows().sum())
    return (len(value), int(value.hash().sum())) if isinstance(value, pl.Series) else value


def all_questions(
    kept: Path | None,
    lab: Path | None,
    work: Path | None,
    small: Path | None = None,
    seeds: Sequence[int] = (1,),
    *,
    hard: bool = False,
    sights: Sequence[str] = small_worlds.SIGHTS,
) -> list[Question]:
    """Every question of the folders that are given."""
    out = simulated(kept) if kept else []
    out += worlds(small, seeds, hard=hard, sights=sights) if small else []
    out += laboratory(lab) if lab else []
    return out + (corpus(work) if work else [])


def figures(lines: Sequence[tuple[Question, Said]], look: str, conditions: str) -> list[Figure]:
    """Return how many windows of the small worlds were answered rightly, how many causes were wrong above one half, and how many healthy windows alarmed."""
    named = [
        (asked, found)
        for asked, found in lines
        if found.cause and found.status in ("over_budget", "possibly_over_budget")
    ]
    calm = [found.right(asked) for asked, found in lines if not asked.causes]
    wrong = [
        one for one, found in named if not found.right(one) and (found.confidence or 1.0) >= 0.5
    ]
    script = "python -m tests.benchmarks.referee_set --worlds FOLDER --write"
    counts = (
        ("answered rightly", sum(found.right(asked) for asked, found in lines), len(lines)),
        ("causes that were named with 50 % and more, and wrong", len(wrong), len(named)),
        ("healthy windows with an alarm", len(calm) - sum(calm), len(calm)),
    )
    return [
        measured(f"{look}: {what}", value, of=of, script=script, conditions=conditions)
        for what, value, of in counts
    ]


def main() -> None:
    """Print what is said of every question, the wrong ones first."""
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    add_folders(parser)
    parser.add_argument("--lacking", nargs="*", choices=LACKING, help="what to leave out")
    parser.add_argument("--out", type=Path, help="JSON lines of what was said")
    parser.add_argument("--look", default="Seen before", help="of which look figures are")
    add_write_flag(parser)
    given = parser.parse_args()
    questions = all_questions(
        *(given.simulated, given.laboratory, given.corpus, given.worlds),
        given.seed,
        hard=given.hard,
        sights=given.sights,
    )
    lines = []
    for asked, lacking in [(one, lack) for one in questions for lack in given.lacking or ("",)]:
        try:
            with opened(asked, lacking) as answer:
                found = answer()
        except Exception as broken:  # one window that cannot be judged says nothing of the others
            print(f"broken {asked.name} {lacking}: {broken!r}", flush=True)
            continue
        lines.append((asked, lacking, found))
        mark = "ok   " if found.right(asked) else "WRONG"
        stage = "" if not asked.stages or found.stage in asked.stages else " (other stage)"
        print(
            f"{mark} {asked.world:10} {asked.name:45} {lacking} {found.status} {found.stage} {found.cause} {found.confidence}{stage}",
            flush=True,
        )
    if given.write:
        told = [(asked, found) for asked, _, found in lines]
        seeds = f"{'hard, ' if given.hard else ''}seeds {', '.join(map(str, given.seed))}"
        record("small_worlds", figures(told, given.look, f"{len(told)} windows, {seeds}"))
    right = sum(found.right(asked) for asked, _, found in lines)
    print(f"{right} of {len(lines)} right")
    if given.out:
        given.out.write_bytes(
            b"\n".join(
                msgspec.json.encode(
                    {
                        "world": asked.world,
                        "name": asked.name,
                        "lacking": lacking,
                        "causes": sorted(asked.causes),
                        "right": found.right(asked),
                        **found._asdict(),
                    }
                )
                for asked, lacking, found in lines
            )
        )


def add_folders(parser: Any) -> None:
    """Flags that say where the referees are."""
    parser.add_argument("--simulated", type=Path, help="what `faults --keep` left")
    parser.add_argument("--laboratory", type=Path, help="captures of tests.lab")
    parser.add_argument("--corpus", type=Path, help="folder for stores of tests/corpus")
    parser.add_argument("--worlds", type=Path, help="folder for stores of small_worlds")
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="seeds of small_worlds")
    parser.add_argument(
        "--sights",
        nargs="+",
        choices=small_worlds.SIGHTS,
        default=small_worlds.SIGHTS,
        help="of small_worlds: what the sender may leave out",
    )
    parser.add_argument("--hard", action="store_true", help="small_worlds with few requests hit")


if __name__ == "__main__":
    main()

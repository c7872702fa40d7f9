"""How do we know that it is right? Makes docs/REFEREES.md: each claim, the referee that judges it, and its result from docs/results.

`python -m tests.benchmarks.referees_page` (`make benchmarks-page`) writes the page. A test refuses a stale one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.results import FOLDER, ROOT, Figure, read
from tests.benchmarks.results_page import measured

PAGE: Final = ROOT / "docs" / "REFEREES.md"

HEAD: Final = """\
# How we know that it is right

A tool that names causes can be wrong with confidence. So each claim has a referee that knows the truth and that the rules were not written from.
This page is generated from [docs/results](results) by `make benchmarks-page`. All figures, with conditions and commands: [BENCHMARKS](BENCHMARKS.md).

## The referees

| referee | what it can judge | what it cannot |
|---|---|---|
| A real vLLM on two CPU cores ([laboratory](../tests/lab/README.md)), paced like a GPU by three laws | causes, advice, and fixes | kernels, GPUs, several machines |
| Recordings of real GPU runs of vLLM | what-ifs against measured runs | causes: nothing was broken in them |
| Inputs rebuilt from public bug reports, and recordings of real senders (`tests/corpus`) | whether other people's telemetry is read rightly | effects of fixes |
| Our simulator with 37 injected faults, seeds that nobody had looked at | causes under load, false alarms | it shares our ideas of what breaks |
| Two simulators written by others | the same, by other laws | they know few faults |
| A store that is killed, filled and attacked | whether what was acknowledged is there, with its values | months of use |
"""


class Claim(NamedTuple):
    """Figures whose name begins with `begins`, of one area of docs/results, and what they say to a reader."""

    area: str
    begins: str
    referee: str


# How the figures of the experiments begin that were defined when the first held-back ones had been looked at.
SECOND: Final = "Real vLLM, second set held back"
# Those that nobody chose (tests/lab/drawn.py).
DRAWN: Final = "Real vLLM, drawn"

CLAIMS: Final[dict[str, tuple[Claim, ...]]] = {
    "Does it name the right stage and cause?": (
        Claim("lab", "Real vLLM, held back: stage", "Real vLLM, first look: stage"),
        Claim("lab", "Real vLLM, held back: cause", "Real vLLM, first look: cause"),
        Claim("lab", f"{SECOND}: stage", "Real vLLM, first look at a second set: stage"),
        Claim("lab", f"{SECOND}: cause", "Real vLLM, first look at a second set: cause"),
        Claim("lab", f"{DRAWN}: stage", "Real vLLM, first look at drawn experiments: stage"),
        Claim("lab", f"{DRAWN}: cause", "Real vLLM, first look at drawn experiments: cause"),
        Claim("lab", "Real vLLM, developed on: stage", "Real vLLM, seen before: stage"),
        Claim("lab", "Real vLLM, developed on: cause", "Real vLLM, seen before: cause"),
        Claim("diagnosis", "Stage named first", "Our simulator: stage"),
        Claim("diagnosis", "Cause named first, easy", "Our simulator, 15 to 60 % of requests hit"),
        Claim("diagnosis", "Cause named first, hard", "Our simulator, 2 to 5 % of requests hit"),
        Claim(
            "diagnosis",
            "Simulators written by others: cause named first, easy",
            "Simulators written by others, easy and medium",
        ),
        Claim(
            "diagnosis",
            "Simulators written by others: cause named first, hard",
            "Simulators written by others, hard",
        ),
        Claim("diagnosis", "Recordings without token counts", "Our simulator without token counts"),
        Claim("small_worlds", "First look: answered", "Small worlds of other laws, first look"),
        Claim("small_worlds", "Hard, first look: cause", "The same, with few requests hit"),
    ),
    "Does it keep quiet where nothing is wrong?": (
        Claim("lab", f"{SECOND}: alarms", "Real vLLM, first look: healthy windows with an alarm"),
        Claim("lab", "Real vLLM, developed on: alarms", "Real vLLM: healthy windows with an alarm"),
        Claim("small_worlds", "First look: healthy", "Small worlds: healthy windows with an alarm"),
        Claim("small_worlds", "Hard, first look: healthy", "The same, another seed"),
        Claim(
            "diagnosis",
            "Healthy windows with an alarm",
            "Our simulator, all earlier builds: healthy windows with an alarm",
        ),
        Claim("diagnosis", "Healthy windows, seeds", "Our simulator, new seeds of this build"),
        Claim("diagnosis", "A deploy that changes nothing", "Our simulator, A/A deploys"),
    ),
    "Does its confidence mean what it says?": (
        Claim(
            "confidence",
            "Causes named with 0%",
            "Named with less than 50 % (a cause is only likely): right",
        ),
        Claim("confidence", "Causes named with 50%", "Named with 50 to 70 %: right"),
        Claim("confidence", "Causes named with 70%", "Named with 70 to 80 %: right"),
        Claim("confidence", "Causes named with 80%", "Named with 80 to 90 %: right"),
        Claim("confidence", "Causes named with 90%", "Named with 90 % and more: right"),
        Claim("confidence", "Brier score", "Brier score (0 is perfect, 0.25 is always one half)"),
    ),
    "Is its first advice the one that helps?": (
        Claim("lab", "Real vLLM, held back: first advice", "Real vLLM, first look"),
        Claim("lab", f"{SECOND}: first advice", "Real vLLM, first look at a second set"),
        Claim("lab", f"{DRAWN}: first advice", "Real vLLM, first look at drawn experiments"),
        Claim("lab", "Real vLLM, developed on: first advice", "Real vLLM, seen before"),
        Claim(
            "diagnosis",
            "Fix of the verdict is the best",
            "Our simulator: the best fix, or within 10 % of it",
        ),
    ),
    "Does a fix gain what was predicted?": (
        Claim(
            "lab",
            "Real vLLM, held back: E2E P95 after",
            "Real vLLM, first look: E2E P95, median error",
        ),
        Claim(
            "lab",
            "Real vLLM, held back: TTFT P95 after",
            "Real vLLM, first look: TTFT P95, median error",
        ),
        Claim("lab", f"{SECOND}: E2E P95 after", "The same, second set: E2E P95, median error"),
        Claim("lab", f"{SECOND}: TTFT P95 after", "The same, second set: TTFT P95, median error"),
        Claim("lab", f"{DRAWN}: E2E P95 after", "The same, drawn: E2E P95, median error"),
        Claim("lab", f"{DRAWN}: TTFT P95 after", "The same, drawn: TTFT P95, median error"),
        Claim("lab", f"{SECOND}: intervals", "Real vLLM, first look: 90 % intervals that held"),
        Claim("lab", f"{DRAWN}: intervals", "The same, drawn: 90 % intervals that held"),
        Claim(
            "lab",
            f"{SECOND}: changes of latency",
            "Real vLLM, first look: promises of `overrun routing` against the measured changes",
        ),
        Claim(
            "lab",
            "Real vLLM, developed on: E2E P95 after",
            "Real vLLM, seen before: E2E P95, median error",
        ),
        Claim(
            "lab",
            "Real vLLM, developed on: TTFT P95 after",
            "Real vLLM, seen before: TTFT P95, median error",
        ),
        Claim("lab", "Real vLLM, developed on: intervals", "Real vLLM: 90 % intervals that held"),
        Claim(
            "lab",
            "Real vLLM, developed on: E2E P95 of one set-up",
            "The floor: one set-up on the same arrivals, run twice, E2E P95",
        ),
        Claim("lab", "Real vLLM, developed on: TTFT P95 of one set-up", "The floor, TTFT P95"),
        Claim("whatif", "Error on real GPUs, E2E", "Real GPU runs: E2E P99, median error"),
        Claim("whatif", "Error on real GPUs, TTFT", "Real GPU runs: TTFT P99, median error"),
        Claim(
            "whatif",
            "Error of simulated what-ifs in a simulator written by others, E2E",
            "A simulator written by others: E2E P99, median error",
        ),
        Claim(
            "whatif",
            "Error of simulated what-ifs in a simulator written by others, TTFT",
            "A simulator written by others: TTFT P99, median error",
        ),
    ),
    "Is what was acknowledged in the file?": (
        Claim(
            "integrity",
            "Acknowledged spans lost",
            "Random mixes of senders, readers and kills: lost",
        ),
        Claim(
            "integrity",
            "Acknowledged spans stored with another value",
            "The same: stored with another value",
        ),
        Claim("durability", "Acknowledged spans lost: any moment", "`kill -9` at any moment: lost"),
        Claim("durability", "Acknowledged spans lost: full disk", "Full disk: lost"),
        Claim("fuzz", "Crashes", "Hostile input: crashes"),
    ),
}

TAIL: Final = """
## What is still wrong

- The laboratory's first four held-back experiments gave stage 3, cause 3 and first advice 2 of 4 at their first look. Of the twelve of the next set, two causes
  were missed: an engine that stands still now and then, and bursts. Of the fourteen of the second set, seven causes were missed, and with them the advice: two
  seats after a restart at the same address, a tenant that sends three of four requests, an application that goes on for users who have left, drafts that
  began and are refused, prompts that are read in too small pieces, shorter stops of an engine after the longer ones were mended, and an application that
  goes on for most of its users. That is less than was wanted (stage 95 %, cause and advice 85 %). Five of them are named now, so these captures prove
  nothing any more. Prompts in small pieces have a rule since (`small_chunks`); the what-if refuses to answer. Where most users leave, the verdict is `failing`
  without a cause, and so it is in the healthy stretch of that experiment, in which a quarter of the users leave by its design.
- Five stages of the second set were not the declared ones. Calls to a cold replica were expected to be slow in decode, but wait in its queue, as the engine
  reports. A slow tokeniser is named with its time per token, but the stage of an engine's front end is called `other`. Refused drafts and stops of an engine
  looked like that, too. Where the verdict is `failing`, no stage is named.
- Of fourteen drawn experiments three were missed at first look: stops of an engine that fell into the engine's own time before its queue and were called the
  application's, long prompts that were called stops of the engine, and two seats beside callers who give up. The last one's truth had been written for
  retries, which hardly happened; it was restated and is not counted. The second and third are named now. Of the first, the verdict says where the time is
  and names no cause: seven stops in 80 s with two requests a second are too few to be sure.
- What an engine gains without refused drafts is predicted badly: E2E P95 38 % too low, TTFT P95 41 % too high.
- Simulators written by others, hard cases: fewer than half of the causes are named. The faults that are missed are listed in [DIAGNOSIS](DIAGNOSIS.md). Those
  simulators are not kept here, so no later build was held against them. The small worlds with few requests hit stand in for them: 26 of 40 where 75 % were
  wanted. Ten of the others are called within the target, since 9 % of some hundred requests over a limit that 5 % may miss is no certain breach.
- Of verdicts above 50 % that are wrong, two are known on the simulated windows. A raised limit of sequences beside a quarter more users is called load, which
  fits all that is recorded. A client whose own calls reach a provider's quota, and sees no refusal, calls it the provider's queue.
- One healthy window of 300 alarms: half of the users went home, and by chance 41 % of the requests came.
- A cause that was there from the first request on has no healthy time to be compared with: it is named less often.
- The laboratory has few requests in each phase (about 200). A P95 of them moves by some percent from run to run; no smaller error means anything.
- `overrun routing` came within 4 points on a real engine, twice, with 370 and 460 requests. On another trace, served at the edge of its capacity, it is off by tens
  of points.
- A fault that is there in one experiment alone (each under one law, in one stretch of 90 s) is one case, not a kind.
- Learned alerts are wrong more often than right where load comes in waves; then none is recommended.
- Nothing here was measured on a fleet of machines, or over months.
"""


def page(folder: Path = FOLDER) -> str:
    """The whole page. Claims of an area that was not measured yet are left out."""
    parts = [HEAD]
    for question, claims in CLAIMS.items():
        rows = [row for claim in claims for row in _rows(claim, folder)]
        if rows:
            parts += [
                f"\n## {question}\n\n| referee | result | wanted | when |\n|---|---|---|---|\n",
                *rows,
            ]
    return "".join([*parts, TAIL])


def _rows(claim: Claim, folder: Path) -> list[str]:
    found: list[Figure] = [
        one for one in read(claim.area, folder) if one.what.startswith(claim.begins)
    ]
    return [
        f"| {claim.referee} | {measured(one)} | {one.target or '-'} | {one.date.partition(' ')[0]} |\n"
        for one in found[:1]
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""What was measured, in one page? Makes docs/BENCHMARKS.md from the files of docs/results.

`python -m tests.benchmarks.results_page` (`make benchmarks-page`) writes the page. A test says
when the page is stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks.results import FOLDER, ROOT, Figure, Number, read

PAGE: Final = ROOT / "docs" / "BENCHMARKS.md"

HEAD: Final = """\
# Measured

This page is generated from [docs/results](results) by `make benchmarks-page`: do not edit it.
It shows the figures that are wanted to be something, and the newest beside them. All others, with conditions, script, build and date, are in the files.

The machines are shared. Their speed changes by a factor of two to three within a day.
Compare the figures of one run with each other, never with those of another day.
To measure again, run the command of a section. `ARGS="--write"` records the new figures in docs/results.
"""
# A section shows so many figures.
MOST_ROWS: Final = 5

# Area, title, what the figures mean and how they are measured. Areas come in this order.
AREAS: Final[dict[str, tuple[str, str]]] = {
    "ingest": (
        "Ingest: `make bench-ingest`",
        "The bench sends the reference payload to a real server over loopback. A span counts when it is acknowledged, "
        "stored and part of a request. CPU is that of the server alone.",
    ),
    "overload": (
        "Overload: `make bench-overload`",
        "The bench offers four times the load that the server can store, for two minutes. A refused sender tries again at once.",
    ),
    "durability": (
        "Durability: `make bench-crash`",
        "Each round kills a process with `kill -9` at a random moment: of commit, checkpoint, migration, retention, rollup, erasing or recovery. "
        "Then every acknowledged span is looked for in the file, by its ids and values.",
    ),
    "lake": (
        "A lake: `make bench-lake`",
        "Several collectors, assemblers, readers and a maintainer over one PostgreSQL and one object store, as processes. One is killed after the other while "
        "senders send, and every row is compared with that of a file which got the same bodies.",
    ),
    "spark": (
        "Batch over hourly files: `make bench-spark`",
        "The same report and training set by DuckDB in one process and by a Spark cluster of one master and two workers, from the same hourly files. CPU of Spark "
        "is that of the driver and both executors, from the start of the session on.",
    ),
    "soak": (
        "Soak: `make bench-soak`",
        "An hour of steady load with readers, in which the server is stopped, killed, cannot write to its files and has a clock that jumps.",
    ),
    "integrity": (
        "Integrity: `make bench-integrity`",
        "Random mixes of senders, readers and kills. Every span that was sent is compared with what the file holds.",
    ),
    "fuzz": (
        "Hostile input: `make bench-fuzz`",
        "Recorded bodies are broken in many ways and decoded; one in ten goes to a server, with broken HTTP, HTTP/2 frames and API questions. "
        "The decoders must agree, JSON with protobuf too.",
    ),
    "first_look": (
        "Other people's telemetry at first look: `tests/corpus`",
        "Inputs rebuilt from public reports and documented forms, none seen before. What is right was written down before the first run; what was wrong "
        "was mended afterwards, by its kind, and the inputs joined the corpus. `partly`: the numbers and the stage are right, and the cause is not named, or what "
        "to do does not fit it; a file that is refused with a way to make it readable.",
    ),
    "microservices": (
        "Microservices without models: `python -m tests.benchmarks.nezha`",
        "Real traces of a microservice system with injected faults (Nezha): whether the first place names the faulty service.",
    ),
    "small_worlds": (
        "Small worlds: `python -m tests.benchmarks.referee_set --worlds FOLDER`",
        "Seven small laws of service that nobody tuned the rules on (heavy tails, processor sharing, a polling server, a token bucket, single threads), each "
        "broken in a few ways and seen in seven: whole, from the client alone, without first tokens, token counts or a baseline, few requests, one trace in three.",
    ),
    "ledger": (
        "Fixes that were applied: `python -m tests.benchmarks.applied`",
        "The laboratory's recordings of a real vLLM: the gain of the fix that undid each fault, predicted from the fault alone, and observed for equal traffic.",
    ),
    "lab": (
        "Real engines: `make bench-lab`",
        "A real vLLM on two cores, paced to the speed of a GPU, serves each experiment healthy, with its fault, and with the fault undone, "
        "on the same arrivals and lengths. The client keeps the truth. Held-back experiments were looked at once, at the end.",
    ),
    "api": (
        "API as described: `make check-api`",
        "Schemathesis asks every operation of /openapi.json of a real server over two recordings, with values that fit the document and values that do not. "
        "A failure is a 5xx, a status or an answer that the document does not have, or a wrong value that is accepted.",
    ),
    "hardening": (
        "Attacks: `python -m tests.benchmarks.hardening`",
        "Bodies that are small on the wire and large once decoded, each sent to a server of its own. The peak is the resident memory of the server "
        "(about 370 MiB at rest). `before` is build 8767d5d.",
    ),
    "diagnosis": (
        "Diagnosis: `make bench-faults`",
        "A simulator with its own cost law injects 37 faults into healthy traffic with random confounders. "
        "Easy, medium and hard mean that 15 to 60, 5 to 15 and 2 to 5 % of the requests miss a limit. "
        "A seed is asked once, before anything is tuned on it. What fails and why is in [DIAGNOSIS.md](DIAGNOSIS.md).",
    ),
    "confidence": (
        "Confidence: `python -m tests.benchmarks.calibration FILES`",
        "Windows with a known cause that taught no rule: simulated faults of a seed that nobody had looked at, and captures of the laboratory and cases of public "
        "reports without token counts, engine metrics, half of their traces or a baseline. Of the causes that a verdict named with so much confidence, how many were "
        "right; the weights are fitted on the other worlds each time. The Brier score is the mean squared difference of confidence and outcome; the share right "
        "alone scores what is beside it.",
    ),
    "numbers": (
        "Numbers of the rules: `python -m tests.benchmarks.moved_numbers`",
        "What each number of a rule does when it is moved by a third: [NUMBERS](NUMBERS.md).",
    ),
    "partial_sight": (
        "Partial sight: `python -m tests.benchmarks.partial_sight`",
        "Simulated faults of which a part of the traces is stored beside whole engine metrics: one in three, one in ten, what tail samplers keep, and one "
        "application beside another. Nothing on the traces says so.",
    ),
    "data_parallel": (
        "Data-parallel servers: `python -m tests.benchmarks.data_parallel`",
        "Simulated servers of two and four ranks that have one name in their spans, calls shared out by least load or in turn. Such a server is calibrated as "
        "one engine with the seats and the KV cache of all its ranks.",
    ),
    "routing": (
        "Routing by length: `python -m tests.benchmarks.routing`",
        "Public traces are served by an engine of another make under each policy. The figure is the difference between the change that `overrun routing` "
        "predicts against least requests and the real one.",
    ),
    "whatif": (
        "What-ifs: `make bench-whatif` and `make bench-faults`",
        "The truth is the same traffic on the simulated engine with the fix in place. The error is |predicted / true - 1|, at the median "
        "over all fixes. `inside` counts truths within the 90 % interval. `direction` counts effects of the right sign.",
    ),
    "leading": (
        "Leading indicators: `python -m tests.benchmarks.leading`",
        "An alert is learned on two thirds of a window and scored on the rest. It must come 10 s before a breach. "
        "No alert is recommended where load comes and goes: there it is wrong more often than right.",
    ),
    "predictor": (
        "Output-length predictor: `make bench-predictor`",
        "Each trace is split by time: the older 70 % train, the newest 30 % judge. Errors are mean absolute errors.",
    ),
    "analysis": (
        "Analysis: `make bench-analysis`",
        "The questions of the report and of the dashboard, over a made store with ten spans a request.",
    ),
    "samples": (
        "Scraped metrics: `python -m tests.benchmarks.samples`",
        "A report over a store that holds engine metrics and no requests.",
    ),
    "dashboard": (
        "Dashboard: `make bench-dashboard`",
        "Chromium opens each page with an empty cache and changes one filter. `Until it is drawn` ends with the last change on the page.",
    ),
    "install_size": (
        "Installed size",
        "Disk that `pip install` takes in an empty environment.",
    ),
}
TABLE: Final = "| what | measured | wanted | when |\n|---|---|---|---|"


def page(folder: Path = FOLDER) -> str:
    """The whole page. ValueError: a file is of no known area."""
    names = {path.stem for path in folder.glob("*.json")}
    if unknown := names - set(AREAS):
        raise ValueError(f"no section is written for {sorted(unknown)}: add them to AREAS")
    return HEAD + "".join(_section(area, read(area, folder)) for area in AREAS if area in names)


def _section(area: str, figures: Sequence[Figure]) -> str:
    title, meaning = AREAS[area]
    known = [figure for figure in figures if figure.page]
    first = sorted(known, key=lambda figure: figure.date, reverse=True)
    first.sort(key=lambda figure: not figure.target)
    shown = [figure for figure in known if figure in first[:MOST_ROWS]]
    link = f"All {len(figures)} figures: [{area}.json](results/{area}.json)."
    lines = [f"\n## {title}", f"{meaning} {link}", "", TABLE]
    return "\n".join([*lines, *map(_row, shown)]) + "\n"


def _row(figure: Figure) -> str:
    note = f" ({figure.note})" if figure.note else ""
    day = figure.date.partition(" ")[0]
    return f"| {figure.what}{note} | {measured(figure)} | {figure.target or '-'} | {day} |"


def measured(figure: Figure) -> str:
    """`119 ms`, `92 to 101 B`, `36 of 37`."""
    value = figure.value
    text = " to ".join(map(_number, value)) if isinstance(value, tuple) else _number(value)
    if figure.of is not None:
        text += f" of {_number(figure.of)}"
    return f"{text} {figure.unit}".rstrip()


def _number(value: Number | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""What Triton's perf_analyzer prints: a section per concurrency or rate, with the client's percentiles in microseconds.

Source: triton-inference-server/perf_analyzer docs/cli.md and reports of its users (triton-inference-server/server#7986 and #8251), read in 2026. The server's
own split of the mean (queue, compute) stands beside it and is not taken: a run is judged by what its clients saw.
"""

from __future__ import annotations

import re
from typing import Final

from overrun.collector.sources.load_tests.result import LoadTest, Run, Summary, say_load

_SECTION: Final = re.compile(
    r"(?m)^\s*(?:Request concurrency: (?P<at_once>\d+)|Request Rate: (?P<rate>[\d.]+) inference)"
)
_FIGURE: Final = re.compile(r"(?m)^\s*(?P<name>Avg|p\d+) latency: (?P<us>\d+) usec")
_COUNT: Final = re.compile(r"(?m)^\s*Request count: (\d+)")
_ANSWERED: Final = re.compile(r"(?m)^\s*Throughput: ([\d.]+) infer/sec")
_BATCH: Final = re.compile(r"(?m)^\s*Batch size: (\d+)")
_WINDOW: Final = "Client:"


def is_text(text: str) -> bool:
    """Whether a text has such a section."""
    return _SECTION.search(text) is not None and _WINDOW in text and " usec" in text


def perf_analyzer(text: str) -> LoadTest:
    """The runs of a text, by their summaries."""
    out = LoadTest("perf-analyzer")
    sections = list(_SECTION.finditer(text))
    batch = _BATCH.search(text)
    each = int(batch[1]) if batch else 1  # inferences of a request
    ends = [section.start() for section in sections[1:]] + [len(text)]
    for section, end in zip(sections, ends, strict=True):
        body = text[section.end() : end]
        figures = {one["name"]: float(one["us"]) / 1e3 for one in _FIGURE.finditer(body)}
        counted, answered = _COUNT.search(body), _ANSWERED.search(body)
        if not figures:
            continue
        mean = figures.pop("Avg", None)
        rate = float(section["rate"]) if section["rate"] else None
        at_once = int(section["at_once"]) if section["at_once"] else None
        summary = Summary(
            {"e2e": {float(name[1:]): ms for name, ms in figures.items()}},
            {} if mean is None else {"e2e": mean},
            int(counted[1]) if counted else None,
            0,
            float(answered[1]) / max(each, 1) if answered else None,
        )
        out.runs.append(
            Run(say_load(rate, at_once), summary=summary, rate_rps=rate, in_flight=at_once)
        )
    return out

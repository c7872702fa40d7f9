"""How does an OpenMetrics page read in Prometheus's older text format? That one has a lenient reader; OpenMetrics pages of real servers often break its rules.

prometheus_client names a family `vllm:x` and its samples `vllm_x_bucket`; others leave out `_total` or the end mark. Names are taken as the samples
have them. Exemplars, units and the times of creation are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SAMPLE = re.compile(
    r'([^\s{]+)(\{(?:[^"}]|"(?:\\.|[^"\\])*")*\})?[ \t]+(\S+)(?:[ \t]+([^\s#]\S*))?(?:[ \t]+#.*)?\s*'
)
_TYPE = re.compile(r"# TYPE (\S+) (\S+)\s*")
# Types that the older format does not have.
_PLAIN_TYPES = {
    "unknown": "untyped",
    "info": "gauge",
    "stateset": "gauge",
    "gaugehistogram": "untyped",
}


def plain(text: str) -> str:
    """The page in the older text format; lines that are no OpenMetrics stay as they are."""
    return "\n".join(_lines(text)) + "\n"


def _lines(text: str) -> Iterator[str]:
    family = ("", "")
    for line in text.splitlines():
        if line.startswith("#"):
            typed = _TYPE.fullmatch(line)
            family = (typed[1], typed[2]) if typed else family
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            yield line
            continue
        name, labels, value, seconds = sample.groups()
        if name.endswith("_created"):
            continue
        if family[0]:
            yield f"# TYPE {_as_sampled(family[0], name, family[1])} {_PLAIN_TYPES.get(family[1], family[1])}"
            family = ("", "")
        yield f"{name}{labels or ''} {value}{_milliseconds(seconds)}"


def _as_sampled(family: str, sample: str, kind: str) -> str:
    """A family's name in the spelling of its first sample; a counter's and an info's with the suffix that their samples have."""
    name = family if sample.startswith(family) else family.replace(":", "_")
    return sample if kind in ("counter", "info") and sample.startswith(name) else name


def _milliseconds(seconds: str | None) -> str:
    try:
        return "" if seconds is None else f" {round(float(seconds) * 1000)}"
    except (ValueError, OverflowError):
        return f" {seconds}"

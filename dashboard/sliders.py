"""Between which values does a what-if slide, and where does it begin? Steps per kind of parameter; the first value from what the report found."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from overrun.analysis.front.fix_list import ParameterInfo
from overrun.analysis.front.report import Report
from overrun.analysis.words.finding import Fix
from overrun.dashboard.theme import STAGE_ORDER

_TOKENS: Final = tuple(str(2**power) for power in range(4, 17))
_MS: Final = (
    "50",
    "100",
    "150",
    "200",
    "300",
    "500",
    "750",
    "1000",
    "1500",
    "2000",
    "3000",
    "5000",
    "7500",
    "10000",
    "15000",
    "20000",
    "30000",
    "60000",
)
_FACTORS: Final = (
    "0.1",
    "0.25",
    "0.4",
    "0.5",
    "0.6",
    "0.65",
    "0.7",
    "0.8",
    "0.9",
    "1",
    "1.1",
    "1.2",
    "1.3",
    "1.5",
    "2",
    "3",
    "4",
    "8",
)
_RATIOS: Final = tuple(f"{step / 20:g}" for step in range(21))
_COUNTS: Final = (
    *(str(n) for n in range(1, 17)),
    "20",
    "24",
    "32",
    "48",
    "64",
    "96",
    "128",
    "192",
    "256",
    "384",
    "512",
    "1024",
)
_WORDS: Final = {
    "router": ("as_now", "least_load", "round_robin"),
    "until": ("end", "first_token"),
    "enabled": ("true", "false"),
}
# Where nothing in the report suggests a value.
_BEGIN: Final = {
    "max_tokens": "512",
    "max_input_tokens": "4096",
    "token_budget": "2048",
    "tokens": "256",
    "delay_ms": "2000",
    "timeout_ms": "10000",
    "fallback_ms": "1000",
    "sequences": "64",
    "replicas": "2",
    "hit_ratio": "0.6",
    "factor": "1.3",
    "time_factor": "0.6",
    "step_factor": "0.65",
}


def name_of(fix: Fix, known: Container[str]) -> str | None:
    """What the what-ifs call a finding's fix, None where none of them computes it."""
    return next((name for name in (fix.whatif, fix.id) if name is not None and name in known), None)


def to_try(fix: Fix | None, known: Container[str]) -> dict[str, str] | None:
    """What the address of the What-if page says to ask what a finding's fix asked; None where it cannot be asked."""
    name = name_of(fix, known) if fix is not None else None
    return (
        None
        if fix is None or name is None
        else {"fix": name} | {f"p_{key}": value for key, value in given(fix).items()}
    )


def given(fix: Fix) -> dict[str, str]:
    """The parameters of a finding's fix, as they are chosen."""
    return {
        key: value if isinstance(value, str) else f"{value:.10g}"
        for key, value in fix.parameters.items()
    }


def found(report: Report, name: str) -> Fix | None:
    """The fix of the first finding that a what-if computes, by the what-if's name."""
    return next(
        (
            finding.fix
            for finding in report.findings
            if finding.fix is not None and name_of(finding.fix, (name,))
        ),
        None,
    )


def first_fix(report: Report, known: Sequence[str]) -> str:
    """The fix to begin with: that of the first finding whose fix can be computed, else a cap."""
    named = [
        name
        for finding in report.findings
        if finding.fix is not None and (name := name_of(finding.fix, known))
    ]
    return next(iter([*named, "cap"])) if "cap" in known or named else known[0]


def choices(info: ParameterInfo, report: Report, fix: str) -> tuple[list[str], str, str]:
    """Return the values to choose from, the one to begin with (that of the finding with this fix, if there is one), and what the parameter means."""
    options, own = _within(_options(info), info), found(report, fix)
    begin = (own and given(own).get(info.name)) or _begin(info, report)
    if begin not in options:
        options.append(begin)
        if _is_number(begin):
            options.sort(key=float)
    return options, begin, f"{info.help}{limits(info)}"


def limits(info: ParameterInfo) -> str:
    """Between which values a number lies, as the end of a sentence; empty where nothing limits it."""
    if info.kind not in ("int", "float") or (info.least is None and info.most is None):
        return ""
    low = (
        ""
        if info.least is None
        else f"{'more than' if 'least' in info.open_ends else 'at least'} {info.least:,g}"
    )
    high = (
        ""
        if info.most is None
        else f"{'less than' if 'most' in info.open_ends else 'at most'} {info.most:,g}"
    )
    return f" ({' and '.join(filter(None, (low, high)))})"


def _within(options: Sequence[str], info: ParameterInfo) -> list[str]:
    """The steps that the fix can take."""
    return [option for option in options if not _is_number(option) or info.takes(float(option))]


def _options(info: ParameterInfo) -> Sequence[str]:
    if info.kind == "bool" or info.name in _WORDS:
        return _WORDS.get(info.name, ("true", "false"))
    if info.name == "stage":
        return [stage for stage in STAGE_ORDER if stage not in ("other", "wait_user")]
    if info.kind not in ("int", "float"):
        return []
    if info.name.endswith("tokens") or info.name == "token_budget":
        return _TOKENS
    if info.name.endswith("_ms"):
        return _MS
    if info.name.endswith("factor"):
        return _FACTORS
    return _RATIOS if info.name.endswith("ratio") else _COUNTS


def _begin(info: ParameterInfo, report: Report) -> str:
    if info.name == "stage" and report.verdict.stage and report.verdict.stage != "other":
        return report.verdict.stage
    if info.name == "limit_ms" and (budget := _budget(report)) is not None:
        return f"{budget:g}"
    if info.default is not None and info.default != 0:
        number = isinstance(info.default, int | float) and not isinstance(info.default, bool)
        return f"{info.default:g}" if number else str(info.default).lower()
    return _BEGIN.get(info.name, next(iter(_options(info)), ""))


def _budget(report: Report) -> float | None:
    """The judged stage's budget, or its group's, in whole ms."""
    rows = [row for row in report.stages if row.stage == report.verdict.stage] or report.stages
    own = next((row.budget_ms for row in rows if row.budget_ms is not None), None)
    group = next(
        (
            row.budget_ms
            for row in report.stages
            if row.stage is None and rows and row.group == rows[0].group
        ),
        None,
    )
    found = own if own is not None else group
    return None if found is None else float(round(found))


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()

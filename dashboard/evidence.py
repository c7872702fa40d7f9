"""How are the numbers behind a finding put into words? A rule's evidence, whatever its keys, as labelled values with their units.

The unit stands in the key's ending, as everywhere in the API: `_ms`, `_s`, `_ratio`, `_tokens`, `_rps`, `_tps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from overrun.dashboard import ui
from overrun.dashboard.theme import say_ms, say_ratio

# More entries of a list than this say no more; the API has them all.
_MOST_LISTED: Final = 6
# What is compared stands behind the unit: `hit_ratio_before`, `held_ms_slow`.
_SIDES: Final = ("_slow", "_reference", "_now", "_before", "_tail", "_usual")
_INTERVAL: Final = "_interval"
_UNITS: Final = {
    "_tokens": "tokens",
    "_rps": "requests/s",
    "_tps": "tokens/s",
    "_per_minute": "a minute",
}
_N: Final = {
    "n": "requests judged",
    "n_breaching": "over the limit",
    "n_tail": "slow requests",
    "n_reference": "compared with",
    "z": "standard deviations (z)",
    "claims_ms": "explained time, by stage",
    "source": "measured by",
    "cache_ms": "added by lost cache hits",
    "input_ms": "added by longer input",
    "speed_ms": "added by slower work",
}


def rows(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (what, value) pairs as safe HTML, an interval beside its value; what has no value is left out."""
    found = []
    for key, value in evidence.items():
        if value in (None, [], {}) or (
            key.endswith(_INTERVAL) and key.removesuffix(_INTERVAL) in evidence
        ):
            continue
        words = said(key, value)
        interval = evidence.get(f"{key}{_INTERVAL}")
        if isinstance(interval, list | tuple) and len(interval) == 2 and None not in interval:
            low, high = said(key, interval[0]), said(key, interval[1])
            words += f" <small>({low} to {high})</small>" if {low, high} != {words} else ""
        found.append((label(key), words))
    return found


def label(key: str) -> str:
    """Return a key as words without its unit."""
    if key in _N:
        return _N[key]
    bare, side = _parted(key)
    for ending in ("_ms", "_s", *_UNITS):
        if bare.endswith(ending) and len(bare) > len(ending):
            return f"{bare.removesuffix(ending)}{side}".replace("_", " ")
    return key.replace("_", " ")


def said(key: str, value: Any) -> str:
    """Return one value with its unit as safe HTML."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(key, float(value))
    if isinstance(value, Mapping):
        unit = "_ms" if key.endswith("_ms") else ""
        parts = [
            f"{ui.text(name, 40)} {said(f'{name}{unit}', one)}"
            for name, one in list(value.items())[:_MOST_LISTED]
        ]
        return "; ".join(parts) + _more(len(value))
    if isinstance(value, list | tuple):
        return ", ".join(said(key, one) for one in value[:_MOST_LISTED]) + _more(len(value))
    return ui.text(value, 160)


def plain(value: float) -> str:
    """Return a bare number with at most three significant figures, whole ones with their thousands."""
    if value == int(value) and abs(value) < 1e12:
        return f"{int(value):,}".replace("-", "−")
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def _number(key: str, value: float) -> str:
    key, _ = _parted(key)
    if key.endswith("_ms"):
        return say_ms(value)
    if key.endswith("_s") and not key.endswith("_per_s"):
        return say_ms(1000.0 * value)
    if 0.0 <= value <= 1.0 and (
        (key.endswith("_ratio") and key != "odds_ratio") or "share" in key.split("_")
    ):
        return say_ratio(value)
    unit = next((f" {unit}" for ending, unit in _UNITS.items() if key.endswith(ending)), "")
    return f"{plain(value)}{unit}"


def _parted(key: str) -> tuple[str, str]:
    side = next((side for side in _SIDES if key.endswith(side)), "")
    return key.removesuffix(side), side


def _more(n: int) -> str:
    return f" and {n - _MOST_LISTED} more" if n > _MOST_LISTED else ""

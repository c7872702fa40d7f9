"""Which limits must a request meet? Reads SLO texts of the three live dialects and the presets into one `Slo`.

Source of the dialects: vLLM `bench serve --goodput` (milliseconds), AIPerf `--goodput` (milliseconds) and the
`goodput.constraints` of inference-perf (seconds).
"""

import math
import re
from typing import Final, NamedTuple

import msgspec

from overrun.analysis.words.errors import SloError, nearest

METRICS: Final = ("ttft", "itl", "tpot", "e2e")


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """Limits per request in milliseconds (None: not limited), the percentile judged and the goodput ratio wanted.

    `also` has limits at other percentiles (`ttft_p95:1000 ttft_p99:3000`), each of which must be met as well. `given`: by somebody; else the latency is held
    against itself (incident/limit_fit.py).
    """

    ttft_ms: float | None = None
    itl_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    percentile: float = 95.0
    goodput_target: float = 0.95
    also: tuple["Slo", ...] = ()
    given: bool = True

    def each(self) -> list["Slo"]:
        """Return the SLO as parts with one percentile each: this one's limits first, then those in `also`."""
        return [msgspec.structs.replace(self, also=()), *self.also]

    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by metric (`ttft`, `itl`, `tpot`, `e2e`), in milliseconds."""
        values = {
            "ttft": self.ttft_ms,
            "itl": self.itl_ms,
            "tpot": self.tpot_ms,
            "e2e": self.e2e_ms,
        }
        return {metric: value for metric, value in values.items() if value is not None}


# The P95 column of the published per-class targets (chat 0.5/1.5/3 s, code completion 0.2/0.5/1 s, voice 0.35/0.6/1 s
# TTFT at P50/P95/P99) and a 2.5 s P95 turn for chat; batch work only has an end.
PRESETS: Final = {
    "chat": Slo(ttft_ms=1500.0, e2e_ms=2500.0),
    "code": Slo(ttft_ms=500.0),
    "voice": Slo(ttft_ms=600.0),
    "batch": Slo(e2e_ms=60_000.0),
}
DEFAULT: Final = PRESETS["chat"]
NOT_GIVEN: Final = msgspec.structs.replace(DEFAULT, given=False)

# key -> (metric, dialect). None: the key is used by more than one dialect and shows nothing about the unit.
# AIPerf's inter_token_latency is (latency - TTFT) / (n - 1), which is TPOT here.
_KEYS: Final[dict[str, tuple[str, str | None]]] = {
    "ttft": ("ttft", None),
    "tpot": ("tpot", None),
    "itl": ("itl", None),
    "e2e": ("e2e", "ms"),
    "e2el": ("e2e", "ms"),
    "ttft_ms": ("ttft", "ms"),
    "itl_ms": ("itl", "ms"),
    "tpot_ms": ("tpot", "ms"),
    "e2e_ms": ("e2e", "ms"),
    "time_to_first_token": ("ttft", "ms"),
    "inter_token_latency": ("tpot", "ms"),
    "request_latency": ("e2e", "latency"),
}
_SETTINGS: Final = ("percentile", "goodput_target")
# Below a millisecond no model answers, so a bare `ttft:0.2` can only be inference-perf's seconds.
_SECONDS_BELOW: Final = 1.0
# `request_latency` is AIPerf's (ms) and inference-perf's (s): a limit of 50 s and more is as likely meant as 50 ms.
_LATENCY_UNCLEAR_FROM: Final = 50.0
_LONGEST_TEXT: Final = 1000
_PAIR: Final = re.compile(r"(?P<key>[A-Za-z_0-9.]+)\s*[:=]\s*(?P<value>[^\s,;]+)")
_VALUE: Final = re.compile(r"(?P<number>[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)(?P<unit>ms|s)?$")


# `ttft_p99`, `e2e_p99.9` and `e2e_p999`, and the generators' `p99_ttft_ms`.
_TAIL: Final = re.compile(
    r"(?:(?P<key>[a-z0-9_]+?)_p(?P<at>\d+(?:\.\d+)?)|p(?P<before>\d+(?:\.\d+)?)_(?P<rest>[a-z0-9_]+?))(?P<ms>_ms)?"
)
# The range of percentiles that can be asked for: below the median it would be no tail, and P99.99 needs 29,956 requests.
PERCENTILES: Final = (50.0, 99.99)


class _Limit(NamedTuple):
    key: str
    metric: str
    number: float
    unit: str | None
    percentile: float | None = None


def parse_slo(text: str) -> Slo:
    """Read an SLO text: a preset name, `key:value` pairs, or a preset followed by pairs that replace its limits.

    Values without a unit are milliseconds for the keys of vLLM and AIPerf and seconds for those of inference-perf;
    `ttft:0.5s` or `ttft:500ms` say it outright. `percentile:99` and `goodput_target:0.99` may be added; a P99 within its limit is 99 % of the requests
    within it, so the percentile alone sets the target as well.

    Raises:
        SloError: unknown key (named with the nearest known one), value out of range, unclear unit, or no limit at all.
    """
    if len(text) > _LONGEST_TEXT:
        raise SloError(
            f"SLO text has {len(text)} characters, at most {_LONGEST_TEXT} are allowed: shorten it"
        )
    words, pairs = _split(text)
    if len(words) > 1 or (words and words[0] not in PRESETS):
        word = words[1] if len(words) > 1 else words[0]
        raise SloError(
            f"SLO text has {word!r}, which is neither a preset nor a key:value pair: {nearest(word, PRESETS)}"
        )
    limits: list[_Limit] = []
    settings: dict[str, float] = {}
    for key, value in pairs:
        if key in _SETTINGS:
            settings[key] = _setting(key, value)
        else:
            limits.append(_limit(key, value))
    at = settings.get("percentile", _only_percentile(limits) if not words else None)
    if at is not None:
        settings = {"percentile": at, "goodput_target": round(at / 100.0, 6)} | settings
    base = PRESETS[words[0]] if words else Slo()
    seconds = _bare_numbers_are_seconds([limit for limit in limits if limit.unit is None])
    own = [one for one in limits if one.percentile in (None, settings.get("percentile", 95.0))]
    slo = msgspec.structs.replace(base, **_milliseconds(own, seconds), **settings)
    others = sorted({one.percentile for one in limits if one not in own and one.percentile})
    tails = [
        msgspec.structs.replace(
            Slo(percentile=percentile, goodput_target=round(percentile / 100.0, 6)),
            **_milliseconds([one for one in limits if one.percentile == percentile], seconds),
        )
        for percentile in others
    ]
    if not slo.limits() and tails:
        slo, *tails = tails
    if not slo.limits():
        raise SloError(
            f"SLO text {text!r} sets no limit: write for example 'ttft:1500 e2el:2500', 'ttft_p99:1500' or a preset {', '.join(PRESETS)}"
        )
    return msgspec.structs.replace(slo, also=tuple(tails))


def _only_percentile(limits: list[_Limit]) -> float | None:
    """The percentile of all limits, where they name the same one."""
    named = {limit.percentile for limit in limits}
    return named.pop() if len(named) == 1 else None


def _split(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    pairs = [(m["key"].lower(), m["value"]) for m in _PAIR.finditer(text)]
    words = re.sub(r"[,;{}]", " ", _PAIR.sub(" ", text)).split()
    return [word.lower() for word in words], pairs


def _limit(key: str, value: str) -> _Limit:
    if key == "ntpot":
        raise SloError(
            "ntpot (end-to-end time per output token) is not supported: use tpot, or request_latency"
        )
    tail = _TAIL.fullmatch(key)
    percentile = None
    if tail is not None and key not in _KEYS:
        percentile = _percentile(key, tail["at"] or tail["before"])
        key = (tail["key"] or tail["rest"]) + (tail["ms"] or "")
    if key not in _KEYS:
        raise SloError(
            f"SLO key {key!r} is unknown: {nearest(key, [*_KEYS, *_SETTINGS])}; with a percentile it is ttft_p99"
        )
    match = _VALUE.match(value)
    number = float(match["number"]) if match else math.nan
    if match is None or not 0 < number < math.inf:
        raise SloError(
            f"SLO {key}:{value} is not a time above 0: write {key}:500, {key}:500ms or {key}:0.5s"
        )
    return _Limit(key, _KEYS[key][0], number, match["unit"], percentile)


def _percentile(key: str, digits: str) -> float:
    """The percentile in a key; `p999` is P99.9."""
    value = float(digits if "." in digits else f"{digits[:2]}.{digits[2:]}")
    if not PERCENTILES[0] <= value <= PERCENTILES[1]:
        raise SloError(
            f"SLO {key} asks for P{value:g}: percentiles from P{PERCENTILES[0]:g} to P{PERCENTILES[1]:g} can be limits"
        )
    return value


def _setting(key: str, value: str) -> float:
    low, high = PERCENTILES if key == "percentile" else (0.0, 1.0)
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not low <= number <= high or number == 0.0:
        raise SloError(f"SLO {key}:{value} must be a number from {low:g} to {high:g}")
    return number


def _milliseconds(limits: list[_Limit], seconds: bool) -> dict[str, float]:
    """Turn limits of one percentile into `<metric>_ms`; bare numbers are `seconds` or milliseconds."""
    values: dict[str, float] = {}
    for limit in limits:
        name = f"{limit.metric}_ms"
        if name in values:
            raise SloError(f"SLO text limits {limit.metric} twice: keep one of them")
        in_seconds = limit.unit == "s" or (limit.unit is None and seconds)
        values[name] = limit.number * 1000.0 if in_seconds else limit.number
    return values


def _bare_numbers_are_seconds(bare: list[_Limit]) -> bool:
    dialects = {_KEYS[limit.key][1] for limit in bare}
    if "ms" in dialects:
        return False
    latency = [limit for limit in bare if _KEYS[limit.key][1] == "latency"]
    small = [limit for limit in bare if limit.number < _SECONDS_BELOW]
    large = [limit for limit in bare if limit.number >= _LATENCY_UNCLEAR_FROM]
    if (latency or small) and large:
        limit = large[0]
        raise SloError(
            f"SLO {limit.key}:{limit.number:g} can be read as seconds or as milliseconds here: "
            f"write {limit.key}:{limit.number:g}ms or {limit.key}:{limit.number:g}s"
        )
    return bool(latency or small)

"""What did requests like this one generate before?

Causal history: windows of the output lengths of *finished* requests, per route, model, route and model, tenant, session,
prompt prefix and exact prompt size. Training replays the past through it (`overrun.models.train`), a router feeds it live (`overrun.models.predict`): one
class, so that a feature means the same in both places. Source of the idea and of its value: Alibaba ServeGen and the
Azure and Mooncake traces, where the past of the same caller explains more than any property of the request alone.
"""

import bisect
import hashlib
import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final, NamedTuple

from overrun.models.conformal import covering
from overrun.models.errors import ArtifactError
from overrun.models.request import MISSING, Request

Key = tuple[str | int | None, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """One grouping of past requests.

    `window` is how many outputs a key remembers, `min_outputs` how many it needs before it speaks, `max_keys` how many
    keys are kept (the least recently fed goes first: a client that invents a session per request cannot grow the
    memory). `stored_keys` is how many of the most recently fed keys go into an artifact: 0 for levels whose keys could
    name a person. They share `stored_outputs`, each thinned so that its quantiles stay what they were. Tenants are kept
    under a salted hash, in memory and in the artifact. With `lines`, a key also learns how far its answers follow the score of their prompts.
    """

    name: str
    window: int
    min_outputs: int
    max_keys: int
    stored_keys: int
    stored_outputs: int = 0
    lines: bool = False


# 500 outputs: on the Azure 2023 traces windows of 100, 500 and 1,000 per route gave the same error within 1 %; 500
# leaves 50 samples above P90. 20 per prompt size: the sizes that repeat there (templates) do so in bursts. stored_keys
# and stored_outputs keep history.json below 0.9 MB. A router that reports nothing lives on them: with 20 of 227 models
# stored, the error on AlpacaEval was 170 tokens instead of 132; with 100 of 300 routes, 1.6 times that of their medians.
LEVELS: Final = (
    Level(
        "global",
        window=2_000,
        min_outputs=1,
        max_keys=1,
        stored_keys=1,
        stored_outputs=2_000,
        lines=True,
    ),
    Level(
        "route",
        window=500,
        min_outputs=10,
        max_keys=2_000,
        stored_keys=1_000,
        stored_outputs=50_000,
        lines=True,
    ),
    Level(
        "model",
        window=500,
        min_outputs=10,
        max_keys=500,
        stored_keys=250,
        stored_outputs=25_000,
        lines=True,
    ),
    Level(
        "route_model",
        window=100,
        min_outputs=10,
        max_keys=2_000,
        stored_keys=250,
        stored_outputs=25_000,
        lines=True,
    ),
    Level(
        "tenant", window=50, min_outputs=5, max_keys=20_000, stored_keys=200, stored_outputs=10_000
    ),
    Level(
        "same_size",
        window=20,
        min_outputs=1,
        max_keys=20_000,
        stored_keys=2_000,
        stored_outputs=40_000,
    ),
    Level("session", window=20, min_outputs=1, max_keys=20_000, stored_keys=0),
    Level("prefix", window=20, min_outputs=1, max_keys=20_000, stored_keys=0),
)
_LEVEL_BY_NAME: Final = {level.name: level for level in LEVELS}


def keys_of(request: Request, salt: bytes = b"") -> dict[str, Key]:
    """Return the key of `request` at each level it belongs to; `salt` (at most 64 bytes) hides the tenant's name.

    A request without a route belongs to the nameless route: traffic of a single route need not name it. A missing
    model, tenant, session, prefix or prompt size has no history at that level.
    """
    keys: dict[str, Key] = {"global": (), "route": (request.route,)}
    if request.model is not None:
        keys["model"] = (request.model,)
        keys["route_model"] = (request.route, request.model)
    if not math.isnan(request.input_tokens):
        keys["same_size"] = (request.route, int(request.input_tokens))
    if request.tenant is not None:
        digest = hashlib.blake2b(
            request.tenant.encode("utf-8", "surrogatepass"), digest_size=8, key=salt
        )
        keys["tenant"] = (digest.hexdigest(),)
    if request.session is not None:
        keys["session"] = (request.session,)
    if request.prefix_hash is not None:
        keys["prefix"] = (request.prefix_hash,)
    return keys


# The levels that are one caller's own: when it called last tells of the next answer.
CALLERS: Final = ("session", "prefix")


def _caller_keys(request: Request) -> list[tuple[str, Key]]:
    named = zip(CALLERS, (request.session, request.prefix_hash), strict=True)
    return [(name, (key,)) for name, key in named if key is not None]


_NORMAL: Final = NormalDist()


# About this many of the newest scored outputs draw the line between score and answer.
_LINE_OUTPUTS: Final = 500
# As if that much of the squared spread of scores had been answered token for token (some 20 outputs of the usual spread), and that much of the squared
# spread of prompt sizes had changed nothing (some 40).
_SCORE_PRIOR: Final = 4.0
_SIZE_PRIOR: Final = 40.0
_LINE_SUMS: Final = 9
_LINE_DECIMALS: Final = 5


class Line:
    """How far one key's answers follow the verbosity score and the size of the prompt: a regression of log(1 + output) on both, older outputs fading.

    Models differ in both: some answer each prompt at much the same length, some are short with long prompts. `sums` are the weight, the means of
    score, log(1 + prompt tokens) and answer, and the sums of squares and of products around them: score by score, score by size, size by size, score
    by answer and size by answer (Welford, 1962; West, 1979).
    """

    __slots__ = ("sums",)

    def __init__(self, sums: Iterable[float] = (0.0,) * _LINE_SUMS) -> None:
        self.sums = tuple(map(float, sums))

    def add(self, verbosity: float, input_tokens: float, log_tokens: float) -> None:
        """Take in one more answer to a prompt of this score and size; a size of NaN shows nothing."""
        fade = 1.0 - 1.0 / _LINE_OUTPUTS
        weight, scores, sizes, answers, of_score, of_both, of_size, by_score, by_size = self.sums
        score_off, size_off, answer_off = (
            verbosity - scores,
            _log_off(input_tokens, sizes),
            log_tokens - answers,
        )
        weight = fade * weight + 1.0
        left = 1.0 - 1.0 / weight
        self.sums = (weight, scores + score_off / weight, sizes + size_off / weight, answers + answer_off / weight,
                     fade * of_score + left * score_off**2, fade * of_both + left * score_off * size_off, fade * of_size + left * size_off**2,
                     fade * by_score + left * score_off * answer_off, fade * by_size + left * size_off * answer_off)  # fmt: skip

    def at(self, verbosity: float, input_tokens: float = MISSING) -> float:
        """Return log(1 + output) for a prompt of this score and size; with few outputs it rises by one with the score and not with the size."""
        _, scores, sizes, answers, of_score, of_both, of_size, by_score, by_size = self.sums
        of_score, of_size, by_score = (
            of_score + _SCORE_PRIOR,
            of_size + _SIZE_PRIOR,
            by_score + _SCORE_PRIOR,
        )
        tokens = (by_score * of_size - by_size * of_both) * (verbosity - scores) + (
            by_size * of_score - by_score * of_both
        ) * _log_off(input_tokens, sizes)
        return answers + tokens / (of_score * of_size - of_both**2)


def _log_off(input_tokens: float, mean: float) -> float:
    return 0.0 if math.isnan(input_tokens) else math.log1p(input_tokens) - mean


class Window:
    """The last `size` output lengths of one key, in arrival order and in sorted order (tokens).

    Beside them: how long the prompt of the newest was (`last_input_tokens`), and how they follow the score of their prompts (`line`, None without).
    """

    __slots__ = ("_arrived", "_size", "_sorted", "last_input_tokens", "line")

    def __init__(self, size: int, outputs: Iterable[int] = (), line: Line | None = None) -> None:
        self._size = size
        self._arrived: deque[int] = deque(outputs, maxlen=size)
        self._sorted: list[int] = sorted(self._arrived)
        self.last_input_tokens = MISSING
        self.line = line

    def __len__(self) -> int:
        return len(self._arrived)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the outputs, oldest first."""
        return iter(self._arrived)

    def add(
        self, output_tokens: int, input_tokens: float = MISSING, verbosity: float = MISSING
    ) -> None:
        """Remember one more output, forgetting the oldest when full; its prompt had `input_tokens` and this score."""
        if len(self._arrived) == self._size:
            oldest = self._arrived.popleft()
            del self._sorted[bisect.bisect_left(self._sorted, oldest)]
        self._arrived.append(output_tokens)
        bisect.insort(self._sorted, output_tokens)
        self.last_input_tokens = input_tokens
        if not math.isnan(verbosity):
            self.line = self.line or Line()
            self.line.add(verbosity, input_tokens, math.log1p(output_tokens))

    @property
    def before_last(self) -> float:
        """The output before the newest, NaN if there is none."""
        return self._arrived[-2] if len(self._arrived) > 1 else MISSING

    @property
    def last(self) -> int:
        """The newest output."""
        return self._arrived[-1]

    def quantile(self, level: float) -> float:
        """Return the `level` quantile in tokens, interpolated linearly as numpy does; the window must not be empty."""
        position = level * (len(self._sorted) - 1)
        below = int(position)
        above = min(below + 1, len(self._sorted) - 1)
        return self._sorted[below] + (position - below) * (
            self._sorted[above] - self._sorted[below]
        )

    def bound(self, level: float) -> float:
        """Return what covers `level` of exchangeable outputs (tokens); the window must not be empty.

        The ceil((n + 1) level)-th smallest, for a lower quantile the floor((n + 1) level)-th, as `overrun.models.conformal` does. Where there are too few
        for that, the outermost, which covers n / (n + 1), moved on from the median as the logarithm's spread would have it if it were normal: of
        20 it covers 98.2 to 99.1 % instead of 95 % of lognormal, exponential and Pareto lengths, and more of bounded ones.
        """
        count = len(self._sorted)
        rank = covering(count, level)
        if 1 <= rank <= count or count == 1:
            return float(self._sorted[min(max(rank, 1), count) - 1])
        outermost, covered = (
            (self._sorted[-1], count / (count + 1))
            if level > 0.5
            else (self._sorted[0], 1.0 / (count + 1))
        )
        median = math.log1p(self.quantile(0.5))
        return math.expm1(
            median
            + (math.log1p(outermost) - median) * _NORMAL.inv_cdf(level) / _NORMAL.inv_cdf(covered)
        )


def past_quantiles(windows: Mapping[str, Window], levels: Iterable[float]) -> list[float]:
    """Return quantiles of the route's recent outputs (tokens), of all traffic's while the route is new; NaN without either.

    The median as it is, the others so that they cover what comes next.
    """
    own = windows.get("route") or windows.get("global")
    if own is None:
        return [math.nan for _ in levels]
    return [own.quantile(level) if level == 0.5 else own.bound(level) for level in levels]


class _Stored(NamedTuple):
    """A window as an artifact holds it."""

    outputs: list[int]
    line: Line | None


class History:
    """Windows of finished outputs for every level of `LEVELS`. Not safe for use from two threads at once."""

    def __init__(self, salt: bytes = b"") -> None:
        self._salt = salt
        # What came from an artifact stays as it was stored until it is asked for: a router starts in milliseconds.
        self._windows: dict[str, OrderedDict[Key, Window | _Stored]] = {
            level.name: OrderedDict() for level in LEVELS
        }
        # The two newest arrivals of each caller, the later one first.
        self._arrivals: dict[str, OrderedDict[Key, tuple[float, float]]] = {
            name: OrderedDict() for name in CALLERS
        }

    def arrive(self, request: Request) -> None:
        """Record that `request` has arrived, finished or not; one without a time, session or prefix leaves no mark."""
        if math.isnan(request.time_s):
            return
        for name, key in _caller_keys(request):
            arrivals = self._arrivals[name]
            newest, before = arrivals.get(key, (-math.inf, -math.inf))
            if key not in arrivals and len(arrivals) >= _LEVEL_BY_NAME[name].max_keys:
                arrivals.popitem(last=False)
            if request.time_s > newest:
                arrivals[key] = (request.time_s, newest)
            elif before < request.time_s < newest:
                arrivals[key] = (newest, request.time_s)
            arrivals.move_to_end(key)

    def arrivals_of(self, request: Request) -> dict[str, float]:
        """Return when the same session, and the same prefix, arrived last before `request` (seconds since 1970), by level.

        Only what arrived earlier counts: a client twice about one request gets one answer.
        """
        found = {}
        for name, key in _caller_keys(request):
            earlier = (
                time_s
                for time_s in self._arrivals[name].get(key, ())
                if -math.inf < time_s < request.time_s
            )
            newest = max(earlier, default=None)
            if newest is not None:
                found[name] = newest
        return found

    def observe(self, request: Request, output_tokens: int) -> None:
        """Record that `request` has finished with `output_tokens`; call it at the end of the request, never before."""
        self.arrive(request)
        for name, key in keys_of(request, self._salt).items():
            windows = self._windows[name]
            window = self._opened(name, key)
            if window is None:
                level = _LEVEL_BY_NAME[name]
                if len(windows) >= level.max_keys:
                    windows.popitem(last=False)
                window = windows[key] = Window(level.window)
            else:
                windows.move_to_end(key)
            window.add(
                output_tokens,
                request.input_tokens,
                request.verbosity if _LEVEL_BY_NAME[name].lines else MISSING,
            )

    def window(self, level: str, key: Key) -> Window | None:
        """Return the outputs seen under `key`, or None while there are fewer than the level needs to speak."""
        window = self._opened(level, key)
        return (
            window
            if window is not None and len(window) >= _LEVEL_BY_NAME[level].min_outputs
            else None
        )

    def _opened(self, level: str, key: Key) -> Window | None:
        window = self._windows[level].get(key)
        if isinstance(window, _Stored):
            window = self._windows[level][key] = Window(_LEVEL_BY_NAME[level].window, *window)
        return window

    def windows_of(self, request: Request) -> dict[str, Window]:
        """Return what is known about requests like `request`, by level; levels with nothing to say are absent."""
        found = (
            (name, self.window(name, key)) for name, key in keys_of(request, self._salt).items()
        )
        return {name: window for name, window in found if window is not None}

    def to_payload(self, part: float = 1.0) -> dict[str, Any]:
        """Return the part of the history that an artifact stores, as JSON values: the salt, and one entry a key.

        Sessions and prefixes stay behind: their keys could name a person. Least recently fed keys come first. With a `part` (0..1) below one,
        that much of the keys and of the outputs that a level may store.
        """
        entries: list[dict[str, Any]] = []
        for level in LEVELS:
            windows = self._windows[level.name]
            stored = list(windows.items())[
                max(0, len(windows) - math.ceil(part * level.stored_keys)) :
            ]
            each = max(int(part * level.stored_outputs) // max(len(stored), 1), 2)
            entries += [_entry(level.name, key, window, each) for key, window in stored]
        return {"salt": self._salt.hex(), "windows": entries}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> "History":
        """Return the history that `to_payload` described.

        Raises:
            ArtifactError: the payload or one of its entries is not of that form.
        """
        try:
            history, entries = cls(bytes.fromhex(payload["salt"])), list(payload["windows"])
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(
                f"the history is not readable ({error!r}); expected salt and windows: train the artifact again"
            ) from error
        for number, entry in enumerate(entries):
            try:
                history._windows[entry["level"]][tuple(entry["key"])] = _Stored(
                    _whole(entry["outputs"]), _line(entry.get("line"))
                )
            except (KeyError, TypeError, ValueError) as error:
                raise ArtifactError(
                    f"history entry {number} is not readable ({error!r}); expected level, key and outputs: "
                    "train the artifact again"
                ) from error
        return history


def _entry(level: str, key: Key, window: "Window | _Stored", most: int) -> dict[str, Any]:
    outputs = window.outputs if isinstance(window, _Stored) else list(window)
    entry = {"level": level, "key": list(key), "outputs": _thinned(outputs, most)}
    return (
        entry
        if window.line is None
        else entry | {"line": [round(own, _LINE_DECIMALS) for own in window.line.sums]}
    )


def _line(values: Any) -> Line | None:
    if values is None:
        return None
    if not isinstance(values, list):
        raise ValueError(
            f"its line is {type(values).__name__}, expected a list of {_LINE_SUMS} numbers"
        )
    line = Line(values)
    if len(line.sums) != _LINE_SUMS or not all(map(math.isfinite, line.sums)) or line.sums[0] <= 0:
        raise ValueError(f"its line is not {_LINE_SUMS} finite numbers, a positive weight first")
    of_score, of_both, of_size = line.sums[4:7]
    if min(of_score, of_size) < 0 or of_both**2 >= (of_score + _SCORE_PRIOR) * (
        of_size + _SIZE_PRIOR
    ):
        raise ValueError("the squares of its line are impossible")
    return line


def _thinned(outputs: list[int], most: int) -> list[int]:
    """Return at most `most` of `outputs`, evenly spread over their order by size, in the order in which they came."""
    if len(outputs) <= most:
        return outputs
    by_size = sorted(range(len(outputs)), key=outputs.__getitem__)
    step = (len(outputs) - 1) / (most - 1)
    return [outputs[place] for place in sorted(by_size[round(rank * step)] for rank in range(most))]


def _whole(values: Any) -> list[int]:
    if odd := set(map(type, values)) - {int}:
        raise ValueError(
            f"one of the outputs is {', '.join(sorted(kind.__name__ for kind in odd))}, expected whole token counts"
        )
    return list(values)

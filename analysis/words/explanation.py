"""What did the open diagnosis find? Place, regularity, changes, state, mechanism and advice, each with its own confidence, as one typed answer.

`analysis/contrast` makes it from spans and `analysis/stations` from metrics; the report carries it, and every form of an answer renders it.
Times are milliseconds, shares and confidences 0..1. A null has its reason in `reasons` of the same object.
"""

from datetime import datetime
from typing import Literal

import msgspec

# stretch: slow since or between moments; always: no stretch, nearly all late; some: a part is late all along; none: nothing differs.
Mode = Literal["stretch", "always", "some", "none"]
# Which part of an operation holds the time.
Where = Literal[
    "itself",
    "before",
    "between",
    "after",
    "queue",
    "to_first_token",
    "after_first_token",
    "edge",
    "transfer",
    "unseen",
]
State = Literal[
    "held_back",
    "at_ceiling",
    "more_work",
    "slower",
    "normal",
    "idle",
    "stopped",
    "unknown",
    "more_arrivals",
]


class Place(msgspec.Struct, kw_only=True):
    """Where slow requests spend what they have more: one operation of one service, and which part of it.

    `excess_ms` is the difference of the means of slow and other requests that lies here, `share` its part of the whole difference, `interval` the 90 % bootstrap
    interval of that share over requests. `words` says the place as a person reads it, without a full stop. `instances` are those that carry it where not all do.
    """

    stage: str | None
    service: str | None
    operation: str | None
    where: Where
    excess_ms: float
    share: float
    interval: tuple[float, float] | None = None
    caller: str | None = None
    callee: str | None = None
    instances: list[str] = []
    words: str
    reasons: dict[str, str] = {}


class Regularity(msgspec.Struct, kw_only=True):
    """What parts late occurrences of the place from the others: a trait, and on how many of both sides it holds.

    `p` is corrected for the number of traits tried and was measured on the half that did not choose the trait; `carried` is the part of the excess that it
    carries. `alike` are traits that the data cannot part from it.
    """

    trait: str
    words: str
    late: int
    late_with: int
    others: int
    others_with: int
    carried: float
    p: float
    tried: int
    alike: list[str] = []


class Change(msgspec.Struct, kw_only=True):
    """What differs on the path since the onset; `before` and `after` are texts or figures in words, null where it is new or gone."""

    what: str
    before: str | None
    after: str | None
    reasons: dict[str, str] = {}


class Mechanism(msgspec.Struct, kw_only=True):
    """A known mechanism that fits. `confidence` stays at 0.5 or below where nothing that would refute it could be tried.

    `refuted` are the tests that were tried and did not hold, `untested` what could not be tried, with the one attribute or setting that would decide it.
    """

    id: str
    words: str
    confidence: float
    refuted: list[str] = []
    untested: list[str] = []


class RefutedMechanism(msgspec.Struct, kw_only=True):
    """A mechanism whose needs hold and which one of its tests excludes, with the figure."""

    id: str
    words: str
    figure: str


class Advice(msgspec.Struct, kw_only=True):
    """What to do first, and what not to do with the reason. `do` is empty where no gate passes; `look` is then what to look at instead."""

    do: list[str] = []
    undo: str | None = None
    look: list[str] = []
    avoid: list[str] = []
    reasons: dict[str, str] = {}


class Explanation(msgspec.Struct, kw_only=True):
    """The open diagnosis of one window: places first, three at most, then what distinguishes late occurrences, what changed, and a name only where one fits.

    `metric` is the judged latency, `before_ms` and `now_ms` its typical value of good and of bad requests; `n_bad` and `n_good` count them.
    `place_confidence`, `regularity_confidence` and the confidence of `mechanism` are three figures, never one.
    `excluded` has rules of diagnosis whose claim a measured sign excludes, with the figure.
    `sentence` says place, change and time as one sentence for a headline.
    """

    source: Literal["spans", "metrics"]
    mode: Mode
    metric: str
    onset: datetime | None = None
    until: datetime | None = None
    before_ms: float | None = None
    now_ms: float | None = None
    n_bad: int = 0
    n_good: int = 0
    sentence: str
    places: list[Place] = []
    place_confidence: float | None = None
    regularities: list[Regularity] = []
    regularity_confidence: float | None = None
    changed: list[Change] = []
    state: State = "unknown"
    state_words: str = ""
    mechanism: Mechanism | None = None
    refuted: list[RefutedMechanism] = []
    untested: list[str] = []
    excluded: dict[str, str] = {}
    advice: Advice = msgspec.field(default_factory=Advice)
    reasons: dict[str, str] = {}

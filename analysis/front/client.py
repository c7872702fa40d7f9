"""How does another process ask a running server? A typed client of /api/v1: the same structs come out as went in on the server.

The dashboard has nothing but this: no database, no SQL. Every failure is one of three errors, each with a sentence for the person in front.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import httpx
import msgspec

from overrun.analysis.words.encoding import decode
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.access.trust import trusted

if TYPE_CHECKING:
    from overrun.analysis.evidence.engine_overview import EngineView
    from overrun.analysis.evidence.engine_timeline import EngineCourse
    from overrun.analysis.front.api_whatif import FixInfo
    from overrun.analysis.front.budget_answer import BudgetView
    from overrun.analysis.front.predictor_watch import State
    from overrun.analysis.front.report import Report
    from overrun.analysis.front.stage_waterfall import Stages
    from overrun.analysis.numbers.comparison.cohorts import Cohorts
    from overrun.analysis.numbers.comparison.compare import Comparison
    from overrun.analysis.numbers.outcomes.burn_rate import Burn
    from overrun.analysis.numbers.outcomes.goodput_breakdown import GoodputBy
    from overrun.analysis.numbers.over_time.heatmap import Heatmap
    from overrun.analysis.numbers.over_time.history import History
    from overrun.analysis.numbers.over_time.series import Series
    from overrun.analysis.numbers.quality.checks import Quality
    from overrun.analysis.numbers.quality.doctor import Checkup
    from overrun.analysis.numbers.requests.request_list import Holdings, RequestList
    from overrun.analysis.numbers.requests.request_trace import Trace
    from overrun.analysis.whatif.prediction import Prediction

TOKEN_VARIABLES: Final = ("OVERRUN_READ_TOKEN", "OVERRUN_TOKEN")
# A report over a million requests takes about a second; a minute tells a slow server from a dead one.
TIMEOUT_S: Final = 60.0
# The first what-if about a window fits the engine's speed to it: 5 to 40 s of one core (measured on 2,500 requests, loaded machine), and others may wait.
WHATIF_TIMEOUT_S: Final = 240.0
Struct = TypeVar("Struct")


class ClientError(AnalysisError):
    """Base of what can go wrong between this process and the server."""


class Unreachable(ClientError):
    """Nobody answers at the address."""


class Refused(ClientError):
    """The server answered that it will not: a bad parameter, an unknown trace, a missing token, or a failure of its own."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class TooOld(ClientError):
    """The server does not know the question, or answers in another version's words."""


class Client:
    """Asks one server. `parameters` are the command line's flags (names in `question.PARAMETERS`); values that are None or empty are left out.

    Every method raises Unreachable, Refused or TooOld. Safe to share between threads.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """`url` is the server's address such as http://127.0.0.1:4318; `token` is by default read from OVERRUN_READ_TOKEN."""
        self.url = url.rstrip("/")
        token = token or next(
            (os.environ[name] for name in TOKEN_VARIABLES if os.environ.get(name)), None
        )
        headers = {"authorization": f"Bearer {token}"} if token else {}
        # No proxy from the environment: the server is on this machine or named outright.
        self._http = httpx.Client(
            headers=headers, timeout=timeout_s, trust_env=False, verify=trusted(self.url)
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def report(self, parameters: Mapping[str, str | None] | None = None) -> Report:
        """The whole answer for a window."""
        from overrun.analysis.front.report import Report

        return self._get("report", parameters, Report)

    def series(self, parameters: Mapping[str, str | None] | None = None, *, metric: str) -> Series:
        """One metric (ttft, itl, tpot, e2e) over time."""
        from overrun.analysis.numbers.over_time.series import Series

        return self._get("series", {**(parameters or {}), "metric": metric}, Series)

    def heatmap(
        self, parameters: Mapping[str, str | None] | None = None, *, metric: str
    ) -> Heatmap:
        """Counts of one metric per step and log bucket."""
        from overrun.analysis.numbers.over_time.heatmap import Heatmap

        return self._get("heatmap", {**(parameters or {}), "metric": metric}, Heatmap)

    def stages(
        self, parameters: Mapping[str, str | None] | None = None, *, metric: str | None = None
    ) -> Stages:
        """Stage rows and the waterfall from typical to slow, on the path of the judged metric or of the one given."""
        from overrun.analysis.front.stage_waterfall import Stages

        return self._get("stages", {**(parameters or {}), "metric": metric}, Stages)

    def requests(
        self,
        parameters: Mapping[str, str | None] | None = None,
        *,
        sort: str = "e2e",
        limit: int = 200,
        metric: str | None = None,
        min_ms: float | None = None,
        max_ms: float | None = None,
    ) -> RequestList:
        """Requests, largest first; `min_ms <= metric < max_ms` narrows them."""
        from overrun.analysis.numbers.requests.request_list import RequestList

        more = {
            "sort": sort,
            "limit": str(limit),
            "metric": metric,
            "min_ms": _text(min_ms),
            "max_ms": _text(max_ms),
        }
        return self._get("requests", {**(parameters or {}), **more}, RequestList)

    def holdings(self, parameters: Mapping[str, str | None] | None = None) -> Holdings:
        """What the store holds, and the values that the window can be filtered by."""
        from overrun.analysis.numbers.requests.request_list import Holdings

        return self._get("holdings", parameters, Holdings)

    def cohorts(
        self,
        parameters: Mapping[str, str | None] | None = None,
        *,
        metric: str = "e2e",
        min_ms: float | None = None,
        max_ms: float | None = None,
        box_from: str | None = None,
        box_to: str | None = None,
    ) -> Cohorts:
        """What slow requests share; with bounds, the requests in that box of time (RFC 3339) and latency."""
        from overrun.analysis.numbers.comparison.cohorts import Cohorts

        more = {
            "metric": metric,
            "min_ms": _text(min_ms),
            "max_ms": _text(max_ms),
            "box_from": box_from,
            "box_to": box_to,
        }
        return self._get("cohorts", {**(parameters or {}), **more}, Cohorts)

    def engine(
        self, parameters: Mapping[str, str | None] | None = None, *, metric: str
    ) -> EngineCourse:
        """What the inference servers said over time, beside one metric."""
        from overrun.analysis.evidence.engine_timeline import EngineCourse

        return self._get("engine", {**(parameters or {}), "metric": metric}, EngineCourse)

    def fixes(self) -> list[FixInfo]:
        """Every fix that a what-if can be asked for, with its parameters."""
        from overrun.analysis.front.api_whatif import FixInfo

        return self._get("whatif", None, list[FixInfo])

    def whatif(
        self,
        fix: str,
        parameters: Mapping[str, str | None] | None = None,
        *,
        metric: str | None = None,
    ) -> Prediction:
        """What a fix would buy; `parameters` also hold the fix's own."""
        from overrun.analysis.whatif.prediction import Prediction

        segment = "".join(c for c in fix if c.isalnum() or c in "_-")[:64] or "-"
        return self._get(
            f"whatif/{segment}",
            {**(parameters or {}), "metric": metric},
            Prediction,
            timeout_s=WHATIF_TIMEOUT_S,
        )

    def compare(
        self, parameters: Mapping[str, str | None] | None = None, *, before: str, after: str
    ) -> Comparison:
        """Two windows side by side; each side is `FROM..TO` or `version=NAME`."""
        from overrun.analysis.numbers.comparison.compare import Comparison

        return self._get(
            "compare", {**(parameters or {}), "before": before, "after": after}, Comparison
        )

    def burn(self, parameters: Mapping[str, str | None] | None = None) -> Burn:
        """Burn rates of the error budget at the window's end."""
        from overrun.analysis.numbers.outcomes.burn_rate import Burn

        return self._get("burn", parameters, Burn)

    def predictor(self, parameters: Mapping[str, str | None] | None = None) -> State | None:
        """How the length predictor does that the server watches; None if it watches none."""
        from overrun.analysis.front.predictor_watch import State

        return self._get("predictor", parameters, State | None)  # type: ignore[arg-type]

    def budget(self, parameters: Mapping[str, str | None] | None = None) -> BudgetView:
        """Responsibility for the breaches, derived budgets, and the split of the model part."""
        from overrun.analysis.front.budget_answer import BudgetView

        return self._get("budget", parameters, BudgetView)

    def indicators(self, parameters: Mapping[str, str | None] | None = None) -> EngineView:
        """Engine indicators over time, which of them warned, knees and headroom."""
        from overrun.analysis.evidence.engine_overview import EngineView

        return self._get("indicators", parameters, EngineView)

    def goodput(self, parameters: Mapping[str, str | None] | None = None) -> GoodputBy:
        """Goodput by route, model and tenant."""
        from overrun.analysis.numbers.outcomes.goodput_breakdown import GoodputBy

        return self._get("goodput", parameters, GoodputBy)

    def history(
        self, parameters: Mapping[str, str | None] | None = None, *, metric: str
    ) -> History:
        """One metric over months, from rollups."""
        from overrun.analysis.numbers.over_time.history import History

        return self._get("history", {**(parameters or {}), "metric": metric}, History)

    def quality(self, parameters: Mapping[str, str | None] | None = None) -> Quality:
        """Every data-quality check of the window, worst first."""
        from overrun.analysis.numbers.quality.checks import Quality

        return self._get("quality", parameters, Quality)

    def doctor(self, parameters: Mapping[str, str | None] | None = None) -> Checkup:
        """What each service sends, what it leaves out and what to switch on."""
        from overrun.analysis.numbers.quality.doctor import Checkup

        return self._get("doctor", parameters, Checkup)

    def trace(self, trace_id: str) -> Trace:
        """One request with its spans and critical path."""
        from overrun.analysis.numbers.requests.request_trace import Trace

        # An id is pasted by people: whatever it holds must stay one segment of the path.
        segment = "".join(c for c in trace_id.strip() if c.isalnum())[:64] or "-"
        return self._get(f"traces/{segment}", None, Trace)

    def _get(
        self,
        path: str,
        parameters: Mapping[str, str | None] | None,
        kind: type[Struct],
        *,
        timeout_s: float | None = None,
    ) -> Struct:
        asked = {name: value for name, value in (parameters or {}).items() if value}
        try:
            answer = self._http.get(
                f"{self.url}/api/v1/{path}", params=asked, timeout=timeout_s or self._http.timeout
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(
                f"no server answers at {self.url} ({_why(error)}): start one with `overrun serve`, or name another with --url"
            ) from error
        if answer.status_code != httpx.codes.OK:
            raise _refusal(self.url, path, answer)
        try:
            return decode(answer.content, kind)
        except msgspec.MsgspecError as error:
            remedy = "use the same version of Overrun on both sides"
            raise TooOld(
                f"{self.url} answers /api/v1/{path} in a form that is not known here ({error}): {remedy}"
            ) from error


def _refusal(url: str, path: str, answer: httpx.Response) -> ClientError:
    try:
        sentence = msgspec.json.decode(answer.content, type=dict[str, object]).get("error")
    except msgspec.MsgspecError:
        sentence = None
    status = answer.status_code
    if status in (401, 403):
        return Refused(
            f"{url} wants a token: set {TOKEN_VARIABLES[0]} to the server's read token and start again",
            status,
        )
    if isinstance(sentence, str):
        return Refused(sentence, status)
    if status == httpx.codes.NOT_FOUND:
        return TooOld(
            f"{url} does not know /api/v1/{path}: it is an older Overrun (update the server), or another program"
        )
    return Refused(f"{url} answered {status}: is it an Overrun server?", status)


def _why(error: Exception) -> str:
    said = re.sub(r"^\[Errno -?\d+\] ", "", str(error))[:200] or type(error).__name__
    return "it did not answer in time" if isinstance(error, httpx.TimeoutException) else said


def _text(value: float | None) -> str | None:
    return None if value is None else repr(value)

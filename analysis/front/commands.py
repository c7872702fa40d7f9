"""Who answers a command: a file or a server? Opens the file and calls the functions here, or asks a running server the same over HTTP.

What only some commands need (compilers, readers of files, Parquet) is imported where they need it: who asks a server waits for none of it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import duckdb
import httpx
import msgspec

from overrun.analysis.front import report as reports
from overrun.analysis.front.questions import Question
from overrun.analysis.front.server_access import TIMEOUT_S, ServerError, bearer
from overrun.analysis.words.encoding import decode, encode
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.access.auth import Tokens
from overrun.collector.access.trust import trusted
from overrun.collector.config import Settings
from overrun.collector.errors import ImportFailed, StoreMissing
from overrun.collector.store.database import Store, open_store

if TYPE_CHECKING:
    from overrun.analysis.front.check import CheckResult
    from overrun.analysis.numbers.comparison.compare import Comparison
    from overrun.collector.lifecycle.forget import Forgotten

DEFAULT_URL = "http://127.0.0.1:4318"
_ASK_AGAIN_S = 1.0


@contextmanager
def _opened(db: Path, settings: Settings) -> Iterator[Store]:
    """The database with everything assembled that was stored."""
    store = open_store(db, create=False, memory_limit=settings.collector.memory_limit)
    if store.read_only:
        try:
            yield store
        finally:
            store.close()
        return
    from overrun.analysis.assembly.assemble import assemble
    from overrun.collector.ingest.pipeline import Pipeline

    pipeline = Pipeline(store, settings.collector, settings.privacy, assemble, settings.words)
    try:
        pipeline.drain()
        yield store
    finally:
        pipeline.close()


def _where(db: Path | None, url: str | None) -> tuple[Path | None, str]:
    """The file or the server to ask: as given, else the server at its usual port, else overrun.db here."""
    if db is not None:
        return db, ""
    if url is not None:
        return None, url.rstrip("/")
    try:
        httpx.get(
            f"{DEFAULT_URL}/healthz", timeout=2.0, trust_env=False, verify=trusted(DEFAULT_URL)
        )
    except httpx.HTTPError:
        if Path("overrun.db").exists():
            return Path("overrun.db"), ""
        raise StoreMissing(
            f"no server answers at {DEFAULT_URL} and there is no overrun.db here: give --db FILE or --url URL"
        ) from None
    return None, DEFAULT_URL


def _answer(
    name: str,
    parameters: Mapping[str, str | None],
    settings: Settings,
    here: Callable[[duckdb.DuckDBPyConnection, Question], msgspec.Struct],
    *,
    db: Path | None,
    url: str | None,
    fetch: Callable[[str, Mapping[str, str]], bytes] | None = None,
) -> bytes:
    """The answer to a question as JSON: a server's at /api/v1/<name>, read by `fetch`, or what `here` makes of the file; both are the same bytes."""
    path, server = _where(db, url)
    if path is None:
        return (fetch or _get)(
            f"{server}/api/v1/{name}", {k: v for k, v in parameters.items() if v}
        )
    question = Question.read(parameters, settings, now=datetime.now(UTC))
    with _opened(path, settings) as store, store.reading() as con:
        return encode(here(con, question))


def report(
    parameters: Mapping[str, str | None],
    settings: Settings,
    *,
    db: Path | None,
    url: str | None,
    output: str,
    width: int,
    details: bool = False,
    colour: bool = False,
) -> str:
    """The report as text, JSON, HTML or Markdown; `parameters` are the flags (names in question.PARAMETERS).

    The text has at most 25 lines; with `details` it has everything. `colour` marks labels with ANSI codes.

    Raises:
        AnalysisError, CollectorError: bad input, or nobody to ask.
    """

    def here(con: duckdb.DuckDBPyConnection, question: Question) -> reports.Report:
        from overrun.analysis.diagnosis.fix_pricing import (
            inline,
        )  # compiled kernels: only who asks for findings loads them

        return reports.build(
            con,
            question.window,
            question.slo,
            question.budgets,
            prices=question.prices,
            simulate=inline,
        )

    body = _answer("report", parameters, settings, here, db=db, url=url, fetch=_whole_report)
    made = reports.from_json(body)
    if made.refused:
        raise AnalysisError(made.refused)
    if output == "json":
        return body.decode()
    from overrun.analysis.front import report_brief, report_page, report_text

    if output in ("html", "markdown"):
        return {"html": report_page.to_html, "markdown": report_page.to_markdown}[output](made)
    if details:
        return report_text.render(made, width=width)
    return report_brief.render(made, width=width, colour=colour)


def _whole_report(url: str, parameters: Mapping[str, str]) -> bytes:
    """A server's report; where it is still seeking the causes, asked again until they are there."""
    until = time.monotonic() + TIMEOUT_S
    body = _get(url, parameters)
    while reports.seeking(reports.from_json(body)) and time.monotonic() < until:
        time.sleep(_ASK_AGAIN_S)
        body = _get(url, parameters)
    return body


def budget(
    parameters: Mapping[str, str | None],
    settings: Settings,
    *,
    db: Path | None,
    url: str | None,
    output: str,
) -> str:
    """What each stage should be allowed for the limit, as text, JSON, or a `[budgets]` table in TOML.

    Raises:
        AnalysisError, CollectorError: bad input, or nobody to ask.
    """
    from overrun.analysis.front import budget_text
    from overrun.analysis.front.budget_answer import BudgetView, budget_view

    body = _answer(
        "budget",
        parameters,
        settings,
        lambda con, asked: budget_view(con, asked.window, asked.slo, asked.budgets),
        db=db,
        url=url,
    )
    if output == "json":
        return body.decode()
    made = decode(body, BudgetView)
    return (
        budget_text.to_toml(made, parameters.get("route"))
        if output == "toml"
        else budget_text.render(made)
    )


def compare(
    parameters: Mapping[str, str | None],
    settings: Settings,
    *,
    db: Path | None,
    url: str | None,
    before: str,
    after: str,
    output: str,
) -> str:
    """Two windows side by side as text or JSON; each side is a RANGE or `version=NAME`.

    Raises:
        AnalysisError, CollectorError: bad input, or nobody to ask.
    """
    from overrun.analysis.front import compare_text
    from overrun.analysis.numbers.comparison import compare as comparing

    def here(con: duckdb.DuckDBPyConnection, question: Question) -> Comparison:
        return comparing.compare(
            con,
            comparing.read_sides(question.window, before, after, datetime.now(UTC)),
            question.slo,
        )

    body = _answer(
        "compare", {**parameters, "before": before, "after": after}, settings, here, db=db, url=url
    )
    return (
        body.decode()
        if output == "json"
        else compare_text.render(decode(body, comparing.Comparison))
    )


def doctor(
    parameters: Mapping[str, str | None],
    settings: Settings,
    *,
    db: Path | None,
    url: str | None,
    output: str,
) -> str:
    """What each service sends, what it leaves out and what to switch on, as text or JSON.

    Raises:
        AnalysisError, CollectorError: bad input, or nobody to ask.
    """
    from overrun.analysis.numbers.quality import doctor as checkup

    body = _answer(
        "doctor",
        parameters,
        settings,
        lambda con, asked: checkup.examine(con, asked.window),
        db=db,
        url=url,
    )
    made = decode(body, checkup.Checkup)
    if made.refused:
        raise AnalysisError(made.refused)
    return body.decode() if output == "json" else checkup.render(made)


def check(
    parameters: Mapping[str, str | None],
    settings: Settings,
    *,
    db: Path | None,
    url: str | None,
    files: Sequence[Path],
    min_goodput: float | None,
) -> CheckResult:
    """Judge a window of a database, a server, or of files that are read into a store of their own and forgotten.

    Raises:
        AnalysisError, CollectorError: bad input, nobody to ask, or nothing to judge.
    """
    from overrun.analysis.front import check as gate

    path, server = (None, "") if files else _where(db, url)
    if server:
        return gate.check(
            reports.from_json(
                _get(f"{server}/api/v1/report", {k: v for k, v in parameters.items() if v})
            ),
            min_goodput,
        )
    with tempfile.TemporaryDirectory(prefix="overrun-check-") as folder:
        notes: list[str] = []
        if path is None:
            from overrun.analysis.front.file_import import take_in
            from overrun.collector.sources.importer import EXPECTED

            path = Path(folder) / "check.db"
            settings = replace(settings, collector=replace(settings.collector, db=str(path)))
            done = take_in(files, settings, url=None, progress=lambda at, total: None)
            if not done.files:
                raise ImportFailed(
                    f"none of {', '.join(map(str, files))} is to be judged: expected {EXPECTED}"
                )
            notes = done.notes
        question = Question.read(parameters, settings, now=datetime.now(UTC))
        with _opened(path, settings) as store, store.reading() as con:
            return gate.check(
                reports.build(
                    con, question.window, question.slo, question.budgets, with_findings=False
                ),
                min_goodput,
                notes,
            )


def whatif(  # noqa: PLR0913
    fix: str,
    texts: Mapping[str, str | None],
    parameters: Mapping[str, str | None],
    settings: Settings,
    *,
    db: Path | None,
    url: str | None,
    output: str,
    metric: str | None,
    progress: Callable[[float], None],
) -> str:
    """What one fix would buy, as text or JSON; `texts` are the fix's own flags. `progress` is told the part of a calibration that is done.

    Raises:
        AnalysisError, CollectorError: bad input, or nobody to ask.
    """
    from overrun.analysis.front.whatif_answer import gather, in_money
    from overrun.analysis.front.whatif_text import render
    from overrun.analysis.whatif import catalogue
    from overrun.analysis.whatif.prediction import Prediction

    catalogue.read(fix, texts)
    path, server = _where(db, url)
    if path is None:
        given = {k: v for k, v in {**parameters, **texts, "metric": metric}.items() if v}
        body = _get(f"{server}/api/v1/whatif/{fix}", given)
        return body.decode() if output == "json" else render(decode(body, Prediction))
    question = Question.read(parameters, settings, now=datetime.now(UTC))
    with _opened(path, settings) as store, store.reading() as con:
        facts = gather(con, question, metric)
        facts.progress = progress
        answer = in_money(catalogue.ask(facts, fix, texts), facts, question.prices)
    return encode(answer).decode() if output == "json" else render(answer)


def trace(
    trace_id: str, settings: Settings, *, db: Path | None, url: str | None, output: str, width: int
) -> str:
    """One request as a waterfall or as JSON.

    Raises:
        AnalysisError, CollectorError: bad or unknown id, or nobody to ask.
    """
    from overrun.analysis.front.trace_text import render as waterfall
    from overrun.analysis.numbers.requests.request_trace import Trace, load_trace

    path, server = _where(db, url)
    if path is None:
        body = _get(f"{server}/api/v1/traces/{trace_id}", {})
    else:
        with _opened(path, settings) as store, store.reading() as con:
            body = encode(load_trace(con, trace_id))
    return body.decode() if output == "json" else waterfall(decode(body, Trace), width)


def export(
    parameters: Mapping[str, str | None],
    settings: Settings,
    *,
    db: Path | None,
    url: str | None,
    kind: str,
    form: str,
    out: IO[bytes],
) -> None:
    """Write the rows of a view to `out`; `parameters` may hold since, from and to.

    Raises:
        AnalysisError, CollectorError: bad input, or nobody to ask.
    """
    from overrun.analysis.front import export as exports

    exports.check(kind, form)
    path, server = _where(db, url)
    if path is None:
        out.write(
            _get(
                f"{server}/api/v1/export/{kind}",
                {**{k: v for k, v in parameters.items() if v}, "format": form},
            )
        )
    else:
        question = Question.read(parameters, settings, now=datetime.now(UTC))
        with _opened(path, settings) as store, store.reading() as con:
            exports.write(con, question.window, kind, form, out)


def _get(url: str, parameters: Mapping[str, Any]) -> bytes:
    try:
        headers = bearer(Tokens.from_environment(os.environ).read)
        answer = httpx.get(
            url,
            params=dict(parameters),
            timeout=TIMEOUT_S,
            trust_env=False,
            verify=trusted(url),
            headers=headers,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ServerError(
            f"{url} cannot be asked ({error}): start it with `overrun serve`, or give --db FILE"
        ) from error
    if answer.status_code != httpx.codes.OK:
        raise AnalysisError(_sentence(answer))
    return answer.content


def _sentence(answer: httpx.Response) -> str:
    try:
        document = answer.json()
        return str(document.get("error") or document.get("message"))
    except (ValueError, AttributeError):
        return f"{answer.url} answered {answer.status_code}: is it an Overrun server?"


def forget(*, db: Path | None, url: str | None, user: str | None, tenant: str | None) -> Forgotten:
    """Erase a user or a tenant from a file, or through the server that owns it.

    Raises:
        CollectorError: nobody to ask, or the server refused.
    """
    from overrun.collector.lifecycle.forget import Forgotten, forget_in_file

    if db is not None:
        return forget_in_file(db, user=user, tenant=tenant)
    whom = {"user": user} if user else {"tenant": tenant}
    try:
        headers = bearer(Tokens.from_environment(os.environ).erase)
        there = f"{str(url).rstrip('/')}/v1/forget"
        answer = httpx.post(
            there,
            json=whom,
            timeout=TIMEOUT_S,
            trust_env=False,
            verify=trusted(there),
            headers=headers,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ServerError(
            f"{url} cannot be asked ({error}): start it with `overrun serve`, or give --db FILE"
        ) from error
    if answer.status_code != httpx.codes.OK:
        raise ServerError(_sentence(answer))
    return decode(answer.content, Forgotten)

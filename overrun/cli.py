"""The front door: the `overrun` command. Reads flags, calls one function of the packages behind it, prints its result. No logic.

The words of the commands and the order of their flags are in commands.toml; `command_table` makes commands of both.
Imports stand inside the commands: `overrun --help` must not wait for DuckDB, numba or the browser's libraries.
Standard output carries only the result; everything else goes to standard error. Bad input exits with 2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from overrun import __version__, command_table, ending, manual
from overrun.analysis.front import question_table as table
from overrun.command_table import Flags

if TYPE_CHECKING:
    from overrun.analysis.front.asked import Asked, Source
    from overrun.analysis.front.predictor_watch import Lengths
    from overrun.collector.config import Settings

_LEAST_EVERY_S = 1.0  # a report takes about as long


def fail(message: str, code: int = 2) -> NoReturn:
    """Say what is wrong on standard error, in lines that a terminal has room for, and end."""
    said = f"overrun: {message}"
    if sys.stderr.isatty():
        from overrun.analysis.front.text_layout import within

        said = within(said, min(_width(), 100))
    print(said, file=sys.stderr)
    raise typer.Exit(code)


def _width() -> int:
    return shutil.get_terminal_size((110, 40)).columns


def _run(function: Callable[..., None], **given: Any) -> None:
    """Call what a command does; an error that was raised on purpose is printed as one sentence and ends it."""
    try:
        function(**given)
        sys.stdout.flush()
    except BrokenPipeError:
        ending.reader_has_gone()
    except Exception as error:
        from overrun.analysis.words.errors import AnalysisError
        from overrun.collector.errors import CollectorError
        from overrun.models.errors import ModelsError

        if ending.interrupted():
            ending.as_interrupted()
        if not isinstance(error, AnalysisError | CollectorError | ModelsError):
            raise
        fail(str(error))


app = typer.Typer(
    name=command_table.PROGRAM,
    cls=command_table.Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    help="Which stage of an LLM application overran the latency budget, why, and what each fix would gain.",
    **command_table.TYPER,
)
_command = command_table.registrar(app, _run)


def _version(asked: bool) -> None:
    if asked:
        print(f"overrun {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Stands before every command: options that need none."""


def _settings(config: Path | None, **flags: Any) -> Settings:
    """The settings of a file, the one of this folder by default; a flag is written `collector__db`."""
    from overrun.collector.config import load

    path = config or (Path("overrun.toml") if os.path.exists("overrun.toml") else None)
    return load(path, flags={name.replace("__", "."): value for name, value in flags.items()})


@contextmanager
def _needing(extra: str) -> Iterator[None]:
    """Around imports that an extra brings: without it the command ends with what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        fail(f"{error.name} is not installed: install overrun[{extra}]")


@contextmanager
def _progress(what: str, total: float | None = 1.0) -> Iterator[Callable[..., None]]:
    """A bar on standard error; what is yielded moves it."""
    from rich.console import Console
    from rich.progress import Progress

    quiet = not sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task(what, total=total)

        def move(completed: float, **more: Any) -> None:
            bar.update(task, completed=completed, **more)

        yield move


def _asking(flags: Flags) -> Asked[Any]:
    """What a command asks, after a look at its flags: nothing is loaded for a file that is not there, or a value that cannot be read."""
    from overrun.analysis.front import asked as front

    front.refuse_form(flags.entry, flags.output, flags.outputs)
    texts = flags.entry.texts(flags.texts)
    settings = _settings(flags.config, collector__db=flags.db and str(flags.db))
    source = front.source_of(flags.sources or (), settings, flags.db, flags.url, flags.match)
    for parameter in flags.entry.parameters:
        if parameter.name in texts:
            parameter.read(texts[parameter.name])
    return front.Asked(flags.entry, texts, source, flags.output, _width(), _coloured())


def _answer(asked: Asked[Any]) -> str:
    """The answer to a question, of any source."""
    if asked.source.is_stored:
        from overrun.analysis.front import commands

        return commands.with_facts(asked)
    from overrun.analysis.front import file_commands

    return file_commands.answer(asked, _note, lambda: _progress("reading"))


@contextmanager
def _readable(asked: Asked[Any]) -> Iterator[Asked[Any]]:
    """A question of a store or a server: any other source is read into one within."""
    if asked.source.is_stored:
        yield asked
        return
    from overrun.analysis.front import file_commands

    with file_commands.opened(asked, _note, lambda: _progress("reading")) as made:
        yield made


def _say(text: str) -> None:
    """Print a text, its longer lines wrapped to the terminal."""
    from overrun.analysis.front.text_layout import within

    print(within(text, _width()))


def _note(line: str) -> None:
    """Print what a reader of an answer has to know of how it came about, beside the answer."""
    print(line, file=sys.stderr, flush=True)


def _coloured() -> bool:
    """Return whether standard output shows colour: a terminal, where nobody has asked for none, or colour is forced.

    Asked by NO_COLOR (https://no-color.org), CLICOLOR and CLICOLOR_FORCE (https://bixense.com/clicolors).
    """
    if os.environ.get("NO_COLOR") or os.environ.get("CLICOLOR") == "0":
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@_command("serve")
def serve(
    db: Path | None = None,
    store: str | None = None,
    role: str | None = None,
    host: str | None = None,
    grpc_port: int | None = None,
    http_port: int | None = None,
    api_port: int | None = None,
    db_max_size: str | None = None,
    token_file: Path | None = None,
    decoder: str | None = None,
    config: Path | None = None,
    scrape: list[str] | None = None,
    dashboard: bool = False,
    artifact: Path | None = None,
) -> None:
    """Receive telemetry, store it, answer questions about it."""
    from overrun.collector.process import footprint

    footprint.keep_small()
    from overrun.analysis.front.greeting import greeting
    from overrun.analysis.front.serve import Addresses, run_loop
    from overrun.analysis.front.serve import serve as run
    from overrun.collector.process import logs

    settings = _settings(
        config,
        collector__db=db and str(db),
        collector__store=store,
        collector__role=role,
        collector__host=host,
        collector__grpc_port=grpc_port,
        collector__http_port=http_port,
        collector__api_port=api_port,
        collector__token_file=token_file and str(token_file),
        retention__db_max_size=db_max_size,
        collector__decoder=decoder,
    )
    logs.configure(settings.collector.log_format)
    shown: list[subprocess.Popen[bytes]] = []

    def ready(at: Addresses, empty: bool) -> None:
        if empty:
            _note(greeting(at.grpc, at.http, at.scheme, token=at.token))
        asked_at = at.api or at.http
        if dashboard and asked_at:
            shown.extend(_dashboard_of(f"{at.scheme}://{asked_at}", artifact))
        apart = f" api={at.api}" if at.api else ""
        _note(f"ready grpc={at.grpc or '-'} http={at.http or '-'}{apart}")

    try:
        run_loop(run(settings, ready, scrape_urls=scrape or (), watched=_watch(artifact)))
    finally:
        for process in shown:
            process.terminate()
    ending.leave()


def _watch(artifact: Path | None, most_calls: int | None = 500) -> Lengths | None:
    """The predictor at `artifact`, held against live calls."""
    if artifact is None:
        return None
    from overrun.analysis.assembly.assemble import assemble

    with _needing("predict"):
        from overrun.models.watch import Watch
    return Watch(artifact, assemble, most_calls)


def _dashboard_of(url: str, artifact: Path | None = None) -> list[subprocess.Popen[bytes]]:
    """The dashboard beside a server; what stops it is said, and the server runs on."""
    from overrun.dashboard import launch

    try:
        started = [launch.run(url, artifact=artifact)]
    except launch.DashboardError as error:
        _note(f"overrun: {error}; everything else runs")
        return []
    _note(f"dashboard: http://{launch.DEFAULT_HOST}:{launch.DEFAULT_PORT}")
    return started


@_command("store import")
def import_(
    asked: Flags,
    sources: list[str],
    match: str = "",
    db: Path | None = None,
    url: str | None = None,
    artifact: Path | None = None,
    every: str | None = None,
    map_file: Path | None = None,
) -> None:
    """Import recorded telemetry, from files or from another tool's store. What is imported twice counts once."""
    if (db is None) == (url is None):
        fail("the target is missing: give --db FILE or --url of a running server (one of them)")
    if artifact is not None and url is not None:
        fail(
            "--artifact goes with --db: a running server watches the predictor that it was started with"
        )
    settings = _settings(asked.config, collector__db=db and str(db))
    from overrun.analysis.front.asked import source_of, there

    source = source_of(sources, settings, match=match)
    if source.remote:
        print(_fetched(source, asked.texts, url))
        return
    if source.url is not None:
        fail(f"{sources[0]} is a server, which has its telemetry: ask it as it is")
    if any(asked.texts.values()):
        fail("--since, --from and --to are for other tools' addresses: files are read whole")
    there((artifact,), "the folder that `overrun length train` wrote")
    from overrun.analysis.front.file_import import import_files
    from overrun.analysis.words.times import parse_duration

    with _progress("importing", None) as move:
        done = import_files(
            [Path(one) for one in sources],
            settings,
            url=url,
            progress=lambda at, total: move(at, total=total),
            watched=_watch(artifact, most_calls=None),
            every_s=None if every is None else parse_duration(every).total_seconds(),
            map_file=map_file,
        )
    _say(done)


def _fetched(source: Source, texts: table.Texts, url: str | None) -> str:
    """Read a window of other tools into the settings' database, or into a server; returns what came of it."""
    from datetime import UTC, datetime

    from overrun.analysis.front import remote_import

    window = remote_import.window_of(texts, datetime.now(UTC))
    with _progress("reading") as move:
        done = remote_import.fetch(source, window, source.settings, url=url, shown=move)
    return done.sentence()


@_command("store map")
def map_(file: Path, check: Path | None = None, config: Path | None = None) -> None:
    """What is in this file? Print a map of it, a SELECT to correct, with three records and what is in doubt."""
    from overrun.analysis.front import map_files
    from overrun.analysis.front.asked import there

    there((file, check), "a file of another tool, and as --check a map")
    if check is None:
        print(map_files.propose(file, _settings(config)))
    else:
        print(map_files.check(file, check))


def _print(asked: Flags) -> None:
    """Ask a question of the table and print the answer, as wide as the terminal."""
    print(_answer(_asking(asked)))


@_command("report")
def report(
    asked: Flags,
    trace: str | None = None,
    details: bool = False,
    watch: bool = False,
    every: str | None = None,
) -> None:
    """Find the slow stage, its cause, and the gain of each fix."""
    if trace is not None and asked.output in ("html", "markdown"):
        fail(f"--output {asked.output} is not known for one trace: use text or json")
    watch = watch or every is not None
    if watch and (trace is not None or asked.output != "text"):
        fail("--watch repeats the report as text: leave --trace and --output out")
    every_s = _seconds(every or "10s")
    made = _asking(asked)
    if trace is not None:
        table.TRACE.read({"trace_id": trace})
        with _readable(made) as stored:
            print(_answer(stored.of(table.TRACE, made.form, {"trace_id": trace})))
        return
    made = made.but("details") if details and made.form == "text" else made
    if watch:
        _repeat("overrun report", made, every_s)
    else:
        print(_answer(made))


def _repeat(title: str, asked: Asked[Any], every_s: float) -> None:
    """Show an answer again and again."""
    from overrun.analysis.front import commands, live

    named = ", ".join(asked.source.named)[:80]
    place = named or commands.place(asked.source)
    live.show(lambda width: _answer(replace(asked, width=width)), f"{title}  {place}", every_s)


def _seconds(every: str) -> float:
    """How long to wait between two answers."""
    from overrun.analysis.words.errors import AnalysisError
    from overrun.analysis.words.times import parse_duration

    try:
        every_s = parse_duration(every).total_seconds()
    except AnalysisError as error:
        fail(f"--every: {error}")
    if every_s < _LEAST_EVERY_S:
        fail(f"--every {every} is too short: give at least {_LEAST_EVERY_S:g}s")
    return every_s


@_command("top")
def top(asked: Flags, every: str = "5s") -> None:
    """Watch the last 5 minutes: traffic, verdict, stages, instances."""
    every_s = _seconds(every)
    window = any(asked.texts.get(name) for name in ("since", "from", "to"))
    texts = {**asked.texts, **({} if window else {"since": "5m"})}
    _repeat("overrun top", _asking(replace(asked, output="top", texts=texts)), every_s)


@_command("traces")
def traces(
    asked: Flags,
    slowest: bool = False,
    failed: bool = False,
    stage: str | None = None,
    sort: str = "e2e",
    limit: str = "20",
) -> None:
    """List requests: the slowest, the failed, or those with most time in a stage."""
    from overrun.analysis.words.errors import nearest

    if stage and (slowest or sort != "e2e"):
        fail("--stage was given together with --slowest or --sort: give one of them")
    if slowest and sort != "e2e":
        fail("--slowest was given together with --sort: give one of them")
    if stage and stage not in table.STAGE_NAMES:
        fail(f"--stage {stage!r} is no stage: {nearest(stage, table.STAGE_NAMES)}")
    own = {"sort": stage or sort, "status": "error" if failed else None, "limit": limit}
    _print(replace(asked, texts={**asked.texts, **own}))


@_command("compare")
def compare(
    asked: Flags,
    before: str | None = None,
    after: str | None = None,
    deployment: str | None = None,
    span: str = "30m",
) -> None:
    """Compare two windows or two versions. Chance and other traffic are taken into account."""
    sides = {"before": before, "after": after}
    if deployment is not None:
        if before or after:
            fail("--deployment stands in place of --before and --after: leave those out")
        from overrun.analysis.front import applied as front

        with _readable(_asking(replace(asked, texts={}))) as made:
            at = front.deployed_at(made.source, deployment)
        sides = dict(front.moment_of(at, span, "1m").sides())
    _print(replace(asked, texts={**asked.texts, **sides}))


@_command("check")
def check(asked: Flags, min_goodput: float | None = None, min_rate: float | None = None) -> None:
    """Does this window pass? Exit code 0: yes; 1: a gate failed; 2: bad input, or nothing to judge."""
    made = _asking(asked).but(baseline="none")
    if min_rate is not None and not made.source.files:
        fail("--min-rate goes with files of a load test")
    from overrun.analysis.front import check_output, commands

    if made.source.is_stored:
        result = commands.check(made, min_goodput=min_goodput)
    else:
        from overrun.analysis.front import file_commands

        result = file_commands.check(
            made,
            min_goodput=min_goodput,
            min_rate=min_rate,
            reading=lambda: _progress("reading"),
        )
    (_say if made.form == "text" else print)(check_output.render(result, made.form))
    raise typer.Exit(0 if result.passed else 1)


@_command("admin bug-report")
def bug_report(asked: Flags, out: Path, trace: str | None = None) -> None:
    """Pack telemetry that Overrun reads wrongly, without names, texts and dates, as a case that can be sent and run."""
    made = _asking(asked).but("json")
    from overrun.analysis.front import bug_report as packing

    as_it_is = made.source.files and trace is None
    with nullcontext(made) if as_it_is else _readable(made) as stored:
        print(packing.pack(stored, out, trace=trace))


def _whatif(flags: Flags) -> None:
    """Ask for the gain of one fix."""
    made = _asking(flags)
    from overrun.analysis.front import commands

    with _readable(made) as asked, _progress("what if") as move:
        answer = commands.whatif(asked, move)
    print(answer)


whatif_app = typer.Typer(
    name="whatif",
    cls=command_table.fixes(lambda flags: _run(_whatif, flags=flags)),
    no_args_is_help=True,
    help="Predict the gain of one fix. Each command is one question: what if ...",
    **command_table.TYPER,
)
whatif_app.callback()(lambda: None)
app.add_typer(whatif_app)


@_command("store export")
def export(
    asked: Flags,
    kind: str | None = None,
    out: Path | None = None,
    folder: Path | None = None,
    continuous: bool = False,
    shard: str | None = None,
) -> None:
    """Rows of the stored requests, model calls, spans or engine metrics as a file, or as files by the hour."""
    given = {name: text for name, text in asked.texts.items() if text}
    if folder is not None:
        if out is not None or given.get("format", "parquet") != "parquet":
            fail("--folder takes Parquet files: leave out --out and --format")
        texts = {"kind": kind or "requests", **given}
        source = _asking(replace(asked, texts=texts, output="json")).source
        _export_hours(source, folder, shard, kind, given, continuous)
        return
    if kind is None:
        fail("name what is exported, such as `overrun store export requests`")
    if continuous or shard is not None:
        fail("--continuous and --shard are for files by the hour: give --folder")
    made = _asking(replace(asked, texts={**given, "kind": kind}, output="json"))
    from overrun.analysis.front import commands

    try:
        with out.open("wb") if out else nullcontext(sys.stdout.buffer) as stream:
            commands.export(made, stream)
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"--out {out} cannot be written: {error.strerror}")


def _export_hours(
    source: Source,
    folder: Path,
    shard: str | None,
    kind: str | None,
    asked: table.Texts,
    continuous: bool,
) -> None:
    """One round over the closed hours, or one every five minutes until the process is ended; a round that fails is then tried again."""
    from overrun.analysis.front import commands
    from overrun.analysis.front.hourly_files import EVERY_S, KINDS, HourlyFiles
    from overrun.analysis.words.errors import AnalysisError
    from overrun.collector.errors import CollectorError

    files = HourlyFiles(folder, shard)
    while True:
        try:
            done = commands.export_hours(source, files, (kind,) if kind else KINDS, asked)
        except (AnalysisError, CollectorError, OSError) as error:
            why = str(error)
            if isinstance(error, OSError):
                why = f"{error.filename or folder} cannot be written: {error.strerror}"
            if not continuous:
                fail(why)
            print(f"overrun: {why}; trying again in {EVERY_S:g} s", file=sys.stderr, flush=True)
        else:
            if done.written or not continuous:
                print(done, flush=True)
        if not continuous:
            return
        time.sleep(EVERY_S)


@_command("explain batch report")
def batch_report(
    asked: Flags,
    folder: Path,
    engine: str = "duckdb",
    master: str = "local[*]",
    conf: list[str] | None = None,
) -> None:
    """Percentiles, goodput and stages of all requests of a long period. With --baseline: what differs from another one.

    Percentiles and counts are exact; no cause is sought. Without --baseline FROM..TO or previous nothing is compared.
    """
    from overrun.analysis.front.asked import refuse_form
    from overrun.analysis.front.batch.report import On, report
    from overrun.analysis.front.batch.text import render
    from overrun.analysis.words.encoding import encode

    refuse_form(asked.entry, asked.output, asked.outputs)
    question = _of_files(asked.texts, asked.config)
    made = report(folder, question, On(engine, master, _pairs(conf, "--conf", _SPARK)))
    print(render(made) if asked.output == "text" else encode(made).decode())


@_command("explain batch export-training")
def batch_export_training(
    asked: Flags,
    folder: Path,
    out: Path,
    most: int = 200_000,
    engine: str = "duckdb",
    master: str = "local[*]",
    conf: list[str] | None = None,
) -> None:
    """The model calls that a length predictor can learn from, as one file."""
    from overrun.analysis.front.batch.report import On, export_training
    from overrun.analysis.words.finding import say_count

    texts = {**asked.texts, "workload": asked.texts["workload"] or "all"}
    window = _of_files(texts, asked.config).window
    on = On(engine, master, _pairs(conf, "--conf", _SPARK))
    rows = export_training(folder, window, most, out, on)
    print(f"wrote {say_count(rows, 'model call')} to {out}")


def _of_files(texts: table.Texts, config: Path | None) -> Any:
    """A question about files; without a window it is about all of them."""
    from datetime import UTC, datetime

    from overrun.analysis.front.questions import Question

    return Question.read(texts, _settings(config), now=datetime.now(UTC))


_SPARK = "is no KEY=VALUE, such as spark.executor.memory=2g"


def _pairs(texts: list[str] | None, flag: str, otherwise: str) -> dict[str, str]:
    """The names and values of a flag that may be repeated."""
    pairs = [text.partition("=") for text in texts or ()]
    for name, equals, _ in pairs:
        if not (name and equals):
            fail(f"{flag} {name!r} {otherwise}")
    return {name: value for name, _, value in pairs}


@_command("doctor")
def doctor(asked: Flags, repair: Path | None = None) -> None:
    """List missing telemetry per service. Includes the dialect of each service and the settings to switch on."""
    if repair is None:
        _print(asked)
        return
    if asked.db is None:
        fail("name the damaged file: overrun doctor --db FILE --repair NEW.db")
    from overrun.analysis.front.upkeep_text import repaired
    from overrun.collector.lifecycle.repair import repair as run

    print(repaired(run(asked.db, repair), asked.db, repair))


@_command("fix apply")
def applied(
    asked: Flags,
    fix: str,
    at: str | None = None,
    deployment: str | None = None,
    sets: list[str] | None = None,
    span: str = "30m",
    settle: str = "1m",
    ledger: Path | None = None,
) -> None:
    """Record that a fix was applied: a step of the report by its number, or any fix by its name. With --at, what it predicted is held against what came."""
    made = _asking(asked)
    from overrun.analysis.front import applied as front
    from overrun.analysis.front.ledger import append, path_of
    from overrun.analysis.words.encoding import encode

    given = _pairs(sets, "--set", "is not of the form NAME=VALUE")
    if bool(at) + bool(deployment) != 1 and (at or not fix.isdecimal()):
        fail("one of --at TIME and --deployment NAME is needed: the moment when it was applied")
    parameters = {name.replace("-", "_"): value for name, value in given.items()}
    with _readable(made) as stored:
        if deployment is not None:
            at = front.deployed_at(stored.source, deployment)
        moment = None if at is None else front.moment_of(at, span, settle)
        if fix.isdecimal():
            done = front.advised(stored.but("json"), int(fix), moment)
        elif moment is not None:
            name = fix.replace("-", "_")
            done = front.applied(stored.source, name, parameters, moment, stored.texts)
    append(ledger or path_of(made.source.db or "overrun.db"), done)
    print(encode(done).decode() if asked.output == "json" else front.render(done))


@_command("fix ledger")
def show_ledger(ledger: Path | None = None, db: Path | None = None, output: str = "text") -> None:
    """List the fixes that were applied: predicted beside observed, and the hit rate of each fix and rule."""
    from overrun.analysis.front import ledger as front
    from overrun.analysis.words.encoding import encode

    found = front.entries(ledger or front.path_of(db or "overrun.db"))
    print(encode(found).decode() if output == "json" else front.render_ledger(found))


@_command("admin mcp")
def mcp(asked: Flags, port: int | None = None) -> None:
    """Answer an agent's questions over the Model Context Protocol. All tools only read."""
    made = _asking(asked)
    with _needing("mcp"):
        from overrun.analysis.front import agent_tools
    with _readable(made) as stored:
        if port is None:
            agent_tools.serve_stdio(stored.source)
        else:
            agent_tools.serve_http(stored.source, port)


@_command("length train")
def train(
    out: Path,
    db: Path | None = None,
    url: str | None = None,
    trace: list[Path] | None = None,
    route: list[str] | None = None,
    since: str | None = None,
    config: Path | None = None,
) -> None:
    """Learn to predict output lengths from past requests, and write the artifact that routers load."""
    if sum((db is not None, url is not None, bool(trace))) != 1:
        fail(
            "the source of requests is missing: give --db FILE, --url of a running server, or --trace FILE (one of them)"
        )
    _are_traces(trace, route, db)
    from overrun.analysis.front.asked import Source
    from overrun.collector.normalise.prompt_features import read_table_file

    with _needing("train"):
        from overrun.models.train import train_to_folder

    settings = _settings(config)
    words = settings.privacy.prompt_table
    frame = _of_traces(trace, route) if trace else _stored(Source(settings, db, url), since)
    with _progress("training") as move:
        done = train_to_folder(
            frame,
            out,
            progress=lambda step, share: move(share, description=step),
            prompt_table=read_table_file(words)[0] if words else None,
        )
    _say("\n".join(done.lines()))


def _are_traces(traces: list[Path] | None, routes: list[str] | None, db: Path | None) -> None:
    """End with a sentence where a file is not there, or routes were given for some of them."""
    from overrun.analysis.front.asked import refuse_place, there

    there(traces or (), "a file of requests (Parquet, CSV or JSON lines)")
    if routes and len(routes) != len(traces or []):
        fail(
            f"{len(routes)} --route for {len(traces or [])} --trace: give one for each, in the same order"
        )
    refuse_place(db, None)


def _of_traces(traces: list[Path], routes: list[str] | None) -> Any:
    """Files of requests as one table."""
    import itertools

    from overrun.models.sources import load_traces

    return load_traces(list(itertools.zip_longest(traces, routes or [])))


@_command("length predict")
def predict(artifact: Path) -> None:
    """Predict output lengths of JSON requests, one per line."""
    with _needing("predict"):
        from overrun.models.predict import predict_lines

    refused = 0
    for line in predict_lines(artifact, sys.stdin.buffer):
        refused += line.startswith('{"error":')
        print(line, flush=True)
    if refused:
        fail(f"{refused} of the lines were not answered: each has its reason in the output")


@_command("length routing")
def routing(
    artifact: Path,
    trace: list[Path] | None = None,
    route: list[str] | None = None,
    db: Path | None = None,
    since: str | None = None,
    load: float | None = None,
    instances: int = 4,
    slots: int = 32,
    kv_tokens: int = 48_000,
    output: str = "text",
    config: Path | None = None,
) -> None:
    """Would it pay to route or order your traffic by length? Replays it under several policies."""
    _is_json(output)
    if db is None and not trace:
        fail("no requests to replay: give --trace FILE, or --db FILE for recorded ones")
    _are_traces(trace, route, db)
    import json

    from overrun.analysis.front.asked import Source

    with _needing("predict"):
        from overrun.models import routing as models

    frame: Any = _of_traces(trace, route) if trace else None
    busy = models.DEFAULT_LOAD if load is None else load
    try:
        if db is None:
            fleet = models.Fleet.stated(instances, slots, kv_tokens)
            made = models.evaluate_trace(frame, artifact, fleet, busy)
        else:
            source = Source(_settings(config, collector__db=str(db)), db)
            engine, start_us = _calibrated(source, since)
            if frame is not None:
                fleet = models.Fleet.calibrated(engine)
                made = models.evaluate_trace(frame, artifact, fleet, busy)
            else:
                rows = _stored(source, since)
                made = models.evaluate_recorded(rows, start_us, engine, artifact, load)
    except ValueError as error:
        fail(str(error))
    if output == "json":
        print(json.dumps(models.as_json(made)))
    else:
        _say("\n".join(models.describe(made)))


def _calibrated(source: Source, since: str | None) -> tuple[Any, Any]:
    """The engine of a file's window with most calls, and when its calls began."""
    from overrun.analysis.front import commands

    with _progress("calibrating") as move:
        return commands.calibrated(source, {"since": since}, move)


def _stored(source: Source, since: str | None) -> Any:
    """The stored model calls as a table of requests, with what was measured of their prompts."""
    from overrun.analysis.front.python_api import Recording
    from overrun.models.sources import from_llm_calls

    rows = Recording(source)
    return from_llm_calls(*(rows.frame(kind, since=since) for kind in ("llm-calls", "prompts")))


@_command("length serve")
def serve_predictor(artifact: Path, host: str = "127.0.0.1", port: int = 8502) -> None:
    """Serve the predictor to routers over HTTP. Routes: POST /predict, POST /observe, GET /healthz."""
    with _needing("predict"):
        from overrun.models.service import serve as run

    try:
        run(artifact, host, port, lambda address: _note(f"ready http={address}"))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        fail(f"{host}:{port} cannot be used ({why}): choose another with --host or --port")


@_command("dashboard")
def dashboard(
    asked: Flags, host: str = "127.0.0.1", port: int = 8501, artifact: Path | None = None
) -> None:
    """Show the dashboard in the browser: of a running server, or of anything else that can be asked."""
    from overrun.dashboard.launch import DashboardError, pick_port, run, wait_ready

    if not (asked.sources or asked.db or asked.url):
        asked = replace(asked, url="http://127.0.0.1:4318")
    made = _asking(asked)
    ending.by_itself()  # nothing that it has started keeps a port
    shown = None
    try:
        port = pick_port(port, host)
        with _served(made) as url:
            shown = run(url, port, host, artifact)
            _note(f"dashboard: {wait_ready(shown, port, host)}")
            code = shown.wait()
    except DashboardError as error:
        fail(str(error))
    except KeyboardInterrupt:
        code = ending.code()
    finally:
        if shown is not None:
            shown.terminate()
            shown.wait()
    raise typer.Exit(code)


@contextmanager
def _served(asked: Asked[Any]) -> Iterator[str]:
    """The address of the server that answers for a source; one is started where none runs."""
    if asked.source.url is not None:
        yield asked.source.url
        return
    from overrun.analysis.front.demo import private_server

    with _readable(asked) as stored, private_server(Path(stored.source.db or "")) as server:
        yield server.base


@_command("demo")
def demo(everything: bool = False, once: bool = False) -> None:
    """Show three recorded incidents, five lines each, then the dashboard on the first. Uses a real collector on free ports."""
    from overrun.analysis.front.demo import PATIENCE_S, run
    from overrun.collector.errors import CollectorError
    from overrun.dashboard import launch

    ending.by_itself()  # nothing that it has started keeps a port
    try:
        run(
            everything=everything,
            say=print,
            show=None if once else lambda url: launch.Started(url, PATIENCE_S),
            width=_width(),
            colour=_coloured(),
        )
    except (CollectorError, launch.DashboardError) as error:
        fail(str(error), 1)


@_command("store migrate")
def migrate(
    source: Path | None = None,
    db: Path | None = None,
    into: str | None = None,
    config: Path | None = None,
) -> None:
    """Update a database file of an earlier version (make a copy of it first), or move it into a lake with --into."""
    if (db is None) == (source is None):
        fail("give --db FILE or FOLDER (one of them)")
    if into is not None and not into.strip():
        fail("--into is blank: name the folder or the lake to move to")
    if into is not None or db is None:
        _move(db, source, into, config)
        return
    from overrun.analysis.front import upkeep_text
    from overrun.collector.lifecycle.migrate import migrate as run

    print(upkeep_text.migrated(run(db), db))


def _move(db: Path | None, source: Path | None, into: str | None, config: Path | None) -> None:
    """A file into a folder, or a folder into a lake."""
    is_lake = (into or "").startswith("ducklake:")
    if db is not None and is_lake:
        fail(
            f"no DuckDB opens both {db} and a lake: use `overrun store migrate --db {db} --into FOLDER` here, "
            "then `overrun store migrate FOLDER --into STORE` where overrun[lake] is installed"
        )
    if source is not None and not is_lake:
        fail(
            f"--into {into or 'is missing and'} names no lake: use "
            "ducklake:postgresql://USER@HOST:PORT/DATABASE?data=FOLDER"
        )
    from overrun.analysis.front.asked import refuse_place

    refuse_place(db, None)
    from overrun.analysis.front.lake_commands import move_in, move_out

    if db is not None:
        print(move_out(_settings(config), db, Path(into or "")))
    elif source is not None:
        print(move_in(_settings(config, collector__store=into), source))


@_command("store forget")
def forget(
    user: str | None = None,
    tenant: str | None = None,
    db: Path | None = None,
    url: str | None = None,
    store: str | None = None,
) -> None:
    """Erase a user or a tenant: every trace that carries them, with what was made from it."""
    named = sum(one is not None for one in (db, url, store))
    if (user is None) == (tenant is None) or named != 1:
        fail(
            "give --user ID or --tenant NAME (one of them), and --db FILE, --url of a running server or --store of a lake (one of them)"
        )
    from overrun.analysis.front.asked import Source, refuse_place

    refuse_place(db, url)
    from overrun.analysis.front import upkeep_text
    from overrun.analysis.front.commands import forget as forget_them
    from overrun.analysis.front.lake_commands import forget as forget_in_lake

    settings = _settings(None, collector__store=store)
    done = (
        forget_them(Source(settings, db, url), user=user, tenant=tenant)
        if store is None
        else forget_in_lake(settings, user=user, tenant=tenant)
    )
    print(upkeep_text.forgotten(done))


@_command("store lake status")
def lake_status(store: str | None = None, output: str = "text", config: Path | None = None) -> None:
    """Print what a lake holds, and who assembles and maintains it."""
    as_json = _is_json(output)
    from overrun.analysis.front.lake_commands import status

    print(status(_settings(config, collector__store=store), as_json=as_json))


@_command("store lake compact")
def lake_compact(store: str | None = None, config: Path | None = None) -> None:
    """Do a round of maintenance now: merge all files that can be merged, delete what no snapshot needs."""
    from overrun.analysis.front.lake_commands import compact

    print(compact(_settings(config, collector__store=store)))


@_command("store lake verify")
def lake_verify(store: str | None = None, output: str = "text", config: Path | None = None) -> None:
    """Check that every file is there with its rows, and that spans, shapes, requests and calls fit each other. Exit code 1 if something does not."""
    as_json = _is_json(output)
    from overrun.analysis.front.lake_commands import verify

    said, whole = verify(_settings(config, collector__store=store), as_json=as_json)
    print(said)
    if not whole:
        raise typer.Exit(1)


def _is_json(output: str) -> bool:
    if output not in ("text", "json"):
        fail(f"--output {output!r} is not known: use text or json")
    return output == "json"


@_command("admin alerts")
def alerts_test(config: Path | None = None) -> None:
    """Send each receiver of [alerts] a message that fires and one that resolves. Exit code 1 if one was not taken."""
    from overrun.analysis.front.alerts import settings as alert_settings
    from overrun.analysis.front.alerts.runner import tried

    alerts = alert_settings.read(_settings(config).alerts)
    if not alerts.receivers:
        fail("there is no receiver: add [[alerts.receivers]] to the settings file (docs/ALERTS.md)")
    refused = False
    for name, why in tried(alerts, time.time()):
        refused |= bool(why)
        print(f"{name}: not taken: {why}" if why else f"{name}: taken")
    raise typer.Exit(int(refused))


@_command("admin config")
def config_show(config: Path | None = None) -> None:
    """Print every setting with its value and its source."""
    from overrun.collector.config import described

    for line in described(_settings(config)):
        print(line)


@_command("admin completion")
def completion(shell: str) -> None:
    """Print the script that teaches a shell to complete `overrun`."""
    if shell not in manual.SHELLS:
        fail(f"shell {shell!r} is not known: use {', '.join(manual.SHELLS)}")
    print(manual.completion(shell))


@_command("admin man")
def man() -> None:
    """Print the manual page (roff), made from the commands."""
    print(manual.page(typer.main.get_command(app), __version__))


command_table.complete(app, _command, _print)


def main() -> None:
    """Entry point of the `overrun` command. Should compiled code fail, standard error says where. Files that it makes are for its user alone."""
    import faulthandler

    from overrun.collector.process import footprint

    faulthandler.enable()
    os.umask(0o077)
    footprint.start_light()
    ending.within_a_second()
    if manual.COMPLETE in os.environ:
        manual.learn_to_complete()
    try:
        app(prog_name=command_table.PROGRAM)
    except SystemExit as end:
        if ending.others_run():  # a server that cannot go on, while it loads its kernels
            ending.leave(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise

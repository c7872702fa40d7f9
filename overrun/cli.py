"""The front door: the `overrun` command. Reads flags, calls one function of the packages behind it, prints its result. No logic.

Imports stand inside the commands: `overrun --help` must not wait for DuckDB, numba or the browser's libraries.
Standard output carries only the result; everything else goes to standard error. Bad input exits with 2.
"""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_type_hints

import typer

from overrun import __version__, manual
from overrun.analysis.front import question_table as table

if TYPE_CHECKING:
    from overrun.analysis.front.commands import Source
    from overrun.analysis.front.predictor_watch import Lengths
    from overrun.analysis.front.question_table import Parameter
    from overrun.analysis.front.remote_import import Fetched
    from overrun.collector.config import Settings

# What the list of commands shows, in the order in which somebody comes to need it.
_SECTIONS = {
    "Collect": ("serve", "import", "export", "dashboard", "demo"),
    "Ask": (
        *("diagnose", "report", "top", "traces", "facts", "check", "compare"),
        *(
            "budget",
            "whatif",
            "plan",
            "batch",
            "deployments",
            "applied",
            "ledger",
            "doctor",
            "mcp",
            "bug-report",
        ),
    ),
    "Predict answer lengths": ("train", "predict", "serve-predictor", "routing"),
    "Look after": ("config", "alerts", "lake", "migrate", "forget", "completion", "man"),
}
_DEPLOYED = (
    "In place of {}: the name or version of a deployment that was reported (`overrun deployments`)."
)
_OTLP = "an OTLP file or a folder of them"
_ARTIFACT = "the folder that `overrun train` wrote"
_HELP = {"help_option_names": ["-h", "--help"]}
_LINE = 200
_MOST_COLUMNS = 100
_LEAST_EVERY_S = 1.0  # a report takes about as long


class _Commands(typer.core.TyperGroup):
    """The list of commands in sections, with whole descriptions."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        left = dict.fromkeys(self.list_commands(ctx))
        sections = [*_SECTIONS.items(), ("More", tuple(left))]
        for title, names in sections:
            known = [(name, self.get_command(ctx, name)) for name in names if name in left]
            rows = [(name, one.get_short_help_str(_LINE)) for name, one in known if one is not None]
            for name, _ in rows:
                del left[name]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class _Command(typer.core.TyperCommand):
    """A command whose help ends with what one would type."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        names: list[str] = []
        while ctx.parent is not None:
            names, ctx = [ctx.info_name, *names], ctx.parent
        shown = manual.EXAMPLES.get(" ".join(names), ())
        if shown:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {one}\n" for one in shown))


class _Question(_Command):
    """A command about a window: what selects and judges the requests stands in a section of its own."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        window = {_key(parameter) for parameter in table.WINDOW}

        def section(one: Any) -> str:
            if one.param_type_name == "argument":
                return "Arguments"
            return "Which requests" if one.name in window else "Options"

        for title in ("Arguments", "Which requests", "Options"):
            rows = [
                row
                for one in self.get_params(ctx)
                if section(one) == title
                if (row := one.get_help_record(ctx)) is not None
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


app = typer.Typer(
    name="overrun",
    cls=_Commands,
    context_settings=_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Which stage of an LLM application overran the latency budget, why, and what each fix would gain.",
)
config_app = typer.Typer(no_args_is_help=True, help="Show the settings.")
alerts_app = typer.Typer(no_args_is_help=True, help="Try the receivers of alerts.")
batch_app = typer.Typer(
    no_args_is_help=True,
    help="Ask about weeks of hourly files (`overrun export --folder`), with DuckDB or on a Spark cluster.",
)
app.add_typer(batch_app, name="batch")
app.add_typer(config_app, name="config")
app.add_typer(alerts_app, name="alerts")
lake_app = typer.Typer(no_args_is_help=True, help="Look at a lake, merge its files, check it.")
app.add_typer(lake_app, name="lake")


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


class _Fixes(typer.core.TyperGroup):
    """One sub-command per fix of analysis/whatif, made when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        from overrun.analysis.whatif.fix_pages import pages

        return [name.replace("_", "-") for name in pages()]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        from overrun.analysis.whatif.fix_pages import pages, question

        with formatter.section("Commands"):
            formatter.write_dl([(name.replace("_", "-"), question(name)) for name in pages()])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from overrun.analysis.front.whatif_commands import command

        return command(cmd_name, _COMMON, _whatif)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        from overrun.analysis.whatif.fix_pages import named, unknown

        if not args[0].startswith("-") and named(args[0]) is None:
            ctx.fail(unknown(args[0]))
        return super().resolve_command(ctx, args)


whatif_app = typer.Typer(
    cls=_Fixes,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Predict the gain of one fix. Each command is one question: what if ...",
)
app.add_typer(whatif_app, name="whatif")

SERVER_URL = "http://127.0.0.1:4318"
Db = Annotated[Path | None, typer.Option("--db", help="The database file.")]
Url = Annotated[str | None, typer.Option("--url", help=f"A running server, such as {SERVER_URL}.")]
Config = Annotated[Path | None, typer.Option("--config", help="The settings file (overrun.toml).")]
Output = Annotated[str, typer.Option("--output", help="text or json.")]
Store = Annotated[
    str | None,
    typer.Option(
        "--store", help="A lake: ducklake:postgresql://USER@HOST:PORT/DATABASE?data=FOLDER."
    ),
]
ReportOutput = Annotated[
    str,
    typer.Option(
        "--output", help="text, brief (its fields as JSON), json (all of it), html or markdown."
    ),
]


def _text(help_: str, *names: str) -> Any:
    return typer.Option(*names, help=help_)


def _key(parameter: Parameter) -> str:
    return f"{parameter.name}_" if iskeyword(parameter.name) else parameter.name


def _flag(parameter: Parameter) -> Any:
    """A parameter of a question as a flag; its text is judged where the question is answered, so that a bad one is refused in the same words over HTTP."""
    default = "" if parameter.default is None else f" (default {parameter.default})"
    name = f"--{parameter.name.replace('_', '-')}"
    return Annotated[str | None, typer.Option(name, help=f"{parameter.help}{default}")]


def _flags_of(entry: table.Entry[Any], *without: str) -> Callable[[Callable[..., None]], Any]:
    """Give a command the flags of a question in place of its argument `asked`, which gets their texts by name of the parameter."""
    parameters = [p for p in entry.parameters if p.name not in without]

    def wrapped(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)

        def run(**given: Any) -> None:
            asked = {p.name: given.pop(_key(p)) for p in parameters}
            command(asked=asked, **given)

        taken: list[inspect.Parameter] = []
        for name, own in inspect.signature(command).parameters.items():
            if name != "asked":
                kind = inspect.Parameter.KEYWORD_ONLY
                taken.append(own.replace(annotation=hints[name], kind=kind))
                continue
            for p in parameters:
                default = inspect.Parameter.empty if p.required else None
                flag = inspect.Parameter(
                    _key(p), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_flag(p)
                )
                taken.append(flag)
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in taken}
        return run

    return wrapped


_COMMON: dict[str, Any] = {
    "db": Db,
    "url": Url,
    **{
        _key(parameter): _flag(parameter)
        for parameter in table.WHATIF.parameters
        if parameter.name not in ("fix", "baseline")
    },
    "output": Annotated[str | None, _text("text or json.", "--output")],
    "config": Config,
}


def _fitted(line: str, room: int) -> list[str]:
    return textwrap.wrap(
        line, room, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def fail(message: str, code: int = 2) -> NoReturn:
    """Say what is wrong on standard error, in lines that a terminal has room for, and end."""
    said = f"overrun: {message}"
    if sys.stderr.isatty():
        room = min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
        said = "\n".join(line for part in said.splitlines() for line in _fitted(part, room))
    print(said, file=sys.stderr)
    raise typer.Exit(code)


def _settings(config: Path | None, flags: dict[str, Any] | None = None) -> Settings:
    from overrun.collector.config import load
    from overrun.collector.errors import ConfigError

    path = config or (Path("overrun.toml") if os.path.exists("overrun.toml") else None)
    try:
        return load(path, flags=flags)
    except ConfigError as error:
        fail(str(error))


@contextmanager
def _needing(extra: str) -> Iterator[None]:
    """Around imports that an extra brings: without it the command ends with what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        fail(f"{error.name} is not installed: install overrun[{extra}]")


@contextmanager
def _failing() -> Iterator[None]:
    """An error inside is printed as one sentence and ends the command."""
    from overrun.analysis.words.errors import AnalysisError
    from overrun.collector.errors import CollectorError

    try:
        yield
    except (AnalysisError, CollectorError) as error:
        fail(str(error))


def _there(paths: Iterable[Path | None], what: str) -> None:
    """End with a sentence where a path that was given holds nothing, before anything is loaded that would read it."""
    for path in paths:
        if path is not None and not path.exists():
            fail(f"there is nothing at {path}: name {what}")


def _are_traces(traces: list[Path] | None, routes: list[str] | None) -> None:
    """End with a sentence where a file of requests is not there, or routes were given for some of them."""
    _there(traces or (), "a file of requests (Parquet, CSV or JSON lines)")
    if routes and len(routes) != len(traces or []):
        fail(
            f"{len(routes)} --route for {len(traces or [])} --trace: give one for each, in the same order"
        )


def _is_stored(db: Path | None) -> None:
    """End with a sentence where --db names no database."""
    from overrun.collector.errors import StoreMissing

    if db is not None and not (db.exists() and db.stat().st_size):
        fail(str(StoreMissing.at(db)))


def _asking(
    entry: table.Entry[Any],
    db: Path | None,
    url: str | None,
    config: Path | None,
    output: str = "json",
    asked: table.Texts | None = None,
) -> Source:
    """Where a command asks, after a look at its flags: nothing is loaded for a file that is not there, or a value that cannot be read."""
    from overrun.analysis.words.errors import AnalysisError

    forms = sorted({*entry.forms, "json"}, key=lambda form: form != "text")
    if output not in forms:
        fail(f"--output {output!r} is not known: use {', '.join(forms[:-1])} or {forms[-1]}")
    if db is not None and url is not None:
        fail("--db and --url were both given: ask the file or the server")
    _is_stored(db)
    try:
        for parameter in entry.parameters if asked is not None else ():
            parameter.read((asked or {}).get(parameter.name))
    except AnalysisError as error:
        fail(str(error))
    settings = _settings(config, {"collector.db": str(db) if db else None})
    from overrun.analysis.front.commands import Source

    return Source(settings, db, url)


@app.command()
def serve(
    db: Db = None,
    store: Annotated[
        str | None,
        _text(
            "A lake in place of the file: ducklake:postgresql://USER@HOST:PORT/DATABASE?data=FOLDER.",
            "--store",
        ),
    ] = None,
    role: Annotated[
        str | None,
        _text(
            "What this process does with a lake: collector, assembler, maintainer, reader or all (default).",
            "--role",
        ),
    ] = None,
    host: Annotated[
        str | None, _text("Address to listen on (default 127.0.0.1: this machine only).", "--host")
    ] = None,
    grpc_port: Annotated[
        int | None, _text("OTLP/gRPC port (default 4317; 0 picks a free one).", "--grpc-port")
    ] = None,
    http_port: Annotated[
        int | None,
        _text("OTLP/HTTP and API port (default 4318; 0 picks a free one).", "--http-port"),
    ] = None,
    api_port: Annotated[
        int | None,
        _text(
            "A separate port for API and metrics (0 picks a free one; default: the HTTP port).",
            "--api-port",
        ),
    ] = None,
    db_max_size: Annotated[
        str | None,
        _text(
            "Delete the oldest telemetry above this file size, such as 20GB (0: no limit).",
            "--db-max-size",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help="File of bearer tokens: lines ingest=..., read=... and erase=..., or one token for ingest and read.",
        ),
    ] = None,
    decoder: Annotated[
        str | None,
        _text(
            "fast (default), or upb: protobuf's own decoder, several times slower, in case the fast one fails.",
            "--decoder",
        ),
    ] = None,
    config: Config = None,
    scrape: Annotated[
        list[str] | None,
        typer.Option(
            "--scrape",
            metavar="URL",
            help="Also read this metrics page every 5 s; may be repeated.",
        ),
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Also start the dashboard.")
    ] = False,
    artifact: Annotated[
        Path | None,
        typer.Option(
            "--artifact",
            help="A length predictor to check against live calls: a folder that `overrun train` wrote.",
        ),
    ] = None,
) -> None:
    """Receive telemetry, store it, answer questions about it."""
    from overrun.collector.process import footprint

    footprint.keep_small()
    from overrun.analysis.front.greeting import greeting
    from overrun.analysis.front.serve import Addresses, run_loop
    from overrun.analysis.front.serve import serve as run
    from overrun.collector.errors import CollectorError
    from overrun.collector.process import logs

    settings = _settings(
        config,
        {
            "collector.db": str(db) if db else None,
            "collector.store": store,
            "collector.role": role,
            "collector.host": host,
            "collector.grpc_port": grpc_port,
            "collector.http_port": http_port,
            "collector.api_port": api_port,
            "collector.token_file": str(token_file) if token_file else None,
            "retention.db_max_size": db_max_size,
            "collector.decoder": decoder,
        },
    )
    logs.configure(settings.collector.log_format)

    shown: list[subprocess.Popen[bytes]] = []

    def ready(addresses: Addresses, empty: bool) -> None:
        if empty:
            print(
                greeting(addresses.grpc, addresses.http, addresses.scheme, token=addresses.token),
                file=sys.stderr,
            )
        asked_at = addresses.api or addresses.http
        if dashboard and asked_at:
            shown.extend(_dashboard_of(f"{addresses.scheme}://{asked_at}", artifact))
        apart = f" api={addresses.api}" if addresses.api else ""
        print(
            f"ready grpc={addresses.grpc or '-'} http={addresses.http or '-'}{apart}",
            file=sys.stderr,
            flush=True,
        )

    try:
        run_loop(run(settings, ready, scrape_urls=scrape or (), watched=_watch(artifact)))
    except CollectorError as error:
        fail(str(error))
    finally:
        for process in shown:
            process.terminate()
    _leave()


def _leave(code: int = 0) -> NoReturn:
    """End the process at once: Python's own end waits for libraries to be taken apart, and aborts where a thread is still inside of one."""
    import logging

    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # whoever read it has gone
            stream.flush()
    os._exit(code)


def _watch(artifact: Path | None, most_calls: int | None = 500) -> Lengths | None:
    """The predictor at `artifact`, held against live calls."""
    if artifact is None:
        return None
    from overrun.analysis.assembly.assemble import assemble
    from overrun.models.errors import ModelsError

    with _needing("predict"):
        from overrun.models.watch import Watch

    try:
        return Watch(artifact, assemble, most_calls)
    except ModelsError as error:
        fail(str(error))


def _dashboard_of(url: str, artifact: Path | None = None) -> list[subprocess.Popen[bytes]]:
    """The dashboard beside a server; what stops it is said, and the server runs on."""
    from overrun.dashboard import launch

    try:
        started = [launch.run(url, artifact=artifact)]
    except launch.DashboardError as error:
        print(f"overrun: {error}; everything else runs", file=sys.stderr)
        return []
    print(f"dashboard: http://{launch.DEFAULT_HOST}:{launch.DEFAULT_PORT}", file=sys.stderr)
    return started


_SOURCES = "prometheus:URL, tempo:URL, jaeger:URL, langfuse:URL, langsmith:URL, phoenix:URL, mlflow:URL or clickhouse:URL"
Match = Annotated[
    str,
    _text(
        "Narrows a source: label matchers (Prometheus), a TraceQL query (Tempo), a service (Jaeger), a project, experiment or environment, a table (ClickHouse).",
        "--match",
    ),
]


def _fetch(
    texts: list[str],
    match: str,
    asked: table.Texts,
    settings: Settings,
    url: str | None = None,
) -> Fetched:
    """Read a window of other tools' stores into the settings' database, or into a server."""
    from datetime import UTC, datetime

    from rich.console import Console
    from rich.progress import Progress

    from overrun.analysis.front import remote_import
    from overrun.collector.sources.remote.pull import Address

    with _failing():
        sources = [Address.read(text) for text in texts]
        window = remote_import.window_of(asked, datetime.now(UTC))
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("reading", total=1.0)
            return remote_import.fetch(
                sources,
                match,
                window,
                settings,
                url=url,
                shown=lambda part: bar.update(task, completed=part),
            )


@app.command(cls=_Question)
@_flags_of(table.REPORT)
def diagnose(
    asked: table.Texts,
    sources: Annotated[
        list[str],
        typer.Argument(help=f"{_SOURCES}; several are read into one file. Or files, as of report."),
    ],
    match: Match = "",
    db: Annotated[
        Path | None,
        typer.Option(
            "--db",
            help="Keep what is read in this file; a pull that ended early then goes on. Without it, it is forgotten.",
        ),
    ] = None,
    output: ReportOutput = "text",
    details: Annotated[
        bool,
        typer.Option("--details", help="Print every table and finding, not only the answer."),
    ] = False,
    config: Config = None,
) -> None:
    """Report on a window of Prometheus, Tempo, Jaeger or Langfuse. Nothing is written there.

    LangSmith, Phoenix, MLflow and ClickHouse are read as well.

    Credentials come from OVERRUN_SOURCE_TOKEN, or OVERRUN_SOURCE_USER and OVERRUN_SOURCE_PASSWORD, or the tool's own variables.
    """
    import tempfile

    from overrun.collector.sources.remote.pull import is_address

    form = "details" if details and output == "text" else output
    width = shutil.get_terminal_size((110, 40)).columns
    remote = [text for text in sources if is_address(text)]
    if remote and len(remote) < len(sources):
        fail("files and addresses were given together: import the files with --db first")
    if not remote:
        paths = [Path(text) for text in sources]
        _there(paths, f"a source ({_SOURCES}) or {_OTLP}")
        from overrun.analysis.front import file_commands

        source = _asking(table.REPORT, None, None, config, output, asked)
        with _failing():
            print(file_commands.report(paths, source, asked, form, width=width, note=_note))
        return
    from overrun.analysis.front import commands

    with tempfile.TemporaryDirectory(prefix="overrun-diagnose-") as folder:
        path = db or Path(folder) / "pulled.db"
        settings = _settings(config, {"collector.db": str(path)})
        fetched = _fetch(remote, match, asked, settings)
        print(fetched.sentence(), file=sys.stderr)
        given = {**asked, **fetched.window()}
        source = _asking(table.REPORT, path, None, config, output, given)
        with _failing():
            print(commands.ask(source, table.REPORT, given, form, width=width, colour=_coloured()))


@app.command("import")
@_flags_of(table.DOCTOR, "from", "service", "instance")
def import_(
    asked: table.Texts,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="OTLP files, exports of Jaeger, Zipkin, Tempo or Langfuse, results of load tests; folders of them."
        ),
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help=f"Read --since so long (until --to) from another tool instead: {_SOURCES}.",
        ),
    ] = None,
    match: Match = "",
    db: Db = None,
    url: Url = None,
    config: Config = None,
    artifact: Annotated[
        Path | None,
        typer.Option(
            "--artifact",
            help="A length predictor whose predictions are stored beside the calls (with --db).",
        ),
    ] = None,
    every: Annotated[
        str | None,
        _text(
            "Time between saved metrics pages, such as 15s, if the files have lost their times.",
            "--every",
        ),
    ] = None,
) -> None:
    """Import recorded telemetry, from files or from another tool's store. What is imported twice counts once."""
    if bool(paths) == bool(sources):
        fail("give FILES, or --from SOURCE (one of them)")
    if (db is None) == (url is None):
        fail("the target is missing: give --db FILE or --url of a running server (one of them)")
    if artifact is not None and url is not None:
        fail(
            "--artifact goes with --db: a running server watches the predictor that it was started with"
        )
    if sources:
        settings = _settings(config, {"collector.db": str(db) if db else None})
        print(_fetch(sources, match, asked, settings, url).sentence())
        return
    if any(asked.values()) or match:
        fail("--since, --to and --match go with --from SOURCE")
    paths = paths or []
    _there((*paths, artifact), f"{_OTLP}, and as --artifact {_ARTIFACT}" if artifact else _OTLP)
    from rich.console import Console
    from rich.progress import Progress

    from overrun.analysis.front.file_import import import_files
    from overrun.analysis.words.errors import AnalysisError
    from overrun.analysis.words.times import parse_duration
    from overrun.collector.errors import CollectorError

    settings = _settings(config, {"collector.db": str(db) if db else None})
    try:
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("importing", total=None)
            watched = _watch(artifact, most_calls=None)
            done = import_files(
                paths,
                settings,
                url=url,
                progress=lambda at, total: bar.update(task, completed=at, total=total),
                watched=watched,
                every_s=None if every is None else parse_duration(every).total_seconds(),
            )
    except (AnalysisError, CollectorError) as error:
        fail(str(error))
    print(done)


@app.command(cls=_Question)
@_flags_of(table.REPORT)
def report(
    asked: table.Texts,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files or folders to report on, instead of --db or --url: telemetry, or results of a load test, which are judged run by run."
        ),
    ] = None,
    db: Db = None,
    url: Url = None,
    output: ReportOutput = "text",
    trace: Annotated[
        str | None, _text("Draw this request instead (trace id, 32 hex digits).", "--trace")
    ] = None,
    details: Annotated[
        bool,
        typer.Option("--details", help="Print every table and finding, not only the answer."),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Ask again and again, until q is pressed; see --every."),
    ] = False,
    every: Annotated[
        str | None,
        _text(
            "How long --watch waits before it asks again, such as 30s (default: 10s). It also begins to watch.",
            "--every",
        ),
    ] = None,
    config: Config = None,
) -> None:
    """Find the slow stage, its cause, and the gain of each fix."""

    if trace is not None and output in ("html", "markdown"):
        fail(f"--output {output} is not known for one trace: use text or json")
    entry, given = (table.REPORT, asked) if trace is None else (table.TRACE, {"trace_id": trace})
    watch = watch or every is not None
    if watch and (trace is not None or output != "text"):
        fail("--watch repeats the report as text: leave --trace and --output out")
    every_s = _seconds(every or "10s")
    if files and (db is not None or url is not None or trace is not None):
        fail("FILES was given together with --db, --url or --trace: ask one of them")
    _there(files or (), _OTLP)
    source = _asking(entry, db, url, config, output, given)
    from overrun.analysis.front import commands

    form = "details" if details and trace is None and output == "text" else output
    width = shutil.get_terminal_size((110, 40)).columns
    if files:
        from overrun.analysis.front import file_commands

        def read(width: int) -> str:
            return file_commands.report(files or (), source, given, form, width=width)

        if watch:
            named = ", ".join(str(file) for file in files[:2]) + (", ..." if len(files) > 2 else "")
            _repeat("overrun report", read, lambda: named, every_s)
            return
        with _failing():
            print(file_commands.report(files or (), source, given, form, width=width, note=_note))
        return
    if watch:
        _repeat("overrun report", _asking_again(source, given, form), source.place, every_s)
        return
    with _failing():
        print(commands.ask(source, entry, given, form, width=width, colour=_coloured()))
        if form == "details":
            print(f"\nFACTS\n{commands.ask(source, table.FACTS, given, 'text', width=width)}")


def _asking_again(source: Source, given: table.Texts, form: str) -> Callable[[int], str]:
    """What asks for a form of the report at a width."""
    from overrun.analysis.front import commands

    def ask(width: int) -> str:
        return commands.ask(source, table.REPORT, given, form, width=width, colour=_coloured())

    return ask


def _repeat(
    title: str, ask: Callable[[int], str], place: Callable[[], object], every_s: float
) -> None:
    """Show an answer again and again."""
    from overrun.analysis.front import live

    with _failing():
        live.show(ask, f"{title}  {place()}", every_s)


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


@app.command(cls=_Question)
@_flags_of(table.REPORT, "baseline")
def top(
    asked: table.Texts,
    every: Annotated[
        str, _text("How long to wait before it asks again, such as 2s or 1m.", "--every")
    ] = "5s",
    db: Db = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Watch the last 5 minutes: traffic, verdict, stages, instances."""
    every_s = _seconds(every)
    window = any(asked.get(name) for name in ("since", "from", "to"))
    given = {**asked, **({} if window else {"since": "5m"})}
    source = _asking(table.REPORT, db, url, config, "top", given)
    _repeat("overrun top", _asking_again(source, given, "top"), source.place, every_s)


@app.command(cls=_Question)
@_flags_of(
    table.REQUESTS, "baseline", "sort", "status", "limit", "metric", "min_ms", "max_ms", "slo"
)
def traces(
    asked: table.Texts,
    slowest: Annotated[
        bool, typer.Option("--slowest", help="The slowest requests first (the default).")
    ] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed requests.")] = False,
    stage: Annotated[
        str | None, _text("The requests in which this stage took longest.", "--stage")
    ] = None,
    sort: Annotated[
        str, _text("Order by e2e, ttft, start or output_tokens, largest or newest first.", "--sort")
    ] = "e2e",
    limit: Annotated[str, _text("The most rows, up to 1000.", "--limit")] = "20",
    db: Db = None,
    url: Url = None,
    output: Output = "text",
    config: Config = None,
) -> None:
    """List requests: the slowest, the failed, or those with most time in a stage."""
    from overrun.analysis.words.errors import nearest

    if stage and (slowest or sort != "e2e"):
        fail("--stage was given together with --slowest or --sort: give one of them")
    if slowest and sort != "e2e":
        fail("--slowest was given together with --sort: give one of them")
    if stage and stage not in table.STAGE_NAMES:
        fail(f"--stage {stage!r} is no stage: {nearest(stage, table.STAGE_NAMES)}")
    given = {
        **asked,
        "sort": stage or sort,
        "status": "error" if failed else None,
        "limit": limit,
    }
    _print(table.REQUESTS, given, db, url, config, output)


def _note(line: str) -> None:
    """Print what a reader of an answer has to know of how it came about, beside the answer."""
    print(line, file=sys.stderr)


def _coloured() -> bool:
    """Return whether standard output shows colour: a terminal, where nobody has asked for none, or colour is forced.

    Asked by NO_COLOR (https://no-color.org), CLICOLOR and CLICOLOR_FORCE (https://bixense.com/clicolors).
    """
    if os.environ.get("NO_COLOR") or os.environ.get("CLICOLOR") == "0":
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@app.command(cls=_Question)
@_flags_of(table.BUDGET)
def budget(
    asked: table.Texts,
    db: Db = None,
    url: Url = None,
    output: Annotated[
        str, _text("text, json, or toml: a [budgets] table for the settings file.", "--output")
    ] = "text",
    config: Config = None,
) -> None:
    """Derive stage budgets from healthy requests. Reports whether the limit can be met."""
    _print(table.BUDGET, asked, db, url, config, output)


@app.command(cls=_Question)
@_flags_of(table.FACTS)
def facts(
    asked: table.Texts,
    db: Db = None,
    url: Url = None,
    output: Output = "text",
    config: Config = None,
) -> None:
    """List every factor of latency before and now, and the part of the excess that goes with it."""
    _print(table.FACTS, asked, db, url, config, output)


@app.command(cls=_Question)
@_flags_of(table.DEPLOYMENTS)
def deployments(
    asked: table.Texts,
    db: Db = None,
    url: Url = None,
    output: Output = "text",
    config: Config = None,
) -> None:
    """List the deployments that pipelines and applications reported by OTLP."""
    _print(table.DEPLOYMENTS, asked, db, url, config, output)


@app.command(cls=_Question)
@_flags_of(table.PLAN)
def plan(
    asked: table.Texts,
    db: Db = None,
    url: Url = None,
    output: Output = "text",
    config: Config = None,
) -> None:
    """Find the cheapest set of fixes that meets the SLO, with the gain of each step. Takes up to some minutes."""
    _print(table.PLAN, asked, db, url, config, output)


@app.command(cls=_Question)
@_flags_of(table.COMPARE, "baseline", "before", "after")
def compare(
    asked: table.Texts,
    before: Annotated[
        str | None, _text("The first window: FROM..TO, or version=NAME.", "--before")
    ] = None,
    after: Annotated[
        str | None, _text("The second window: FROM..TO, or version=NAME.", "--after")
    ] = None,
    deployment: Annotated[
        str | None, _text(_DEPLOYED.format("--before and --after"), "--deployment")
    ] = None,
    span: Annotated[str, _text("How long before and after a deployment.", "--span")] = "30m",
    db: Db = None,
    url: Url = None,
    output: Output = "text",
    config: Config = None,
) -> None:
    """Compare two windows or two versions. Chance and other traffic are taken into account."""
    sides = {"before": before, "after": after}
    if deployment is not None:
        if before or after:
            fail("--deployment stands in place of --before and --after: leave those out")
        source = _asking(table.COMPARE, db, url, config, output)
        from overrun.analysis.front import applied as front

        with _failing():
            moment = front.moment_of(front.deployed_at(source, deployment), span, "1m")
            sides = dict(moment.sides())
    _print(table.COMPARE, {**asked, **sides}, db, url, config, output)


def _print(
    entry: table.Entry[Any],
    asked: table.Texts,
    db: Path | None,
    url: str | None,
    config: Path | None,
    output: str,
) -> None:
    """Ask a question of the table and print the answer, as wide as the terminal."""

    source = _asking(entry, db, url, config, output, asked)
    from overrun.analysis.front import commands

    width = shutil.get_terminal_size((110, 40)).columns
    with _failing():
        print(commands.ask(source, entry, asked, output, width=width))


@app.command(cls=_Question)
@_flags_of(table.REPORT, "baseline")
def check(
    asked: table.Texts,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A load test's files to judge, instead of --db or --url: OTLP, or results of vLLM bench serve, SGLang bench_serving, AIPerf, GenAI-Perf, "
            "GuideLLM, inference-perf, k6, Locust, CSV, Parquet."
        ),
    ] = None,
    db: Db = None,
    url: Url = None,
    min_goodput: Annotated[
        float | None,
        typer.Option(
            "--min-goodput",
            help="Smallest share of good requests (0..1; default: the SLO's target, 0.95).",
        ),
    ] = None,
    min_rate: Annotated[
        float | None,
        typer.Option(
            "--min-rate",
            help="Of a load test's FILES: the requests/s up to which the SLO must hold. Without it every run must hold it.",
        ),
    ] = None,
    output: Annotated[
        str, _text("text, json, junit (XML) or github (annotations).", "--output")
    ] = "text",
    config: Config = None,
) -> None:
    """Does this window pass? Exit code 0: yes; 1: a gate failed; 2: bad input, or nothing to judge."""
    forms = ("text", "json", "junit", "github")
    if output not in forms:
        fail(f"--output {output!r} is not known: use {', '.join(forms)}")
    if sum((db is not None, url is not None, bool(files))) > 1:
        fail("more than one of FILES, --db and --url was given: use one of them")
    if min_rate is not None and not files:
        fail("--min-rate goes with FILES of a load test")
    _there(files or (), _OTLP)
    source = _asking(table.REPORT, db, url, config, asked=asked)
    from overrun.analysis.front import check_output, commands, file_commands

    given = {**asked, "baseline": "none"}
    with _failing():
        result = (
            file_commands.check(files, source, given, min_goodput=min_goodput, min_rate=min_rate)
            if files
            else commands.check(source, given, min_goodput=min_goodput)
        )
    print(check_output.render(result, output))
    raise typer.Exit(0 if result.passed else 1)


@app.command("bug-report")
@_flags_of(table.REPORT, "baseline", "model", "route", "tenant", "workload")
def bug_report(
    asked: table.Texts,
    out: Annotated[Path, typer.Option("--out", help="The new folder to write.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="The telemetry that is read wrongly, instead of --db or --url."),
    ] = None,
    db: Db = None,
    url: Url = None,
    trace: Annotated[
        str | None, _text("Pack this request alone: the digits of a trace id.", "--trace")
    ] = None,
    config: Config = None,
) -> None:
    """Pack telemetry that Overrun reads wrongly, without names, texts and dates, as a case that can be sent and run."""
    if files and (db is not None or url is not None or trace is not None):
        fail("FILES was given together with --db, --url or --trace: pack one of them")
    _there(files or (), _OTLP)
    source = _asking(table.REPORT, db, url, config, asked=asked)
    from overrun.analysis.front import bug_report as packing

    with _failing():
        print(packing.pack(source, files or [], out, texts=asked, trace=trace))


@whatif_app.callback()
def whatif() -> None:
    """Predict the gain of one fix. Each command is one question: what if ..."""


def _whatif(fix: str, own: Mapping[str, str | None], common: Mapping[str, Any]) -> None:
    output = common["output"] or "text"
    source = _asking(table.WHATIF, common["db"], common["url"], common["config"], output)
    from rich.console import Console
    from rich.progress import Progress

    from overrun.analysis.front import commands

    filters = {p.name: common[_key(p)] for p in table.WHATIF.parameters if _key(p) in common}
    with _failing(), Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("what if", total=1.0)
        answer = commands.whatif(
            source,
            fix,
            {**filters, **own},
            output=output,
            progress=lambda share: bar.update(task, completed=share),
            width=shutil.get_terminal_size((110, 40)).columns,
        )
    print(answer)


@app.command(cls=_Question)
@_flags_of(table.EXPORT, "kind")
def export(
    asked: table.Texts,
    kind: Annotated[
        str | None, typer.Argument(help="requests, llm-calls, spans, metrics or prompts.")
    ] = None,
    db: Db = None,
    url: Url = None,
    out: Annotated[
        Path | None, _text("The file to write (default: standard output).", "--out")
    ] = None,
    folder: Annotated[
        Path | None,
        _text(
            "Write a Parquet file per closed hour into this folder, again when the hour has changed. Without a kind: all but prompts.",
            "--folder",
        ),
    ] = None,
    continuous: Annotated[
        bool,
        typer.Option("--continuous", help="With --folder: look for changes every five minutes."),
    ] = False,
    shard: Annotated[
        str | None,
        _text("With --folder: the name of this store (default: one made with it).", "--shard"),
    ] = None,
    config: Config = None,
) -> None:
    """Rows of the stored requests, model calls, spans or engine metrics as a file, or as files by the hour."""
    given = {name: text for name, text in asked.items() if text}
    if folder is not None:
        if out is not None or given.get("format", "parquet") != "parquet":
            fail("--folder takes Parquet files: leave out --out and --format")
        source = _asking(table.EXPORT, db, url, config, asked={"kind": kind or "requests", **given})
        _export_hours(source, folder, shard, kind, given, continuous)
        return
    if kind is None or continuous or shard is not None:
        fail(
            "name what is exported, such as `overrun export requests`"
            if kind is None
            else "--continuous and --shard are for files by the hour: give --folder"
        )
    source = _asking(table.EXPORT, db, url, config, asked={**asked, "kind": kind})
    from overrun.analysis.front import commands

    try:
        with (
            _failing(),
            out.open("wb") if out else nullcontext(sys.stdout.buffer) as stream,
        ):
            commands.export(source, {**asked, "kind": kind}, stream)
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

    with _failing():
        files = HourlyFiles(folder, shard)
    while True:
        try:
            done = commands.export_hours(source, files, (kind,) if kind else KINDS, asked)
        except (AnalysisError, CollectorError, OSError) as error:
            told = str(error)
            if isinstance(error, OSError):
                told = f"{error.filename or folder} cannot be written: {error.strerror}"
            if not continuous:
                fail(told)
            print(f"overrun: {told}; trying again in {EVERY_S:g} s", file=sys.stderr, flush=True)
        else:
            if done.written or not continuous:
                print(done, flush=True)
        if not continuous:
            return
        try:
            time.sleep(EVERY_S)
        except KeyboardInterrupt:
            return


_Files = Annotated[
    Path, typer.Argument(help="The folder that `overrun export --folder` writes to.")
]
_Engine = Annotated[str, typer.Option("--engine", help="duckdb or spark.")]
_Master = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="With spark: the cluster, as spark://host:7077."),
]
_Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="With spark: one of Spark's own settings."),
]


@batch_app.command("report", cls=_Question)
@_flags_of(table.REPORT)
def batch_report(
    asked: table.Texts,
    folder: _Files,
    engine: _Engine = "duckdb",
    master: _Master = "local[*]",
    conf: _Conf = None,
    output: Output = "text",
    config: Config = None,
) -> None:
    """Percentiles, goodput and stages of all requests of a long period. With --baseline: what differs from another one.

    Percentiles and counts are exact; no cause is sought. Without --baseline FROM..TO or previous nothing is compared.
    """
    from overrun.analysis.front.batch.report import On, report
    from overrun.analysis.front.batch.text import render
    from overrun.analysis.words.encoding import encode

    if output not in ("text", "json"):
        fail(f"--output {output!r} is not known: use text or json")
    with _failing():
        made = report(folder, _of_files(asked, config), On(engine, master, _settings_of(conf)))
        print(render(made) if output == "text" else encode(made).decode())


@batch_app.command("export-training", cls=_Question)
@_flags_of(table.REPORT, "baseline", "slo")
def batch_export_training(
    asked: table.Texts,
    folder: _Files,
    out: Annotated[Path, _text("The Parquet file to write, for `overrun train --trace`.", "--out")],
    most: Annotated[
        int, typer.Option("--most", min=1, help="Write the newest so many calls.")
    ] = 200_000,
    engine: _Engine = "duckdb",
    master: _Master = "local[*]",
    conf: _Conf = None,
    config: Config = None,
) -> None:
    """The model calls that a length predictor can learn from, as one file."""
    from overrun.analysis.front.batch.report import On, export_training
    from overrun.analysis.words.finding import say_count

    with _failing():
        window = _of_files({**asked, "workload": asked["workload"] or "all"}, config).window
        on = On(engine, master, _settings_of(conf))
        try:
            rows = export_training(folder, window, most, out, on)
        except OSError as error:
            fail(f"--out {out} cannot be written: {error.strerror}")
    print(f"wrote {say_count(rows, 'model call')} to {out}")


def _of_files(asked: table.Texts, config: Path | None) -> Any:
    """A question about files; without a window it is about all of them."""
    from datetime import UTC, datetime

    from overrun.analysis.front.questions import Question

    return Question.read(asked, _settings(config), now=datetime.now(UTC))


def _settings_of(texts: list[str] | None) -> dict[str, str]:
    """Spark's settings from KEY=VALUE texts."""
    pairs = [text.partition("=") for text in texts or ()]
    for key, found, _ in pairs:
        if not (key and found):
            fail(f"--conf {key!r} is no KEY=VALUE, such as spark.executor.memory=2g")
    return {key: value for key, _, value in pairs}


@app.command(cls=_Question)
@_flags_of(table.DOCTOR, "from", "to")
def doctor(
    asked: table.Texts,
    db: Db = None,
    url: Url = None,
    output: Output = "text",
    config: Config = None,
    repair: Annotated[
        Path | None,
        typer.Option(
            "--repair",
            help="Copy the readable rows of a damaged --db into this new file and list the losses.",
        ),
    ] = None,
) -> None:
    """List missing telemetry per service. Includes the dialect of each service and the settings to switch on."""
    if repair is not None:
        _repair(db, repair)
    else:
        _print(table.DOCTOR, asked, db, url, config, output)


def _repair(db: Path | None, out: Path) -> None:
    from overrun.analysis.words.finding import say_count
    from overrun.collector.errors import CollectorError
    from overrun.collector.lifecycle.repair import repair

    if db is None:
        fail("name the damaged file: overrun doctor --db FILE --repair NEW.db")
    try:
        done = repair(db, out)
    except CollectorError as error:
        fail(str(error))
    for saved in done.tables:
        lost = "nothing could be read" if saved.lost is None else f"lost {saved.lost:,}"
        if saved.rows or saved.lost != 0:
            print(f"{saved.table}: saved {say_count(saved.rows, 'row')}, {lost}")
    if done.log_bytes_lost:
        print(
            f"the log {db}.wal is damaged: its last {done.log_bytes_lost:,} bytes, with the newest telemetry, are lost"
        )
    whole = not done.log_bytes_lost and all(saved.lost == 0 for saved in done.tables)
    print(
        f"everything could be read: {out} is a whole copy"
        if whole
        else f"{out} holds the readable rows. `overrun doctor --db {out}` lists when the missing spans were received. Send them again if you still have them"
    )


@app.command()
def train(
    out: Annotated[Path, typer.Option("--out", help="The folder to write the artifact to.")],
    db: Db = None,
    url: Url = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            "--trace",
            help="A file of requests (Parquet, CSV, JSON lines); may be given several times.",
        ),
    ] = None,
    route: Annotated[
        list[str] | None,
        typer.Option("--route", help="The route of each --trace, in the same order."),
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help=table.SINCE.help)] = None,
    config: Config = None,
) -> None:
    """Learn to predict output lengths from past requests, and write the artifact that routers load."""
    if sum((db is not None, url is not None, bool(trace))) != 1:
        fail(
            "the source of requests is missing: give --db FILE, --url of a running server, or --trace FILE (one of them)"
        )
    _are_traces(trace, route)
    _is_stored(db)
    import itertools

    from rich.console import Console
    from rich.progress import Progress

    from overrun.analysis.words.errors import AnalysisError
    from overrun.collector.errors import CollectorError
    from overrun.collector.normalise.prompt_features import read_table_file
    from overrun.models.errors import ModelsError
    from overrun.models.sources import load_traces

    with _needing("train"):
        from overrun.models.train import train_to_folder

    settings = _settings(config)
    try:
        table = (
            read_table_file(settings.privacy.prompt_table)[0]
            if settings.privacy.prompt_table
            else None
        )
        if trace:
            frame = load_traces(list(itertools.zip_longest(trace, route or [])))
        else:
            from overrun.analysis.front.commands import Source

            frame = _stored(Source(settings, db, url), since)
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("training", total=1.0)
            done = train_to_folder(
                frame,
                out,
                progress=lambda step, share: bar.update(task, description=step, completed=share),
                prompt_table=table,
            )
    except (AnalysisError, CollectorError, ModelsError) as error:
        fail(str(error))
    print("\n".join(done.lines()))


@app.command()
def predict(
    artifact: Annotated[
        Path, typer.Option("--artifact", help="The folder that `overrun train` wrote.")
    ],
) -> None:
    """Predict output lengths of JSON requests, one per line."""
    from overrun.models.errors import ModelsError

    with _needing("predict"):
        from overrun.models.predict import predict_lines

    try:
        for line in predict_lines(artifact, sys.stdin.buffer):
            print(line, flush=True)
    except ModelsError as error:
        fail(str(error))


@app.command()
def routing(
    artifact: Annotated[
        Path,
        typer.Option(
            "--artifact",
            help="The folder that `overrun train` wrote, best trained on traffic before the trace.",
        ),
    ],
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            "--trace",
            help="A file of requests (Parquet, CSV, JSON lines); may be given several times.",
        ),
    ] = None,
    route: Annotated[
        list[str] | None,
        typer.Option("--route", help="The route of each --trace, in the same order."),
    ] = None,
    db: Annotated[
        Path | None,
        typer.Option(
            "--db",
            help="A database file: its engines are calibrated and simulated, with its own calls or those of --trace.",
        ),
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help=table.SINCE.help)] = None,
    load: Annotated[
        float | None,
        typer.Option(
            "--load",
            help="How busy the engines are: 1 is all they can do (default 0.9; the calls of --db as they were).",
        ),
    ] = None,
    instances: Annotated[
        int, typer.Option("--instances", help="Without --db: equal engines.", min=1, max=256)
    ] = 4,
    slots: Annotated[
        int,
        typer.Option(
            "--slots", help="Without --db: requests that run at once on each.", min=1, max=4096
        ),
    ] = 32,
    kv_tokens: Annotated[
        int,
        typer.Option(
            "--kv-tokens", help="Without --db: tokens that fit into the KV cache of each.", min=1
        ),
    ] = 48_000,
    output: Output = "text",
    config: Config = None,
) -> None:
    """Would it pay to route or order your traffic by length? Replays it under several policies."""
    if output not in ("text", "json"):
        fail(f"--output {output!r} is not known: use text or json")
    if db is None and not trace:
        fail("no requests to replay: give --trace FILE, or --db FILE for recorded ones")
    _are_traces(trace, route)
    _is_stored(db)
    import itertools
    import json

    from overrun.analysis.words.errors import AnalysisError
    from overrun.collector.errors import CollectorError
    from overrun.models.errors import ModelsError
    from overrun.models.sources import load_traces

    with _needing("predict"):
        from overrun.models.routing import (
            DEFAULT_LOAD,
            Fleet,
            as_json,
            describe,
            evaluate_recorded,
            evaluate_trace,
        )

    try:
        frame = load_traces(list(itertools.zip_longest(trace, route or []))) if trace else None
        if db is None and frame is not None:
            fleet = Fleet.stated(instances, slots, kv_tokens)
            made = evaluate_trace(frame, artifact, fleet, DEFAULT_LOAD if load is None else load)
        else:
            source = _asking(table.EXPORT, db, None, config)
            engine, start_us = _calibrated(source, since)
            if frame is not None:
                fleet = Fleet.calibrated(engine)
                made = evaluate_trace(
                    frame, artifact, fleet, DEFAULT_LOAD if load is None else load
                )
            else:
                made = evaluate_recorded(_stored(source, since), start_us, engine, artifact, load)
    except (AnalysisError, CollectorError, ModelsError, ValueError) as error:
        fail(str(error))
    print(json.dumps(as_json(made)) if output == "json" else "\n".join(describe(made)))


def _calibrated(source: Source, since: str | None) -> tuple[Any, Any]:
    """The engine of a file's window with most calls, and when its calls began."""
    from rich.console import Console
    from rich.progress import Progress

    from overrun.analysis.front import commands

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("calibrating", total=1.0)
        return commands.calibrated(
            source, {"since": since}, lambda share: bar.update(task, completed=share)
        )


def _stored(source: Source, since: str | None) -> Any:
    """The stored model calls as a table of requests, with what was measured of their prompts."""
    import io

    import polars

    from overrun.analysis.front import commands
    from overrun.models.sources import from_llm_calls

    frames = []
    for kind in ("llm-calls", "prompts"):
        out = io.BytesIO()
        commands.export(source, {"since": since, "kind": kind}, out)
        out.seek(0)
        frames.append(polars.read_parquet(out))
    return from_llm_calls(*frames)


@app.command("serve-predictor")
def serve_predictor(
    artifact: Annotated[
        Path,
        typer.Option(
            "--artifact",
            help="The folder that `overrun train` wrote; a newer artifact is loaded while it runs.",
        ),
    ],
    host: Annotated[str, _text("Address to listen on.", "--host")] = "127.0.0.1",
    port: Annotated[int, _text("Port to listen on (0 picks a free one).", "--port")] = 8502,
) -> None:
    """Serve the predictor to routers over HTTP. Routes: POST /predict, POST /observe, GET /healthz."""
    from overrun.collector.errors import CollectorError
    from overrun.models.errors import ModelsError

    with _needing("predict"):
        from overrun.models.service import serve as run

    try:
        run(
            artifact,
            host,
            port,
            lambda address: print(f"ready http={address}", file=sys.stderr, flush=True),
        )
    except (CollectorError, ModelsError) as error:
        fail(str(error))
    except OSError as error:
        fail(
            f"{host}:{port} cannot be used ({(error.strerror or str(error)).lower()}): choose another with --host or --port"
        )
    except KeyboardInterrupt:
        pass


@app.command()
def dashboard(
    url: Annotated[str, _text("The server to read from.", "--url")] = SERVER_URL,
    host: Annotated[str, _text("Address to listen on.", "--host")] = "127.0.0.1",
    port: Annotated[int, _text("Port to listen on.", "--port")] = 8501,
    artifact: Annotated[
        Path | None,
        typer.Option(
            "--artifact", help="The length predictor to show, a folder that `overrun train` wrote."
        ),
    ] = None,
) -> None:
    """Show the dashboard of a running server in the browser."""
    import signal

    from overrun.dashboard.launch import DashboardError, pick_port, run, wait_ready

    # Ended from outside, it ends the process that serves the pages as with Ctrl-C: nothing keeps the port.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    shown = None
    try:
        port = pick_port(port, host)
        shown = run(url, port, host, artifact)
        print(f"dashboard: {wait_ready(shown, port, host)}", file=sys.stderr)
        code = shown.wait()
    except DashboardError as error:
        fail(str(error))
    except KeyboardInterrupt:
        code = 0
    finally:
        if shown is not None:
            shown.terminate()
            shown.wait()
    raise typer.Exit(code)


@app.command()
def demo(
    everything: Annotated[
        bool, typer.Option("--all", help="Send the recordings of other SDKs and engines too.")
    ] = False,
    once: Annotated[
        bool,
        typer.Option(
            "--once", "--no-dashboard", help="Exit after the verdicts, without dashboard."
        ),
    ] = False,
) -> None:
    """Show three recorded incidents, five lines each, then the dashboard on the first. Uses a real collector on free ports."""
    import signal

    from overrun.analysis.front.demo import PATIENCE_S, run
    from overrun.collector.errors import CollectorError
    from overrun.dashboard import launch

    # Ended from outside, it ends its server, application and dashboard as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run(
            everything=everything,
            say=print,
            show=None if once else lambda url: launch.Started(url, PATIENCE_S),
            width=shutil.get_terminal_size((110, 40)).columns,
            colour=_coloured(),
        )
    except (CollectorError, launch.DashboardError) as error:
        fail(str(error), 1)
    except KeyboardInterrupt:
        pass


@lake_app.command("status")
def lake_status(store: Store = None, output: Output = "text", config: Config = None) -> None:
    """Print what a lake holds, and who assembles and maintains it."""
    from overrun.analysis.front.lake_commands import status

    with _failing():
        print(status(_settings(config, {"collector.store": store}), as_json=_is_json(output)))


@lake_app.command("compact")
def lake_compact(store: Store = None, config: Config = None) -> None:
    """Do a round of maintenance now: merge all files that can be merged, delete what no snapshot needs."""
    from overrun.analysis.front.lake_commands import compact

    with _failing():
        print(compact(_settings(config, {"collector.store": store})))


@lake_app.command("verify")
def lake_verify(store: Store = None, output: Output = "text", config: Config = None) -> None:
    """Check that every file is there with its rows, and that spans, shapes, requests and calls fit each other. Exit code 1 if something does not."""
    from overrun.analysis.front.lake_commands import verify

    with _failing():
        said, whole = verify(
            _settings(config, {"collector.store": store}), as_json=_is_json(output)
        )
    print(said)
    if not whole:
        raise typer.Exit(1)


def _is_json(output: str) -> bool:
    if output not in ("text", "json"):
        fail(f"--output {output!r} is not known: use text or json")
    return output == "json"


@app.command()
def migrate(
    db: Annotated[Path | None, typer.Option("--db", help="The database file.")] = None,
    to: Annotated[
        str | None,
        _text(
            "With --db: a folder for the file's rows, as Parquet. With --from: the lake to move them into.",
            "--to",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="The folder that `overrun migrate --db FILE --to` wrote."),
    ] = None,
    config: Config = None,
) -> None:
    """Update a database file of an earlier version (make a copy of it first), or move it into a lake with --to."""
    if (db is None) == (source is None):
        fail("give --db FILE or --from FOLDER (one of them)")
    if to is not None and not to.strip():
        fail("--to is blank: name the folder or the lake to move to")
    if to is not None or db is None:
        _move(db, source, to, config)
        return
    from overrun.collector.errors import CollectorError
    from overrun.collector.lifecycle.migrate import migrate as run

    try:
        done = run(db)
    except CollectorError as error:
        fail(str(error))
    print(
        f"{db}: schema {done.before}, nothing to do"
        if done.before == done.after
        else f"{db}: schema {done.before} -> {done.after}"
    )
    if done.incomplete_commits:
        missing = f"up to {done.missing_spans:,} acknowledged spans of {done.incomplete_commits:,} commits are missing"
        print(f"{missing}: `overrun doctor --db {db}` lists when they were received")


def _move(db: Path | None, source: Path | None, to: str | None, config: Path | None) -> None:
    """A file into a folder, or a folder into a lake."""
    is_lake = (to or "").startswith("ducklake:")
    if db is not None and is_lake:
        fail(
            f"no DuckDB opens both {db} and a lake: use `overrun migrate --db {db} --to FOLDER` here, "
            "then `overrun migrate --from FOLDER --to STORE` where overrun[lake] is installed"
        )
    if source is not None and not is_lake:
        fail(
            f"--to {to or 'is missing and'} names no lake: use ducklake:postgresql://USER@HOST:PORT/DATABASE?data=FOLDER"
        )
    _is_stored(db)
    from overrun.analysis.front.lake_commands import move_in, move_out

    with _failing():
        if db is not None:
            print(move_out(_settings(config), db, Path(to or "")))
        elif source is not None:
            print(move_in(_settings(config, {"collector.store": to}), source))


@app.command()
def forget(
    user: Annotated[
        str | None, _text("A user id as it was sent, or its hash as in the views.", "--user")
    ] = None,
    tenant: Annotated[str | None, _text("A tenant.", "--tenant")] = None,
    db: Db = None,
    url: Url = None,
    store: Store = None,
) -> None:
    """Erase a user or a tenant: every trace that carries them, with what was made from it."""
    named = sum(one is not None for one in (db, url, store))
    if (user is None) == (tenant is None) or named != 1:
        fail(
            "give --user ID or --tenant NAME (one of them), and --db FILE, --url of a running server or --store of a lake (one of them)"
        )
    _is_stored(db)
    from overrun.analysis.front.commands import Source
    from overrun.analysis.front.commands import forget as forget_them
    from overrun.analysis.front.lake_commands import forget as forget_in_lake
    from overrun.analysis.words.finding import say_count

    with _failing():
        settings = _settings(None, {"collector.store": store})
        done = (
            forget_them(Source(settings, db, url), user=user, tenant=tenant)
            if store is None
            else forget_in_lake(settings, user=user, tenant=tenant)
        )
    print(
        f"erased {say_count(done.traces, 'trace')}: {say_count(done.spans, 'span')}, {say_count(done.requests, 'request')}"
        + (f", {say_count(done.points, 'metric point')}" if done.points else "")
    )
    found = [
        f"in {say_count(n, unit)} of the {where}"
        for n, unit, where in (
            (done.found_rows, "row", "tables"),
            (done.found_bytes, "place", "file's bytes"),
        )
        if n is not None
    ]
    if found:
        print(f"searched for the name afterwards: found {' and '.join(found)}")
    if done.found_rows:
        print(
            "other traces still contain the name, as an attribute or inside a longer text: `overrun export spans` shows which"
        )
    if done.traces or done.points:
        print(
            "files of `overrun export --folder` are replaced by its next round, except for hours of which retention has deleted a part: erase there yourself"
        )


Ledger = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        help="The ledger's file (default: FILE.ledger.jsonl beside the database, overrun.db where none is named).",
    ),
]


def _ledger(ledger: Path | None, db: Path | None) -> Path:
    from overrun.analysis.front.ledger import path_of

    return ledger or path_of(db or "overrun.db")


@app.command(cls=_Question)
@_flags_of(table.COMPARE, "baseline", "before", "after", "since", "from", "to")
def applied(
    fix: Annotated[str, typer.Argument(help="The fix, as `overrun whatif --help` lists it.")],
    asked: table.Texts,
    at: Annotated[
        str | None, typer.Option("--at", help="When it was applied: RFC 3339, or -2h.")
    ] = None,
    deployment: Annotated[str | None, _text(_DEPLOYED.format("--at"), "--deployment")] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A parameter of the fix; may be repeated."
        ),
    ] = None,
    span: Annotated[str, _text("How long before and after it is looked at.", "--span")] = "30m",
    settle: Annotated[
        str, _text("Left out after it, until it works everywhere.", "--settle")
    ] = "1m",
    ledger: Ledger = None,
    db: Db = None,
    url: Url = None,
    output: Output = "text",
    config: Config = None,
) -> None:
    """Hold a fix that was applied against its prediction, and keep the answer in a ledger."""
    source = _asking(table.COMPARE, db, url, config, output)
    from overrun.analysis.front import applied as front
    from overrun.analysis.front.ledger import append
    from overrun.analysis.words.encoding import encode

    pairs = [text.partition("=") for text in sets or ()]
    if bad := next((name for name, equals, _ in pairs if not equals), None):
        fail(f"--set {bad!r} is not of the form NAME=VALUE")
    with _failing():
        if (at is None) == (deployment is None):
            fail("one of --at TIME and --deployment NAME is needed: the moment when it was applied")
        moment = front.moment_of(at or front.deployed_at(source, deployment or ""), span, settle)
        parameters = {name.replace("-", "_"): value for name, _, value in pairs}
        made = front.applied(source, fix.replace("-", "_"), parameters, moment, asked)
        append(_ledger(ledger, db), made)
    print(encode(made).decode() if output == "json" else front.render(made))


@app.command("ledger")
def show_ledger(ledger: Ledger = None, db: Db = None, output: Output = "text") -> None:
    """List the fixes that were applied: predicted beside observed, and the hit rate of each fix and rule."""
    from overrun.analysis.front import ledger as front
    from overrun.analysis.words.encoding import encode

    with _failing():
        found = front.entries(_ledger(ledger, db))
    print(encode(found).decode() if output == "json" else front.render_ledger(found))


@app.command("mcp")
def mcp(
    db: Db = None,
    url: Url = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--http-port",
            help="Answer by streamable HTTP at this port of 127.0.0.1 (/mcp) instead of standard input.",
        ),
    ] = None,
    config: Config = None,
) -> None:
    """Answer an agent's questions over the Model Context Protocol. All tools only read."""
    source = _asking(table.REPORT, db, url, config)
    with _needing("mcp"):
        from overrun.analysis.front import agent_tools
    with _failing():
        if port is None:
            agent_tools.serve_stdio(source)
        else:
            agent_tools.serve_http(source, port)


@alerts_app.command("test")
def alerts_test(config: Config = None) -> None:
    """Send each receiver of [alerts] a message that fires and one that resolves. Exit code 1 if one was not taken."""
    import time

    from overrun.analysis.front.alerts import settings as alert_settings
    from overrun.analysis.front.alerts.delivery import Failed, send
    from overrun.analysis.front.alerts.runner import trial_messages

    with _failing():
        table = alert_settings.read(_settings(config).alerts)
    if not table.receivers:
        fail("there is no receiver: add [[alerts.receivers]] to the settings file (docs/ALERTS.md)")
    refused = False
    for receiver, messages in trial_messages(table, time.time()):
        try:
            for message in messages:
                send(message, receiver, time.time(), 60.0)
            print(f"{receiver.name}: taken")
        except Failed as error:
            refused = True
            print(f"{receiver.name}: not taken: {error}")
    raise typer.Exit(int(refused))


@config_app.command("show")
def config_show(config: Config = None) -> None:
    """Print every setting with its value and its source."""
    from overrun.collector.config import described

    for line in described(_settings(config)):
        print(line)


@app.command()
def completion(
    shell: Annotated[str, typer.Argument(help=f"{', '.join(manual.SHELLS)}.")],
) -> None:
    """Print the script that teaches a shell to complete `overrun`."""
    if shell not in manual.SHELLS:
        fail(f"shell {shell!r} is not known: use {', '.join(manual.SHELLS)}")
    print(manual.completion(shell))


@app.command()
def man() -> None:
    """Print the manual page (roff), made from the commands."""
    print(manual.page(typer.main.get_command(app), __version__))


for _registered in app.registered_commands:
    if _registered.cls in (None, typer.core.TyperCommand):
        _registered.cls = _Command


def main() -> None:
    """Entry point of the `overrun` command. Should compiled code fail, standard error says where. Files that it makes are for its user alone."""
    import faulthandler

    from overrun.collector.process import footprint

    faulthandler.enable()
    os.umask(0o077)
    footprint.start_light()
    if manual.COMPLETE in os.environ:
        manual.learn_to_complete()
    try:
        app(prog_name=manual.PROGRAM)
    except SystemExit as end:
        if threading.active_count() > 1:  # a server that cannot go on, while it loads its kernels
            _leave(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise

"""How does a function become a command? Words and order of its flags come from commands.toml, types and defaults from its signature, the flags of a question from
the table of questions, and those of a fix from the fix.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer

from overrun.analysis.front import question_table as table
from overrun.analysis.front.question_table import Entry, Parameter, Texts

WORDS: Final[Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("commands.toml").read_text(encoding="utf-8")
)
EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    name: tuple(words["examples"]) for name, words in WORDS.items() if "examples" in words
}
PROGRAM: Final = "overrun"
_LINE: Final = 200
T = TypeVar("T", bound=Callable[..., None])
Around = Callable[..., None]
TYPER: Final[Mapping[str, Any]] = {
    "rich_markup_mode": None,
    "add_completion": False,
    "pretty_exceptions_enable": False,
}


@dataclass(frozen=True, slots=True)
class Flags:
    """What was typed after a command that asks a question: its parameters as texts, where it asks, and in which form it answers."""

    entry: Entry[Any]
    texts: Texts
    outputs: tuple[str, ...] = ()
    files: list[Path] | None = None
    db: Path | None = None
    url: str | None = None
    output: str = "text"
    config: Path | None = None


# The flags of `Flags` that a command has if its words name them.
_PLACE: Final = {
    name: (annotation, Flags.__dataclass_fields__[name].default)
    for name, annotation in get_type_hints(Flags).items()
    if name not in ("entry", "texts", "outputs")
}
_USUAL: Final = {"db url output config": True}


class Commands(typer.core.TyperGroup):
    """The list of commands in sections, with whole descriptions; one that no section names stands with the questions."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        listed = self.list_commands(ctx)
        sections = {title: list(names) for title, names in WORDS["sections"].items()}
        sections["Ask"] += [n for n in listed if not any(n in s for s in sections.values())]
        for title, names in sections.items():
            known = [(name, self.get_command(ctx, name)) for name in names if name in listed]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, one.get_short_help_str(_LINE)) for name, one in known if one]
                )


class _Command(typer.core.TyperCommand):
    """A command whose help has what selects and judges the requests in a section of its own, and ends with what one would type."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        window = _WINDOW if "asks" in WORDS[_path(ctx)] else ()
        sections: dict[str, list[Any]] = {"Arguments": [], "Which requests": [], "Options": []}
        for one in self.get_params(ctx):
            row = one.get_help_record(ctx)
            which = "Which requests" if one.name in window else "Options"
            title = "Arguments" if one.param_type_name == "argument" else which
            sections[title] += [] if row is None else [row]
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        shown = EXAMPLES.get(_path(ctx), ())
        if shown:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {one}\n" for one in shown))


def _path(ctx: Any) -> str:
    """The words of a command after the program's name."""
    names: list[str] = []
    while ctx.parent is not None:
        names, ctx = [ctx.info_name, *names], ctx.parent
    return " ".join(names)


def key(parameter: Parameter) -> str:
    """The name of a question's parameter in a signature."""
    return f"{parameter.name}_" if iskeyword(parameter.name) else parameter.name


_WINDOW: Final = {key(parameter) for parameter in table.WINDOW}


def registrar(app: typer.Typer, around: Around) -> Callable[[str], Callable[[T], T]]:
    """What makes functions commands of an application by their words, such as `lake status`. `around(function, **given)` calls them.

    The parameter `asked` of a function stands for the flags of the question that the command asks, and is given as `Flags`.
    """
    groups = {"": app}
    for name, said in WORDS["groups"].items():
        groups[name] = typer.Typer(name=name, no_args_is_help=True, help=said, **TYPER)
        app.add_typer(groups[name])

    def named(path: str) -> Callable[[T], T]:
        def made(function: T) -> T:
            group, _, name = path.rpartition(" ")
            groups[group].command(name, cls=_Command)(_command(path, function, around))
            return function

        return made

    return named


def complete(
    app: typer.Typer, named: Callable[[str], Callable[..., object]], answer: Callable[[Flags], None]
) -> None:
    """Add the commands whose words say all there is to them: `answer` prints the answer to their question."""
    for name, words in WORDS.items():
        if "help" in words:
            named(name)(answer)
    app.registered_commands.sort(key=lambda one: list(WORDS).index(one.name or ""))


def _command(path: str, function: Callable[..., None], around: Around) -> Callable[..., None]:
    """A function with the flags of a command as its signature."""
    words = WORDS[path]
    entry = table.ENTRIES.get(words.get("asks", ""))
    parameters = _asked(entry, words)
    signature, hints = inspect.signature(function), get_type_hints(function)
    own = {n: (hints[n], p.default) for n, p in signature.parameters.items() if n != "asked"}
    flags = _flags(words, entry, own)
    place = [p.name for p in flags if p.name not in own]

    def run(**given: Any) -> None:
        if entry is not None:
            texts = {p.name: given.pop(key(p)) for p in parameters}
            where = {name: given.pop(name) for name in place}
            given["asked"] = Flags(entry, texts, tuple(words.get("outputs", ())), **where)
        around(function, **given)

    run.__doc__ = words.get("help") or function.__doc__
    return _signed(run, [*map(_question_flag, parameters), *flags])


def _asked(entry: Entry[Any] | None, words: Mapping[str, Any]) -> list[Parameter]:
    """The parameters of a question that a command has as flags."""
    without = words.get("without", ())
    if entry is None or without == "all":
        return []
    return [p for p in entry.parameters if p.name not in without]


def _flags(
    words: Mapping[str, Any], entry: Entry[Any] | None, own: Mapping[str, tuple[Any, Any]]
) -> list[inspect.Parameter]:
    """The flags that the words of a command name, in their order."""
    named: dict[str, Any] = {}
    for names, said in words.get("flags", _USUAL if entry else {}).items():
        for name in names.split():
            named[name] = WORDS["flags"][name] if said is True else said
    return [_flag(name, said, *(own.get(name) or _PLACE[name])) for name, said in named.items()]


def _flag(name: str, said: Any, annotation: Any, default: Any) -> inspect.Parameter:
    words = {"help": said} if isinstance(said, str) else dict(said)
    if words.pop("argument", False):
        info: Any = typer.Argument(**words)
    else:
        names = words.pop("name", f"--{name.replace('_', '-')}").split()
        info = typer.Option(*names, **words)
    return _keyword(name, Annotated[annotation, info], default)


def _question_flag(parameter: Parameter) -> inspect.Parameter:
    """A parameter of a question as a flag; its text is judged where the question is answered, so that a bad one is refused in the same words over HTTP."""
    default = "" if parameter.default is None else f" (default {parameter.default})"
    info = typer.Option(f"--{parameter.name.replace('_', '-')}", help=f"{parameter.help}{default}")
    empty = inspect.Parameter.empty if parameter.required else None
    return _keyword(key(parameter), Annotated[str | None, info], empty)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _signed(run: Callable[..., None], taken: list[inspect.Parameter]) -> Callable[..., None]:
    run.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in taken}
    return run


def fixes(ask: Callable[[Flags], None]) -> type[typer.core.TyperGroup]:
    """A group with a command per fix of analysis/whatif, each made when it is asked for."""
    from overrun.analysis.whatif import fix_pages

    class Fixes(typer.core.TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [name.replace("_", "-") for name in fix_pages.pages()]

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            rows = [(n, fix_pages.question(n.replace("-", "_"))) for n in self.list_commands(ctx)]
            with formatter.section("Commands"):
                formatter.write_dl(rows)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            fix = fix_pages.named(cmd_name)
            return None if fix is None else _fix_command(cmd_name, fix, ask)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if not args[0].startswith("-") and fix_pages.named(args[0]) is None:
                ctx.fail(fix_pages.unknown(args[0]))
            return super().resolve_command(ctx, args)

    return Fixes


def _fix_command(name: str, fix: str, ask: Callable[[Flags], None]) -> Any:
    """The command of one fix; a flag of its own goes before a filter of the same name."""
    from overrun.analysis.whatif import catalogue, fix_pages

    own = catalogue.parameters(fix)
    shared = [p for p in table.WHATIF.parameters if p.name not in ("fix", "baseline")]
    place = {n: f for n, f in _PLACE.items() if n != "files"}
    taken = [_fix_flag(parameter) for parameter in own]
    first, last = ("db", "url"), ("output", "config")
    taken += [_flag(n, WORDS["flags"][n], *place[n]) for n in first]
    taken += [_question_flag(p) for p in shared]
    taken += [_flag(n, WORDS["flags"][n], *place[n]) for n in last]
    # Of two of the same name the first, which is the fix's own.
    unique = {p.name: p for p in reversed(taken)}
    taken = [p for p in taken if unique[p.name] is p]

    def run(**given: Any) -> None:
        where = {n: given.pop(n) for n in place if n in given}
        texts = {n.rstrip("_"): None if v is None else str(v) for n, v in given.items()}
        ask(Flags(table.WHATIF, {**texts, "fix": fix}, **where))

    run.__doc__ = fix_pages.pages()[fix]
    one = typer.Typer(**TYPER)
    one.command(name, short_help=fix_pages.question(fix))(_signed(run, taken))
    return typer.main.get_command(one)


def _fix_flag(parameter: Any) -> inspect.Parameter:
    """Values are read as texts and judged by the fix, so that a bad one is refused in its words, here as over HTTP."""
    known = parameter.default is not None and not parameter.required
    default = f" (default {parameter.default})" if known else ""
    info = typer.Option(
        f"--{parameter.name.replace('_', '-')}",
        help=f"{parameter.help}{default}{' [required]' if parameter.required else ''}",
        metavar=parameter.kind.__name__.upper(),
    )
    return _keyword(parameter.name, Annotated[str | None, info], None)

"""How does a function become a command? Words and order of its flags come from commands.toml, types and defaults from its signature, the flags of a question from
the table of questions, and those of a fix from the fix.
"""

from __future__ import annotations

import inspect
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
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
PROGRAM: Final = "overrun"
EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    **{name.replace(PROGRAM, ""): tuple(some) for name, some in WORDS["examples"].items()},
    **{name: tuple(words["examples"]) for name, words in WORDS.items() if "examples" in words},
}
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
    sources: list[str] | None = None
    match: str = ""
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
_USUAL: Final = {"sources match db url output config": True}


class Group(typer.core.TyperGroup):
    """A list of commands with whole descriptions, which ends with what one would type."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in self.sections(ctx).items():
            known = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, one.get_short_help_str(_LINE)) for name, one in known if one]
                )

    def sections(self, ctx: Any) -> Mapping[str, Sequence[str]]:
        """The names of its commands by heading."""
        return {"Commands": self.list_commands(ctx)}

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        path = _path(ctx)
        inner = [some[0] for name, some in EXAMPLES.items() if name.startswith(f"{path} ")]
        _examples(EXAMPLES.get(path, inner[:2]), formatter)


class Commands(Group):
    """The program: old words work and say the new ones, `help` and `version` are words, too."""

    def sections(self, ctx: Any) -> Mapping[str, Sequence[str]]:
        sections: Mapping[str, Sequence[str]] = WORDS["sections"]
        return sections

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] == "version":
            args = ["--version", *args[1:]]
        elif args[0] == "help":
            args = [*args[1:], "--help"]
        if args[0].startswith("--"):
            self.parse_args(ctx, args)  # which prints, and ends
        return super().resolve_command(ctx, _renamed(args, aloud=not ctx.resilient_parsing))


def _renamed(args: list[str], *, aloud: bool) -> list[str]:
    """The words of a command as they are now; `aloud`, where they were others before, that is said."""
    for count in (2, 1):
        old = " ".join(args[:count])
        if new := WORDS["renamed"].get(old):
            if aloud:
                typer.echo(f"{PROGRAM}: `{PROGRAM} {old}` is now `{PROGRAM} {new}`", err=True)
            return [*new.split(), *args[count:]]
    return args


def _examples(shown: Sequence[str], formatter: Any) -> None:
    if shown:
        with formatter.section("Examples"):
            formatter.write("".join(f"  {one}\n" for one in shown))


class _Command(typer.core.TyperCommand):
    """A command whose help has what selects and judges the requests in a section of its own, what few need apart, and ends with what one would type."""

    examples: Sequence[str] = ()

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[Any]] = {
            "Arguments": [],
            "Which requests": [],
            "Options": [],
            "Less often": [],
        }
        for one in self.get_params(ctx):
            row = one.get_help_record(ctx)
            if isinstance(one, typer.core.TyperArgument) and row is not None:
                row = (one.metavar or row[0], one.help or row[1])
            which = "Which requests" if one.name in _WINDOW else "Options"
            which = "Less often" if one.name in _ADVANCED else which
            title = "Arguments" if one.param_type_name == "argument" else which
            sections[title] += [] if row is None else [row]
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _examples(self.examples or EXAMPLES.get(_path(ctx), ()), formatter)


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
_ADVANCED: Final = frozenset(WORDS["advanced"]["flags"])
_KINDS: Final = {"Path": "PATH", "int": "NUMBER", "float": "NUMBER", "str": "TEXT"}
_SHORT: Final = {name: [letter] for name, letter in WORDS["short"].items()}
_TYPES: Final = {name: word for word, names in WORDS["types"].items() for name in names}


def registrar(app: typer.Typer, around: Around) -> Callable[[str], Callable[[T], T]]:
    """What makes functions commands of an application by their words, such as `lake status`. `around(function, **given)` calls them.

    The parameter `asked` of a function stands for the flags of the question that the command asks, and is given as `Flags`.
    """
    groups = {"": app}
    for name, said in WORDS["groups"].items():
        outer, _, own = name.rpartition(" ")
        groups[name] = typer.Typer(name=own, cls=Group, no_args_is_help=True, help=said, **TYPER)
        groups[outer].add_typer(groups[name])

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
    kind = next((word for part, word in _KINDS.items() if part in str(annotation)), None)
    if kind or name in _TYPES:
        words.setdefault("metavar", _TYPES.get(name, kind))
    if words.pop("argument", False):
        info: Any = typer.Argument(**words)
    else:
        names = words.pop("name", f"--{name.replace('_', '-')}").split()
        info = typer.Option(*names, *_SHORT.get(name, ()), **words)
    return _keyword(name, Annotated[annotation, info], default)


def _question_flag(parameter: Parameter) -> inspect.Parameter:
    """A parameter of a question as a flag; its text is judged where the question is answered, so that a bad one is refused in the same words over HTTP."""
    default = "" if parameter.default is None else f" (default {parameter.default})"
    name = parameter.name
    info = typer.Option(
        f"--{name.replace('_', '-')}",
        *_SHORT.get(name, ()),
        help=f"{parameter.help}{default}",
        metavar=_TYPES.get(name, "TEXT" if parameter.kind is str else "NUMBER"),
    )
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

    class Fixes(Group):
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
    place = _PLACE
    taken = [_fix_flag(parameter) for parameter in own]
    first, last = ("sources", "match", "db", "url"), ("output", "config")
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
    one.command(name, cls=_Command, short_help=fix_pages.question(fix))(_signed(run, taken))
    made: Any = typer.main.get_command(one)
    needed = "".join(f" --{p.name.replace('_', '-')} {_value(p)}" for p in own if p.required)
    made.examples = [
        f"{PROGRAM} whatif {name} {where}{needed}" for where in ("traces/", "overrun.db -s 1h")
    ]
    return made


def _value(parameter: Any) -> str:
    """What one might type for a parameter of a fix."""
    return shlex.quote(str(WORDS["values"][parameter.name]))


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

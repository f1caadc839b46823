"""Arguments and options that several commands take, and their completion by the shell."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from smp_client.model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, LATEST, find_root

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from smp_client import GlobalMemory, Memory, Session
    from smp_client.model.outcome import Outcome

TYPES = ("turn", "decision", "finding", "preference", "learning", "relationship", "pattern",
         "state", "artifact", "summary")  # fmt: skip
KEPT = (ACTIVE, ARCHIVED, GLOBAL)
ANYWHERE = (ACTIVE, ARCHIVED, DELETED, GLOBAL)
CONDITIONS = "--topic, --agent, --since, --until, --type, --tag or --text"
_COMPLETIONS_CAP = 200
_OPTION = re.compile(r"--[a-z][a-z-]*")
_PLAIN = re.compile(r"\w[\w.-]*")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Completion = Callable[[click.Context, click.Parameter, str], list[Any]]


def option(name: str, help: str, *, to: str = "", **more: Any) -> Decorator:
    """Return an option; `to` is the name of its parameter, where that is another."""
    return click.option(name, *([to] if to else []), help=help, **more)


def flag(name: str, help: str, *, to: str = "", **more: Any) -> Decorator:
    return option(name, help, to=to, is_flag=True, **more)


def several(options: Sequence[Decorator]) -> Decorator:
    return lambda command: functools.reduce(lambda made, one: one(made), reversed(options), command)


# The tree, the form of the output, and how careful a command is.


@dataclass(frozen=True)
class Call:
    """The options that commands share. A command has only those that it takes."""

    root: str | None = None
    as_json: bool = False
    dry_run: bool = False
    yes: bool = False
    by: str = ""

    def memory(self) -> Memory:
        """Return the memory that a command reads from; raise where there is none."""
        memory = place_memory(self.root)
        memory.require()
        return memory

    def finish(self, outcome: Outcome, **more: Any) -> NoReturn:
        """Print the outcome and exit; see `output.finish`."""
        from .output import finish

        finish(outcome, as_json=self.as_json, **more)


def in_words(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    if not value.strip():
        raise click.BadParameter("it must be said in words.")
    from smp_client.redaction.redact import harmless

    return harmless(value)  # as it is stored, so that it is shown as that


def _account() -> str:
    from smp_client.disk.audit import account

    return account()


root_option = option(
    "--root", "The sessions tree; else SMP_ROOT, else the nearest .bmad/sessions upward."
)
_SHARED: dict[str, Decorator] = {
    "by": option("--by", "Who does it, for the audit log.",
                 metavar="WHO", default=_account, show_default="your account", callback=in_words),
    "yes": flag("--yes", "Do not ask. A script is never asked."),
    "root": root_option,
    "dry_run": flag("--dry-run", "Only say what would be done and why; changes nothing."),
    "as_json": flag("--json", "Print JSON.", to="as_json"),
}  # fmt: skip


def takes(*names: str) -> Decorator:
    """Give a command `--root`, `--json` and these options, together as its first argument."""
    chosen = [name for name in _SHARED if name in ("root", "as_json", *names)]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(**given: Any) -> Any:
            return command(Call(**{name: given.pop(name) for name in chosen}), **given)

        return several([_SHARED[name] for name in chosen])(called)

    return decorate


def reason_option(help: str, *, default: str | None = None, required: bool = False) -> Decorator:
    given: dict[str, Any] = {} if default is None else {"default": default, "show_default": True}
    return option("--reason", help, required=required, callback=in_words, **given)


def check_usage(*wrong: tuple[bool, str]) -> None:
    for is_wrong, sentence in wrong:
        if is_wrong:
            raise click.UsageError(sentence)


class TakingWords(click.Command):
    """A command whose words may begin with a dash; its hint says how to give them."""

    hint = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if _OPTION.fullmatch(error.option_name):
                raise  # mistyped, and click suggests another
            said = f"No such option: {error.option_name.strip()}. {self.hint}"
            raise click.UsageError(said, ctx) from error


def place_memory(root: str | None, directory: Path | None = None) -> Memory:
    """Return the memory that a command is about, as configured, whether it exists or not."""
    from smp_client import Memory

    from ..config.file import read

    loaded = read()
    configured = loaded.configuration
    place = Path(root) if root else find_root(directory)
    if not root and not place.is_dir() and len(configured["roots"]) == 1:
        place = configured["roots"][0]
    # Without a file, the options hold that the daemon has published.
    return Memory(place, **(configured.upkeep if loaded.file else {}))


# SESSION [ID]...


def session_argument(*places: str, required: bool = True) -> Decorator:
    """SESSION, as `session`: one in `places`, else in use, named as `find_id` takes it."""
    metavar = "SESSION" if required else "[SESSION]"
    complete = completing(*(places or (ACTIVE,)))
    return click.argument("session", metavar=metavar, required=required, shell_complete=complete)


def memories_argument(
    *places: str, required: bool = True, ids: str = "[ID]...", complete_id: Completion | None = None
) -> Decorator:
    """SESSION [ID]..., as `session` and `ids`; also SESSION/ID, or `--session` and `--id`.

    `ids` is their name in the usage; without brackets there must be one.
    """
    complete_session, complete_ids = completing(*places), complete_id or complete_memory_id

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        sessions = [] if given_session(ctx) else complete_session(ctx, param, incomplete)
        return sessions or complete_ids(ctx, param, incomplete)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def given(*, target: tuple[str, ...], old_session: str | None, old_ids: tuple[str, ...],
                  **rest: Any) -> Any:  # fmt: skip
            every = [*([old_session] if old_session is not None else []), *target]
            first, _, inner = every[0].partition("/") if every else ("", "", "")
            named = (*([inner] if inner else []), *every[1:], *old_ids)
            check_usage(
                (not every and bool(required or named), "Missing argument 'SESSION'."),
                (not named and not ids.startswith("["), f"Missing argument '{ids.rstrip('.')}'."),
            )
            chosen = tuple(dict.fromkeys(named))
            return command(session=first if every else None, ids=chosen, **rest)

        metavar = f"SESSION {ids}" if required else f"[SESSION {ids}]"
        return several([
            click.argument("target", nargs=-1, metavar=metavar, shell_complete=complete),
            click.option("--session", "old_session", hidden=True, shell_complete=complete_session),
            click.option("--id", "old_ids", multiple=True, hidden=True,
                         shell_complete=complete_ids),
        ])(given)  # fmt: skip

    return decorate


def find_id(memory: Memory, name: str, *places: str) -> str:
    """Return the id of the session that `name` means, in `places`; with GLOBAL, `global` too."""
    from smp_client.session_name import session_id

    if name == GLOBAL and GLOBAL in places:
        return name
    return session_id(memory, name, [place for place in places if place != GLOBAL])


def find_scope(memory: Memory, name: str) -> GlobalMemory | Session:
    """Return what holds everywhere (`global`), or the session that `name` means."""
    return memory.everywhere if name == GLOBAL else memory.session(name)


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    names = {one.lower(): one for one in known if one.isprintable()}
    close = [names[one] for one in difflib.get_close_matches(name.lower(), names)]
    return f"Did you mean {' or '.join(close)}?" if close else otherwise


@contextmanager
def suggesting_ids(memory: Memory, session: str, ids: Sequence[str]) -> Iterator[None]:
    """Where no memory of the session has one of these ids, raise an error with similar ones."""
    from smp_client import MemoryNotFound, SMPError
    from smp_client.change.holdings import EVERY, holdings
    from smp_client.model.record import is_memory_id

    try:
        yield
    except MemoryNotFound as error:
        if error.advice != MemoryNotFound.advice:
            raise  # it says where the memory is
        known: set[str] = set()
        with suppress(SMPError, OSError):
            every = (one.id for one in holdings(memory, session, EVERY))
            known = {one for one in every if is_memory_id(one)}
        unknown = next((one for one in ids if one not in known and "/" not in one), None)
        if unknown is None:
            raise
        advice = did_you_mean(unknown, known, f"smp search --session {session} lists memories.")
        problem = f"There is no memory {unknown!r} in {session}."
        raise MemoryNotFound(problem, advice=advice, session_id=session) from error


# Conditions.


def _known_types(
    _ctx: click.Context, _param: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the types as the library has them; an error names those of the help."""
    known: list[str] = []
    for name in names:
        from smp_client.ask.options import type_named

        problems: list[str] = []
        known.append(type_named(name, problems))
        if problems:
            near = f"{did_you_mean(name, TYPES)} There are {', '.join(TYPES)}.".lstrip()
            raise click.BadParameter(f"{name!r} is no kind of memory. {near}")
    return tuple(known)


def completing_values(column: str) -> Completion:
    """Complete `actor` or `tag`, as the index knows it, of the given session or of all."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        table = "tags" if column == "tag" else "memories"
        where = f"(?1 IS NULL OR scope = ?1) AND substr({column}, 1, ?2) = ?3"
        asked = f"SELECT DISTINCT {column} FROM {table} WHERE {where} LIMIT ?4"  # noqa: S608
        with suppress(Exception):  # an error would be printed into the line that is being typed
            memory, session = _memory(ctx), given_session(ctx)
            scope = session if session in (None, GLOBAL) else memory.session(session).id
            rows = _indexed(memory, asked, (scope, len(incomplete), incomplete, _COMPLETIONS_CAP))
            # A value from elsewhere may hold anything, also words that the shell would run.
            return [value for (value,) in rows if _PLAIN.fullmatch(value)]
        return []

    return complete


def _complete_type(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in TYPES if name.startswith(incomplete)]


since_option = option("--since", 'Only from then on; an ISO time, a date, or words: "last 7 days".',
                      metavar="WHEN")  # fmt: skip
until_option = option("--until", "Only until then, included.", metavar="WHEN")
types_option = option("--type", f"Only of this kind: {', '.join(TYPES)}; repeat it for several.",
                      to="types", multiple=True, metavar="TYPE", callback=_known_types,
                      shell_complete=_complete_type)  # fmt: skip
tags_option = option("--tag", "Only with this tag or one below it; repeat it for any of several.",
                     to="tags", multiple=True, shell_complete=completing_values("tag"))  # fmt: skip
selecting_options = several([
    option("--topic", "Only about this topic, as smp topics names it.",
           metavar="TOPIC", shell_complete=completing_values("tag")),
    option("--agent", "Only from this agent or person.",
           metavar="WHO", shell_complete=completing_values("actor")),
    since_option, until_option, types_option, tags_option,
    option("--text", "Only with this text anywhere, in any case.", metavar="TEXT"),
])  # fmt: skip


@dataclass(frozen=True)
class What:
    """Memories of a session by their ids, or by conditions; or, with neither, all of it."""

    ids: tuple[str, ...]
    conditions: Mapping[str, Any]

    @property
    def is_whole(self) -> bool:
        return not self.ids and not self.conditions


def what_is_meant(ids: tuple[str, ...], conditions: Mapping[str, Any]) -> What:
    given = {name: value for name, value in conditions.items() if value not in (None, ())}
    check_usage((bool(ids and given), f"Give ids, or conditions ({CONDITIONS}); not both."))
    return What(ids, given)


# Completion.


def completing(*places: str) -> Completion:
    """Complete the ids of the sessions in these places."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        from smp_client.session_name import sessions_in

        with suppress(Exception):
            memory = _memory(ctx)
            kept = [place for place in places if place != GLOBAL]
            ids = (name for place in kept for name in sessions_in(memory, place))
            names = [*ids, LATEST, *([GLOBAL] if GLOBAL in places else [])]
            return [name for name in names if name.startswith(incomplete)]
        return []

    return complete


def complete_memory_id(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the memories of the session that was given, else all that the index has."""
    from click.shell_completion import CompletionItem

    from smp_client.model.record import is_memory_id

    from .output import cut, one_line

    asked = ("SELECT id, MAX(text) FROM memories WHERE substr(id, 1, ?1) = ?2 GROUP BY id"
             " ORDER BY id LIMIT ?3")  # fmt: skip
    with suppress(Exception):
        memory, session = _memory(ctx), given_session(ctx)
        if session is None:
            rows = _indexed(memory, asked, (len(incomplete), incomplete, _COMPLETIONS_CAP))
        else:  # also memories that nobody has indexed yet
            begins = [{"field": "id", "operator": "prefix", "value": incomplete}]
            query = {"filters": begins if incomplete else [], "sort": [{"field": "id"}],
                     "limit": _COMPLETIONS_CAP}  # fmt: skip
            rows = [(one.id, one.text) for one in find_scope(memory, session).query(query)]
        return [CompletionItem(name, help=cut(one_line(text[:200]), 60)) for name, text in rows
                if name.startswith(incomplete) and is_memory_id(name)]  # fmt: skip
    return []


def given_session(ctx: click.Context) -> str | None:
    """Return the typed session. While an option is typed, click has not named the arguments."""
    first = next((one.name for one in ctx.command.params if isinstance(one, click.Argument)), None)
    unnamed = ctx.args[0] if ctx.args and first in ("session", "sessions", "target") else None
    target = ctx.params.get("target") or (unnamed,)
    return ctx.params.get("old_session") or ctx.params.get("session") or target[0]


def _memory(ctx: click.Context) -> Memory:
    from smp_client import Memory

    return Memory(ctx.params.get("root"))


def _indexed(memory: Memory, asked: str, given: Sequence[Any]) -> list[Any]:
    from smp_client.index.database import Index
    from smp_client.model.layout import INDEX_FILE

    with closing(Index.open_to_read(memory.root / INDEX_FILE)) as index:
        return index.connection.execute(asked, given).fetchall()

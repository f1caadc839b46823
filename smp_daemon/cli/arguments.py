"""What several commands are given: a tree, a session, memories of it; and what the shell completes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from smp_client.layout import ACTIVE, GLOBAL, LATEST, find_root

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from smp_client import GlobalMemory, Memory, Session

_COMPLETIONS_CAP = 200
_OPTION = re.compile(r"--[a-z][a-z-]*")
_PLAIN = re.compile(r"\w[\w.-]*")
Completion = Callable[[click.Context, click.Parameter, str], list[Any]]

root_option = click.option("--root", help="The sessions tree; else SMP_ROOT, else the nearest .bmad/sessions upward.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class TakingWords(click.Command):
    """A command whose words may begin with a dash; where they are taken for an option, it says how to give them."""

    hint = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if _OPTION.fullmatch(error.option_name):
                raise  # mistyped, and click says what may be meant
            raise click.UsageError(f"No such option: {error.option_name.strip()}. {self.hint}", ctx) from error


def session_argument(*places: str, required: bool = True) -> Callable[[Any], Any]:
    """SESSION, as `session`: a session in one of `places` (else in use), named as `find_id` takes it."""
    complete = completing(*(places or (ACTIVE,)))
    metavar = "SESSION" if required else "[SESSION]"
    return click.argument("session", metavar=metavar, required=required, shell_complete=complete)


def memories_argument(
    *places: str, required: bool = True, ids: str = "[ID]...", complete_id: Completion | None = None
) -> Callable[[Any], Any]:
    """SESSION [ID]..., as `session` and `ids`. SESSION/ID will do, and `--session` and `--id` as well.

    `ids` is what the usage calls them; without brackets there must be one.

    Every command that is about a session or some of its memories takes them in this way.
    """
    complete_session, complete_ids = completing(*places), complete_id or complete_memory_id

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        sessions = [] if given_session(ctx) else complete_session(ctx, param, incomplete)
        return sessions or complete_ids(ctx, param, incomplete)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def given(*, target: tuple[str, ...], old_session: str | None, old_ids: tuple[str, ...], **rest: Any) -> Any:
            every = [*([old_session] if old_session is not None else []), *target]
            first, _, inner = every[0].partition("/") if every else ("", "", "")
            named = (*([inner] if inner else []), *every[1:], *old_ids)
            if not every and (required or named):
                raise click.UsageError("Missing argument 'SESSION'" + (": ids are those of a session." if named else "."))
            if not named and not ids.startswith("["):
                raise click.UsageError(f"Missing argument '{ids.rstrip('.')}'.")
            return command(session=first if every else None, ids=tuple(dict.fromkeys(named)), **rest)

        metavar = f"SESSION {ids}" if required else f"[SESSION {ids}]"
        click.option("--id", "old_ids", multiple=True, hidden=True, shell_complete=complete_ids)(given)
        click.option("--session", "old_session", hidden=True, shell_complete=complete_session)(given)
        click.argument("target", nargs=-1, metavar=metavar, shell_complete=complete)(given)
        return given

    return decorate


def open_memory(root: str | None) -> Memory:
    """Return the memory that a command reads from; raise where there is none."""
    memory = place_memory(root)
    memory.require()
    return memory


def place_memory(root: str | None, directory: Path | None = None) -> Memory:
    """Return the memory that a command is about, with what is configured, whether it is there yet or not."""
    from smp_client import Memory

    from ..config.file import read

    loaded = read()
    configured = loaded.configuration
    place = Path(root) if root else find_root(directory)
    if not root and not place.is_dir() and len(configured["roots"]) == 1:
        place = configured["roots"][0]
    # Without a file, what the daemon has published holds.
    return Memory(place, **(configured.upkeep if loaded.file else {}))


def find_id(memory: Memory, name: str, *places: str) -> str:
    """Return the id of the session that `name` means, of those in `places`; with GLOBAL among them, `global` too."""
    from smp_client.session_name import session_id

    if name == GLOBAL and GLOBAL in places:
        return name
    return session_id(memory, name, [place for place in places if place != GLOBAL])


def find_scope(memory: Memory, name: str) -> GlobalMemory | Session:
    """Return what holds everywhere (`global`), or the session that `name` means."""
    return memory.everywhere if name == GLOBAL else memory.session(name)


def completing(*places: str) -> Completion:
    """Complete the ids of the sessions in these places. Where anything goes wrong nothing is offered,
    because an error would be printed into the line that is being typed."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        from smp_client.session_name import sessions_in

        with suppress(Exception):
            memory = _memory(ctx)
            ids = (name for place in places if place != GLOBAL for name in sessions_in(memory, place))
            return _beginning(incomplete, [*ids, LATEST, *(place for place in places if place == GLOBAL)])
        return []

    return complete


def complete_memory_id(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of the memories of the session that was given already, else all that the index knows of."""
    with suppress(Exception):
        return _known_ids(_memory(ctx), given_session(ctx), incomplete)
    return []


def given_session(ctx: click.Context) -> str | None:
    """While the value of an option is being typed, click has not yet told apart which argument is which."""
    first = next((one.name for one in ctx.command.params if isinstance(one, click.Argument)), None)
    untold = ctx.args[0] if ctx.args and first in ("session", "sessions", "target") else None
    target = ctx.params.get("target") or ()
    return ctx.params.get("old_session") or ctx.params.get("session") or (target[0] if target else untold)


def completing_values(column: str) -> Callable[..., list[str]]:
    """The values of a column of the index: who spoke, which tags there are; of the session that was given already, else of all."""
    values = {"actor": "SELECT scope, actor AS value FROM memories", "tag": "SELECT scope, tag AS value FROM tags",
              "topic": "SELECT scope, topic AS value FROM topics"}[column]  # fmt: skip
    asked = "SELECT DISTINCT value FROM ({}) WHERE (?1 IS NULL OR scope = ?1) AND substr(value, 1, ?2) = ?3 ORDER BY value LIMIT ?4"

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        from smp_client.index import Index
        from smp_client.status import INDEX_FILE

        with suppress(Exception):
            memory, session = _memory(ctx), given_session(ctx)
            scope = session if session in (None, GLOBAL) else memory.session(session).id
            with closing(Index.open_to_read(memory.root / INDEX_FILE)) as index:
                given = (scope, len(incomplete), incomplete, _COMPLETIONS_CAP)
                rows = index.connection.execute(asked.format(values), given).fetchall()
            # What comes from elsewhere may hold anything, also what the shell would run.
            return [value for (value,) in rows if _PLAIN.fullmatch(value)]
        return []

    return complete


def _known_ids(memory: Memory, session: str | None, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from smp_client import Invalid
    from smp_client.records import check_memory_id

    items: list[CompletionItem] = []
    for memory_id, text in _indexed(memory, incomplete) if session is None else _of_session(memory, session, incomplete):
        # An id from elsewhere may hold anything, also what the shell would run.
        with suppress(Invalid):
            items.append(CompletionItem(check_memory_id(memory_id), help=_help(text)))
    return items


def _of_session(memory: Memory, session: str, beginning: str) -> list[tuple[str, str]]:
    """Also what nobody has indexed yet: of one session that is quickly done."""
    begins = [{"field": "id", "operator": "prefix", "value": beginning}] if beginning else []
    asked = {"filters": begins, "sort": [{"field": "id"}], "limit": _COMPLETIONS_CAP}
    found = find_scope(memory, session).query(asked)
    return [(record.id, record.text) for record in found if record.id.startswith(beginning)]


def _indexed(memory: Memory, beginning: str) -> list[tuple[str, str]]:
    from smp_client.index import Index
    from smp_client.status import INDEX_FILE

    asked = "SELECT id, MAX(text) FROM memories WHERE substr(id, 1, ?1) = ?2 GROUP BY id ORDER BY id LIMIT ?3"
    with closing(Index.open_to_read(memory.root / INDEX_FILE)) as index:
        return index.connection.execute(asked, (len(beginning), beginning, _COMPLETIONS_CAP)).fetchall()


def _help(text: str) -> str:
    from .output import cut, one_line

    return cut(one_line(text[:200]), 60)


def _memory(ctx: click.Context) -> Memory:
    from smp_client import Memory

    return Memory(ctx.params.get("root"))


def _beginning(incomplete: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]

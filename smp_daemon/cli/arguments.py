"""What several commands are given: a tree, a session, a memory; how people may name them, and what the shell completes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from smp_client.layout import LATEST, find_root

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from smp_client import GlobalMemory, Memory, Session, SessionPutAway

_COMPLETIONS_CAP = 200
_LIKENESS, _SLIPS = 0.6, 3  # of two names of which one may be meant for the other
_OPTION = re.compile(r"--[a-z][a-z-]*")
_PLAIN = re.compile(r"\w[\w.-]*")
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

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


def session_argument(*, or_global: bool = False, required: bool = True) -> Callable[[Any], Any]:
    """SESSION: an id, its beginning, or `latest`; for `find_session`. `or_global` also offers `global` to the shell."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return complete_session(ctx, param, incomplete) + _beginning(incomplete, ["global"] if or_global else [])

    return click.argument("session", metavar="SESSION" if required else "[SESSION]", required=required, shell_complete=complete)


def open_memory(root: str | None) -> Memory:
    """The memory that a command reads from; every command gets it here, so that what is configured holds for all of them."""
    from smp_client import Memory

    from ..config import read

    loaded = read()
    configured = loaded.configuration
    place = Path(root) if root else find_root()
    if not root and not place.is_dir() and len(configured.roots) == 1:
        place = configured.roots[0]
    # Without a file, what the daemon has published holds.
    memory = Memory(place, **(configured.upkeep if loaded.file else {}))
    memory.require()
    return memory


def find_scope(memory: Memory, name: str) -> GlobalMemory | Session:
    """What holds everywhere (`global`), or a session; see `find_session`."""
    return memory.everywhere if name == "global" else find_session(memory, name)


def find_session(memory: Memory, name: str) -> Session:
    """The session with this id, or the only one whose id begins so; `latest` is the one that changed last, of the active ones where
    there are any."""
    from smp_client import Invalid, SessionNotFound, SessionPutAway

    try:
        return memory.session(name)
    except SessionPutAway:
        raise
    except (SessionNotFound, Invalid):
        memory.require()
    if name == LATEST:
        return _latest(memory)
    if elsewhere := _where_else(memory, name):
        # A script that still has the id of a session that was put away must not write into one whose id begins like it.
        raise SessionNotFound(f"Session {name!r} is in {elsewhere}/.", advice="Bring it back, or name another one.")
    return memory.session(only_one(memory, name, [session.id for session in memory.sessions()]))


def only_one(memory: Memory, name: str, ids: Iterable[str], state: str = "") -> str:
    """The id that begins so, of sessions that all are in `state`; raises where none does or several do, and says what there is."""
    from smp_client import SessionNotFound

    known = list(ids)
    candidates = [session for session in known if name and session.startswith(name)]
    if len(candidates) == 1:
        return candidates[0]
    what = f"{state} session".strip()
    elsewhere = {} if candidates and state else _put_away(memory, lambda session: bool(name) and session.startswith(name))
    every = list(dict.fromkeys([*candidates, *elsewhere]))
    if len(every) > 1:
        named = ", ".join(f"{session} ({_where(memory, session)})" if session in elsewhere else session for session in every[:5])
        more = ", …" if len(every) > 5 else ""
        raise SessionNotFound(f"{len(every)} {what if candidates else 'session'}s begin with {name!r}: {named}{more}.",
                              advice="Give more of the id.")  # fmt: skip
    if every:
        raise elsewhere[every[0]]
    if (purged_at := _purged_at(memory, name)) is not None:
        raise SessionNotFound(f"The session {name!r} was purged on {purged_at}.", advice="Nothing brings it back.")
    advice = _did_you_mean(memory, name, known) or "List them with smp sessions --all."
    raise SessionNotFound(f"There is no {what} {name!r} under {memory.root}.", advice=advice)


def _purged_at(memory: Memory, name: str) -> str | None:
    from smp_client.maintain.purged import Purged, load

    from .output import short_time

    stamp = load(memory.tree).get(name, Purged()).whole
    return f"{short_time(stamp)} UTC" if stamp else None


def _put_away(memory: Memory, is_meant: Callable[[str], bool]) -> dict[str, SessionPutAway]:
    """The sessions of such names that are archived or deleted, each with what is to be said of it."""
    from smp_client import Invalid, SessionNotFound, SessionPutAway
    from smp_client.layout import ARCHIVED, DELETED

    found: dict[str, SessionPutAway] = {}
    for session in sorted({name for place in (ARCHIVED, DELETED) for name in memory.tree.list(place) if is_meant(name)}):
        try:
            memory.session(session)
        except SessionPutAway as away:
            found[session] = away
        except (SessionNotFound, Invalid):
            continue
    return found


def _where(memory: Memory, session: str) -> str:
    from smp_client.maintain.archive import is_archived

    return "archived" if is_archived(memory.tree, session) else "deleted"


def _did_you_mean(memory: Memory, name: str, known: Sequence[str]) -> str:
    """Ids that differ by a slip: those that SMP gives are alike for most of their length."""
    import difflib

    from smp_client.layout import ARCHIVED, DELETED

    names = {*known, *memory.tree.list(ARCHIVED), *memory.tree.list(DELETED)}
    cutoff = max(_LIKENESS, 1 - _SLIPS / max(len(name), 1))
    close = difflib.get_close_matches(name, names, cutoff=min(cutoff, 1.0))
    away = _put_away(memory, lambda session: session in close)
    said = [f"{session} ({_where(memory, session)})" if session in away else session
            for session in close if session in known or session in away]  # fmt: skip
    return f"Did you mean {' or '.join(said)}?" if said else ""


def _latest(memory: Memory) -> Session:
    """Reading does not count here: a search over all sessions would make every one of them the latest."""
    from smp_client import SessionNotFound
    from smp_client.maintain.lifecycle import activities
    from smp_client.session_files import RESTING

    states = {session: _state(session) for session in memory.sessions()}
    for wanted in (("active",), RESTING):
        if found := [session for session, state in states.items() if state in wanted]:
            changed = activities(memory, [session.id for session in found], readings=False)
            return max(found, key=lambda session: changed.get(session.id, _LONG_AGO))
    raise SessionNotFound(f"No session under {memory.root} is active.", advice="Make one with smp new.")


def complete_session(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The ids of the sessions; none where anything goes wrong, because an error would be printed into what is being typed."""
    with suppress(Exception):
        return _beginning(incomplete, [*(session.id for session in _memory(ctx).sessions()), LATEST])
    return []


def complete_memory_id(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of the memories of the session that was given already, else all that the index knows of."""
    with suppress(Exception):
        return _known_ids(_memory(ctx), _given_session(ctx), incomplete)
    return []


def _given_session(ctx: click.Context) -> str | None:
    """While the value of an option is being typed, click has not yet told apart which argument is which."""
    first = next((one.name for one in ctx.command.params if isinstance(one, click.Argument)), None)
    untold = ctx.args[0] if ctx.args and first in ("session", "sessions") else None
    return ctx.params.get("session") or untold


def completing_values(column: str) -> Callable[..., list[str]]:
    """The values of a column of the index: who spoke, which tags there are; of the session that was given already, else of all."""
    values = {"actor": "SELECT scope, actor AS value FROM memories", "tag": "SELECT scope, tag AS value FROM tags",
              "topic": "SELECT scope, topic AS value FROM topics"}[column]  # fmt: skip
    asked = "SELECT DISTINCT value FROM ({}) WHERE (?1 IS NULL OR scope = ?1) AND substr(value, 1, ?2) = ?3 ORDER BY value LIMIT ?4"

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        from smp_client.index import Index
        from smp_client.status import INDEX_FILE

        with suppress(Exception):
            memory, session = _memory(ctx), _given_session(ctx)
            scope = session if session in (None, "global") else find_session(memory, session).id
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
    found = find_scope(memory, session).query(asked, count_access=False)
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


def _state(session: Session) -> str:
    from smp_client import SMPError

    try:
        return session.state
    except SMPError:
        return "unreadable"


def _where_else(memory: Memory, name: str) -> str | None:
    from smp_client.layout import ARCHIVED, DELETED

    for place in (ARCHIVED, DELETED):
        if any(entry.partition(".")[0] == name for entry in memory.tree.list(place)):
            return place
    return None


def _beginning(incomplete: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]

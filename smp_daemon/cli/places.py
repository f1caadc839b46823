"""Sessions by the place that they are in: how they are named, found and completed, where a command is about those of one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from smp_client.layout import GLOBAL, LATEST

from .arguments import find_session, only_one

if TYPE_CHECKING:
    from smp_client import Memory

Place = Callable[["Memory"], Mapping[str, str]]  # the ids of the sessions in it, and since when they are there


def active(memory: Memory) -> Mapping[str, str]:
    return {session.id: "" for session in memory.sessions()}


def archived(memory: Memory) -> Mapping[str, str]:
    return {one.session: one.archived_at for one in memory.archived_sessions()}


def deleted(memory: Memory) -> Mapping[str, str]:
    return {one.session: one.deleted_at for one in memory.deleted_sessions()}


def holds_everywhere(_memory: Memory) -> Mapping[str, str]:
    """`global`, which is no session, and has memories like one."""
    return {GLOBAL: ""}


def session_in(*places: Place, required: bool = True) -> Callable[[Any], Any]:
    return click.argument("session", metavar="SESSION" if required else "[SESSION]", required=required,
                          shell_complete=completing(*places))  # fmt: skip


def reason_option(help: str, *, default: str | None = None, shown: str = "", required: bool = False) -> Callable[[Any], Any]:
    given = {} if default is None else {"default": default}  # a default of None would count as given
    return click.option("--reason", show_default=shown or default is not None, required=required, help=help, callback=in_words,
                        **given)  # type: ignore[arg-type]  # fmt: skip


def in_words(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("it must be said in words.")
    if value is None:
        return None
    from smp_client.privacy.redaction import harmless

    return harmless(value)  # as it is stored, so that it is shown as that


def completing(*places: Place) -> Callable[..., list[str]]:
    """None where anything goes wrong, because an error would be printed into what is being typed."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        from smp_client import Memory

        with suppress(Exception):
            memory = Memory(ctx.params.get("root"))
            return [name for name in (*(name for place in places for name in place(memory)), LATEST) if name.startswith(incomplete)]
        return []

    return complete


def find_in(memory: Memory, name: str, place: Place, what: str) -> str:
    """The session with this id, the only one whose id begins so, or with `latest` the one that came there last."""
    from smp_client import Invalid, SessionNotFound, SessionPutAway

    known = place(memory)
    if name in known:
        return name
    if name == LATEST and known:
        return max(known, key=lambda session: known[session])
    try:
        standing = memory.session(name).id
    except SessionPutAway:
        raise  # elsewhere: its id is not to be the beginning of another's
    except (SessionNotFound, Invalid):
        return only_one(memory, name, known, what)
    raise SessionNotFound(f"The session {standing!r} is not {what}.", session_id=standing, advice="It is in its place.")


def find_standing(memory: Memory, name: str, *, or_global: bool = False, or_deleted: bool = False) -> str:
    """One that is in its place or in the archive."""
    from smp_client import Invalid, SessionNotFound, SessionPutAway

    known = [*active(memory), *archived(memory), *(deleted(memory) if or_deleted else ())]
    if name in known or (or_global and name == GLOBAL):
        return name
    if name == LATEST:
        return find_session(memory, name).id
    try:
        return memory.session(name).id
    except SessionPutAway:
        raise  # deleted already: its id is not to be the beginning of another's
    except (SessionNotFound, Invalid):
        return only_one(memory, name, known)

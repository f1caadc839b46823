"""`smp show --all-about`: every place where a text stands, and the commands that remove it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.privacy.find import Occurrence

_MEMORIES = ("active", "archived", "evicted", "global")
_NO_SESSION = "in no session"
_NO_MEMORIES = ("", "metadata", "summary", "unreadable", "directory", "head")
_PASSING = ("journal", "retired", "leaving")  # these go by themselves


def show_occurrences(memory: Memory, text: str, session: str | None, *, as_json: bool) -> None:
    from .output import print_json

    name = None if session is None else _session(memory, session)
    every = list(memory.all_about(text, name))
    found = [one for one in every if not one.problem]
    problems = [one for one in every if one.problem]
    if as_json:
        print_json({
            "text": text, "session": name, "occurrences": [*map(_as_json, found)],
            "totals": Counter(one.place for one in found),
            "problems": [{"session": one.session, "path": one.path, "problem": one.problem} for one in problems],
        })  # fmt: skip
        return
    _print(memory, text, name, found)
    _print_problems(problems)
    _print_advice(text, found)


def _session(memory: Memory, given: str) -> str:
    """Return the id of a session wherever anything of it is; the beginning of one will do."""
    from smp_client.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, QUARANTINE

    from .arguments import find_id

    places = (ACTIVE, ARCHIVED, DELETED, QUARANTINE)
    if given == GLOBAL or any(given in memory.tree.list(place) for place in places):
        return given
    return find_id(memory, given, ACTIVE, ARCHIVED, DELETED)


def _as_json(one: Occurrence) -> dict[str, object]:
    said = {name: value for name, value in asdict(one).items() if name not in ("problem", "until")}
    return {**said, "until": one.until or None}


def _print(memory: Memory, text: str, session: str | None, found: Sequence[Occurrence]) -> None:
    from .output import Column, one_line, print_table, say, styled, tell

    if not found:
        where = f"session {session}" if session else str(memory.root)
        say(f"{one_line(repr(text))} stands nowhere in {one_line(where)}.")
        return
    groups: dict[str, list[Occurrence]] = {}
    for one in found:
        groups.setdefault(one.session, []).append(one)
    for name, group in groups.items():
        say(styled(one_line(name) or _NO_SESSION, fg="cyan", bold=True))
        is_packed = any(one.member for one in group)
        columns = [Column("WHERE", ends=True), *([Column("PACKED IN IT", ends=True)] if is_packed else []),
                   Column("ID", style=lambda _: {"fg": "cyan"}), Column("TYPE", spare=True), Column("PLACE"),
                   Column("TEXT", least=40)]  # fmt: skip
        rows = [(*_where(one)[: 1 + is_packed], one.id, _type(one), _place(one), _said(one)) for one in group]
        print_table(columns, rows)
        say("")
    memories = len({(one.session, one.type, one.id) for one in found if _is_memory(one, (*_MEMORIES, "deleted"))})
    counted = ", ".join(f"{count} {place}" for place, count in Counter(one.place for one in found).items())
    places = "1 place" if len(found) == 1 else f"{len(found)} places"
    tell(f"{places} ({counted}), {'1 memory' if memories == 1 else f'{memories} memories'}.")


def _is_memory(one: Occurrence, places: Sequence[str] = _MEMORIES) -> bool:
    return one.place in places and one.type not in _NO_MEMORIES


def _where(one: Occurrence) -> tuple[str, str]:
    """Return the file, and the member of a bundle; the line belongs to the inner one."""
    line = f":{one.line}" if one.line else ""
    return (one.path, f"{one.member}{line}") if one.member else (f"{one.path}{line}", "")


def _type(one: Occurrence) -> str:
    from .read import short_type

    return "head of the file" if one.type == "head" else short_type(one.type) if one.type else ""


def _place(one: Occurrence) -> str:
    place = "anonymised," if one.action == "anonymize" else one.place
    return f"{place} until {one.until[:10]}" if one.until else one.place


def _said(one: Occurrence) -> str:
    times = f" ({one.count} times)" if one.count > 1 else ""
    return f"{one.field}: {one.excerpt}{times}" if one.field else f"{one.excerpt}{times}"


def _print_problems(problems: Sequence[Occurrence]) -> None:
    from .output import one_line, say, styled, tell

    if problems:
        say("\n" + styled("COULD NOT BE SEARCHED", bold=True))
    for one in problems:
        tell(one_line(f"{one.path}: {one.problem}"))


def _print_advice(text: str, found: Sequence[Occurrence]) -> None:
    """How it goes: a line for memories, for deleted ones, and for any other file."""
    from .output import one_line, say, tell

    advice: list[str] = []
    if sessions := {one.session for one in found if _is_memory(one)}:
        named = next(iter(sessions)) if len(sessions) == 1 else "--all"
        advice.append(f"smp delete {named} --text {shlex.quote(text)} --reason … deletes the memories that hold it.")
    deleted = [one for one in found if one.place == "deleted"]
    if deleted:
        advice.append("smp restore --list shows what is deleted and until when it can be restored.")
    for batch in dict.fromkeys(one.batch for one in deleted if one.batch):
        advice.append(f"smp purge --batch {batch} --now destroys what was deleted or replaced under it.")
    for name in dict.fromkeys(one.session for one in deleted if one.action == "delete_session"):
        advice.append(f"smp purge {name} --now destroys the deleted session.")
    if any(not _is_memory(one) and one.place not in ("deleted", "derived", *_PASSING) and one.type != "summary"
           for one in found):  # fmt: skip
        advice.append("What is in no memory: smp anonymize replaces names in metadata; take the rest out of its file by hand.")
    if any(one.place in _PASSING for one in found):
        advice.append("What is in .smp/ goes by itself, when nobody has the old file open any more.")
    if any(one.place == "derived" for one in found):
        advice.append("Only the index still holds it, which is made from the files: smp reindex makes it anew.")
    if advice:
        say("")
    for sentence in advice:
        tell(one_line(sentence))

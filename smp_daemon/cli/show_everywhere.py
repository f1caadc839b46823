"""`smp show --all-about`: every place where a text stands, and what can be done about it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.privacy.seeking.everywhere import Occurrence

_MEMORIES = ("active", "archived", "evicted", "global")
_NO_SESSION = "in no session"
# Where somebody has to look who wants it gone: nobody else takes anything out of these.
_BY_HAND = ("inbox", "rejected", "quarantined", "other")
_PASSING = ("journal", "retired", "leaving")
_NO_MEMORIES = ("", "metadata", "summary", "unreadable", "directory", "head")
_ANONYMIZED, _WITH_ITS_SESSION = "anonymize", "delete_session"


def show_everywhere(memory: Memory, text: str, session: str | None, *, as_json: bool) -> None:
    from .output import print_json

    name = None if session is None else _session(memory, session)
    every = list(memory.all_about(text, name))
    found = [one for one in every if not one.problem]
    problems = [one for one in every if one.problem]
    if as_json:
        print_json({
            "text": text, "session": name, "occurrences": [*map(_as_json, found)], "totals": Counter(one.place for one in found),
            "problems": [{"session": one.session, "path": one.path, "problem": one.problem} for one in problems],
        })  # fmt: skip
        return
    _print(memory, text, name, found)
    _print_problems(problems)
    _print_advice(text, found)


def _session(memory: Memory, given: str) -> str:
    """The id of a session wherever anything of it is; the beginning of one will do."""
    from smp_client.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, QUARANTINE

    from .arguments import find_id

    if given == GLOBAL or any(given in memory.tree.list(place) for place in (ACTIVE, ARCHIVED, DELETED, QUARANTINE)):
        return given
    return find_id(memory, given, ACTIVE, ARCHIVED, DELETED)


def _as_json(one: Occurrence) -> dict[str, object]:
    return {**{name: value for name, value in asdict(one).items() if name not in ("problem", "until")}, "until": one.until or None}


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
        print_table(columns, [(*_where(one)[: 1 + is_packed], one.id, _type(one), _place(one), _said(one)) for one in group])
        say("")
    memories = len({(one.session, one.type, one.id) for one in found if _is_memory(one, (*_MEMORIES, "deleted"))})
    counted = ", ".join(f"{count} {place}" for place, count in Counter(one.place for one in found).items())
    places = "1 place" if len(found) == 1 else f"{len(found)} places"
    tell(f"{places} ({counted}), {'1 memory' if memories == 1 else f'{memories} memories'}.")


def _is_memory(one: Occurrence, places: Sequence[str] = _MEMORIES) -> bool:
    return one.place in places and one.type not in _NO_MEMORIES


def _where(one: Occurrence) -> tuple[str, str]:
    """The file, and what is packed in it; the line belongs to the inner one."""
    line = f":{one.line}" if one.line else ""
    return (one.path, f"{one.member}{line}") if one.member else (f"{one.path}{line}", "")


def _type(one: Occurrence) -> str:
    from .read import short_type

    if one.type == "head":
        return "head of the file"
    return short_type(one.type) if one.type else ""


def _place(one: Occurrence) -> str:
    place = "anonymised," if one.action == _ANONYMIZED else one.place
    return f"{place} until {one.until[:10]}" if one.until else one.place


def _said(one: Occurrence) -> str:
    times = f" ({one.count} times)" if one.count > 1 else ""
    return f"{one.field}: {one.excerpt}{times}" if one.field else f"{one.excerpt}{times}"


def _print_problems(problems: Sequence[Occurrence]) -> None:
    from .output import one_line, say, styled, tell

    if problems:
        say("\n" + styled("COULD NOT BE LOOKED INTO", bold=True))
    for one in problems:
        tell(one_line(f"{one.path}: {one.problem}"))


def _only(sessions: set[str]) -> str:
    return next(iter(sessions)) if len(sessions) == 1 else "SESSION"


def _is_of_an_archive(one: Occurrence) -> bool:
    return bool(one.member) or one.type == "summary"


def _about_deleted(deleted: Sequence[Occurrence]) -> list[str]:
    """How each goes before its time: by its id, with its session, or all that was anonymised with it."""
    if not deleted:
        return []
    advice = ["smp restore --list shows what is deleted and until when it can be restored."]
    if batches := dict.fromkeys(one.batch for one in deleted if one.action == _ANONYMIZED and one.batch):
        advice += [f"smp purge --batch {batch} --now destroys what stood there before it was anonymised." for batch in batches]
    for name in dict.fromkeys(one.session for one in deleted if one.action == _WITH_ITS_SESSION):
        advice.append(f"smp purge {name} --now destroys the deleted session before that.")
    if sessions := {one.session for one in deleted if one.action not in (_ANONYMIZED, _WITH_ITS_SESSION)}:
        advice.append(f"smp purge {_only(sessions)} ID --now destroys a deleted memory before that.")
    return advice


def _print_advice(text: str, found: Sequence[Occurrence]) -> None:
    from .output import one_line, say, tell

    places = {one.place for one in found}
    quoted = one_line(shlex.quote(text))
    advice = []
    if sessions := {one.session for one in found if _is_memory(one)}:
        named = next(iter(sessions)) if len(sessions) == 1 else "--all"
        advice.append(f"smp delete {named} --text {quoted} --reason … deletes the memories that hold it.")
    advice += _about_deleted([one for one in found if one.place == "deleted"])
    holding = {one.session for one in found if _is_memory(one)}
    no_memory = [one for one in found if one.place in _BY_HAND or (one.place in _MEMORIES and not _is_memory(one))]
    # A summary is made anew from the memories that stay.
    no_memory = [one for one in no_memory if one.type != "summary" or one.session not in holding]
    if any(not _is_of_an_archive(one) for one in no_memory):
        advice.append("What is in no memory, such as the metadata of a session, is to be taken out of its file by hand.")
    if sessions := {one.session for one in no_memory if _is_of_an_archive(one)}:
        advice.append(f"What is in the archive and in no memory: smp anonymize {_only(sessions)} replaces it, or"
                      f" smp unarchive {_only(sessions)} first, and then by hand.")  # fmt: skip
    if places & set(_PASSING):
        advice.append("What is in .smp/ goes by itself, when nobody has the old file open any more.")
    if "derived" in places:
        advice.append("Only the index still holds it, which is made from the files: smp reindex makes it anew.")
    if advice:
        say("")
        for sentence in advice:
            tell(one_line(sentence))

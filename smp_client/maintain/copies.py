"""What was put away, read through: every archive, eviction and backup, against the checksums that were noted when it was made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..check import Complaint, without_advice
from ..errors import CorruptionDetected, Invalid, LockTimeout, NewerFormat, SMPError
from ..layout import ACTIVE, ARCHIVED, DELETED, check_session_id
from ..locks import NO_PATIENCE, lock
from ..packing import read_members, verify
from ..place import Place
from ..privacy.deleting.store import BACKUP, RECORD, RESTORING, UNFINISHED
from ..scope import UPKEEP
from ..text.mapping import load_mapping
from ..text.values import canonical
from . import evictions
from .archive import ARCHIVE, ARCHIVING, SUMMARY, load_summary, members_of
from .removal import DELETING, WHOLE

if TYPE_CHECKING:
    from ..files import Tree

_VALUES = "values/"  # see deletion.py
_ADVICE = "Bring it back from a copy of your own; the disk may be failing."
_DOING = "checking what was put away"
_Look = Callable[["Tree", str], Iterator[Complaint]]


def put_away(memory: Place) -> list[str]:
    """Every session that something was put away of."""
    found = {name for place in (ARCHIVED, DELETED) for name in memory.tree.list(place) if _is_of_session(memory.tree, place, name)}
    return sorted(found)


def check_copies(memory: Place, session_id: str) -> Iterator[Complaint]:
    """What cannot be read of what was put away of a session, or is not what was put there."""
    for look in (_archive, _evictions, _backup):
        yield from _steady(memory.tree, session_id, look)


def _steady(tree: Tree, session_id: str, look: _Look) -> list[Complaint]:
    """What is wrong may be so because somebody is at work there: it must be wrong also when nobody is."""
    if not (complaints := list(look(tree, session_id))):
        return []
    try:
        with lock(tree, session_id, UPKEEP, NO_PATIENCE, _DOING), lock(tree, session_id, RECORD, NO_PATIENCE, _DOING):
            return list(look(tree, session_id))
    except LockTimeout:
        return []
    except (SMPError, OSError):
        return complaints  # nothing can be written here, so nobody is at work


def _archive(tree: Tree, session_id: str) -> Iterator[Complaint]:
    directory = f"{ARCHIVED}/{session_id}"
    has_archive, has_summary = (tree.exists(f"{directory}/{name}") for name in (ARCHIVE, SUMMARY))
    if not has_summary:
        if has_archive and not tree.exists(f"{ACTIVE}/{session_id}"):
            yield Complaint(directory, ARCHIVE, None, f"it has no {SUMMARY}, which says what belongs into it",
                            f"Unpack it by hand into {ACTIVE}/{session_id}, and move it away.")  # fmt: skip
        return
    try:
        said = load_summary(tree, session_id)
    except (SMPError, OSError):
        return  # which check.py says of every file that is indexed
    try:
        members = members_of(said, f"{directory}/{SUMMARY}")
    except CorruptionDetected as error:
        yield _complaint(f"{directory}/{SUMMARY}", error)
        return
    if said.get("state") == ARCHIVING and tree.exists(f"{ACTIVE}/{session_id}"):
        return  # cut off; the session itself still counts
    try:
        verify(tree, f"{directory}/{ARCHIVE}", members)
        if not _is_byte_for_byte(tree, f"{directory}/{ARCHIVE}", said.get("archive")):
            yield Complaint(directory, ARCHIVE, None, "a byte of it has changed, though every file in it is whole",
                            "Bring the session back while that is so; the disk may be failing.")  # fmt: skip
    except (SMPError, OSError) as error:
        yield _complaint(f"{directory}/{ARCHIVE}", error)


def _is_byte_for_byte(tree: Tree, name: str, noted: Any) -> bool:
    wanted = noted.get("sha256") if isinstance(noted, dict) else None
    return not isinstance(wanted, str) or hashlib.sha256(tree.read(name)).hexdigest() == wanted


def _evictions(tree: Tree, session_id: str) -> Iterator[Complaint]:
    for name in evictions.names(tree, session_id):
        try:
            eviction = evictions.load(tree, name)
        except FileNotFoundError:
            continue  # brought back just now
        except (SMPError, OSError) as error:
            yield _complaint(name, error)
            continue
        for item in eviction.items:
            try:
                eviction.raw(item)
            except CorruptionDetected as error:
                yield _complaint(name, error)


def _backup(tree: Tree, session_id: str) -> Iterator[Complaint]:
    directory = f"{DELETED}/{session_id}"
    if not any(tree.exists(f"{directory}/{name}") for name in (RECORD, BACKUP)):
        return
    try:
        said = load_mapping(tree.read(f"{directory}/{RECORD}"), "deletion", RECORD)
    except (SMPError, OSError) as error:
        yield _complaint(f"{directory}/{RECORD}", error)
        said = {}
    try:
        found = dict(read_members(tree, f"{directory}/{BACKUP}")) if tree.exists(f"{directory}/{BACKUP}") else {}
    except (SMPError, OSError) as error:
        yield _complaint(f"{directory}/{BACKUP}", error)
        return
    if said.get(UNFINISHED) or said.get(RESTORING):
        yield Complaint(directory, RECORD, None, "a deletion or restoration was cut off before it was finished",
                        "Run smp check --repair, which finishes it or takes it back; nothing is lost.")  # fmt: skip
        return
    yield from (_complaint(f"{directory}/{BACKUP}", problem) for problem in _wrong_copies(said, found, directory))


def _wrong_copies(said: dict[str, Any], found: dict[str, bytes], directory: str) -> Iterator[str]:
    items = said.get("deleted_items")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and "sha256" in item and (problem := _wrong_copy(item, found)):
            yield problem
    whole = said.get(WHOLE)
    if not isinstance(whole, dict) or whole.get("state") == DELETING:
        return
    try:
        members = members_of(whole, f"{directory}/{RECORD}")
    except CorruptionDetected as error:
        yield without_advice(error)
        return
    for member in members:
        content = found.get(member.path)
        if content is None or hashlib.sha256(content).hexdigest() != member.sha256:
            yield f"{member.path!r} {'is missing' if content is None else 'is not what was put there'}"


def _wrong_copy(item: dict[str, Any], found: dict[str, bytes]) -> str | None:
    """What is wrong with the copy of one memory: its bytes must be there, and its value must be the one that was deleted."""
    name = str(item.get("copy") or f"{item.get('file')}/{item.get('id')}")
    if name not in found:
        return f"it does not hold {item.get('id')} any more"
    stored = found.get(f"{_VALUES}{name}")
    try:
        value = json.loads(stored) if stored is not None else None
    except (ValueError, RecursionError):
        return f"what {item.get('id')} said cannot be read"
    if value is not None and hashlib.sha256(canonical(value)).hexdigest() != item["sha256"]:
        return f"{item.get('id')} is not what was put there"
    return None


def _complaint(name: str, problem: str | Exception) -> Complaint:
    directory, _, file = name.rpartition("/")
    advice = problem.advice if isinstance(problem, NewerFormat) else _ADVICE
    return Complaint(directory, file, None, problem if isinstance(problem, str) else without_advice(problem), advice)


def _is_of_session(tree: Tree, place: str, name: str) -> bool:
    try:
        return bool(check_session_id(name)) and tree.is_directory(f"{place}/{name}")
    except (Invalid, FileNotFoundError):
        return False

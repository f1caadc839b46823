"""What `smp show` says of a memory that is archived, taken out by compaction or deleted, and of references to such."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smp_client import Memory, Record
    from smp_client.change.holdings import Holding
    from smp_client.references import Reference
    from smp_client.session import RecordFiles

    from .output import Shown



def show_holding(memory: Memory, session: str, memory_id: str) -> Shown | None:
    """Return what is kept of the memory, or None."""
    from smp_client import Invalid
    from smp_client.change.holdings import EVERY, holdings
    from smp_client.layout import GLOBAL, check_session_id

    from .output import Shown

    try:
        name = session if session == GLOBAL else check_session_id(session)
    except Invalid:
        return None
    found = [one for one in holdings(memory, name, EVERY) if one.id == memory_id]
    if not found:
        return None
    return Shown(found[0].raw, lambda: _as_json(memory, found), lambda: _print(memory, found))


def _record(one: Holding) -> Record:
    from smp_client import Record
    from smp_client.records import kind_of_file, type_of

    text = one.value.get("content" if one.is_file else kind_of_file(one.file).text)
    marks = () if one.place == "active" else (one.place,)
    return Record(one.id, type_of(one.type), one.session, dict(one.value), text if isinstance(text, str) else "", marks=marks)


def _lines(one: Holding) -> list[int] | None:
    return [one.line, one.line + one.raw.rstrip().count(b"\n")] if one.line else None


def _where(memory: Memory, one: Holding) -> str:
    from .output import short_path

    place = short_path(f"{memory.root / one.where}")
    if one.container:
        place += f", {one.file if one.line else f'out of {one.file}'}"
    lines = _lines(one)
    return place + (f", lines {lines[0]} to {lines[1]}" if lines else "")


def _how_back(one: Holding) -> tuple[str, str]:
    """What has become of it, and how it comes back."""
    from .output import short_time

    if one.place == "archived":
        return "with its session", f"smp unarchive {one.session}"
    if one.place == "evicted":
        when, why = short_time(one.facts.get("at")), one.facts.get("reason")
        return f"by compaction on {when}" + (f": {why}" if why else ""), f"smp compact {one.session} {one.id} --bring-back"
    who, why = one.facts.get("by"), one.facts.get("why")
    is_one_by_one = bool(one.facts.get("batch"))
    back = f"smp restore {one.session} {one.id}" if is_one_by_one else f"smp restore {one.session}"
    happened = "replaced" if one.place == "undo" else "on"
    whole = "" if is_one_by_one else ", with its session"
    until = short_time(one.facts.get("until"))
    return f"{happened} {short_time(one.facts.get('at'))} by {who}{whole}: {why}", f"{back}, until {until}"


def _print(memory: Memory, found: Sequence[Holding]) -> None:
    from .output import one_line, print_fields, print_pairs, say, styled
    from .read import short_type

    one = found[0]
    named = styled(one_line(one.id), fg="cyan", bold=True)
    say(f"{named}  {short_type(one.type)} in {one.session}, {styled(one.place, fg='yellow')}")
    happened, back = ("", "") if one.place == "active" else _how_back(one)
    pairs = [("where", _where(memory, one)), ("taken out" if one.place == "evicted" else one.place, happened), ("bring back", back)]
    pairs += [("also", f"{_where(memory, other)} ({other.place})") for other in found[1:]]
    for pair in pairs:
        print_pairs(dict([pair]))
    say("")
    print_fields(one.value)


def _as_json(memory: Memory, found: Sequence[Holding]) -> dict[str, Any]:
    from .output import record_json

    one, *others = found
    copies = [_place_json(memory, other) for other in others]
    return {**record_json(_record(one)), **_place_json(memory, one), "copies": copies}


def _place_json(memory: Memory, one: Holding) -> dict[str, Any]:
    member = one.file if one.container else None
    return {"state": one.place, "file": str(memory.root / one.where), "member": member, "lines": _lines(one),
            "until": one.facts.get("until"), "facts": dict(one.facts)}  # fmt: skip


# References.


def references_of(target: RecordFiles, memory_id: str) -> list[Reference]:
    from smp_client import MemoryNotFound

    try:
        return target.references(memory_id)
    except MemoryNotFound:  # of a file that the index could not read
        return []


def reference_text(reference: Reference) -> str:
    """`DEC-001 (deleted 2026-01-15)`."""
    since = f" {reference.at[:10]}" if reference.at else ""
    said = {"here": "", "deleted": f" (deleted{since})", "purged": " (purged)", "evicted": " (taken out by compaction)"}
    return reference.id + said.get(reference.state, " (not known)")

"""The three tools that write. A wrong call is refused before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from smp_client import Invalid, Record, Session
from smp_client.ask.questions import like_text
from smp_client.ask.text import likeness
from smp_client.ask.text import said as said_in
from smp_client.model.agent_names import file_name
from smp_client.model.record import FINDING, GLOBAL_KINDS, SESSION_KINDS
from smp_client.redaction.redact import FIELD, Redaction
from smp_client.text.contents import check_tags
from smp_client.writer import Writer

from .answer import Answer, cut, fitting, hit, kind, name
from .desk import Desk
from .parameter import Refused

Given = Mapping[str, Any]
NEXT_STEPS = "next_steps"
RELATIONS = {"resolves": "resolves", "replaces": "supersedes", "supports": "supports"}
STATUSES = ("resolved", "superseded", "rejected", "open")
_ALIKE = 0.6  # of 1: from here on a memory is near
_TEXT_FIELDS = {kind.type: kind.text for kind in (*SESSION_KINDS, *GLOBAL_KINDS)}


def record(desk: Desk, given: Given) -> Answer:
    """Write one memory into this server's own session."""
    author = given["by"] or given["client"]
    about = [_related(desk, one) for one in given["about"] or ()]
    if given["severity"] and given["kind"] != "finding":
        raise Refused("severity is for a finding; leave it out, or record a finding.")
    if given["kind"] == NEXT_STEPS:
        return _next_steps(desk, given, author, about)
    problems: list[str] = []
    check_tags(given["tags"], problems)
    if problems:
        raise Invalid(problems)
    session = desk.own_session(given["project"], given["client"])
    # Looked for before the write: the index would have to wait until the new file has settled.
    near = _near(desk, session, given)
    if about:
        with session.transaction() as together:
            new = _written(together, given, author)
            for word, old in about:
                together.relate(new.id, old, RELATIONS[word])
        new.notes = together.notes
    else:
        new = _written(session, given, author)
    data: dict[str, Any] = {"id": name(new)}
    said = f"Recorded as {name(new)}.{desk.told_tree()}"
    if redacted := new.data.get(FIELD):
        data["redacted"] = redacted
        kinds = ", ".join(f"{count} {kind}" for kind, count in redacted.items())
        said += f" Redacted as secret: {kinds}."
    if new.notes:
        data["notes"] = list(new.notes)
        said += f" {' '.join(new.notes)}"
    if near:
        data["similar"] = near
        said += f" Near to it: {', '.join(near)}. Forget one that says the same;"
        said += " if this one takes the place of another, memory_update says so."
    return Answer(said, data)


def update(desk: Desk, given: Given) -> Answer:
    """Change one memory, and return it as it is then."""
    old = _get(desk, given["id"])
    files = desk.files(old.session)
    changes = _changes(old, given)
    status = given["status"]
    if status == "superseded":  # first, since it is refused where a memory supersedes itself
        by = _get(desk, given["by_id"])
        desk.files(by.session).relate(by.id, name(old), RELATIONS["replaces"])
    if status == "resolved":
        done = given["note"] or "resolved"
        files.resolve_finding(old.id, resolved_by=given["client"], action_taken=done)
    if changes:
        files.update(old.id, **changes)
    now = _get(desk, name(old))
    memory = hit(now) | {"pinned": now.pinned}
    marks = f" It is {', '.join(memory['marks'])}." if now.marks else ""
    said = f"Changed {name(now)} ({kind(now)}): {cut(now.text, 80)}{marks}"
    return Answer(said, {"memory": memory})


def forget(desk: Desk, given: Given) -> Answer:
    """Delete memories so that a person can restore them."""
    found = list({name(one): one for one in (_get(desk, one) for one in given["ids"])}.values())
    how: dict[str, Any] = {"reason": given["reason"], "deleted_by": given["client"],
                           "dry_run": given["dry_run"]}  # fmt: skip
    batches: list[dict[str, Any]] = []
    problems: list[str] = []
    for session in dict.fromkeys(one.session for one in found):
        ids = [one.id for one in found if one.session == session]
        done = desk.memory.privacy.delete(session, ids, **how)
        batches.append({"ids": [f"{session}/{one}" for one in done.ids]})
        if not given["dry_run"]:
            gone = [one for one in desk.memory.privacy.deleted(session) if one.batch == done.batch]
            until = min((str(one.facts["until"]) for one in gone), default="")
            batches[-1] |= {"batch": done.batch, "restorable_until": until}
        problems += done.problems
    said = [cut(problem, 200) for problem in problems[:5]]
    return fitting(batches, lambda shown: _deleted(shown, len(batches), said, given), desk.budget)


def _deleted(shown: Sequence[Given], total: int, problems: list[str], given: Given) -> Answer:
    """Return the answer to a deletion in `total` sessions, of which these have room."""
    data: dict[str, Any] = {"deleted": list(shown), "dry_run": given["dry_run"]}
    data |= {"problems": problems} if problems else {}
    names = ", ".join(one for batch in shown for one in batch["ids"])
    if len(shown) < total:
        left = total - len(shown)
        names += f" and those of {left} more sessions, which have no room here"
    if given["dry_run"]:
        return Answer(f"Would delete {names}. Nothing was changed.", data)
    until = "; ".join(f"batch {one['batch']} until {one['restorable_until'][:10]}"
                      for one in shown)  # fmt: skip
    return Answer(f"Deleted {names}. A person can bring it back with smp restore: {until}.", data)


def _near(desk: Desk, session: Session, given: Given) -> list[str]:
    """Return up to three memories of the project that say the same or nearly so, nearest first."""
    about: Any = session.metadata().get("context")
    options: Any = {"types": [given["kind"]], "project": about.get("project_name")}
    own = said_in(given["text"])
    found = [one for one in like_text(desk.memory, given["text"], **options) if one.holds]
    shares = {name(one): likeness(said_in(one.text), own) for one in found}
    near = sorted(shares, key=lambda one: shares[one], reverse=True)
    return [one for one in near if shares[one] >= _ALIKE][:3]


def _get(desk: Desk, memory: str) -> Record:
    return desk.memory.get(memory, count_access=False)


def _written(session: Writer, given: Given, author: str) -> Record:
    text, more = given["text"], {"tags": given["tags"] or (), "rationale": given["why"]}
    if given["kind"] == "decision":
        return session.record_decision(text, made_by=author, **more)
    if given["kind"] == "finding":
        severity = given["severity"] or "medium"
        return session.record_finding(text, discovered_by=author, severity=severity, **more)
    if given["kind"] == "preference":
        how = {"topic": given["topic"], "keep_both": bool(given["keep_both"])}
        return session.record_preference(
            text, confidence="explicit", created_by=author, **how, **more
        )
    return session.record_learning(text, learned_by=author, **more)


def _next_steps(desk: Desk, given: Given, author: str, about: list[tuple[str, str]]) -> Answer:
    """Save the next steps as the agent's state, where the next session sees them first."""
    if about or given["why"] or given["tags"]:
        raise Refused("next_steps takes text, by and project only; record the rest by itself.")
    agent = file_name(author)
    Redaction().require_clean_name("an agent", agent)
    session = desk.own_session(given["project"], given["client"])
    session.save_agent_state(agent, {NEXT_STEPS: given["text"]})
    said = f"Saved as the next steps of {agent}.{desk.told_tree()}"
    return Answer(said, {"id": f"{session.id}/{agent}"})


def _related(desk: Desk, given: str) -> tuple[str, str]:
    """Return the word and the memory that an entry of `about` names; raise where there is none."""
    word, _, memory = given.strip().partition(" ")
    if word not in RELATIONS or not memory.strip():
        words = ", ".join(RELATIONS)
        raise Refused(f'about must be texts such as "resolves SESSION/FIND-001", with {words}.')
    old = _get(desk, memory)
    if word == "resolves" and old.type != FINDING.name:
        raise Refused(f"{name(old)} is a {kind(old)}: only a finding can be resolved.")
    return word, name(old)


def _changes(old: Record, given: Given) -> dict[str, Any]:
    """Return the fields to replace; raise Refused for a change that makes no sense."""
    status = given["status"]
    if all(given[part] is None for part in ("status", "text", "note", "pin")):
        raise Refused("memory_update needs something to change: status, text, note or pin.")
    if (status == "superseded") != (given["by_id"] is not None):
        raise Refused("status superseded and by_id, which replaces this one, go together.")
    changes: dict[str, Any] = {}
    if given["text"] is not None:
        if old.type not in _TEXT_FIELDS:
            raise Refused(f"The text of a {kind(old)} cannot be changed here.")
        changes[_TEXT_FIELDS[old.type]] = given["text"]
    if given["note"] is not None and status != "resolved":
        changes["note"] = given["note"]
    if given["pin"] is not None:
        changes["pinned"] = given["pin"] or None
    if status == "rejected":
        changes["status"] = "rejected"
    if status == "open":
        changes |= {"status": None, "superseded_by": None}
        if old.type == FINDING.name:
            changes["resolution"] = {"status": "open"}
    return changes

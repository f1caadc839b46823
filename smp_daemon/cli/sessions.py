"""Sessions as a whole: `smp sessions`, their states, the archive, decay and compaction."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from smp_client.model.layout import ARCHIVED

from . import output as out
from .arguments import Call, command, find_id

if TYPE_CHECKING:
    from smp_client import Memory, Session
    from smp_client.model.outcome import Outcome
    from smp_client.session import RecordFiles

_FACTS = ("id", "state", "created_at", "last_activity", "total_bytes", "quota_bytes",
          "utilization_pct", "project", "topic", "memories")  # fmt: skip


@command(
    "",
    "--state created|active|idle|decaying|archived|deleted|unreadable  Only in this state.",
    "--all  Also archived and deleted ones.",
)
def sessions(call: Call) -> None:
    """List the sessions, the one that was used last first.

    Reading is a use as well. `latest` is the one that changed last, which may be another.
    """
    memory, state = call.memory(), call.state
    rows = _in_use(memory)
    if call.all or state == "archived":
        for one in memory.by_type("summary"):
            counts = one.data.get("memories")
            memories = sum(counts.values()) if isinstance(counts, dict) else None
            rows.append({**one.data, "id": one.session, "state": "archived", "memories": memories})
    if call.all or state == "deleted":
        rows += [{"id": one.session, "state": "deleted", "last_activity": one.at,
                  "total_bytes": one.total_bytes} for one in memory.deleted_sessions()]  # fmt: skip
    found = [{name: row.get(name) for name in _FACTS} for row in rows
             if state in (None, row["state"])]  # fmt: skip
    columns = "id state created_at? last_activity total_bytes>? utilization_pct>? memories>"
    call.table(f"{columns} project? topic", found, "There are no such sessions.")


def _in_use(memory: Memory) -> list[dict[str, Any]]:
    """Return each session in use as a row, also where its metadata is unreadable or too new."""
    from smp_client import SMPError
    from smp_client.model.times import render_time
    from smp_client.passes.lifecycle import activities

    by_session = {"function": "count", "by": "session", "name": "memories"}
    counts = memory.query({"aggregations": [by_session], "limit": 0}).aggregations["memories"]
    every = memory.sessions()
    used = activities(memory, [session.id for session in every])
    rows: list[dict[str, Any]] = []
    for session in every:
        when = used.get(session.id)
        rows.append({"id": session.id, "state": "unreadable",
                     "last_activity": when and render_time(when),
                     "memories": counts.get(session.id, 0)})  # fmt: skip
        with suppress(SMPError):
            rows[-1] |= session.size().as_dict()
            metadata = session.metadata()
            context = metadata.get("context")
            known = context if isinstance(context, dict) else {}
            rows[-1] |= {"state": str(metadata.get("status", "active")),
                         "created_at": metadata.get("created_at"),
                         "project": known.get("project_name"),
                         "topic": known.get("primary_topic")}  # fmt: skip
    return rows


@command("SESSION", "--reason WHY:activated  Why; it is written down.")
def activate(call: Call) -> None:
    """Mark SESSION as in use."""
    session = call.memory().session(call.session)
    session.activate(call.reason)
    call.print({"session": session.id, "state": "active"}, f"{session.id} is active")


@command("SESSION", "--reason WHY:deactivated  Why; it is written down.")
def deactivate(call: Call) -> None:
    """Mark SESSION as not in use; the next use makes it active again."""
    session = call.memory().session(call.session)
    session.deactivate(call.reason)
    call.print({"session": session.id, "state": "idle"}, f"{session.id} is idle")


@command(
    "[SESSION] --dry-run",
    "--due  Bring each session into the state that is due, as the daemon does.",
    "--reason WHY:archived  Why; it is written into the summary.",
)
def archive(call: Call) -> None:
    """Put SESSION into the archive, or all that are due; its memories are still found.

    With --due, every session that nobody has used for long becomes idle, decaying or archived, and
    one that was used again active.
    """
    call.check(((call.session is None) != call.due, "Give a session, or --due; not both."))
    memory = call.memory()
    if call.due:
        call.finish(memory.age_sessions(dry_run=call.dry_run))
    name = memory.session(call.session).id
    outcome = memory.archive_session(name, call.reason, dry_run=call.dry_run)
    call.finish(outcome, note=f"smp unarchive {name} brings it back.")


@command("SESSION --dry-run")
def unarchive(call: Call) -> None:
    """Bring SESSION back from the archive."""
    from smp_client.change.move import unarchive as bring_back

    memory = call.memory()
    name = find_id(memory, call.session, ARCHIVED)
    call.finish(bring_back(memory, name, dry_run=call.dry_run))


@command("[SESSION] --dry-run")
def decay(call: Call) -> None:
    """Write the priorities of now into the files; without SESSION everywhere."""
    from smp_client.passes.decay import decay as decay_one

    memory, how = call.memory(), {"dry_run": call.dry_run}
    every: list[RecordFiles] = [memory.everywhere, *memory.sessions()]
    scopes = [call.scope()] if call.session else every
    call.finish(out.for_each(scopes, "decaying", lambda one: decay_one(one, **how), **how))


@command(
    "[SESSION] [ID]... --dry-run",
    "--all  Every session that is nearly full; with --reduce, every one.",
    "--reduce PCT  By how many percent of its size; else 20, or as configured.",
    "--list  Only list the evicted memories.",
    "--bring-back  Bring evicted memories, or only ID..., back.",
)
def compact(call: Call) -> None:
    """Make SESSION smaller; evicted memories can be brought back."""
    how = {"dry_run": call.dry_run}
    call.check(
        ((call.session is None) != call.all, "Give a session, or --all; not both."),
        (call.id and not call.bring_back, "Ids go with --bring-back."),
    )
    memory = call.memory()
    chosen = memory.sessions() if call.all else [memory.session(call.session)]
    if call.list:
        found = [{"session": one.session, "id": one.id, "type": one.type, "file": one.file,
                  "timestamp": one.value.get("timestamp"), "evicted_at": one.facts["at"],
                  "reason": one.facts.get("reason"), "text": out.held_text(one)}
                 for session in chosen for one in session.evicted()]  # fmt: skip
        columns = "session id@ type? timestamp? evicted_at reason? text"
        call.table(columns, found, "There are no evicted memories.")
        return

    def do(one: Session) -> Outcome:
        from smp_client.model.outcome import Outcome

        if call.bring_back:
            return one.bring_back(call.id or None, **how)
        share = _due_pct(memory, one) if call.all and call.reduce is None else call.reduce
        if call.all and share is None:
            return Outcome()
        return one.compact(reduction_pct=share, **how)

    call.finish(out.for_each(chosen, "compacting", do, **how))


def _due_pct(memory: Memory, session: Session) -> float | None:
    """Return by how much the daemon would compact a session now, if compaction were automatic."""
    from smp_client import SMPError
    from smp_client.passes.compaction import trigger

    policy = memory.options.compaction._replace(automatic=True)
    with suppress(SMPError):  # with unreadable metadata, the general policy holds
        policy = policy.for_session(session.metadata())
    due = trigger(session.size(), policy)
    return due[0] if due else None

"""Sessions as a whole: `smp sessions`, their states, the archive, decay and compaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from smp_client.model.layout import ACTIVE, ARCHIVED, GLOBAL

from . import output as out
from .arguments import Call, command, find_id
from .progress import for_each, progress

if TYPE_CHECKING:
    from smp_client import Memory, Session
    from smp_client.model.outcome import Outcome
    from smp_client.session import RecordFiles

_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_FACTS = ("id", "state", "created_at", "last_activity", "total_bytes", "quota_bytes",
          "utilization_pct", "project", "topic", "memories", "deleted_at")  # fmt: skip


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
    found = _in_use(memory)
    if call.all or state == "archived":
        for one in memory.by_type("summary"):
            counts = one.data.get("memories")
            memories = sum(counts.values()) if isinstance(counts, dict) else None
            about = {**one.data, "id": one.session, "state": "archived", "memories": memories}
            found.append({name: about.get(name) for name in _FACTS})
    if call.all or state == "deleted":
        found += [{**dict.fromkeys(_FACTS), "id": one.session, "state": "deleted",
                   "deleted_at": one.at, "total_bytes": one.total_bytes}
                  for one in memory.deleted_sessions()]  # fmt: skip
    found = [one for one in found if state in (None, one["state"])]
    titles = "ID~ STATE CREATED? LAST_ACTIVITY SIZE>? FULL>? MEMORIES> PROJECT? TOPIC"
    rows = [(one["id"], one["state"], out.short_time(one["created_at"]),
             out.short_time(one["deleted_at"] or one["last_activity"]),
             out.short_size(one["total_bytes"]),
             None if one["utilization_pct"] is None else f"{one['utilization_pct']}%",
             one["memories"], one["project"], one["topic"]) for one in found]  # fmt: skip
    none = "There are no sessions; smp new makes one."
    call.table(found, titles, rows, f"No sessions are {state}." if state else none)


def _in_use(memory: Memory) -> list[dict[str, Any]]:
    """Return each session in use as a row. Its metadata may be unreadable or too new."""
    from smp_client import SessionNotFound, SMPError
    from smp_client.model.times import render_time
    from smp_client.passes.lifecycle import activities

    by_session = {"function": "count", "by": "session", "name": "memories"}
    counts = memory.query({"aggregations": [by_session], "limit": 0}).aggregations["memories"]
    every = memory._sessions()
    used = activities(memory, [session.id for session in every])
    found: list[dict[str, Any]] = []
    for session in sorted(every, key=lambda one: used.get(one.id, _LONG_AGO), reverse=True):
        when = used.get(session.id)
        about: dict[str, Any] = {**dict.fromkeys(_FACTS), "id": session.id, "state": "unreadable"}
        about |= {
            "last_activity": when and render_time(when),
            "memories": counts.get(session.id, 0),
        }
        try:
            size = asdict(session.size())
            about |= {name: size[name] for name in _FACTS if name in size}
            metadata = session.metadata()
            context = metadata.get("context")
            known = context if isinstance(context, dict) else {}
            about |= {"state": str(metadata.get("status", "active")),
                      "created_at": metadata.get("created_at"),
                      "project": known.get("project_name"),
                      "topic": known.get("primary_topic")}  # fmt: skip
        except SessionNotFound:
            continue  # it went while we looked
        except SMPError:
            pass  # what is known of it is listed
        found.append(about)
    return found


# States and the archive.


@command("SESSION", "--reason WHY:activated  Why; it is written down.", "--dry-run")
def activate(call: Call) -> None:
    """Mark SESSION as in use."""
    _become(call, "active")


@command("SESSION", "--reason WHY:deactivated  Why; it is written down.", "--dry-run")
def deactivate(call: Call) -> None:
    """Mark SESSION as not in use; the next use makes it active again."""
    _become(call, "idle")


def _become(call: Call, state: str) -> None:
    from smp_client.disk.session_files import RESTING
    from smp_client.model.outcome import Action, Outcome

    session = call.memory().session(call.session)
    now = str(session.metadata().get("status", "active"))
    is_so = now == "active" if state == "active" else now in RESTING
    action = Action(session.id, f"become_{state}", (session.id,), call.reason)
    if not is_so and not call.dry_run:
        session.activate(call.reason) if state == "active" else session.deactivate(call.reason)
    nothing = f"{session.id} is {now}: there is nothing to do."
    call.finish(Outcome([] if is_so else [action], dry_run=call.dry_run), nothing=nothing)


@command(
    "[SESSION]",
    "--due  Bring each session into the state that is due, as the daemon does.",
    "--reason WHY  Why; it is written into the summary; else archived by hand.",
    "--dry-run",
)
def archive(call: Call) -> None:
    """Put SESSION into the archive, or all that are due; its memories are still found.

    With --due, every session that nobody has used for long becomes idle, decaying or archived, and
    one that was used again active.

    \b
    smp archive session-2026-01-11-abc123 --reason "all done"
    smp archive --due --dry-run
    """
    call.check(
        ((call.session is None) != call.due, "Give a session, or --due; not both."),
        (call.due and call.reason, "--reason goes with a session: of a due one it is known."),
    )
    memory, name = call.memory(), "SESSION"
    with progress("archiving"):
        if call.due:
            outcome = memory.age_sessions(dry_run=call.dry_run)
        else:
            name, why = memory.session(call.session).id, call.reason or "archived by hand"
            outcome = memory.archive_session(name, why, dry_run=call.dry_run)
    nothing = "Every session is in the state that is due."
    call.finish(outcome, note=f"smp unarchive {name} brings it back.", nothing=nothing)


@command("SESSION", "--dry-run", places=[ARCHIVED])
def unarchive(call: Call) -> None:
    """Bring SESSION back from the archive."""
    from smp_client.change.move import unarchive as bring_back

    memory = call.memory()
    with progress("bringing back"):
        name = find_id(memory, call.session, ARCHIVED)
        outcome = bring_back(memory, name, dry_run=call.dry_run)
    call.finish(outcome)


# Decay and compaction.


@command("[SESSION]", "--dry-run", places=[ACTIVE, GLOBAL])
def decay(call: Call) -> None:
    """Write the priorities of now into the files; without SESSION everywhere."""
    from smp_client.passes.decay import decay as decay_one

    memory, how = call.memory(), {"dry_run": call.dry_run}
    every: list[RecordFiles] = [memory.everywhere, *memory.sessions()]
    scopes = [call.scope()] if call.session else every
    call.finish(for_each(scopes, "decaying", lambda one: decay_one(one, **how), **how))


@command(
    "[SESSION] [ID]...",
    "--all  Every session that is nearly full; with --reduce, every one.",
    "--reduce PCT  By how many percent of its size; else 20, or as configured.",
    "--list  Only list the evicted memories.",
    "--bring-back  Bring evicted memories, or only ID..., back.",
    "--dry-run",
)
def compact(call: Call) -> None:
    """Make SESSION smaller; evicted memories can be brought back.

    \b
    smp compact latest --dry-run
    smp compact latest --reduce 30
    smp compact latest turn-12 --bring-back
    """
    is_back, how = call.bring_back, {"dry_run": call.dry_run}
    call.check(
        ((call.session is None) != call.all, "Give a session, or --all; not both."),
        (sum((call.list, is_back, call.reduce is not None)) > 1,
         "Give only one of --reduce, --list and --bring-back."),
        (call.id and not is_back, "Ids go with --bring-back, of one session."),
    )  # fmt: skip
    memory = call.memory()
    chosen = memory.sessions() if call.all else [memory.session(call.session)]
    if call.list:
        away = [one.session for one in memory.archived_sessions()] if call.all else []
        _print_evicted(call, memory, [*(one.id for one in chosen), *away])
        return

    def do(one: Session) -> Outcome:
        from smp_client.model.outcome import Outcome

        if is_back:
            return one.bring_back(call.id or None, **how)
        share = _due_pct(memory, one) if call.all and call.reduce is None else call.reduce
        if call.all and share is None:
            return Outcome()
        return one.compact(reduction_pct=share, **how)

    outcome = for_each(chosen, "bringing back" if is_back else "compacting", do, **how)
    again = "" if call.all or is_back else f"smp compact {chosen[0].id} --bring-back puts it back."
    counted = ("target_bytes", "before_bytes", "after_bytes", "bytes_freed")
    sums: dict[str, Any] = {} if is_back else {name: outcome.counts[name] for name in counted}
    call.finish(outcome, note=again, success=outcome.success, **sums)


def _due_pct(memory: Memory, session: Session) -> float | None:
    """Return by how much the daemon would compact a session now, if compaction were automatic."""
    from smp_client import SMPError
    from smp_client.passes.compaction import trigger

    policy = replace(memory.options.compaction, automatic=True)
    with suppress(SMPError):  # with unreadable metadata, the general policy holds
        policy = policy.for_session(session.metadata())
    due = trigger(session.size(), policy)
    return due[0] if due else None


def _print_evicted(call: Call, memory: Memory, names: Sequence[str]) -> None:
    from smp_client.change.restore import evicted
    from smp_client.model.record import type_of

    found = [{"session": one.session, "id": one.id, "type": type_of(one.type), "file": one.file,
              "timestamp": one.value.get("timestamp"), "evicted_at": one.facts["at"],
              "operation": one.facts.get("operation"), "reason": one.facts.get("reason"),
              "size_bytes": len(one.raw), "text": out.held_text(one)}
             for name in names for one in evicted(memory, name)]  # fmt: skip
    rows = [(one["session"], one["id"], out.short_type(one["type"]),
             out.short_time(one["timestamp"]), out.short_time(one["evicted_at"]),
             out.short_size(one["size_bytes"]), one["reason"], one["text"])
            for one in found]  # fmt: skip
    titles = "SESSION~ ID TYPE? WHEN? EVICTED SIZE>? REASON? TEXT"
    call.table(found, titles, rows, "There are no evicted memories.")
    if rows and not call.json:
        out.tell("smp compact SESSION --bring-back brings them back; first unarchive a session.")

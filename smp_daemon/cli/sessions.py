"""Sessions as a whole: `smp sessions`, their states, the archive, decay and compaction."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from smp_client.model.layout import ACTIVE, ARCHIVED, GLOBAL

from . import output as out
from .arguments import (
    Call,
    check_usage,
    find_id,
    find_scope,
    flag,
    memories_argument,
    option,
    reason_option,
    session_argument,
    takes,
)
from .progress import for_each, progress

if TYPE_CHECKING:
    from smp_client import Memory, Session
    from smp_client.model.outcome import Outcome
    from smp_client.session import RecordFiles

_COLOURS = {"active": "green", "unreadable": "red"}
_STATES = ("created", "active", "idle", "decaying", "archived", "deleted", "unreadable")
_CROWDED_PCT = 80
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_UNKNOWN = dict.fromkeys((
    "created_at", "last_activity", "total_bytes", "quota_bytes", "utilization_pct", "project",
    "topic", "memories", "deleted_at",
))  # fmt: skip


@click.command()
@option("--state", "Only sessions in this state.", type=click.Choice(_STATES))
@flag("--all", "Also archived and deleted ones.", to="is_all")
@takes()
def sessions(call: Call, state: str | None, is_all: bool) -> None:
    """List the sessions, the one that was used last first.

    Reading is a use as well. `latest` is the one that changed last, which may be another.
    """
    memory = call.memory()
    found = _in_use(memory)
    if is_all or state == "archived":
        found += map(_archived, memory.by_type("summary"))
    if is_all or state == "deleted":
        found += [{**_UNKNOWN, "id": one.session, "state": "deleted", "deleted_at": one.at,
                   "total_bytes": one.total_bytes} for one in memory.deleted_sessions()]
    found = [one for one in found if state in (None, one["state"])]
    if call.as_json:
        out.print_json(found)
    elif not found:
        none = "There are no sessions; smp new makes one."
        click.echo(f"No sessions are {state}." if state else none, err=True)
    else:
        _print_sessions(found)


def _in_use(memory: Memory) -> list[dict[str, Any]]:
    from smp_client import SessionNotFound
    from smp_client.passes.lifecycle import activities

    by_session = {"function": "count", "by": "session", "name": "memories"}
    answer = memory.query({"aggregations": [by_session], "limit": 0})
    counts = answer.aggregations["memories"]
    every = memory._sessions()
    used = activities(memory, [session.id for session in every])
    found: list[dict[str, Any]] = []
    for session in every:
        try:
            about = _described(session, used.get(session.id))
            found.append({**about, "memories": counts.get(session.id, 0)})
        except SessionNotFound:  # it went while we looked
            continue
    return sorted(found, key=lambda one: used.get(one["id"], _LONG_AGO), reverse=True)


def _described(session: Session, used: datetime | None) -> dict[str, Any]:
    """Return a session as a row. Its metadata may be unreadable, or of a later version."""
    from smp_client import SessionNotFound, SMPError
    from smp_client.model.times import render_time

    about: dict[str, Any] = {**_UNKNOWN, "id": session.id, "state": "unreadable",
                             "last_activity": render_time(used) if used else None}  # fmt: skip
    try:
        size = asdict(session.size())
        about |= {name: size[name] for name in ("total_bytes", "quota_bytes", "utilization_pct")}
        metadata = session.metadata()
    except SessionNotFound:
        raise
    except SMPError:
        return about
    context = metadata.get("context")
    known = context if isinstance(context, dict) else {}
    return about | {
        "state": str(metadata.get("status", "active")), "created_at": metadata.get("created_at"),
        "project": known.get("project_name"), "topic": known.get("primary_topic"),
    }  # fmt: skip


def _archived(summary: Any) -> dict[str, Any]:
    data = summary.data
    counts = data.get("memories")
    memories = sum(counts.values()) if isinstance(counts, dict) else None
    names = ("created_at", "last_activity", "total_bytes", "project", "topic")
    return {**_UNKNOWN, **{name: data.get(name) for name in names}, "id": summary.session,
            "state": "archived", "memories": memories}  # fmt: skip


def _print_sessions(found: list[dict[str, Any]]) -> None:
    def crowded(share: str) -> dict[str, Any]:
        return {"fg": "red"} if share != "-" and float(share.rstrip("%")) >= _CROWDED_PCT else {}

    titles = "ID~ STATE CREATED? LAST_ACTIVITY SIZE>? FULL>? MEMORIES> PROJECT? TOPIC:20"
    columns = out.columns_of(titles)
    columns[1] = replace(columns[1], style=lambda state: {"fg": _COLOURS.get(state, "yellow")})
    columns[5] = replace(columns[5], style=crowded)
    out.print_table(columns, [
        (one["id"], one["state"], out.short_time(one["created_at"]),
         out.short_time(one["deleted_at"] or one["last_activity"]),
         None if one["total_bytes"] is None else out.short_size(one["total_bytes"]),
         None if one["utilization_pct"] is None else f"{one['utilization_pct']}%",
         one["memories"], one["project"], one["topic"]) for one in found
    ])  # fmt: skip


# States and the archive.


@click.command()
@session_argument()
@reason_option("Why; it is written down.", default="activated by hand")
@takes("dry_run")
def activate(call: Call, session: str, reason: str) -> None:
    """Mark SESSION as in use."""
    _become(call, session, "active", reason)


@click.command()
@session_argument()
@reason_option("Why; it is written down.", default="deactivated by hand")
@takes("dry_run")
def deactivate(call: Call, session: str, reason: str) -> None:
    """Mark SESSION as not in use; the next use makes it active again."""
    _become(call, session, "idle", reason)


def _become(call: Call, name: str, state: str, reason: str) -> None:
    from smp_client.disk.session_files import RESTING
    from smp_client.model.outcome import Action, Outcome

    session = call.memory().session(name)
    now = str(session.metadata().get("status", "active"))
    is_so = now == "active" if state == "active" else now in RESTING
    action = Action(session.id, f"become_{state}", (session.id,), reason)
    if not is_so and not call.dry_run:
        session.activate(reason) if state == "active" else session.deactivate(reason)
    call.finish(Outcome([] if is_so else [action], dry_run=call.dry_run),
           nothing=f"{session.id} is {now}: there is nothing to do.")  # fmt: skip


@click.command(epilog="""\b
smp archive session-2026-01-11-abc123 --reason "all done"
smp archive --due --dry-run""")
@session_argument(required=False)
@flag("--due", "Bring each session into the state that is due, as the daemon does.", to="is_due")
@reason_option("Why; it is written into the summary; else archived by hand.")
@takes("dry_run")
def archive(call: Call, session: str | None, is_due: bool, reason: str | None) -> None:
    """Put SESSION into the archive, or all that are due; its memories are still found.

    With --due, every session that nobody has used for long becomes idle, decaying or archived, and
    one that was used again active.
    """
    check_usage(
        ((session is None) != is_due, "Give a session, or --due; not both."),
        (is_due and reason is not None, "--reason goes with a session: of a due one it is known."),
    )
    memory = call.memory()
    if session is None:
        with progress("ageing"):
            outcome = memory.age_sessions(dry_run=call.dry_run)
        call.finish(outcome, note="smp unarchive brings an archived session back.",
               nothing="Every session is in the state that is due.")  # fmt: skip
    found = memory.session(session).id
    with progress(f"archiving {found}"):
        outcome = memory.archive_session(found, reason or "archived by hand", dry_run=call.dry_run)
    call.finish(outcome, note=f"smp unarchive {found} brings it back.")


@click.command()
@session_argument(ARCHIVED)
@takes("dry_run")
def unarchive(call: Call, session: str) -> None:
    """Bring SESSION back from the archive."""
    from smp_client.change.move import unarchive as bring_back

    memory = call.memory()
    found = find_id(memory, session, ARCHIVED)
    with progress(f"bringing back {found}"):
        outcome = bring_back(memory, found, dry_run=call.dry_run)
    call.finish(outcome)


# Decay and compaction.


@click.command()
@session_argument(ACTIVE, GLOBAL, required=False)
@takes("dry_run")
def decay(call: Call, session: str | None) -> None:
    """Write the priorities of now into the files; without SESSION everywhere."""
    from smp_client.passes.decay import decay as decay_one

    memory, dry_run = call.memory(), call.dry_run
    scopes: list[RecordFiles] = [memory.everywhere, *memory.sessions()]
    if session:
        scopes = [find_scope(memory, session)]
    do = functools.partial(decay_one, dry_run=dry_run)
    call.finish(for_each(scopes, "decaying", do, dry_run=dry_run))


def _share(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 < value <= 100:
        raise click.BadParameter(f"{value:g} is not more than 0 and at most 100.")
    return value


@click.command(epilog="""\b
smp compact latest --dry-run
smp compact latest --reduce 30
smp compact latest turn-12 --bring-back""")
@memories_argument(ACTIVE, required=False)
@flag("--all", "Every session that is nearly full; with --reduce, every one.", to="is_all")
@option("--reduce", "By how many percent of its size; else 20, or as configured.",
        to="reduce_pct", type=float, metavar="PCT", callback=_share)  # fmt: skip
@flag("--estimate", "Only say how much could be freed at most.", to="is_estimate")
@flag("--list", "Only list the evicted memories.", to="is_list")
@flag("--bring-back", "Bring evicted memories, or only ID..., back.", to="is_back")
@takes("dry_run")
def compact(
    call: Call, session: str | None, ids: tuple[str, ...], is_all: bool, reduce_pct: float | None,
    is_estimate: bool, is_list: bool, is_back: bool,
) -> None:  # fmt: skip
    """Make SESSION smaller; evicted memories can be brought back."""
    check_usage(
        ((session is None) != is_all, "Give a session, or --all; not both."),
        (is_estimate + is_list + is_back + (reduce_pct is not None) > 1,
         "Give only one of --reduce, --estimate, --list and --bring-back."),
        (bool(ids) and (is_all or not is_back), "Ids go with --bring-back, of one session."),
    )  # fmt: skip
    memory, dry_run = call.memory(), call.dry_run
    chosen = memory.sessions() if session is None else [memory.session(session)]
    if is_estimate:
        _print_estimates(call, chosen)
        return
    if is_list:
        away = [one.session for one in memory.archived_sessions()] if is_all else []
        _print_evicted(call, memory, [*(one.id for one in chosen), *away])
        return

    def do(one: Session) -> Outcome:
        from smp_client.model.outcome import Outcome

        if is_back:
            return one.bring_back(ids or None, dry_run=dry_run)
        share = _due_pct(memory, one) if is_all and reduce_pct is None else reduce_pct
        if is_all and share is None:
            return Outcome()
        return one.compact(reduction_pct=share, dry_run=dry_run)

    outcome = for_each(chosen, "bringing back" if is_back else "compacting", do, dry_run=dry_run)
    again = "" if is_all or is_back else f"smp compact {chosen[0].id} --bring-back puts it back."
    names = ("target_bytes", "before_bytes", "after_bytes", "bytes_freed")
    sums: dict[str, Any] = {} if is_back else {name: outcome.counts[name] for name in names}
    call.finish(outcome, note=again, success=outcome.success, **sums)


def _due_pct(memory: Memory, session: Session) -> float | None:
    """Return by how much the daemon would compact a session now, if compaction were automatic."""
    from contextlib import suppress

    from smp_client import SMPError
    from smp_client.passes.compaction import growth_bytes_per_day, trigger

    policy = replace(memory.options.compaction, automatic=True)
    with suppress(SMPError):  # with unreadable metadata, the general policy holds
        policy = policy.for_session(session.metadata())
    due = trigger(session.size(), growth_bytes_per_day(session), policy)
    return due[0] if due else None


def _print_estimates(call: Call, chosen: Sequence[Session]) -> None:
    found: list[dict[str, Any]] = []
    with progress("estimating", len(chosen)) as advance:
        for one in chosen:
            found.append({"session": one.id, "total_bytes": one.size().total_bytes,
                          "estimate_bytes": one.estimate_compaction()})  # fmt: skip
            advance()
    if call.as_json:
        out.print_json(found if len(found) != 1 else found[0])
        return
    out.print_table("SESSION~ SIZE> COULD_BE_FREED>", [
        (one["session"], out.short_size(one["total_bytes"]), out.short_size(one["estimate_bytes"]))
        for one in found
    ])  # fmt: skip


def _print_evicted(call: Call, memory: Memory, names: Sequence[str]) -> None:
    from smp_client.change.restore import evicted
    from smp_client.model.record import kind_of_file, type_of

    found: list[dict[str, Any]] = []
    for one in (one for name in names for one in evicted(memory, name)):
        reason = {"evicted_at": one.facts["at"], **{name: one.facts.get(name) for name in ("operation", "reason")}}
        text = str(one.value.get(kind_of_file(one.file).text, ""))
        found.append({"id": one.id, "type": type_of(one.type), "session": one.session, "file": one.file,
                      "timestamp": one.value.get("timestamp"), **reason, "size_bytes": len(one.raw), "text": text})  # fmt: skip
    if call.as_json:
        out.print_json(found)
    elif not found:
        out.say("There are no evicted memories.")
    else:
        titles = "SESSION~ ID TYPE? WHEN? EVICTED SIZE> REASON:20 TEXT:20"
        out.print_table(titles, [
            (one["session"], one["id"], out.short_type(one["type"]), out.short_time(one["timestamp"]),
             out.short_time(one["evicted_at"]), out.short_size(one["size_bytes"]), one["reason"], one["text"])
            for one in found
        ])  # fmt: skip
        out.tell("smp compact SESSION --bring-back brings them back; first unarchive a session.")

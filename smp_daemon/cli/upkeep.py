"""Looking after a tree: its sessions and their archive, the passes, the daemon, and its health."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import smp_client
from smp_client.disk.home import new_home
from smp_client.model.layout import ARCHIVED
from smp_client.model.outcome import Outcome

from . import output as out
from .arguments import Call, command, find_id

if TYPE_CHECKING:
    from smp_client import Memory, Session
    from smp_client.index.status import Status
    from smp_client.index.sync import Request
    from smp_client.session import RecordFiles

EXIT_BY_HEALTH = {"ok": 0, "degraded": 1, "down": 2, "unknown": 3}
_INDEX = "The index cannot be used"  # so begin problems of the index
_FACTS = ("id", "state", "last_activity", "total_bytes", "quota_bytes", "utilization_pct", "level",
          "memories", "project", "topic")  # fmt: skip


@command("", "--all  Also archived and deleted ones.")
def sessions(call: Call) -> None:
    """List the sessions, the one that was used last first; reading is a use as well."""
    memory = call.memory()
    rows = _in_use(memory)
    if call.all:
        for one in memory.by_type("summary"):
            counts = one.data.get("memories")
            memories = sum(counts.values()) if isinstance(counts, dict) else None
            rows.append({**one.data, "id": one.session, "state": "archived", "memories": memories})
        rows += [{"id": one.session, "state": "deleted", "last_activity": one.at,
                  "total_bytes": sum(item.length for item in one.items)}
                 for one in memory.deleted_sessions()]  # fmt: skip
    shown = _FACTS if call.json else (*_FACTS, "full")
    found = [{name: row.get(name) for name in shown} for row in rows]
    columns = "id state last_activity total_bytes>? full>? memories> project? topic"
    call.table(columns, found, "There are no sessions.")


def _in_use(memory: Memory) -> list[dict[str, Any]]:
    """Return each session in use as a row, also where its metadata is unreadable or too new."""
    from smp_client.ask.overview import in_use
    from smp_client.disk.usage import level_of
    from smp_client.model.times import render_time

    rows: list[dict[str, Any]] = []
    for one in in_use(memory):
        row = {**vars(one), "last_activity": one.last_use and render_time(one.last_use)}
        if one.total_bytes is not None:
            quota = one.quota_bytes or memory.options.quota_bytes
            pct = 100 * one.total_bytes / quota
            row |= {
                "quota_bytes": quota,
                "utilization_pct": round(pct, 1),
                "level": level_of(pct),
                "full": f"{pct:.0f} %",
            }
        rows.append(row)
    return rows


@command("SESSION", "--reason WHY:activated  Why; it is written down.")
def activate(call: Call) -> None:
    """Mark SESSION as in use."""
    session = call.memory().session(call.session)
    session.activate(call.reason)
    call.print({"session": session.id, "state": "active"}, f"{session.id} is active")


@command("SESSION", "--reason WHY:deactivated  Why; it is written down.")
def deactivate(call: Call) -> None:
    """Mark SESSION as not in use, until the daemon sees its next use."""
    session = call.memory().session(call.session)
    session.deactivate(call.reason)
    call.print({"session": session.id, "state": "idle"}, f"{session.id} is idle")


@command(
    "[SESSION] --dry-run",
    "--due  Bring each session into the state that is due, as the daemon does.",
    "--reason WHY:archived  Why; it is written into the summary.",
)
def archive(call: Call) -> None:
    """Put SESSION into the archive, or all that are due; its memories are still found."""
    call.check(((call.session is None) != call.due, "Give a session, or --due; not both."))
    from smp_client.passes.lifecycle import lifecycle

    memory = call.memory()
    if call.due:
        call.finish(lifecycle(memory, dry_run=call.dry_run))
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
    call.finish(out.for_each(scopes, lambda one: decay_one(one, **how), **how))


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
        columns = "session id type? timestamp? evicted_at reason? text"
        call.table(columns, found, "There are no evicted memories.")
        return

    def do(one: Session) -> Outcome:
        if call.bring_back:
            return one.bring_back(call.id or None, **how)
        if call.all and call.reduce is None and one.size().level == "ok":
            return Outcome()
        return one.compact(reduction_pct=call.reduce, **how)

    call.finish(out.for_each(chosen, do, **how))


# Health.


@command("")
def init(call: Call) -> None:
    """Make a sessions tree for the project you are in; does no harm where there is one."""
    memory = smp_client.Memory(call.root)
    left: list[str] = []
    users = memory.root
    if memory.home is not None and memory.home.is_users:
        left = _sessions_of(memory, memory.home.name)
        memory = smp_client.Memory(new_home().root)  # on purpose: the project has none of its own
    memory.create()
    said = {"root": str(memory.root), "left_in_the_users_tree": left}
    call.print(said, f"{memory.root} is ready")
    if left:
        count = out.counted(len(left), "session")
        export = f"smp export {shlex.join(left)} --exact --root {shlex.quote(str(users))}"
        how = f"take over with {export} -o old.tar.gz and smp import old.tar.gz"
        out.tell(f"note: the user's tree keeps {count} of the project; {how}", err=True)


def _sessions_of(memory: smp_client.Memory, project: str | None) -> list[str]:
    """Return the sessions in use that name a project."""
    from smp_client.ask.overview import in_use
    from smp_client.index.validity import project_of

    named = project_of(project)
    return [row.id for row in in_use(memory) if named and project_of(row.project) == named]


@command(
    "",
    "--deep  Compare disk and index file by file.",
    "--prometheus  Print the metrics, as .smp/metrics.prom has them.",
)
def status(call: Call) -> None:
    """Report whether the daemon is well: exits 0 (ok), 1 (degraded), 2 (down) or 3 (unknown).

    A wrong call is unknown as well.
    """
    from smp_client.disk.place import Place
    from smp_client.index.status import read_status

    place = Place(call.root)
    found = read_status(place, deep=call.deep)
    if call.prometheus:
        from ..metrics import current

        out.say(current(place, found).rstrip("\n"))
        sys.exit(EXIT_BY_HEALTH[found.health])
    root, said, jobs = found.root, found.said, found.said.get("jobs", {})
    if call.json:
        names = ("pid", "version", "started_at", "heartbeat_at", "watching")
        out.print_json({"health": found.health, "problems": found.problems, "notes": found.notes,
                        **{name: said.get(name) for name in names},
                        "roots": [asdict(root)], "jobs": jobs})  # fmt: skip
        sys.exit(EXIT_BY_HEALTH[found.health])
    _print_status(found)
    sys.exit(EXIT_BY_HEALTH[found.health])


def _print_status(found: Status) -> None:
    """Print the health of a root for people."""
    from smp_client.index.status import NOT_INDEXED

    root = found.root
    said = found.said
    jobs = said.get("jobs", {})
    health = out.styled(found.health, out.HEALTH_STYLES[found.health])
    out.say(f"{health}  {out.one_line(str(root.path))}")
    for problem in found.problems:
        out.tell(f"  ! {problem}")
    for note in found.notes:
        out.tell(f"  - {note}")
    states = ", ".join(f"{count} {state}" for state, count in sorted(root.sessions.items()))
    lag = "" if root.lag_ms is None else f", {root.lag_ms} ms behind the disk"
    memories = out.counted(root.memories, "memory")
    out.tell(f"  sessions: {states or 'none'}; {memories} indexed{lag}")
    if root.sessions.get(NOT_INDEXED):
        out.tell("  smp sync indexes the sessions that are not indexed.")
    if said.get("pid") and found.health in ("ok", "degraded"):
        daemon = f"pid {said['pid']}, version {said.get('version')}, since {said.get('started_at')}"
        out.tell(f"  daemon: {daemon}, by {said.get('watching')}")
    for name, job in sorted(jobs.items()):
        last = f"last {job['last_success'] or 'never'}, next {job['next_run'] or 'when needed'}"
        failed = f", failed: {job['last_error']}" if job["last_error"] else ""
        out.tell(f"  {name}: {last}{failed}")


@command("", "--timeout SECONDS:30  How long to wait for the daemon.")
def sync(call: Call) -> None:
    """Wait until everything on disk is in the index."""
    from smp_client.change.latecomers import sweep
    from smp_client.index.sync import waiting_drops

    memory = smp_client.Memory(call.root)
    # Drops that came while their session moved are in its inbox first.
    problems = sweep(memory)
    done_by = _bring_up_to_date(call, "sync")
    for problem in problems:
        out.tell(problem, err=True)
    if done_by != "daemon" and (waits := waiting_drops(memory)):
        out.tell(waits, err=True)


@command("[SESSION]", "--timeout SECONDS:600  How long to wait for the daemon.")
def reindex(call: Call) -> None:
    """Rebuild the index from the files, and the files in indexes/; SESSION is only that one."""
    memory = call.memory()
    name = memory.session(call.session).id if call.session else None
    done_by = memory.rebuild_index(name, timeout_s=call.timeout)
    who = "by the daemon" if done_by == "daemon" else "here: no daemon is running"
    call.print({"request": "reindex", "done_by": done_by}, f"reindex done, {who}")


def _bring_up_to_date(call: Call, request: Request) -> str:
    from smp_client.index.sync import bring_up_to_date
    from smp_client.passes.vanished import settle_here

    memory = smp_client.Memory(call.root)
    done_by = bring_up_to_date(memory, request, call.timeout)
    settle_here(memory, is_believed=request == "reindex")
    who = "by the daemon" if done_by == "daemon" else "here: no daemon is running"
    call.print({"request": request, "done_by": done_by}, f"{request} done, {who}")
    return done_by


@command("[SESSION]", "--repair  Is smp doctor --fix now.")
def check(call: Call) -> None:
    """Read every file and name mistakes; exits 1 where there is one. SESSION is only that one."""
    from smp_client.passes.check import check as check_all
    from smp_client.passes.check import sentence

    call.check((call.repair, "To repair what can be repaired, run smp doctor --fix."))
    memory = call.memory()
    complaints = memory.session(call.session).validate() if call.session else check_all(memory)
    if call.json:
        out.print_json([asdict(complaint) for complaint in complaints])
    else:
        for item in complaints:
            out.tell(sentence(item))
        out.say(out.counted(len(complaints), "problem") if complaints else "everything can be read")
    sys.exit(1 if complaints else 0)


@command(
    "",
    "--fix  Do what needs no guessing: make missing directories, finish changes that a crash cut"
    " off, set broken records and metadata aside and bring back what is known of them, rebuild a"
    " damaged index, and quarantine pieces of .smp/ that SMP has not made.",
)
def doctor(call: Call) -> None:
    """Look for everything that is wrong and say what to do; exits 1 where something is."""
    done = _mended(call) if call.fix else []
    found = list(_wrong(call))
    if call.json:
        said = [{"area": area, "problem": problem} for area, problem in found]
        out.print_json({"ok": not found, "found": said, "done": done})
    else:
        for sentence in done:
            out.tell(f"mended: {sentence}")
        for area, problem in found:
            out.print_pairs({area: problem})
        if not found:
            out.say("Nothing is wrong.")
    sys.exit(1 if found else 0)


def _wrong(call: Call) -> Iterator[tuple[str, str]]:
    """Yield each problem, with the next step in its sentence, and the area that it is in."""
    from smp_client.disk.place import Place
    from smp_client.disk.usage import WARNING_PCT, size_notes
    from smp_client.index.status import read_status
    from smp_client.passes.check import check as check_all
    from smp_client.passes.check import sentence

    from ..config.file import BadConfiguration, load
    from ..service import unit
    from .host import service_place

    try:
        load()
    except BadConfiguration as error:
        for key, says in error.problems.items():
            place = ": ".join(filter(None, (str(error.file), key)))
            yield "settings", f"{place}: {says}. Edit it; smp config check reads it again."
        return  # no other command works with these settings
    status = read_status(Place(call.root))
    for problem in status.problems:
        yield "index" if problem.startswith(_INDEX) else "daemon", problem
    if status.health == "unknown":
        return
    memory = call.memory()
    for item in check_all(memory):
        yield "files", sentence(item)
    for _, pct, note in size_notes(memory.tree, memory.options.quota_bytes):
        if pct >= WARNING_PCT:
            yield "sessions", note
    where = service_place(system=False)
    content = unit.read(where)
    if content is not None and not unit.is_ours(content):
        yield "service", f"{where.path} is not from SMP. smp service install --force replaces it."


def _mended(call: Call) -> list[str]:
    """Mend what is safe, and return a sentence for each step."""
    from smp_client.disk.foreign import odd_locks
    from smp_client.disk.place import Place
    from smp_client.index.status import read_status
    from smp_client.index.sync import bring_up_to_date
    from smp_client.passes.tidy import clear_foreign, tidy
    from smp_client.passes.vanished import settle_here

    done: list[str] = []
    with suppress(smp_client.SMPError, OSError):  # the look afterwards names what stays wrong
        memory = call.memory()
        memory.create()
        locks = clear_foreign(memory, odd_locks(memory.tree))  # first: all that follows needs them
        problems = read_status(Place(memory.root)).problems
        if wrong := [problem for problem in problems if problem.startswith(_INDEX)]:
            bring_up_to_date(memory, "reindex", 600.0)
            done.append(f"reindex: {wrong[0]}")
        outcome = out.for_each(memory.sessions(), lambda one: one.repair(), dry_run=False)
        outcome.add(locks)
        outcome.add(tidy(memory))
        outcome.add(settle_here(memory))
        done += [f"{one.session} {one.type.replace('_', ' ')}: {one.reason}"
                 for one in outcome.actions]  # fmt: skip
    return done

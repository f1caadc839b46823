"""Whether all is well: `smp init`, `status`, `check`, `doctor`, `sync` and `reindex`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from . import output as out
from .arguments import Call, command

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.index.sync import Request
    from smp_client.model.outcome import Outcome

EXIT_BY_HEALTH = {"ok": 0, "degraded": 1, "down": 2, "unknown": 3}
_INDEX = ("There is no index", "The index cannot be used")  # so begin problems of the index


@command("")
def init(call: Call) -> None:
    """Make a sessions tree; does no harm where there is one."""
    from smp_client import Memory

    memory = Memory(call.root)
    memory.create()
    call.print({"root": str(memory.root)}, f"{memory.root} is ready")


@command("", "--deep  Compare disk and index file by file.")
def status(call: Call) -> None:
    """Report whether the daemon is well: exits 0 (ok), 1 (degraded), 2 (down) or 3 (unknown)."""
    from smp_client.disk.place import Place
    from smp_client.index.status import read_status

    found = read_status(Place(call.root), deep=call.deep)
    root, said, jobs = found.root, found.said, found.said.get("jobs", {})
    if call.json:
        names = ("pid", "version", "started_at", "heartbeat_at", "watching")
        out.print_json({"health": found.health, "problems": found.problems,
                        **{name: said.get(name) for name in names},
                        "roots": [asdict(root)], "jobs": jobs})  # fmt: skip
        sys.exit(EXIT_BY_HEALTH[found.health])
    colour = {"ok": "green", "degraded": "yellow"}.get(found.health, "red")
    out.say(f"{click.style(found.health, fg=colour, bold=True)}  {out.one_line(str(root.path))}")
    for problem in found.problems:
        out.tell(f"  ! {problem}")
    states = ", ".join(f"{count} {state}" for state, count in sorted(root.sessions.items()))
    lag = "" if root.lag_ms is None else f", {root.lag_ms} ms behind the disk"
    memories = out.counted(root.memories, "memory")
    out.tell(f"  sessions: {states or 'none'}; {memories} indexed{lag}")
    if said.get("pid") and found.health in ("ok", "degraded"):
        daemon = f"pid {said['pid']}, version {said.get('version')}, since {said.get('started_at')}"
        out.tell(f"  daemon: {daemon}, by {said.get('watching')}")
    for name, job in sorted(jobs.items()):
        last = f"last {job['last_success'] or 'never'}, next {job['next_run'] or 'when needed'}"
        failed = f", failed: {job['last_error']}" if job["last_error"] else ""
        out.tell(f"  {name}: {last}{failed}")
    sys.exit(EXIT_BY_HEALTH[found.health])


@command("", "--timeout SECONDS:30  How long to wait for the daemon.")
def sync(call: Call) -> None:
    """Wait until everything on disk is in the index."""
    _bring_up_to_date(call, "sync")


@command("", "--timeout SECONDS:600  How long to wait for the daemon.")
def reindex(call: Call) -> None:
    """Rebuild the index from the files."""
    _bring_up_to_date(call, "reindex")


def _bring_up_to_date(call: Call, request: Request) -> None:
    from smp_client import Memory
    from smp_client.index.sync import bring_up_to_date

    done_by = bring_up_to_date(Memory(call.root), request, call.timeout)
    who = "by the daemon" if done_by == "daemon" else "here: no daemon is running"
    call.print({"request": request, "done_by": done_by}, f"{request} done, {who}")


@command(
    "[SESSION] --dry-run",
    "--repair  Mend what needs no guessing: finish or set aside what a crash cut off, and"
    " make what is missing. The rest is named, and stays.",
)
def check(call: Call) -> None:
    """Read every file and name mistakes; exits 1 where there is one.

    With SESSION, only the files of that one. Without --repair nothing is changed.
    """
    from smp_client import SessionPutAway
    from smp_client.passes.check import check as check_all
    from smp_client.passes.check import check_bundles, sentence

    memory, session = call.memory(), call.session
    if call.repair:
        call.finish(_repaired(memory, session, dry_run=call.dry_run))
    try:
        complaints = memory.session(session).validate() if session else check_all(memory)
    except SessionPutAway as away:
        complaints = check_bundles(memory, away.session_id or str(session))
    if call.json:
        out.print_json([asdict(complaint) for complaint in complaints])
    else:
        for item in complaints:
            out.tell(sentence(item))
        out.say(out.counted(len(complaints), "problem") if complaints else "everything can be read")
    sys.exit(1 if complaints else 0)


def _repaired(memory: Memory, session: str | None, *, dry_run: bool) -> Outcome:
    """Repair one session, or all of them with their bundles and the leftovers of crashes."""
    from smp_client.model.layout import ARCHIVED, DELETED
    from smp_client.passes.check import check as check_all
    from smp_client.passes.check import describe_bundles, sentence
    from smp_client.passes.tidy import tidy

    sessions = memory.sessions() if session is None else [memory.session(session)]
    how = {"dry_run": dry_run}
    outcome = out.for_each(sessions, "repairing", lambda one: one.repair(**how), **how)
    if session is not None:
        return outcome
    known = {one.id for one in sessions}
    away = {name for place in (ARCHIVED, DELETED) for name in memory.tree.directories(place)}
    for name in sorted(away - known):
        outcome.actions += describe_bundles(memory, name, **how)
    if not dry_run:
        outcome.add(tidy(memory))
    # Quarantine is no problem, and the sessions have said theirs.
    further = [sentence(item) for item in check_all(memory)
               if item.scope not in known and not item.file.startswith("quarantine/")]  # fmt: skip
    outcome.problems += [problem for problem in further if problem not in outcome.problems]
    return outcome


@command(
    "",
    "--fix  Do what is safe: make missing directories, mend files as smp check --repair does,"
    " rebuild a damaged index.",
)
def doctor(call: Call) -> None:
    """Look for everything that is wrong and say what to do; exits 1 where something is.

    It looks at the settings, the daemon, the index, every file and the service.
    """
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
    from smp_client.index.status import read_status
    from smp_client.passes.check import check as check_all
    from smp_client.passes.check import sentence

    from ..config.file import BadConfiguration, load
    from ..service import service_file
    from .host import service_place

    try:
        load()
    except BadConfiguration as error:
        for one in error.problems:
            place = f"{error.file}, line {one.line or 1}"
            yield "settings", f"{place}: {one.says}. Edit it; smp config check reads it again."
        return  # no other command works with these settings
    status = read_status(Place(call.root))
    for problem in status.problems:
        yield "index" if problem.startswith(_INDEX) else "daemon", problem
    if status.health == "unknown":
        return
    for item in check_all(call.memory()):
        yield "files", sentence(item)
    where = service_place(system=False)
    if service_file.state(where) is service_file.State.EDITED:
        advice = "smp service install --force writes it anew."
        yield "service", f"{where.path} was edited, or is not from SMP. {advice}"


def _mended(call: Call) -> list[str]:
    """Mend what is safe, and return a sentence for each step."""
    from smp_client import SMPError
    from smp_client.disk.place import Place
    from smp_client.index.status import read_status
    from smp_client.index.sync import bring_up_to_date

    done: list[str] = []
    with suppress(SMPError, OSError):  # the look afterwards names what stays wrong
        memory = call.memory()
        memory.create()
        problems = read_status(Place(memory.root)).problems
        if wrong := [problem for problem in problems if problem.startswith(_INDEX)]:
            bring_up_to_date(memory, "reindex", 600.0)
            done.append(f"reindex: {wrong[0]}")
        actions = _repaired(memory, None, dry_run=False).actions
        done += [f"{one.session} {one.type.replace('_', ' ')}: {one.reason}" for one in actions]
    return done

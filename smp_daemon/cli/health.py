"""Whether all is well: `smp init`, `status`, `check`, `doctor`, `sync` and `reindex`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from . import output as out
from .arguments import Call, command
from .progress import for_each, progress

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.index.status import Status
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


# Status.


@command("", "--deep  Compare disk and index file by file.")
def status(call: Call) -> None:
    """Report whether the daemon is well: exits 0 (ok), 1 (degraded), 2 (down) or 3 (unknown)."""
    from smp_client.disk.place import Place
    from smp_client.index.status import read_status

    found = read_status(Place(call.root), deep=call.deep)
    names = ("pid", "version", "started_at", "heartbeat_at", "watching")
    if call.json:
        out.print_json({"health": found.health, "problems": found.problems,
                    **{name: found.said.get(name) for name in names},
                    "roots": [asdict(found.root)], "jobs": found.said.get("jobs", {})})  # fmt: skip
    else:
        _print_status(found)
    sys.exit(EXIT_BY_HEALTH[found.health])


def _print_status(found: Status) -> None:
    root, said = found.root, found.said
    colour = {"ok": "green", "degraded": "yellow"}.get(found.health, "red")
    out.say(f"{out.styled(found.health, fg=colour, bold=True)}  {out.short_path(root.path)}")
    for problem in found.problems:
        out.tell(f"  ! {problem}", indent=4)
    states = ", ".join(f"{count} {state}" for state, count in sorted(root.sessions.items()))
    lag = "" if root.lag_ms is None else f", {root.lag_ms} ms behind the disk"
    memories = out.counted(root.memories, "memory")
    out.tell(f"  sessions: {states or 'none'}; {memories} indexed{lag}", indent=4)
    if said.get("pid") and found.health in ("ok", "degraded"):
        names = {"pid": "pid", "version": "version", "since": "started_at", "by": "watching"}
        told = ", ".join(f"{name} {said.get(key)}" for name, key in names.items())
        out.tell(f"  daemon: {told}", indent=4)
    for name, job in sorted(said.get("jobs", {}).items()):
        next_run = "" if found.health == "down" else f", next {job['next_run'] or 'when needed'}"
        failed = f", failed: {job['last_error']}" if job["last_error"] else ""
        did = job["did"] if isinstance(job["did"], dict) else {}
        skipped = f", skipped: {did['skipped']}" if "skipped" in did else ""
        last = f"last {job['last_success'] or 'never'}{skipped}"
        out.tell(f"  {name}: {last}{next_run}{failed}", indent=4)


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

    def waits(leader: str) -> None:
        told = f"waiting for the daemon ({leader}), at most {call.timeout:g} s"
        out.tell(f"{told}; smp status says how it is.", err=True)

    done_by = bring_up_to_date(Memory(call.root), request, call.timeout, waits)
    who = "by the daemon" if done_by == "daemon" else "here: no daemon is running"
    call.print({"request": request, "done_by": done_by}, f"{request} done, {who}")


# Checking and repairing.


@command(
    "[SESSION]",
    "--repair  Mend what needs no guessing: finish or set aside what a crash cut off, and"
    " make what is missing. The rest is named, and stays.",
    "--dry-run",
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
        call.finish(_repaired(memory, call.session, dry_run=call.dry_run))
    with progress("reading everything" if session is None else f"reading {session}"):
        try:
            complaints = memory.session(session).validate() if session else check_all(memory)
        except SessionPutAway as away:
            complaints = check_bundles(memory, away.session_id or str(session))
    if call.json:
        out.print_json([asdict(complaint) for complaint in complaints])
    else:
        for item in complaints:
            out.tell(sentence(item), indent=4)
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
    outcome = for_each(sessions, "repairing", lambda one: one.repair(**how), **how)
    if session is not None:
        return outcome
    known = {one.id for one in sessions}
    away = {name for place in (ARCHIVED, DELETED) for name in memory.tree.directories(place)}
    with progress("reading everything"):
        for name in sorted(away - known):
            outcome.actions += describe_bundles(memory, name, **how)
        if not dry_run:
            outcome.add(tidy(memory))
        # Quarantine is no problem, and the sessions have said theirs.
        further = [
            sentence(item)
            for item in check_all(memory)
            if item.scope not in known and not item.file.startswith("quarantine/")
        ]
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
    from smp_client.model.outcome import Outcome

    done = Outcome()
    with progress("looking at everything"):
        if call.fix:
            done = _mended(call)
        found = list(_wrong(call))
    if call.json:
        said = [{"area": area, "problem": problem} for area, problem in found]
        out.print_json({"ok": not found, "found": said, "done": out.outcome_json(done)["actions"]})
    else:
        for action in done.actions:
            out.tell(f"mended: {action.session} {action.type.replace('_', ' ')}: {action.reason}")
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

    from ..config.file import BadConfiguration, read
    from ..service import service_file
    from .host import service_place

    try:
        read()
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


def _mended(call: Call) -> Outcome:
    from smp_client import SMPError
    from smp_client.disk.place import Place
    from smp_client.index.status import read_status
    from smp_client.index.sync import bring_up_to_date
    from smp_client.model.outcome import Action, Outcome

    outcome = Outcome()
    with suppress(SMPError, OSError):  # the look afterwards names what stays wrong
        memory = call.memory()
        memory.create()
        status = read_status(Place(memory.root))
        problems = [problem for problem in status.problems if problem.startswith(_INDEX)]
        if problems:
            bring_up_to_date(memory, "reindex", 600.0)
            outcome.actions.append(Action("", "reindex", (), problems[0]))
        outcome.add(_repaired(memory, None, dry_run=False))
    return outcome

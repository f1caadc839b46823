"""Whether all is well: `smp init`, `status`, `check`, `doctor`, `sync` and `reindex`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .arguments import Call, flag, option, session_argument, takes
from .output import (
    counted,
    finish,
    outcome_json,
    print_json,
    print_pairs,
    say,
    short_path,
    short_size,
    tell,
)
from .progress import for_each, progress

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.model.outcome import Outcome
    from smp_client.passes.check import Complaint
    from smp_client.status import Status
    from smp_client.sync import Request

# The exit codes of `smp status`. A usage error is "cannot tell": a typing error is no outage.
EXIT_BY_HEALTH = {"ok": 0, "degraded": 1, "down": 2, "unknown": 3}
_INDEX = ("There is no index", "The index cannot be used")  # so begin problems that reindexing mends


class _CannotTell(click.UsageError):
    exit_code = EXIT_BY_HEALTH["unknown"]


class _UsageIsUnknown(click.Command):
    """A command whose usage errors exit with 3."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise _CannotTell(error.message, error.ctx) from error


@click.command()
@takes()
def init(call: Call) -> None:
    """Make a sessions tree; does no harm where there is one."""
    from smp_client import Memory

    memory = Memory(call.root)
    memory.create()
    if call.as_json:
        print_json({"root": str(memory.root)})
    else:
        say(f"{memory.root} is ready")


# Status.


@click.command(cls=_UsageIsUnknown)
@flag("--deep", "Compare disk and index file by file.")
@takes()
def status(call: Call, deep: bool) -> None:
    """Report whether the daemon is well: exits 0 (ok), 1 (degraded), 2 (down) or 3 (cannot tell)."""
    from smp_client.place import Place
    from smp_client.status import read_status

    found = read_status(Place(call.root), deep=deep)
    names = ("pid", "version", "started_at", "heartbeat_at", "watching")
    if call.as_json:
        print_json({"health": found.health, "problems": found.problems,
                    **{name: found.said.get(name) for name in names},
                    "roots": [asdict(found.root)], "jobs": found.said.get("jobs", {})})  # fmt: skip
    else:
        _print_status(found)
    sys.exit(EXIT_BY_HEALTH[found.health])


def _print_status(found: Status) -> None:
    root, said = found.root, found.said
    colour = {"ok": "green", "degraded": "yellow"}.get(found.health, "red")
    click.echo(click.style(found.health, fg=colour, bold=True) + f"  {short_path(root.path)}")
    for problem in found.problems:
        tell(f"  ! {problem}", indent=4)
    states = ", ".join(f"{count} {state}" for state, count in sorted(root.sessions.items())) or "none"
    lag = "" if root.lag_ms is None else f", {root.lag_ms} ms behind the disk"
    tell(f"  sessions: {states}; {counted(root.memories, 'memory')} indexed{lag}", indent=4)
    if said.get("pid") and found.health in ("ok", "degraded"):
        tell(f"  daemon: pid {said['pid']}, version {said.get('version')}, since {said.get('started_at')},"
             f" by {said.get('watching')}", indent=4)  # fmt: skip
    for name, job in sorted(said.get("jobs", {}).items()):
        next_run = "" if found.health == "down" else f", next {job['next_run'] or 'when needed'}"
        failed = f", failed: {job['last_error']}" if job["last_error"] else ""
        tell(f"  {name}: last {job['last_success'] or 'never'}{_did(job)}{next_run}{failed}", indent=4)


def _did(job: dict[str, Any]) -> str:
    """Return what a job did, in its own words where it has any, else in numbers."""
    did = job["did"] if isinstance(job["did"], dict) else {}
    if "skipped" in did:
        return f", skipped: {did['skipped']}"
    counts = [f"{name.replace('_', ' ')} {short_size(count) if name.startswith('bytes') else f'{count:,}'}"
              for name, count in did.items() if type(count) is int and count]  # fmt: skip
    if isinstance(did.get("did"), list):
        counts = [*map(str, did["did"])]
    took = job["duration_ms"]
    if not isinstance(took, (int, float)):
        return ""
    return f" ({', '.join(counts) or 'nothing to do'} in {took} ms)"


@click.command()
@option("--timeout", "Seconds to wait for the daemon.",
        to="timeout_s", default=30.0, show_default=True)  # fmt: skip
@takes()
def sync(call: Call, timeout_s: float) -> None:
    """Wait until everything on disk is in the index."""
    _bring_up_to_date(call, "sync", timeout_s)


@click.command()
@option("--timeout", "Seconds to wait for the daemon.",
        to="timeout_s", default=600.0, show_default=True)  # fmt: skip
@takes()
def reindex(call: Call, timeout_s: float) -> None:
    """Rebuild the index from the files."""
    _bring_up_to_date(call, "reindex", timeout_s)


def _bring_up_to_date(call: Call, request: Request, timeout_s: float) -> None:
    from smp_client import Memory
    from smp_client.sync import bring_up_to_date

    def waits(leader: str) -> None:
        tell(f"waiting for the daemon ({leader}), at most {timeout_s:g} s; smp status says how it is.", err=True)

    done_by = bring_up_to_date(Memory(call.root), request, timeout_s, waits)
    if call.as_json:
        print_json({"request": request, "done_by": done_by})
    else:
        say(f"{request} done, {'by the daemon' if done_by == 'daemon' else 'here: no daemon is running'}")


# Checking and repairing.


@click.command()
@session_argument(required=False)
@flag("--repair", "Mend what needs no guessing: finish or set aside what a crash cut off, and"
      " make what is missing. The rest is named, and stays.")  # fmt: skip
@takes("dry_run")
def check(call: Call, session: str | None, repair: bool) -> None:
    """Read every file and name mistakes; exits 1 where there is one.

    With SESSION, only the files of that one. Without --repair nothing is changed.
    """
    from smp_client.passes.check import sentence

    memory = call.memory()
    if repair:
        finish(_repaired(memory, session, dry_run=call.dry_run), as_json=call.as_json)
    with progress("reading everything" if session is None else f"reading {session}"):
        complaints = _complaints(memory, session)
    if call.as_json:
        print_json([asdict(complaint) for complaint in complaints])
    else:
        for item in complaints:
            tell(sentence(item), indent=4)
        say(counted(len(complaints), "problem") if complaints else "everything can be read")
    sys.exit(1 if complaints else 0)


def _complaints(memory: Memory, session: str | None) -> list[Complaint]:
    from smp_client import SessionPutAway
    from smp_client.passes.check import check as check_all
    from smp_client.passes.check import check_bundles

    if session is None:
        return check_all(memory)
    try:
        return memory.session(session).validate()
    except SessionPutAway as away:
        return check_bundles(memory, away.session_id or session)


def _repaired(memory: Memory, session: str | None, *, dry_run: bool) -> Outcome:
    """Repair one session, or all of them with their bundles and the leftovers of crashes."""
    from smp_client.layout import ARCHIVED, DELETED
    from smp_client.model.outcome import Action
    from smp_client.passes.check import check as check_all
    from smp_client.passes.check import describe_bundles, sentence
    from smp_client.tidy import tidy

    sessions = memory.sessions() if session is None else [memory.session(session)]
    outcome = for_each(sessions, "repairing", lambda one: one.repair(dry_run=dry_run), dry_run=dry_run)
    if session is not None:
        return outcome
    known = {one.id for one in sessions}
    with progress("reading everything"):
        for name in sorted({name for place in (ARCHIVED, DELETED) for name in memory.tree.directories(place)} - known):
            outcome.actions += describe_bundles(memory, name, dry_run=dry_run)
        for one in [] if dry_run else tidy(memory):
            if one.problem is None:
                outcome.actions.append(Action(one.scope, "tidy", (one.scope,) if one.scope else (), one.what))
            else:
                outcome.problems.append(": ".join(part for part in (one.scope, one.what, one.problem) if part))
        # Quarantine is no problem, and the sessions have said theirs.
        further = [sentence(item) for item in check_all(memory)
                   if item.scope not in known and not item.file.startswith("quarantine/")]  # fmt: skip
        outcome.problems += [problem for problem in further if problem not in outcome.problems]
    return outcome


@click.command()
@flag("--fix", "Do what is safe: make missing directories, mend files as smp check --repair does,"
      " rebuild a damaged index.")  # fmt: skip
@takes()
def doctor(call: Call, fix: bool) -> None:
    """Look for everything that is wrong and say what to do; exits 1 where something is.

    It looks at the settings, the daemon, the index, every file and the service.
    """
    from smp_client.model.outcome import Outcome

    done = Outcome()
    with progress("looking at everything"):
        if fix:
            done = _mended(call)
        found = list(_wrong(call))
    if call.as_json:
        said = [{"area": area, "problem": problem} for area, problem in found]
        print_json({"ok": not found, "found": said, "done": outcome_json(done)["actions"]})
    else:
        for action in done.actions:
            tell(f"mended: {action.session} {action.type.replace('_', ' ')}: {action.reason}")
        for area, problem in found:
            print_pairs({area: problem})
        if not found:
            say("Nothing is wrong.")
    sys.exit(1 if found else 0)


def _wrong(call: Call) -> Iterator[tuple[str, str]]:
    """Yield each problem, with the next step in its sentence, and the area that it is in."""
    from smp_client.passes.check import sentence
    from smp_client.place import Place
    from smp_client.status import read_status

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
    for item in _complaints(call.memory(), None):
        yield "files", sentence(item)
    where = service_place(system=False)
    if service_file.state(where) is service_file.State.EDITED:
        yield "service", f"{where.path} was edited, or is not from SMP. smp service install --force writes it anew."


def _mended(call: Call) -> Outcome:
    from smp_client import SMPError
    from smp_client.model.outcome import Action, Outcome
    from smp_client.place import Place
    from smp_client.status import read_status
    from smp_client.sync import bring_up_to_date

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

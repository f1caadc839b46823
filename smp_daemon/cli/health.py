"""How it is doing, and making sure of it: status, sync, reindex, check."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .arguments import json_option, open_memory, root_option, session_argument
from .outcome import dry_run_option, finish
from .output import one_line, print_json, say, short_path, short_size, tell
from .progress import progress

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.passes.check import Complaint

# What `smp status` exits with, by health; usage errors are "cannot tell", so that a typing error is never an outage.
EXIT_BY_HEALTH = {"ok": 0, "degraded": 1, "down": 2, "unknown": 3}

# What a job says that it has done, of one and of many.
_DONE = {
    "sessions": ("session", "sessions"),
    "memories": ("memory", "memories"),
    "outdated": ("file outdated", "files outdated"),
    "tidied": ("thing tidied", "things tidied"),
    "become_active": ("became active", "became active"),
    "become_idle": ("became idle", "became idle"),
    "become_decaying": ("became decaying", "became decaying"),
    "archive": ("archived", "archived"),
    "refresh_priorities": ("refreshed", "refreshed"),
    "delete_old": ("lot too old and deleted", "lots too old and deleted"),
    "purge_session": ("session purged", "sessions purged"),
    "purge_memories": ("lot of memories purged", "lots of memories purged"),
}


class _CannotTell(click.UsageError):
    exit_code = EXIT_BY_HEALTH["unknown"]


class _UsageIsUnknown(click.Command):
    """A command whose usage errors exit with 3."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise _CannotTell(error.message, error.ctx) from error


@click.command(cls=_UsageIsUnknown)
@root_option
@click.option("--deep", is_flag=True, help="Compare disk and index file by file.")
@json_option
def status(root: str | None, deep: bool, as_json: bool) -> None:
    """Whether the daemon is well: exits 0 (ok), 1 (degraded), 2 (down) or 3 (cannot tell)."""
    from smp_client.place import Place
    from smp_client.status import read_status

    found = read_status(Place(root), deep=deep)
    said = {key: found.said.get(key) for key in ("pid", "version", "started_at", "heartbeat_at", "watching")}
    if as_json:
        click.echo(json.dumps({"health": found.health, "problems": found.problems, **said, "roots": [asdict(found.root)],
                               "jobs": found.said.get("jobs", {})}, indent=1))  # fmt: skip
    else:
        _print_status(found, said)
    sys.exit(EXIT_BY_HEALTH[found.health])


def _print_status(found: Any, said: dict[str, Any]) -> None:
    colour = {"ok": "green", "degraded": "yellow"}.get(found.health, "red")
    click.echo(click.style(found.health, fg=colour, bold=True) + f"  {short_path(found.root.path)}")
    for problem in found.problems:
        tell(f"  ! {one_line(problem)}", indent=4)
    states = ", ".join(f"{count} {state}" for state, count in sorted(found.root.sessions.items())) or "none"
    lag = "" if found.root.lag_ms is None else f", {found.root.lag_ms} ms behind the disk"
    memories = f"{found.root.memories:,} memor{'y' if found.root.memories == 1 else 'ies'}"
    tell(f"  sessions: {states}; {memories} indexed{lag}", indent=4)
    if said["pid"] and found.health in ("ok", "degraded"):
        tell(f"  daemon: pid {said['pid']}, version {said['version']}, since {said['started_at']}, by {said['watching']}",
             indent=4)  # fmt: skip
    for name, job in sorted(found.said.get("jobs", {}).items()):
        next_run = "" if found.health == "down" else f", next {job['next_run'] or 'when needed'}"
        tell(f"  {name}: last {job['last_success'] or 'never'}{_took(job)}{next_run}"
             + (f", failed: {job['last_error']}" if job["last_error"] else ""), indent=4)  # fmt: skip


def _took(job: dict[str, Any]) -> str:
    """How long it took and what it did, in a few words; whatever else stands in the file, which anybody can write, is left out."""
    did = job["did"] if isinstance(job["did"], dict) else {}
    counts = [_counted(key, value) for key, value in did.items() if type(value) is int and value]
    told = did.get("did")
    if isinstance(told, list) and told:
        counts = [one_line(str(what)) for what in told]
    took = f" in {job['duration_ms']} ms" if isinstance(job["duration_ms"], (int, float)) else ""
    if "skipped" in did:
        return f", skipped: {did['skipped']}"
    return f" ({', '.join(counts) or 'nothing to do'}{took})" if took else ""


def _counted(key: str, count: int) -> str:
    if key == "bytes_freed":
        return f"{short_size(abs(count))} {'freed' if count > 0 else 'more'}"
    one, many = _DONE.get(key, (None, None))
    return f"{count:,} {one if count == 1 else many}" if one else f"{count:,} × {one_line(key.replace('_', ' '))}"


@click.command()
@root_option
@click.option("--timeout", "timeout_s", default=30.0, show_default=True, help="Seconds to wait for the daemon.")
@json_option
def sync(root: str | None, timeout_s: float, as_json: bool) -> None:
    """Wait until all that is on disk now is in the index."""
    _bring_up_to_date(root, "sync", timeout_s, as_json)


@click.command()
@root_option
@click.option("--timeout", "timeout_s", default=600.0, show_default=True, help="Seconds to wait for the daemon.")
@json_option
def reindex(root: str | None, timeout_s: float, as_json: bool) -> None:
    """Build the index anew from the files."""
    _bring_up_to_date(root, "reindex", timeout_s, as_json)


def _bring_up_to_date(root: str | None, request: Any, timeout_s: float, as_json: bool) -> None:
    from smp_client import Memory
    from smp_client.sync import bring_up_to_date

    def waits(leader: str) -> None:
        say = f"waiting for the daemon ({leader}), which has not answered yet; at most {timeout_s:g} s. smp status says how it is."
        click.echo(say, err=True)

    done_by = bring_up_to_date(Memory(root), request, timeout_s, waits)
    sentence = f"{request} done, {'by the daemon' if done_by == 'daemon' else 'here: no daemon is running'}"
    click.echo(json.dumps({"request": request, "done_by": done_by}) if as_json else sentence)


@click.command()
@session_argument(required=False)
@click.option("--repair", is_flag=True, help="Put right what can be without guessing: finish or set aside what a crash cut off, and"
              " make what is missing. The rest is named, and stays as it is.")  # fmt: skip
@root_option
@dry_run_option
@json_option
def check(session: str | None, repair: bool, root: str | None, dry_run: bool, as_json: bool) -> None:
    """Read every file and say what is wrong with it; exits 1 where something is.

    With SESSION, only what belongs to that one. Without --repair nothing is changed.
    """
    memory = open_memory(root)
    if repair:
        from .repair import repaired

        finish(repaired(memory, session, dry_run=dry_run), as_json=as_json)
    from smp_client.passes.check import sentence

    with progress("reading everything" if session is None else f"reading {session}"):
        complaints = _complaints(memory, session)
    if as_json:
        print_json([asdict(complaint) for complaint in complaints])
    else:
        for item in complaints:
            tell(one_line(sentence(item)), indent=4)
        count = f"{len(complaints):,} problem{'' if len(complaints) == 1 else 's'}"
        say(count if complaints else "everything can be read")
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


@click.command()
@root_option
@json_option
def init(root: str | None, as_json: bool) -> None:
    """Make a sessions tree; does no harm where there is one."""
    from smp_client import Memory

    memory = Memory(root)
    memory.create()
    click.echo(json.dumps({"root": str(memory.root)}) if as_json else f"{memory.root} is ready")

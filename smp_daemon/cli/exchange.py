"""Memories out of a tree and into one: `smp export` and `smp import`."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from smp_client.model.layout import DELETED

from . import output as out
from .arguments import (
    KEPT,
    Call,
    What,
    check_usage,
    complete_memory_id,
    completing,
    find_id,
    flag,
    option,
    selecting_options,
    takes,
    what_is_meant,
)
from .privacy import configuration, given_names, naming_options, say_what_it_leaves
from .progress import progress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smp_client import Memory
    from smp_client.exchange.entry import Wanted

FORMATS = ("yaml", "json", "jsonl", "markdown")
LAYOUTS = ("jsonl", "jsonl-per-kind", "jsonl-checked")
READ = ("smp", *LAYOUTS, "markdown-log")
_STANDARD = "-"  # stdin, or stdout
_STDOUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")  # redirected, a file that exists already


@click.command(epilog="""\b
smp export latest -o session.md
smp export latest --type decision --since "last 7 days" -o decisions.yaml
smp export --all --format jsonl | gzip > everything.jsonl.gz
smp export --all --exact -o everything.tar.gz
smp export --all --layout jsonl-per-kind -o for-others""")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...", shell_complete=completing(*KEPT))
@option("--id", "Of one session, only this memory; repeat it for several.",
        to="ids", multiple=True, metavar="ID", shell_complete=complete_memory_id)  # fmt: skip
@flag("--all", "Every session, archived ones too, and what holds everywhere.", to="everything")
@option("--format", "Else the ending of FILE says it, else yaml.",
        type=click.Choice((*FORMATS, "md", "yml")))  # fmt: skip
@flag("--exact", "A bundle (tar.gz) of the files themselves.")
@option("--layout", "Into a folder FILE, as another program keeps its memories.",
        type=click.Choice(LAYOUTS))  # fmt: skip
@click.option("-o", "--output", metavar="FILE", default=_STANDARD, help="Where to; else stdout.")
@flag("--force", "Overwrite FILE; a folder only if it is an export, as it was written.")
@flag("--deleted", "Name deleted memories, so that an import deletes them too.")
@selecting_options
@flag("--anonymize", "With placeholders in the place of names; see smp anonymize.", to="anonymous")
@naming_options
@takes()
def export(
    call: Call, sessions: tuple[str, ...], everything: bool, format: str | None, exact: bool,
    layout: str | None, output: str, force: bool, deleted: bool, ids: tuple[str, ...],
    anonymous: bool, names: tuple[str, ...], names_file: str | None, projects: tuple[str, ...],
    keep: str | None, **conditions: Any,
) -> None:  # fmt: skip
    """Write sessions, or everything, into one file; smp import takes it in again.

    SESSION may be archived, or global for what holds everywhere. With --id, or with conditions,
    which must all hold, only these memories. The file holds all that the sessions hold, so keep it
    as safe as they are. With --layout it is a folder that other programs read: jsonl, a file per
    session; jsonl-per-kind, a file per kind; jsonl-checked, a log with checksums.
    """
    output = _STANDARD if output in _STDOUT else output
    meant = what_is_meant(ids, conditions)
    check_usage(
        (bool(sessions) == everything, "Say which: one or more sessions, or --all for everything."),
        (call.as_json and output == _STANDARD, "--json goes with -o FILE."),
        (bool(layout and (format or exact)), "--format and --exact do not go with --layout."),
        (bool(layout and output == _STANDARD), "--layout goes with -o DIRECTORY."),
        (bool(exact and (format or anonymous or not meant.is_whole)),
         "--exact holds whole files: it goes with no --format, no condition and no --anonymize."),
        (bool(not anonymous and (names or names_file or projects or keep)),
         "--name, --names-file, --project and --keep go with --anonymize."),
        (bool(meant.ids and len(sessions) != 1), "--id is about one session: give it."),
    )  # fmt: skip
    memory = call.memory()
    chosen = None if everything else [_named(memory, name, deleted=deleted) for name in sessions]
    known: dict[str, Any] = {"names": given_names(names, names_file), "projects": projects}
    changed = None
    if anonymous:
        changed = memory.anonymous_export(chosen, **known, config=configuration(keep))
    total = len(chosen or (*memory._sessions(), *memory.archived_sessions()))
    target: str | IO[bytes] = sys.stdout.buffer if output == _STANDARD else output
    with progress("exporting", total) as advance:
        shared: dict[str, Any] = {"transform": changed, "overwrite": force, "advance": advance,
                                  "wanted": _selected(memory, meant)}  # fmt: skip
        if layout:
            done = memory.export_layout(output, chosen, layout=layout, **shared)
        else:
            shared |= {"format": format, "exact": exact, "deleted": deleted}
            done = memory.export(target, chosen, **shared)
    done.problems += changed.problems if changed else []
    if output == _STANDARD:
        sys.stdout.flush()
    elif call.as_json:
        said = {"file": str(Path(output).absolute()), **out.outcome_json(done)}
        if changed:
            said |= {"replaced": changed.counts(), "cannot_find": changed.cannot_find}
        out.print_json(said)
    else:
        counts = done.counts
        parts = f"{counts['files']:,} files" if exact else f"{counts['entries']:,} entries"
        size = out.short_size(counts["bytes"])
        out.tell(f"{out.counted(counts['sessions'], 'session')} as {parts}, {size}, in {output}")
    if not call.as_json:
        if changed:
            say_what_it_leaves(changed.agents, changed.cannot_find)
        out.print_problems(done)
    sys.exit(1 if done.problems else 0)


def _selected(memory: Memory, meant: What) -> Wanted | None:
    """Return whether a memory is meant, by its session, file, type and fields."""
    from smp_client.change.places import is_record_file
    from smp_client.change.select import Selection, chosen

    if meant.is_whole:
        return None
    selection = Selection(meant.ids or None, **meant.conditions)
    selection.check()
    known: dict[str, set[tuple[str, str]]] = {}

    def is_wanted(name: str, file: str, _type: str, value: Mapping[str, Any]) -> bool:
        if name not in known:
            found = chosen(memory, name, selection)
            known[name] = {(one.file, "" if one.is_file else one.id) for one in found}
        return (file, str(value.get("id")) if is_record_file(file) else "") in known[name]

    return is_wanted


def _named(memory: Memory, name: str, *, deleted: bool) -> str:
    """Return the id of a session, or `global`; with `deleted`, also of a deleted session."""
    if deleted and memory.tree.is_directory(f"{DELETED}/{name}"):
        return name
    return find_id(memory, name, *KEPT, *([DELETED] if deleted else []))


@click.command("import", epilog="""\b
smp import session.md --dry-run
smp import everything.jsonl.gz
smp import ~/shop --migrate
smp import ~/shop --verify
smp import chat.txt --as markdown-log""")
@click.argument("path", metavar="PATH", type=click.Path(exists=True, allow_dash=True))
@option("--as", "Only this layout; else everything that is found.",
        to="layout", type=click.Choice(READ))  # fmt: skip
@flag("--migrate", "With a backup before it, and priorities and a comparison after it.")
@flag("--verify", "Only compare: counts, and the ids that are missing or differ.")
@flag("--replace", "Same id, other content: take theirs; else ours stays.")
@flag("--no-extract", "Leave decisions, findings and preferences that logs mark in the turns"
      " alone.")  # fmt: skip
@flag("--purged", "Also memories that were purged here; else they stay away.")
@takes("dry_run")
def import_(
    call: Call, path: str, layout: str | None, migrate: bool, verify: bool, replace: bool,
    no_extract: bool, purged: bool,
) -> None:  # fmt: skip
    """Take in an export, other layouts or conversation logs.

    PATH may be a project; - is an export on stdin. A memory that is in the tree stays as it is, so
    an import may be repeated, also after it was cut off. Same id and other content: ours stays and
    the id is listed. A line that cannot be read is reported, and the rest is taken in. Secrets are
    redacted.
    """
    from smp_client import Memory
    from smp_client.exchange.intake import Request
    from smp_client.exchange.layouts.recognition import Search
    from smp_client.exchange.transfer import migrate as migrated

    dry_run = call.dry_run
    check_usage(
        (migrate and verify, "--migrate compares both sides itself; give it, or --verify."),
        (migrate and dry_run, "--migrate writes a backup first; --dry-run goes alone."),
        (path == _STANDARD and (layout not in (None, "smp") or migrate or verify),
         "stdin can only be an export, which is imported; give a file or a folder."),
    )  # fmt: skip
    memory = Memory(call.root)
    memory.require_room()  # before a backup is made beside it
    gc.disable()  # no entry refers to itself, and to look for such costs a fifth of the time
    how: dict[str, Any] = {"replace": replace, "dry_run": dry_run, "purged": purged}
    if path == _STANDARD:
        with progress("importing stdin") as advance:
            done = memory.import_(sys.stdin.buffer, **how, advance=advance)
        call.finish(done, nothing="There is nothing in it.")
    search = Search(path, layout, extract=not no_extract)
    if not call.as_json:
        for one in search.found:
            out.tell(f"found {one.layout} ({out.listed(one.reasons, 3)})")
    # A person sees how far it is; counting the lines costs a script nothing.
    total = sum(one.lines() for one in search.found) if sys.stderr and sys.stderr.isatty() else None
    with progress(f"{'comparing' if verify else 'importing'} {Path(path).name}", total) as advance:
        if verify:
            done = memory.verify_import(search.found, advance=advance)
        elif migrate:
            request = Request(replace, purged, by="user", advance=advance)
            done = migrated(memory, search.found, request)
        else:
            done = memory.import_(search.found, **how, advance=advance)
    done.notes += search.notes
    found = [{"layout": one.layout, "path": str(one.source.path), "files": one.files,
              "reasons": one.reasons} for one in search.found]  # fmt: skip
    call.finish(done, nothing="There is nothing to import.", found=found)

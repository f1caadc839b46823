"""Memories out of a tree and into one: `smp export` and `smp import`."""

from __future__ import annotations

import gc
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import click

from smp_client.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL

from . import importing
from .anonymity import configuration, given_names, naming_options, say_what_it_leaves
from .arguments import complete_memory_id, completing, find_id, json_option, open_memory, root_option
from .conditions import What, selecting_options, what_is_meant
from .outcome import dry_run_option
from .output import Column, one_line, print_json, print_table, say, short_size, tell
from .progress import progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from smp_client import Memory
    from smp_client.exchange.importing import Imported
    from smp_client.exchange.layouts import Found
    from smp_client.exchange.reading import Wanted
    from smp_client.exchange.transfer import Exported
    from smp_client.exchange.verifying import Verified

FORMATS = ("yaml", "json", "jsonl", "markdown")
LAYOUTS = ("jsonl", "jsonl-per-kind", "jsonl-checked")
_STANDARD = "-"  # stdin, or stdout
_STDOUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")  # where it is redirected, a file that is there already
_NAMED = 20


@click.command(epilog="""\b
smp export latest -o session.md
smp export latest --type decision --since "last 7 days" -o decisions.yaml
smp export --all --format jsonl | gzip > everything.jsonl.gz
smp export session-2026-01-11-abc123 global --deleted -o mine.json
smp export --all --layout jsonl-per-kind -o for-others""")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...", shell_complete=completing(ACTIVE, ARCHIVED, GLOBAL))
@click.option("--id", "ids", multiple=True, metavar="ID", shell_complete=complete_memory_id,
              help="Of one session, only this memory; repeat it for several.")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Every session, archived ones too, and what holds everywhere.")
@click.option("--format", type=click.Choice((*FORMATS, "md", "yml")), help="Else what the ending of FILE says, else yaml.")
@click.option("--layout", type=click.Choice(LAYOUTS), help="Into a folder FILE, as another program keeps its memories.")
@click.option("-o", "--output", metavar="FILE", default=_STANDARD, help="Where to; else stdout. It appears when it is whole.")
@click.option("--force", is_flag=True, help="Overwrite FILE; a folder only if it is an export, as it was written.")
@click.option("--deleted", is_flag=True, help="Also what was deleted and can still be restored.")
@selecting_options
@click.option("--anonymize", "anonymous", is_flag=True, help="With placeholders in the place of names; see smp anonymize.")
@naming_options
@root_option
@json_option
def export(
    sessions: tuple[str, ...], everything: bool, format: str | None, layout: str | None, output: str, force: bool, deleted: bool,
    ids: tuple[str, ...], anonymous: bool, names: tuple[str, ...], names_file: str | None, projects: tuple[str, ...],
    keep: str | None, root: str | None, as_json: bool, **conditions: Any,
) -> None:  # fmt: skip
    """Write sessions, or everything, into one file that can be imported again.

    SESSION may be archived, or global for what holds everywhere. With --id, or with conditions, which must all hold, only these
    memories. The file holds all that the sessions hold, so keep it as safe as they are; smp import takes it in again, into an empty
    tree as an equal one. With --layout it is a folder that other programs read: jsonl, a file per session; jsonl-per-kind, a file
    per kind; jsonl-checked, a log with checksums.
    """
    if not sessions and not everything:
        raise click.UsageError("Say which: one or more sessions, or --all for everything.")
    if sessions and everything:
        raise click.UsageError("--all is everything: give it, or sessions, not both.")
    output = _STANDARD if output in _STDOUT else output
    if as_json and output == _STANDARD:
        raise click.UsageError("--json goes with -o FILE: stdout is the export itself.")
    _check_layout(layout, format, output, deleted=deleted)
    if anonymous and deleted:
        raise click.UsageError("--deleted does not go with --anonymize: what was deleted is packed as it was.")
    if not anonymous and (names or names_file or projects or keep):
        raise click.UsageError("--name, --names-file, --project and --keep go with --anonymize.")
    meant = what_is_meant(ids, conditions)
    if meant.ids and len(sessions) != 1:
        raise click.UsageError("--id is about one session: give it.")
    if deleted and not meant.is_whole:
        raise click.UsageError("--deleted goes with whole sessions: what was deleted is packed as it was.")
    memory = open_memory(root)
    wanted = None if everything else [_named(memory, name, deleted=deleted) for name in sessions]
    changed = memory.anonymous_export(wanted, names=given_names(names, names_file), projects=projects,
                                      config=configuration(keep)) if anonymous else None  # fmt: skip
    total = len(wanted) if wanted is not None else len(memory._sessions()) + len(memory.archived_sessions())
    target: str | IO[bytes] = sys.stdout.buffer if output == _STANDARD else output
    selected = _selected(memory, meant)
    with progress("exporting", total) as advance:
        if layout:
            done: Exported = memory.export_layout(output, wanted, layout=layout, transform=changed, overwrite=force,
                                                  advance=advance, wanted=selected)  # fmt: skip
        else:
            done = memory.export(target, wanted, format=format, deleted=deleted, transform=changed, overwrite=force,
                                 advance=advance, wanted=selected)  # fmt: skip
    done.problems += changed.problems if changed else []
    if output == _STANDARD:
        sys.stdout.flush()
    elif as_json:
        replaced = {"replaced": changed.counts(), "cannot_find": changed.cannot_find} if changed else {}
        print_json({"file": str(Path(output).absolute()), **asdict(done), **replaced})
    else:
        what = f"{len(done.sessions):,} session{'' if len(done.sessions) == 1 else 's'}"
        say(one_line(f"{what} as {done.entries:,} entries of {done.format}, {short_size(done.bytes)}, in {output}"))
    if changed and not as_json:
        say_what_it_leaves(changed.agents, changed.cannot_find)
    for what in () if as_json else getattr(done, "left_out", ()):
        click.echo(one_line(f"note: {layout} has no place for {what}"), err=True)
    _finish(done.problems, as_json=as_json)


def _check_layout(layout: str | None, format: str | None, output: str, *, deleted: bool) -> None:
    if layout and format:
        raise click.UsageError("--format is for our own exports: give it, or --layout.")
    if layout and output == _STANDARD:
        raise click.UsageError("--layout goes with -o DIRECTORY.")
    if layout and deleted:
        raise click.UsageError("--deleted does not go with --layout: others are told that something was deleted, and not what.")


def _selected(memory: Memory, meant: What) -> Wanted | None:
    """Whether a memory is meant: by its session, file, type and fields. Each session is selected from once."""
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
    """Return the id of a session in its place or in the archive, or `global`; with `deleted`, also one of
    which only deleted memories are left."""
    if deleted and memory.tree.is_directory(f"{DELETED}/{name}"):
        return name
    return find_id(memory, name, ACTIVE, ARCHIVED, *([DELETED] if deleted else []), GLOBAL)


@click.command("import", epilog="""\b
smp import session.md --dry-run
smp import everything.jsonl.gz
smp import ~/shop --migrate
smp import ~/shop --verify
smp import chat.txt --as markdown-log""")
@click.argument("path", metavar="PATH", type=click.Path(exists=True, allow_dash=True))
@click.option("--as", "layout", type=click.Choice(importing.LAYOUTS), help="Only what is in this layout; else all that is found.")
@click.option("--migrate", is_flag=True, help="With a backup before, and priorities and a comparison of both sides behind.")
@click.option("--verify", is_flag=True, help="Only compare: whether all of PATH is here and says the same. Changes nothing.")
@click.option("--no-extract", is_flag=True, help="Leave decisions, findings and preferences that logs mark in the turns alone.")
@click.option("--purged", is_flag=True, help="Also what was purged here; else that stays away.")
@root_option
@dry_run_option
@json_option
def import_(
    path: str, layout: str | None, migrate: bool, verify: bool, no_extract: bool, purged: bool, root: str | None, dry_run: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Take in an export, or memories in other layouts and conversation logs.

    PATH may be a project; - is an export on stdin. Whatever is found there is taken in. What is there already is left as it is: an
    import may be repeated, also after it was cut off. A memory whose id another one has gets a new id, and keeps the old one as
    imported_id. What cannot be read is told with its line, and everything else is taken in. Secrets are taken out, unless it is an
    export of SMP.
    """
    if migrate and verify:
        raise click.UsageError("--migrate compares both sides itself; give it, or --verify.")
    memory = _memory(root)
    if path == _STANDARD:
        if layout not in (None, "smp") or migrate or verify:
            raise click.UsageError("stdin can only be an export, which is imported; give a file or a folder.")
        with progress("importing stdin") as advance:
            done = memory.import_(sys.stdin.buffer, dry_run=dry_run, advance=advance, purged=purged)
        _end(done, [], {}, as_json=as_json)
    gc.disable()  # no entry refers to itself, and to look for what does costs a fifth of the time
    found = importing.look(path, layout, extract=not no_extract)
    said: dict[str, Any] = {"found": importing.found_json(found)}
    if not as_json:
        importing.say_found(found)
    if verify:
        _end_verified(importing.verify(memory, found), said, as_json=as_json)
    backup = importing.back_up(memory, found) if migrate and not dry_run else None
    if migrate and not as_json:
        importing.say_backup(memory, found, backup)
    with progress(f"importing {Path(path).name}", importing.entries_in(found)) as advance:
        done = memory.import_(found, dry_run=dry_run, advance=advance, purged=purged)
    said["found"] = importing.found_json(found)
    if backup is None:
        _end(done, found, said, as_json=as_json)
    decayed = importing.set_priorities(memory, done)
    verified = importing.verify(memory, found)
    reasons = importing.in_the_way(memory, found, done, verified)
    if as_json:
        kept = {**asdict(backup), "path": str(backup.path), "earlier": [str(place) for place in backup.earlier]}
        print_json({**said, "backup": kept, "imported": asdict(done), "decayed": decayed,
                    "verified": importing.verified_json(verified), "in_the_way": reasons})  # fmt: skip
    else:
        _print(done, found)
        say(f"priorities set in {decayed:,} session{'' if decayed == 1 else 's'}")
        importing.say_verified(verified)
        importing.say_what_is_left(backup, reasons)
    told = "\n".join(done.problems)
    _finish([*done.problems, *(one for one in importing.problems_of(verified) if one not in told)], as_json=as_json)


def _end(done: Imported, found: Sequence[Found], said: dict[str, Any], *, as_json: bool) -> NoReturn:
    if as_json:
        print_json({**asdict(done), **said})
    else:
        _print(done, found)
    _finish(done.problems, as_json=as_json)


def _end_verified(done: Verified, said: dict[str, Any], *, as_json: bool) -> NoReturn:
    if as_json:
        print_json({**said, "verified": importing.verified_json(done)})
    else:
        importing.say_verified(done)
        importing.say_notes(done)
    _finish(importing.problems_of(done), as_json=as_json)


def _memory(root: str | None) -> Memory:
    """Also one that is made by importing into it."""
    from smp_client import Memory

    memory = Memory(root)
    memory.require_room()  # before a backup is made beside it
    return memory


def _print(done: Imported, found: Sequence[Found]) -> None:
    changed = {name: [(old, new) for new, old in done.mapped.get(name, {}).items()] + list(done.renamed.get(name, {}).items())
               for name in done.sessions}  # fmt: skip
    places = importing.places_of(found)
    columns = [Column("SESSION", ends=True), Column("BECAME"), Column("NEW IDS", right=True)]
    rows: list[Sequence[object]] = [(name, became, len(changed[name]) or None) for name, became in done.sessions.items()]
    if len(places) > 1:
        columns.append(Column("FROM", least=20))
        rows = [(*row, ", ".join(places.get(str(row[0]), ()))) for row in rows]
    if rows:
        print_table(columns, rows)
    for session, pairs in changed.items():
        more = f" and {len(pairs) - _NAMED:,} more" if len(pairs) > _NAMED else ""
        if pairs:
            say(one_line(f"{session}: {', '.join(f'{old} is {new}' for old, new in pairs[:_NAMED])}{more}"))
    would = "would be " if done.dry_run else ""
    end = "; nothing was changed" if done.dry_run else ""
    further = f", {done.deleted:,} more as deleted" if done.deleted else ""
    further += f", {done.changed:,} {would}changed" if done.changed else ""
    say(f"{done.added:,} memor{'y' if done.added == 1 else 'ies'} {would}added{further}, {done.skipped:,} there already{end}")
    if done.redacted:
        kinds = (f"{count:,} × {kind.replace('_', ' ')}" for kind, count in done.redacted.items())
        say(f"secrets taken out of what was read: {', '.join(kinds)}")
    for note in done.notes:
        tell(one_line(f"note: {note}"), err=True)


def _finish(problems: list[str], *, as_json: bool) -> NoReturn:
    for problem in () if as_json else problems:
        tell(f"smp: {one_line(problem)}", err=True)
    sys.exit(1 if problems else 0)

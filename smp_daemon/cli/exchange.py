"""Memories out of a tree and into one: `smp export` and `smp import`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import click

from .anonymizing import configuration, given_names, naming_options, say_what_it_leaves
from .arguments import LATEST, complete_session, find_session, json_option, only_one, open_memory, root_option
from .conditions import What, selecting_options, what_is_meant
from .outcome import dry_run_option
from .output import Column, one_line, print_json, print_table, say, short_size
from .progress import progress

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.exchange.importing import Imported
    from smp_client.exchange.reading import Wanted

FORMATS = ("yaml", "json", "jsonl", "markdown")
_STANDARD = "-"  # stdin, or stdout
_NAMED = 20


@click.command(epilog="""\b
smp export latest -o session.md
smp export latest --type decision --since "last 7 days" -o decisions.yaml
smp export --all --format jsonl | gzip > everything.jsonl.gz
smp export session-2026-01-11-abc123 global --deleted -o mine.json""")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...", shell_complete=complete_session)
@click.option("--all", "everything", is_flag=True, help="Every session, archived ones too, and what holds everywhere.")
@click.option("--format", type=click.Choice(FORMATS), help="Else what the ending of FILE says, else yaml.")
@click.option("-o", "--output", metavar="FILE", default=_STANDARD, help="Where to; else stdout. It appears when it is whole.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--deleted", is_flag=True, help="Also what was deleted and can still be restored.")
@selecting_options
@click.option("--anonymize", "anonymous", is_flag=True, help="With placeholders in the place of names; see smp anonymize.")
@naming_options
@root_option
@json_option
def export(
    sessions: tuple[str, ...], everything: bool, format: str | None, output: str, force: bool, deleted: bool, ids: tuple[str, ...],
    anonymous: bool, names: tuple[str, ...], names_file: str | None, projects: tuple[str, ...], keep: str | None, root: str | None,
    as_json: bool, **conditions: Any,
) -> None:  # fmt: skip
    """Write sessions, or everything, into one file that can be imported again.

    SESSION may be archived, or global for what holds everywhere. With --id, or with conditions, which must all hold, only these
    memories. The file holds all that the sessions hold, so keep it as safe as they are; smp import takes it in again, into an empty
    tree as an equal one.
    """
    if bool(sessions) == everything:
        raise click.UsageError("Give one or more sessions, or --all; not both.")
    if as_json and output == _STANDARD:
        raise click.UsageError("--json goes with -o FILE: stdout is the export itself.")
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
    total = len(wanted) if wanted is not None else len(memory.sessions()) + len(memory.archived_sessions())
    target: str | IO[bytes] = sys.stdout.buffer if output == _STANDARD else output
    with progress("exporting", total) as advance:
        done = memory.export(target, wanted, format=format, deleted=deleted, transform=changed, overwrite=force, advance=advance,
                             wanted=_selected(memory, meant))  # fmt: skip
    done.problems += changed.problems if changed else []
    if output == _STANDARD:
        sys.stdout.flush()
    elif as_json:
        replaced = {"replaced": changed.counts(), "cannot_find": changed.cannot_find} if changed else {}
        print_json({"file": str(Path(output).absolute()), **asdict(done), **replaced})
    else:
        what = f"{len(done.sessions):,} session{'' if len(done.sessions) == 1 else 's'}"
        say(one_line(f"{what} as {done.entries:,} entries, {short_size(done.bytes)}, in {output}"))
    if changed and not as_json:
        say_what_it_leaves(changed.agents, changed.cannot_find)
    _finish(done.problems, as_json=as_json)


def _selected(memory: Memory, meant: What) -> Wanted | None:
    from smp_client.privacy.selection import Selection, wanted_by

    return None if meant.is_whole else wanted_by(memory, Selection(meant.ids or None, **meant.conditions))


def _named(memory: Memory, name: str, *, deleted: bool) -> str:
    """The id of a session in its place or in the archive; `global` is what holds everywhere."""
    if name == "global":
        return name
    if name == LATEST:
        return find_session(memory, name).id
    from smp_client.layout import DELETED

    known = [session.id for session in memory.sessions()] + [one.session for one in memory.archived_sessions()]
    if deleted:
        known += [one for one in memory.tree.list(DELETED) if one not in known and memory.tree.is_directory(f"{DELETED}/{one}")]
    return name if name in known else only_one(memory, name, known)


@click.command("import", epilog="""\b
smp import session.md --dry-run
zcat everything.jsonl.gz | smp import -""")
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@root_option
@dry_run_option
@json_option
def import_(path: str, root: str | None, dry_run: bool, as_json: bool) -> None:
    """Take in what smp export has written, in any of its formats; - reads stdin.

    What is there already is left as it is: an import may be repeated, also after it was cut off. A memory whose id another one has
    gets a new id, and keeps the old one as imported_id. What cannot be read is told with its line, and everything else is taken in.
    """
    memory = _memory(root)
    source: str | IO[bytes] = sys.stdin.buffer if path == _STANDARD else path
    with progress(f"importing {'stdin' if path == _STANDARD else Path(path).name}", _entries(path)) as advance:
        done = memory.import_(source, dry_run=dry_run, advance=advance)
    if as_json:
        print_json(asdict(done))
    else:
        _print(done)
    _finish(done.problems, as_json=as_json)


def _memory(root: str | None) -> Memory:
    """Also one that is made by importing into it."""
    from smp_client import Memory

    return Memory(root)


def _entries(path: str) -> int | None:
    """About how many there will be, where each is a line: for how far it is."""
    if path == _STANDARD or not path.endswith((".jsonl", ".ndjson", ".json")) or sys.stderr is None or not sys.stderr.isatty():
        return None
    with Path(path).open("rb") as opened:
        return sum(piece.count(b"\n") for piece in iter(lambda: opened.read(1 << 20), b""))


def _print(done: Imported) -> None:
    rows = [(name, became, len(done.renamed.get(name, {})) or None) for name, became in done.sessions.items()]
    if rows:
        print_table([Column("SESSION", keeps=True), Column("BECAME"), Column("NEW IDS", right=True)], rows)
    for session, renamed in done.renamed.items():
        listed = [f"{old} is {new}" for old, new in list(renamed.items())[:_NAMED]]
        more = f" and {len(renamed) - _NAMED:,} more" if len(renamed) > _NAMED else ""
        say(one_line(f"{session}: {', '.join(listed)}{more}"))
    would = "would be " if done.dry_run else ""
    end = "; nothing was changed" if done.dry_run else ""
    say(f"{done.added:,} memor{'y' if done.added == 1 else 'ies'} {would}added, {done.skipped:,} there already{end}")
    for note in done.notes:
        click.echo(one_line(note), err=True)


def _finish(problems: list[str], *, as_json: bool) -> NoReturn:
    for problem in () if as_json else problems:
        click.echo(f"smp: {one_line(problem)}", err=True)
    sys.exit(1 if problems else 0)

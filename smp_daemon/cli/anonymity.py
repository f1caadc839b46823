"""Placeholders in the place of names: `smp anonymize`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from smp_client.layout import ACTIVE, ARCHIVED, GLOBAL

from .arguments import find_id, json_option, memories_argument, open_memory, root_option
from .nearby import suggesting_ids
from .outcome import asks, by_option, confirm, dry_run_option, reason_option, yes_option
from .output import Column, one_line, print_json, print_table, say, tell
from .progress import progress

if TYPE_CHECKING:
    from smp_client.privacy.anonymise import Anonymized
    from smp_client.privacy.placeholder import Anonymization

_NAMED = 10


def naming_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Whom an anonymisation is to know, beside those that the memory names itself; and what it leaves."""
    options = (
        click.option("--name", "names", multiple=True, metavar="NAME", help="Somebody who is to be replaced; repeat it."),
        click.option("--names-file", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="Names, one in each line."),
        click.option("--project", "projects", multiple=True, metavar="NAME", help="A project; repeat it for several."),
        click.option("--keep", metavar="WHAT,…", help=f"What is not replaced: {', '.join(_kinds())}."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _kinds() -> tuple[str, ...]:
    return ("user_names", "project_names", "file_paths", "contacts", "addresses", "accounts", "secrets")


def given_names(names: Sequence[str], names_file: str | None) -> list[str]:
    """Those of the command line and those of the file; `#` begins a comment there."""
    lines = Path(names_file).read_text("utf-8").splitlines() if names_file else []
    return [*names, *(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))]


def configuration(keep: str | None) -> Anonymization:
    from smp_client.privacy.placeholder import Anonymization

    return Anonymization.keeping(part.strip() for part in (keep or "").split(",") if part.strip())


@click.command(epilog="""\b
smp anonymize latest --dry-run
smp anonymize latest --name "Anna Berg" --project Apollo
smp anonymize latest DEC-001 --keep file_paths,addresses
smp anonymize session-2026-01-11-abc123 --names-file staff.txt --now""")
@memories_argument(ACTIVE, ARCHIVED, GLOBAL)
@naming_options
@click.option("--now", "is_now", is_flag=True, help="Erase what was there at once; else smp restore --batch brings it back.")
@reason_option("Why; it is kept with what was replaced.", default="anonymised")
@by_option
@yes_option
@root_option
@dry_run_option
@json_option
def anonymize(
    session: str, ids: tuple[str, ...], names: tuple[str, ...], names_file: str | None, projects: tuple[str, ...], keep: str | None,
    is_now: bool, reason: str, by: str, yes: bool, root: str | None, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Replace names in SESSION, or in memories of it, by placeholders.

    User names, project names, file paths, e-mail addresses, phone and card numbers, IP addresses, IBANs and secrets; the same one
    always by the same placeholder. Known are the names in the metadata, in the user's profile, of whoever spoke, and those given.
    """
    config, known = configuration(keep), given_names(names, names_file)
    memory = open_memory(root)
    found = find_id(memory, session, ACTIVE, ARCHIVED, GLOBAL)

    def do(dry_run: bool) -> Anonymized:
        with suggesting_ids(memory, found, ids):
            return memory.anonymize(found, ids or None, names=known, projects=projects, config=config, reason=reason, by=by,
                                    dry_run=dry_run, now=is_now)  # fmt: skip

    if not dry_run and asks(yes=yes) and ((plan := do(True)).actions or (is_now and plan.earlier)):
        confirm(_question(plan, is_now=is_now, days=memory.options.retention.deleted_days), yes=yes)
    with progress("anonymising"):
        done = do(dry_run)
    if as_json:
        plain = asdict(replace(done, counts=Counter()))  # which cannot copy one that is not empty
        print_json({**plain, "counts": done.counts, "memories": done.ids})
    else:
        _print(done, f"{memory.options.retention.deleted_days:g} days")
    sys.exit(1 if done.problems else 0)


def _question(plan: Anonymized, *, is_now: bool, days: float) -> str:
    what = f"{sum(plan.counts.values()):,} places in {len(plan.ids):,} memories of {plan.session}"
    after = "What was there is erased: nothing brings it back." if is_now else f"For {days:g} days smp restore brings it back."
    if not plan.actions:
        return f"Erase what {plan.session} was before earlier anonymisations? {after}"
    earlier = " What earlier anonymisations left for a restore goes too." if is_now and plan.earlier else ""
    return f"Replace {what}? {after}{earlier}"


def _print(done: Anonymized, days: str) -> None:
    if done.replacements:
        columns = [Column("PLACEHOLDER"), Column("PLACES", right=True), Column("KIND")]
        rows: list[tuple[object, ...]] = [(one.placeholder, one.count, one.kind.replace("_", " ")) for one in done.replacements]
        if done.dry_run:
            columns.append(Column("STANDS FOR", least=20))
            rows = [(*row, one.what) for row, one in zip(rows, done.replacements, strict=True)]
        print_table(columns, rows)
    count = len(done.ids)
    would = "would be " if done.dry_run else ""
    say(f"{count:,} memor{'y' if count == 1 else 'ies'} {would}changed" + ("; nothing was changed" if done.dry_run else ""))
    if done.batch:
        tell(one_line(f"For {days} smp restore --batch {done.batch} brings back what was there."))
    if done.earlier:
        tell(one_line(_of_earlier(done)))
    if done.actions:
        say_what_it_leaves(done.agents, done.cannot_find)
    for note in done.notes:
        tell(f"note: {one_line(note)}", err=True)
    for problem in done.problems:
        tell(f"smp: {one_line(problem)}", err=True)


def _of_earlier(done: Anonymized) -> str:
    what = "What was there before earlier anonymisations"
    if done.erased:
        return f"{what} is erased."
    purging = "; ".join(f"smp purge --batch {batch} --now" for batch in done.earlier[:_NAMED])
    return f"{what} can still be restored. --now erases it, or {purging}."


def say_what_it_leaves(agents: Sequence[str], cannot_find: Sequence[str]) -> None:
    """On stderr: a person who passes it on must know."""
    if agents:
        listed = ", ".join(agents[:_NAMED]) + (" and more" if len(agents) > _NAMED else "")
        tell(f"note: taken for agents, and kept: {one_line(listed)}. Give a person among them with --name.", err=True)
    click.echo("note: not looked for, or not found:", err=True)
    for sentence in cannot_find:
        tell(f"  - {sentence}", err=True)

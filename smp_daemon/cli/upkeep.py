"""What the daemon does by the clock, by hand: `smp decay` and `smp compact`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from smp_client.layout import ACTIVE, GLOBAL

from .arguments import find_scope, json_option, memories_argument, open_memory, root_option, session_argument
from .outcome import dry_run_option, finish, for_each
from .progress import each

if TYPE_CHECKING:
    from smp_client import Memory, Session
    from smp_client.model.outcome import Outcome
    from smp_client.passes.compaction import Evicted
    from smp_client.session import RecordFiles


@click.command()
@session_argument(ACTIVE, GLOBAL, required=False)
@root_option
@dry_run_option
@json_option
def decay(session: str | None, root: str | None, dry_run: bool, as_json: bool) -> None:
    """Write the priorities as of now into the files of SESSION, or everywhere."""
    from smp_client.passes.decay import decay as decay_one

    memory = open_memory(root)
    scopes: list[RecordFiles] = [find_scope(memory, session)] if session else [memory.everywhere, *memory.sessions()]
    finish(for_each(scopes, "decaying", lambda one: decay_one(one, dry_run=dry_run), dry_run=dry_run), as_json=as_json)


def _share(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 < value <= 100:
        raise click.BadParameter(f"{value:g} is not more than 0 and at most 100.")
    return value


@click.command(epilog="""\b
smp compact latest --dry-run
smp compact latest --reduce 30
smp compact latest turn-12 --bring-back""")
@memories_argument(ACTIVE, required=False)
@click.option("--all", "is_all", is_flag=True, help="Every session that is nearly full; with --reduce, every session.")
@click.option("--reduce", "reduce_pct", type=float, metavar="PCT", callback=_share,
              help="By how many percent of its size; else 20, or as configured.")  # fmt: skip
@click.option("--estimate", "is_estimate", is_flag=True, help="Only say how much could be freed at most.")
@click.option("--list", "is_list", is_flag=True, help="Only say what was taken out before and can be brought back.")
@click.option("--bring-back", "is_back", is_flag=True, help="Put what was taken out, or only ID..., back into its place.")
@root_option
@dry_run_option
@json_option
def compact(
    session: str | None, is_all: bool, reduce_pct: float | None, is_estimate: bool, is_list: bool, is_back: bool,
    ids: tuple[str, ...], root: str | None, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Make SESSION smaller; what is taken out can be brought back."""
    if (session is None) != is_all:
        raise click.UsageError("Give a session, or --all; not both.")
    if is_estimate + is_list + is_back + (reduce_pct is not None) > 1:
        raise click.UsageError("Give only one of --reduce, --estimate, --list and --bring-back.")
    if ids and (is_all or not is_back):
        raise click.UsageError("Ids go with --bring-back, of one session.")
    memory = open_memory(root)
    sessions = memory.sessions() if session is None else [memory.session(session)]
    if is_estimate:
        _print_estimates(sessions, is_all=is_all, as_json=as_json)
    elif is_list:
        archived = [one.session for one in memory.archived_sessions()] if is_all else []
        from smp_client.passes.compaction import evicted_of

        names = [*(one.id for one in sessions), *archived]
        found = [one for name in names for one in evicted_of(memory, name, texts=True)]
        _print_evicted(found, archived, as_json=as_json)
    elif is_back:
        back = for_each(sessions, "bringing back", lambda one: one.bring_back(ids or None, dry_run=dry_run), dry_run=dry_run)
        finish(back, as_json=as_json)
    else:
        _compact(memory, sessions, reduce_pct, only_if_due=is_all and reduce_pct is None, dry_run=dry_run, as_json=as_json)


def _compact(
    memory: Memory, sessions: Sequence[Session], reduce_pct: float | None, *, only_if_due: bool, dry_run: bool, as_json: bool
) -> None:
    def do(session: Session) -> Outcome:
        from smp_client.model.outcome import Outcome

        share = _due_pct(memory, session) if only_if_due else reduce_pct
        return Outcome() if only_if_due and share is None else session.compact(reduction_pct=share, dry_run=dry_run)

    outcome = for_each(sessions, "compacting", do, dry_run=dry_run)
    again = f"smp compact {sessions[0].id} --bring-back puts it back." if len(sessions) == 1 else ""
    sums: dict[str, Any] = {name: outcome.counts[name] for name in ("target_bytes", "before_bytes", "after_bytes", "bytes_freed")}
    finish(outcome, as_json=as_json, note=again, success=outcome.success, **sums)


def _due_pct(memory: Memory, session: Session) -> float | None:
    """By how much the daemon would make it smaller now. Asked for by hand, it need not be automatic, unless the session says no."""
    from smp_client import SMPError
    from smp_client.passes.compaction import growth_bytes_per_day, trigger

    policy = replace(memory.options.compaction, automatic=True)
    with suppress(SMPError):  # a slip in the metadata does not keep a full session from becoming smaller
        policy = policy.for_session(session.metadata())
    due = trigger(session.size(), growth_bytes_per_day(session), policy)
    return due[0] if due else None


def _print_estimates(sessions: Sequence[Session], *, is_all: bool, as_json: bool) -> None:
    from .output import Column, print_json, print_table, short_size

    with each(sessions, "estimating") as them:
        found: list[dict[str, Any]] = [
            {"session": session.id, "total_bytes": session.size().total_bytes, "estimate_bytes": session.estimate_compaction()}
            for session in them
        ]
    if as_json:
        print_json(found if is_all else found[0])
    else:
        columns = [Column("SESSION", ends=True), Column("SIZE", right=True), Column("COULD BE FREED", right=True)]
        print_table(columns, [(one["session"], short_size(one["total_bytes"]), short_size(one["estimate_bytes"])) for one in found])


def _print_evicted(found: Sequence[Evicted], archived: Collection[str], *, as_json: bool) -> None:
    from .output import Column, print_json, print_table, say, short_size, short_time, tell
    from .read import short_type

    if as_json:
        print_json([asdict(one) for one in found])
    elif not found:
        say("Compaction has taken nothing out that is not back.")
    else:
        columns = [Column("SESSION", ends=True), Column("ID"), Column("TYPE", spare=True), Column("WHEN", spare=True),
                   Column("TAKEN OUT"), Column("SIZE", right=True), Column("REASON", least=20),
                   Column("TEXT", least=20)]  # fmt: skip
        print_table(columns, [
            (one.session, one.id, short_type(one.type), short_time(one.timestamp), short_time(one.evicted_at),
             short_size(one.size_bytes), one.reason, one.text) for one in found
        ])  # fmt: skip
        for name in sorted({one.session for one in found} & set(archived)):
            tell(f"What was taken out of {name} can be brought back after smp unarchive {name}.")

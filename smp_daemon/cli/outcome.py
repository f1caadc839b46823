"""What a pass came to, as every command that makes one says it: each action with its reason, a total, and the problems."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from .output import Column, on_terminal, one_line, print_json, print_table, say, short_size, tell
from .progress import each

if TYPE_CHECKING:
    from smp_client.model.outcome import Action, Outcome
    from smp_client.session import RecordFiles

_NAMED = 5
_Files = TypeVar("_Files", bound="RecordFiles")


def _account() -> str:
    from smp_client.audit import account

    return account()


by_option = click.option("--by", metavar="WHO", default=_account, show_default="your account",
                         help="Who does it, for the audit log.",
                         callback=lambda ctx, param, value: in_words(ctx, param, value))  # fmt: skip
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done and why; changes nothing.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask. Only a terminal is asked: a script goes ahead without it.")


def reason_option(help: str, *, default: str | None = None, shown: str = "", required: bool = False) -> Callable[[Any], Any]:
    given = {} if default is None else {"default": default}  # a default of None would count as given
    return click.option("--reason", show_default=shown or default is not None, required=required, help=help, callback=in_words,
                        **given)  # type: ignore[arg-type]  # fmt: skip


def in_words(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("it must be said in words.")
    if value is None:
        return None
    from smp_client.privacy.redact import harmless

    return harmless(value)  # as it is stored, so that it is shown as that


def finish(
    outcome: Outcome, *, as_json: bool, note: str = "", nothing: str = "There is nothing to do.", **further: Any
) -> NoReturn:
    """Prints it, as JSON with what there is to say further, and ends with 1 where something could not be done."""
    if as_json:
        print_json({**outcome_json(outcome), **further})
    else:
        _print(outcome, note, nothing)
    sys.exit(1 if outcome.problems else 0)


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "dry_run": outcome.dry_run,
        "actions": [action_json(action) for action in outcome.actions],
        "problems": outcome.problems,
        "notes": outcome.notes,
        "bytes_freed": outcome.bytes_freed,
        "counts": dict(outcome.counts),
    }


def action_json(action: Action) -> dict[str, Any]:
    """What every action says, whatever else the pass needs to know of its own."""
    said = asdict(action)
    every = ("session", "type", "about", "reason", "bytes_freed", "batch", "place")
    return {name: said[name] if said[name] != "" else None for name in every if name in said}


def asks(*, yes: bool) -> bool:
    """Whether a person is there to be asked."""
    return not yes and sys.stdin is not None and sys.stdin.isatty()


def confirm(question: str, *, yes: bool, what_stays: str = "Nothing was changed.") -> None:
    """Asks a person, on stderr, since stdout may lead elsewhere; ends the command where the answer is not yes."""
    if not asks(yes=yes):
        return
    if not click.confirm(one_line(question), err=True):
        click.echo(what_stays, err=True)
        sys.exit(1)


def merged(whole: Outcome, part: Outcome) -> None:
    """Adds what came of one to what came of all."""
    whole.actions += part.actions
    whole.problems += part.problems
    whole.notes += part.notes


def for_each(files: Sequence[_Files], label: str, do: Callable[[_Files], Outcome], *, dry_run: bool) -> Outcome:
    """The same for many; one that fails stops no other."""
    from smp_client import SessionNotFound, SMPError
    from smp_client.model.outcome import Outcome

    whole = Outcome(dry_run=dry_run)
    with each(files, label) as them:
        for one in them:
            try:
                outcome = do(one)
            except (SMPError, OSError) as error:
                if len(files) == 1:
                    raise
                if not isinstance(error, SessionNotFound):  # it went meanwhile
                    whole.problems.append(f"{one.scope.name}: {error}")
                continue
            whole.actions += outcome.actions
            whole.notes += outcome.notes if len(files) == 1 else [_of(one.scope.name, said) for said in outcome.notes]
            whole.counts.update(outcome.counts)
            whole.problems += outcome.problems if len(files) == 1 else [_of(one.scope.name, said) for said in outcome.problems]
    return whole


def _of(name: str, said: str) -> str:
    """Among many, what is said of one must name it."""
    is_named = said.startswith((f"{name}:", f"{name}/")) or f"/{name}/" in said
    return said if is_named else f"{name}: {said}"


def _print(outcome: Outcome, note: str, nothing: str) -> None:
    if outcome.actions:
        sizes = _sizes(outcome.actions)
        columns = [Column("SESSION", ends=True), Column("ACTION"), Column("WHAT", gives_way=True),
                   *(Column(title, right=True) for title in sizes), Column("REASON", least=20)]  # fmt: skip
        print_table(columns, [_row(action, *cells) for action, *cells in zip(outcome.actions, *sizes.values(), strict=True)])
        say(_total(outcome))
    elif not outcome.problems:
        tell(one_line(nothing))
    if note and outcome.actions and not outcome.dry_run:
        tell(one_line(note))
    for said in outcome.notes:
        tell(f"note: {one_line(said)}", err=True)
    for problem in outcome.problems:
        tell(f"smp: {one_line(problem)}", err=True)


def _sizes(actions: Sequence[Action]) -> dict[str, list[str | None]]:
    """A column of what is freed; where something takes up room, of what becomes smaller or larger; none where nothing does."""
    sizes = [action.bytes_freed for action in actions]
    if not any(sizes):
        return {}
    if min(sizes) >= 0:
        return {"FREED": [short_size(size) if size else None for size in sizes]}
    return {"SIZE": [("-" if size > 0 else "+") + short_size(abs(size)) if size else None for size in sizes]}


def _row(action: Action, *sizes: object) -> Sequence[object]:
    what = None if action.about == (action.session,) else listed(action.about)
    return action.session, action.type.replace("_", " "), what, *sizes, action.reason


def listed(ids: Sequence[str]) -> str:
    """Some of them on a terminal, and all of them everywhere else."""
    few = ids[:_NAMED] if on_terminal() else ids
    return ", ".join(few) + (f" and {len(ids) - len(few):,} more" if len(few) < len(ids) else "")


def _total(outcome: Outcome) -> str:
    counted = {name: count for name, count in outcome.counts.items() if not name.endswith("bytes")}
    if counted:
        said = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counted.items())
        return said + ("; nothing was changed" if outcome.dry_run else "")
    count = len(outcome.actions)
    would = "would be " if outcome.dry_run else ""
    freed = outcome.bytes_freed
    size = f", {short_size(abs(freed))} {would}{'freed' if freed > 0 else 'taken up'}" if freed else ""
    return f"{count:,} action{'' if count == 1 else 's'}{size}" + ("; nothing was changed" if outcome.dry_run else "")

"""Which memories a command is about: the options of `smp delete` and `smp export` that name or describe them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from .arguments import completing_values
from .read import since_option, types_option, until_option

CONDITIONS = "--topic, --agent, --since, --until, --type, --tag or --text"


@dataclass(frozen=True)
class What:
    """Memories of a session by their ids, or by what they have in common; or, with neither, all of it."""

    ids: tuple[str, ...]
    conditions: Mapping[str, Any]

    @property
    def is_whole(self) -> bool:
        return not self.ids and not self.conditions


def what_is_meant(ids: tuple[str, ...], conditions: Mapping[str, Any]) -> What:
    found = What(ids, {name: value for name, value in conditions.items() if value not in (None, ())})
    if found.ids and found.conditions:
        raise click.UsageError(f"Give ids, or conditions ({CONDITIONS}); not both.")
    return found


def selecting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Each condition under its own name."""
    for option in reversed((
        click.option("--topic", metavar="TOPIC", shell_complete=_complete_topic,
                     help="Only what is about this topic, as smp topics tells it."),
        click.option("--agent", metavar="WHO", shell_complete=completing_values("actor"),
                     help="Only what this agent or person said, made or found."),
        since_option, until_option, types_option,
        click.option("--tag", "tags", multiple=True, shell_complete=completing_values("tag"),
                     help="Only with this tag or one below it; repeat it for any of several."),
        click.option("--text", metavar="TEXT", help="Only what says this anywhere, in upper or lower case."),
    )):  # fmt: skip
        command = option(command)
    return command


def _complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    found = [*completing_values("tag")(ctx, param, incomplete), *completing_values("topic")(ctx, param, incomplete)]
    return list(dict.fromkeys(found))

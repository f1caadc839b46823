"""Changing memories from a shell: `smp resolve`, `update`, `pin`, `unpin`, `relate` and `supersede`.

Each prints the ids of what it wrote, as `smp add` does. Of several memories all are changed, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from smp_client.layout import ACTIVE, GLOBAL

from .arguments import (
    complete_memory_id,
    find_scope,
    json_option,
    memories_argument,
    open_memory,
    root_option,
    session_argument,
)
from .nearby import suggesting_ids
from .outcome import in_words

if TYPE_CHECKING:
    from smp_client import GlobalMemory, Record, Session
    from smp_client.writing import Writing

_SOME = "ID..."


@click.command(epilog="""\b
smp resolve latest FIND-001 --by dev --action "The login allows five tries a minute\"""")
@memories_argument(ACTIVE, ids=_SOME)
@click.option("--by", metavar="WHO", required=True, callback=in_words, help="Who has resolved it.")
@click.option("--action", metavar="TEXT", required=True, help="What was done about it.")
@root_option
@json_option
def resolve(
    session: str, ids: tuple[str, ...], by: str, action: str, root: str | None, as_json: bool
) -> None:
    """Close findings of SESSION and say what was done about them."""
    target = _Target(root, session)
    target.change(ids, lambda to, one: to.resolve_finding(one, resolved_by=by, action_taken=action), as_json)
    target.note_secrets({"action_taken": action})


@click.command(epilog="""\b
smp update latest DEC-001 --text "Use OAuth 2.1"
smp update latest DEC-001 DEC-002 --field status=rejected --field impact=null""")
@memories_argument(ACTIVE, GLOBAL, ids=_SOME)
@click.option("--text", help="The new text, of one memory.")
@click.option("--field", "fields", multiple=True, metavar="NAME=VALUE",
              help="A field: impact=high, tags=[a,b], location.line=3; null takes it out; repeat it.")  # fmt: skip
@root_option
@json_option
def update(
    session: str, ids: tuple[str, ...], text: str | None, fields: tuple[str, ...], root: str | None, as_json: bool
) -> None:
    """Change the text or other fields of memories of SESSION."""
    from smp_client.synonyms import with_own_names

    from .given import parse_fields

    if text is None and not fields:
        raise click.UsageError("Say what is to change: --text TEXT, or --field NAME=VALUE.")
    if text is not None and len(ids) > 1:
        raise click.UsageError("--text goes with one memory.")
    target = _Target(root, session)
    given = {**parse_fields(fields), **({} if text is None else {"text": text})}

    def change(to: Writing, one: str) -> Record:
        new = with_own_names(target.files.kind_of_record(one), given)
        return to.update(one, **_merged(target.files.get(one, count_access=False).data, new))

    target.change(ids, change, as_json)
    target.note_secrets(given)


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new fields. A mapping keeps its other parts, so that `location.line=3` changes only the line."""
    return {
        name: {key: part for key, part in {**was, **value}.items() if part is not None}
        if isinstance(value, dict) and isinstance(was := old.get(name), dict)
        else value
        for name, value in new.items()
    }


@click.command()
@memories_argument(ACTIVE, GLOBAL, ids=_SOME)
@root_option
@json_option
def pin(session: str, ids: tuple[str, ...], root: str | None, as_json: bool) -> None:
    """Never let memories of SESSION decay or be compacted away."""
    _Target(root, session).change(ids, lambda to, one: to.pin(one), as_json)


@click.command()
@memories_argument(ACTIVE, GLOBAL, ids=_SOME)
@root_option
@json_option
def unpin(session: str, ids: tuple[str, ...], root: str | None, as_json: bool) -> None:
    """Let pinned memories of SESSION decay again."""
    _Target(root, session).change(ids, lambda to, one: to.unpin(one), as_json)


@click.command(epilog="""\b
smp relate latest DEC-002 FIND-001 resolves
smp relate latest DEC-002 session-2026-01-11-abc123/DEC-001 supersedes""")
@session_argument()
@click.argument("new", shell_complete=complete_memory_id)
@click.argument("old", shell_complete=complete_memory_id)
@click.argument("relation")
@root_option
@json_option
def relate(session: str, new: str, old: str, relation: str, root: str | None, as_json: bool) -> None:
    """Say how NEW of SESSION hangs together with OLD.

    RELATION is resolves, which closes a finding; supersedes, by which OLD no longer holds; or any other word. OLD may be of
    another session, as SESSION/ID.
    """
    _Target(root, session).change([new], lambda to, one: to.relate(one, old, relation), as_json, old)


@click.command(epilog="""\b
smp supersede latest DEC-001 --by DEC-004
smp supersede latest session-2026-01-11-abc123/DEC-001 --by DEC-004""")
@memories_argument(ACTIVE, GLOBAL, ids="OLD...")
@click.option("--by", metavar="NEW", required=True, shell_complete=complete_memory_id, help="The memory of SESSION that holds now.")
@root_option
@json_option
def supersede(session: str, ids: tuple[str, ...], by: str, root: str | None, as_json: bool) -> None:
    """Say that OLD no longer holds, because NEW of SESSION does.

    OLD may be of another session, as SESSION/ID. It stays readable, and is marked in every answer.
    """
    _Target(root, session).change(ids, lambda to, one: to.supersede(one, by=by), as_json, by)


class _Target:
    """The session, or `global`, whose memories are changed."""

    def __init__(self, root: str | None, session: str) -> None:
        self._memory = open_memory(root)
        self.files: Session | GlobalMemory = find_scope(self._memory, session)

    def note_secrets(self, fields: Mapping[str, Any]) -> None:
        from .write import say_what_was_taken_out

        say_what_was_taken_out(self.files.scope.redaction.spotted(fields))

    def change(
        self, ids: Sequence[str], change: Callable[[Writing, str], Record], as_json: bool, *others: str
    ) -> None:
        """Change one memory, or several all or nothing, and print what was written. `others` are named too."""
        from .output import print_json, record_json, say

        with suggesting_ids(self._memory, self.files.scope.name, [*ids, *others]):
            if len(ids) == 1:
                records = [change(self.files, ids[0])]
            else:
                with self.files.transaction() as transaction:
                    records = [change(transaction, one) for one in ids]
        if as_json:
            print_json([*map(record_json, records)] if len(records) > 1 else record_json(records[0]))
        else:
            say("\n".join(record.id for record in records))

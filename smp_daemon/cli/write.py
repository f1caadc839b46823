"""Writing from a shell: `smp new` and `smp add`."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Any

import click

from smp_client.layout import ACTIVE, GLOBAL

from .arguments import TakingWords, find_scope, json_option, root_option, session_argument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smp_client import Memory, Record
    from smp_client.records import Neighbours

    from .given import New

KINDS = ("turn", "decision", "finding", "preference", "learning", "relationship", "pattern", "state", "artifact")
# The words that stand before the text, by kind; a relationship has no other text.
_BEFORE_THE_TEXT = {"relationship": ("SOURCE", "TARGET", "RELATION"), "state": ("AGENT",), "artifact": ("NAME",)}


@click.command()
@click.option("--user", help="Whose session it is.")
@click.option("--project", help="What is worked on.")
@click.option("--phase", help="How far that is.")
@click.option("--topic", help="What it is mainly about.")
@click.option("--tag", "tags", multiple=True, help="Repeat it for several.")
@click.option("--agent", "agents", multiple=True, help="An agent that takes part; repeat it for several.")
@click.option("--id", "session_id", help="Else one is made from the day and a random number.")
@click.option("--quota-bytes", type=int, help="How large it may become; else as configured.")
@root_option
@json_option
def new(session_id: str | None, quota_bytes: int | None, root: str | None, as_json: bool, **about: Any) -> None:
    """Make a session and print its id: S=$(smp new)."""
    from .output import print_json, say

    if quota_bytes is None:
        from ..config.file import load

        quota_bytes = load(None)["quota_bytes"]
    memory = _memory(root)
    session = memory.create_session(id=session_id, quota_bytes=quota_bytes, **about)
    redacted: Any = dict(session.metadata()).get("redacted") or {}
    if as_json:
        print_json({"id": session.id, "root": str(memory.root), "quota_bytes": session.quota_bytes(), "redacted": redacted})
    else:
        say(session.id)
    say_what_was_taken_out(redacted)


class _Writing(TakingWords):
    hint = 'A text that begins with a dash goes behind --, and options before it: smp add latest turn --by me -- "- one"'


@click.command(cls=_Writing, epilog="""\b
smp add latest decision "Use OAuth 2.0" --by architect --tag security
smp add latest relationship DEC-001 FIND-001 resolves
smp add latest artifact report-1 --file report.md
smp add global pattern "Reviews find more before noon" --by veritas
smp add latest --yaml --file records.yaml""")
@session_argument(ACTIVE, GLOBAL)
@click.argument("kind", required=False, type=click.Choice(KINDS), metavar="KIND")
@click.argument("words", nargs=-1, metavar="[TEXT]")
@click.option("--file", type=click.File("rb"), help="Where the text is; - for stdin, which is also read where no text is given.")
@click.option("--yaml", "is_yaml", is_flag=True, help="Read one record or a list of them, all or nothing; each may say its type.")
@click.option("--by", metavar="WHO", help="Who said, decided, found or learned it; of a turn, the user unless said otherwise.")
@click.option("--tag", "tags", multiple=True, help="Repeat it for several.")
@click.option("--timestamp", help="When, as 2026-01-11T14:30:00Z; else now.")
@click.option("--severity", help="Of a finding: critical, high (or important), medium, low (or minor) or info.")
@click.option("--confidence", help="Of a decision high, medium, low or uncertain; of a preference explicit, inferred or uncertain.")
@click.option("--topic", help="What it is about.")
@click.option("--rationale", help="Why.")
@click.option("--ref", "refs", multiple=True, metavar="ID", help="A memory that it refers to; repeat it for several.")
@click.option("--turn", type=int, metavar="N", help="The turn that it comes from.")
@click.option("--field", "fields", multiple=True, metavar="NAME=VALUE",
              help="Any further field: impact=high, line_numbers=[1,2], location.section=3; repeat it for several.")  # fmt: skip
@click.option("--pin", is_flag=True, help="Never let it decay.")
@root_option
@json_option
def add(
    session: str, kind: str | None, words: tuple[str, ...], file: IO[bytes] | None, is_yaml: bool,
    fields: tuple[str, ...], root: str | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Write a memory into SESSION and print its id.

    KIND is turn, decision, finding, preference, learning, relationship (then SOURCE TARGET RELATION), state (then the AGENT and
    its state in YAML) or artifact (then its NAME and Markdown). A preference or a pattern can go into the session "global".
    """
    from .given import Shared, from_words, from_yaml, parse_fields, taken_out, write
    from .output import print_json, record_json, say

    before = () if is_yaml else _words_before(kind, words)
    memory = _memory(root)
    target = find_scope(memory, session)
    shared = Shared(**options, further=parse_fields(fields), redaction=target.scope.redaction)
    is_global = session == GLOBAL
    text = _text(kind, words[len(before) :], file, is_yaml=is_yaml, needs_none=kind == "state" and bool(fields))
    news: list[New]
    if is_yaml:
        news = from_yaml(kind, text or "", shared, is_global=is_global)
    else:
        news = [from_words(str(kind), before, text, shared, is_global=is_global)]
    if is_global:
        memory.create()
    taken = taken_out(target, news)
    records = write(target, news)
    beside = _beside(records[0]) if len(records) == 1 else None
    if as_json:
        found = [{**record_json(record), "redacted": taken_out(target, [new])} for record, new in zip(records, news, strict=True)]
        found[0] |= beside._asdict() if beside else {}
        print_json(found if is_yaml else found[0])
    else:
        say("\n".join(record.id for record in records))
    say_what_was_taken_out(taken)
    if beside and beside.same_as:
        click.echo(f"note: the same stands already as {beside.same_as}.", err=True)


def _beside(record: Record) -> Neighbours | None:
    """What stands beside a memory that was written; None where that cannot be told, which must not make the write fail."""
    import sqlite3

    from smp_client import SMPError
    from smp_client.records import Neighbours

    try:
        return Neighbours(record.same_as, record.similar)
    except (SMPError, OSError, sqlite3.Error):
        return None


def say_what_was_taken_out(kinds: Mapping[str, int]) -> None:
    """On stderr: whoever wrote it must know that it is not there."""
    from smp_client.privacy.redact import told

    number = sum(kinds.values())
    if number == 1:
        click.echo(f"note: 1 {told(kinds)} was taken out.", err=True)
    elif number:
        click.echo(f"note: {number:,} places were taken out: {told(kinds)}.", err=True)


def _memory(root: str | None) -> Memory:
    """The memory that is written to; what is configured to be redacted holds here as well, published by a daemon or not."""
    from smp_client import Memory

    from ..config.location import find

    if find() is None:
        return Memory(root)
    from ..config.file import load

    return Memory(root, redaction=load().upkeep["redaction"])


def _words_before(kind: str | None, words: tuple[str, ...]) -> tuple[str, ...]:
    if kind is None:
        raise click.UsageError(f"Say the kind behind the session: {', '.join(KINDS)}; or give --yaml.")
    expected = _BEFORE_THE_TEXT.get(kind, ())
    if len(words) < len(expected):
        raise click.UsageError(f"Behind {kind!r} there must be {' '.join(expected)}.")
    return words[: len(expected)]


def _text(kind: str | None, words: tuple[str, ...], file: IO[bytes] | None, *, is_yaml: bool, needs_none: bool) -> str | None:
    """What is to be written: the one word, the file, or what comes through stdin; exactly one of them."""
    if len(words) + (file is not None) > (0 if kind == "relationship" and not is_yaml else 1):
        raise click.UsageError("There is more than one text: put it in quotes, and give it either here or with --file.")
    if kind == "relationship" and not is_yaml:
        return None
    if words and words != ("-",):
        return words[0]
    if needs_none and not words and file is None:
        return None
    text = _read(file or _stdin(is_asked_for=bool(words)))
    if kind == "artifact" and not is_yaml:
        return text
    if not text.strip():
        raise click.UsageError("There is no text: give it behind the kind, with --file, or through stdin.")
    return text if is_yaml else text.removesuffix("\n").removesuffix("\r")


def _stdin(*, is_asked_for: bool) -> IO[bytes]:
    if sys.stdin is None or (sys.stdin.isatty() and not is_asked_for):
        raise click.UsageError("There is no text: give it behind the kind, with --file, or through stdin.")
    return sys.stdin.buffer


def _read(stream: IO[bytes]) -> str:
    from smp_client import Invalid
    from smp_client.files import READ_CAP_BYTES
    from smp_client.text.values import BadYaml, decode

    content = stream.read(READ_CAP_BYTES + 1)
    if len(content) > READ_CAP_BYTES:
        raise Invalid([f"the text is longer than {READ_CAP_BYTES:,} bytes"])
    try:
        return decode(content)
    except BadYaml as error:
        raise Invalid([f"the text is {error.problem}"]) from error

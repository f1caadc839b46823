"""Writer from a shell: `smp new`, `smp add`, and the commands that change memories.

Each prints the ids of what it wrote. Of several memories all are written, or none.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import click

from smp_client import Invalid, Memory, Record, Session, SMPError
from smp_client.disk.tree import READ_CAP_BYTES
from smp_client.model.layout import ACTIVE, GLOBAL
from smp_client.model.record import FINDING, RELATIONSHIP, TURN, Kind, check_memory_id, check_memory_name
from smp_client.model.synonyms import taken_type, with_own_names
from smp_client.model.times import now, parse_time
from smp_client.redaction.redact import told
from smp_client.text.contents import new_fields
from smp_client.text.values import BadYaml, Value, decode, load

from . import output as out
from .arguments import (
    Call,
    TakingWords,
    check_usage,
    complete_memory_id,
    find_scope,
    flag,
    in_words,
    memories_argument,
    option,
    session_argument,
    suggesting_ids,
    takes,
)

if TYPE_CHECKING:
    from smp_client import GlobalMemory
    from smp_client.writer import Writer

STATE, ARTIFACT = "state", "artifact"  # no records: each is a file, with a name that is given to it
KINDS = ("turn", "decision", "finding", "preference", "learning", "relationship", "pattern",
         STATE, ARTIFACT)  # fmt: skip
# The words that stand before the text, by kind; a relationship has no other text.
_BEFORE = {"relationship": ("SOURCE", "TARGET", "RELATION"), STATE: ("AGENT",), ARTIFACT: ("NAME",)}
_NOT_OF_AN_ARTIFACT = ("self", "artifact_id", "content", "id", "version")
_NO_TEXT = "There is no text: give it behind the kind, with --file, or through stdin."
_SOME = "ID..."


@click.command()
@option("--user", "Whose session it is.")
@option("--project", "The project.")
@option("--phase", "The phase of the project.")
@option("--topic", "The main topic.")
@option("--tag", "Repeat it for several.", to="tags", multiple=True)
@option("--agent", "An agent that takes part; repeat it.", to="agents", multiple=True)
@option("--id", "Else one is made from the day and a random number.", to="session_id")
@option("--quota-bytes", "How large it may become; else as configured.", type=int)
@takes()
def new(call: Call, session_id: str | None, quota_bytes: int | None, **about: Any) -> None:
    """Make a session and print its id: S=$(smp new)."""
    if quota_bytes is None:
        from ..config.file import load as load_settings

        quota_bytes = load_settings(None)["quota_bytes"]
    memory = _memory(call)
    session = memory.create_session(id=session_id, quota_bytes=quota_bytes, **about)
    redacted: Any = dict(session.metadata()).get("redacted") or {}
    if call.as_json:
        out.print_json({"id": session.id, "root": str(memory.root),
                    "quota_bytes": session.quota_bytes(), "redacted": redacted})  # fmt: skip
    else:
        out.say(session.id)
    _note_secrets(redacted)


def _memory(call: Call) -> Memory:
    """Return the memory to write to. Configured redaction holds, published by a daemon or not."""
    from ..config.location import find

    if find() is None:
        return Memory(call.root)
    from ..config.file import load as load_settings

    return Memory(call.root, redaction=load_settings().upkeep["redaction"])


def _note_secrets(kinds: Mapping[str, int]) -> None:
    number = sum(kinds.values())
    if number == 1:
        click.echo(f"note: 1 {told(kinds)} was taken out.", err=True)
    elif number:
        click.echo(f"note: {number:,} places were taken out: {told(kinds)}.", err=True)


# Adding.


@dataclass(frozen=True)
class _New:
    """One memory that is to be written."""

    kind: Kind | str  # a kind of record, or STATE or ARTIFACT
    fields: dict[str, Any]
    name: str = ""  # of the agent or the artifact
    timestamp: str | None = None


class _Adding(TakingWords):
    hint = ("A text that begins with a dash goes behind --, and options before it:"
            ' smp add latest turn --by me -- "- one"')  # fmt: skip


@click.command(cls=_Adding, epilog="""\b
smp add latest decision "Use OAuth 2.0" --by architect --tag security
smp add latest relationship DEC-001 FIND-001 resolves
smp add latest artifact report-1 --file report.md
smp add latest --yaml --file records.yaml""")
@session_argument(ACTIVE, GLOBAL)
@click.argument("kind", required=False, type=click.Choice(KINDS), metavar="KIND")
@click.argument("words", nargs=-1, metavar="[TEXT]")
@option("--file", "The text; - is stdin, read also without a text.", type=click.File("rb"))
@flag("--yaml", "Read records; each may say its type.", to="is_yaml")
@option("--by", "Who said, decided, found or learned it.", metavar="WHO")
@option("--tag", "Repeat it for several.", to="tags", multiple=True)
@option("--timestamp", "When, as 2026-01-11T14:30:00Z; else now.")
@option("--severity", "Of a finding: critical, high, medium, low or info.")
@option("--confidence", "Of a decision high, medium, low or uncertain; of a preference explicit,"
        " inferred or uncertain.")  # fmt: skip
@option("--topic", "The topic.")
@option("--rationale", "Why.")
@option("--ref", "A memory that it refers to; repeat it.", to="refs", multiple=True, metavar="ID")
@option("--turn", "The turn that it comes from.", to="turn_ref", type=int, metavar="N")
@option("--field", "A further field: impact=high, lines=[1,2], location.section=3; repeat it.",
        to="fields", multiple=True, metavar="NAME=VALUE")  # fmt: skip
@flag("--pin", "Never let it decay.")
@takes()
def add(
    call: Call, session: str, kind: str | None, words: tuple[str, ...], file: IO[bytes] | None,
    is_yaml: bool, fields: tuple[str, ...], refs: tuple[str, ...], pin: bool, tags: tuple[str, ...],
    **options: Any,
) -> None:  # fmt: skip
    """Write a memory into SESSION and print its id.

    KIND is turn, decision, finding, preference, learning, relationship (then SOURCE TARGET
    RELATION), state (then the AGENT and its state in YAML) or artifact (then its NAME and
    Markdown). A preference or a pattern can go into the session "global".
    """
    expected = () if is_yaml else _BEFORE.get(kind or "", ())
    check_usage(
        (not is_yaml and kind is None,
         f"Say the kind behind the session: {', '.join(KINDS)}; or give --yaml."),
        (len(words) < len(expected), f"Behind {kind!r} there must be {' '.join(expected)}."),
    )  # fmt: skip
    memory = _memory(call)
    target = find_scope(memory, session)
    options |= {"references": [*map(check_memory_id, refs)], "pinned": pin, "tags": list(tags)}
    shared = {name: value for name, value in options.items() if value not in (None, [], False)}
    further = parse_fields(fields)
    before, rest = words[: len(expected)], words[len(expected) :]
    text = _text(kind, rest, file, is_yaml=is_yaml, needs_none=kind == STATE and bool(fields))
    if is_yaml:
        records = _load(text or "")
        given = [_typed(one, kind) for one in (records if isinstance(records, list) else [records])]
    else:
        given = [(str(kind), _from_words(str(kind), before, text))]
    news = _drafted(target, given, shared, further, numbered=is_yaml)
    if session == GLOBAL:
        memory.create()
    taken = [target.scope.redaction.spotted(one.fields) for one in news]
    written = _all_or_none(target, news, _write)
    beside = _beside(written[0]) if len(written) == 1 else {}
    if call.as_json:
        found = [{**out.record_json(record), "redacted": kinds, **beside}
                 for record, kinds in zip(written, taken, strict=True)]  # fmt: skip
        out.print_json(found if is_yaml else found[0])
    else:
        out.say("\n".join(record.id for record in written))
    _note_secrets(sum(taken, Counter[str]()))
    if beside.get("same_as"):
        click.echo(f"note: the same stands already as {beside['same_as']}.", err=True)


def _beside(record: Record) -> dict[str, Any]:
    """Return the memories that are the same or similar. A failing index must not fail the write."""
    import sqlite3

    with suppress(SMPError, OSError, sqlite3.Error):
        return {"same_as": record.same_as, "similar": record.similar}
    return {}


def _text(
    kind: str | None, words: tuple[str, ...], file: IO[bytes] | None, *, is_yaml: bool,
    needs_none: bool,
) -> str | None:  # fmt: skip
    """Return the text: the one word, the file, or stdin; exactly one of them."""
    is_related = kind == "relationship" and not is_yaml
    more = "There is more than one text: put it in quotes, and give it either here or with --file."
    check_usage((len(words) + (file is not None) > (0 if is_related else 1), more))
    if is_related or (needs_none and not words and file is None):
        return None
    if words and words != ("-",):
        return words[0]
    stdin = sys.stdin
    check_usage((file is None and (stdin is None or (stdin.isatty() and not words)), _NO_TEXT))
    content = (file or stdin.buffer).read(READ_CAP_BYTES + 1)
    if len(content) > READ_CAP_BYTES:
        raise Invalid([f"the text is longer than {READ_CAP_BYTES:,} bytes"])
    try:
        text = decode(content)
    except BadYaml as error:
        raise Invalid([f"the text is {error.problem}"]) from error
    if kind == ARTIFACT and not is_yaml:
        return text
    check_usage((not text.strip(), _NO_TEXT))
    return text if is_yaml else text.removesuffix("\n").removesuffix("\r")


def _from_words(kind: str, before: Sequence[str], text: str | None) -> dict[str, Any]:
    """Return the words of the command line as a mapping, as YAML would say it."""
    if kind == "relationship":
        return dict(zip(RELATIONSHIP.required, before, strict=True))
    if kind == ARTIFACT:
        return {"id": before[0], "content": text or ""}
    if kind == STATE:
        parts = _load(text or "")
        if parts is not None and not isinstance(parts, dict):
            raise Invalid(["a state must be a mapping in YAML or JSON"])
        return {"agent_id": before[0], **(parts or {})}
    return {"text": text}


def _typed(item: Value, what: str | None) -> tuple[str | None, Any]:
    """Return the kind that a record in YAML says, else the given one, and its other fields."""
    if not isinstance(item, dict):
        return what, item
    own: dict[str, Any] = dict(item)
    others = {TURN.name: "turn", "conversation": "turn", "agent_state": STATE}
    if "type" not in own and (other := taken_type(own, (*KINDS, *others))):
        own["type"] = other
    named = others.get(str(own.get("type")), str(own.get("type")))
    # A turn has a type of its own, such as message, which is no kind of memory.
    if "type" in own and (what != "turn" or named in KINDS):
        what = named
        del own["type"]
    return what, own


def _drafted(
    target: Session | GlobalMemory, given: Sequence[tuple[str | None, Any]], shared: dict[str, Any],
    further: dict[str, Value], *, numbered: bool,
) -> list[_New]:  # fmt: skip
    """Return the memories; raise with every problem, each with the number of its record."""
    found: list[_New] = []
    problems: list[str] = []
    for number, (what, own) in enumerate(given, 1):
        try:
            if not isinstance(own, dict):
                raise Invalid(["it must be a mapping of fields"])
            if what is None:
                raise Invalid(["it must say its 'type', or the kind must stand behind the session"])
            kind = _kind(target, what)
            make: Any = _file if isinstance(kind, str) else _record
            found.append(make(target, kind, own, shared, further))
        except Invalid as invalid:
            problems += [f"record {number}: {one}" if numbered else one for one in invalid.problems]
    if problems:
        raise Invalid(problems)
    return found


def _kind(target: Session | GlobalMemory, what: str) -> Kind | str:
    kinds: dict[str, Kind | str] = {}
    kinds |= {"turn" if kind is TURN else kind.name: kind for kind in target.kinds}
    is_global = target.scope.name == GLOBAL
    if not is_global:
        kinds |= {STATE: STATE, ARTIFACT: ARTIFACT}
    if what not in kinds:
        where = "a session" if is_global else "global: smp add global"
        belongs = f"; a {what} belongs to {where}" if what in KINDS else ""
        whose = "global" if is_global else "a session"
        raise Invalid([f"{whose} holds {', '.join(kinds)}, not {what!r}{belongs}"])
    return kinds[what]


def _file(
    _target: Session | GlobalMemory, kind: str, own: dict[str, Any], shared: dict[str, Any],
    further: dict[str, Value],
) -> _New:  # fmt: skip
    """Return the state of an agent, or an artifact: a file of its own, with a name."""
    key, whose = ("agent_id", "an agent's state") if kind == STATE else ("id", "an artifact")
    if key not in own:
        raise Invalid([f"{key!r} of {whose} is missing"])
    name = str(own.pop(key))
    if kind == STATE:
        if shared:
            raise Invalid(["a state has no options but --field; say everything else in its YAML"])
        if not (parts := {**further, **own}):
            raise Invalid([f"there is nothing to save for {name!r}: give its state as YAML"])
        return _New(STATE, parts, name)
    content = own.pop("content", own.pop("text", None))
    if not isinstance(content, str):
        raise Invalid(["'content' of an artifact must be a text"])
    fields = {{"by": "created_by"}.get(field, field): value
              for field, value in {**shared, **further, **own}.items()}  # fmt: skip
    if taken := [field for field in _NOT_OF_AN_ARTIFACT if field in fields]:
        raise Invalid([f"an artifact cannot have a field {taken[0]!r}"])
    if "timestamp" in fields:
        try:
            fields["timestamp"] = parse_time(str(fields["timestamp"]))
        except ValueError as error:
            wrong = f"timestamp {fields['timestamp']!r} must be an ISO 8601 time"
            raise Invalid([f"{wrong} such as 2026-01-11T14:30:00Z"]) from error
    return _New(ARTIFACT, {**fields, "content": content}, name)


def _record(
    target: Session | GlobalMemory, kind: Kind, own: dict[str, Any], shared: dict[str, Any],
    further: dict[str, Value],
) -> _New:  # fmt: skip
    """Return a record with the defaults of its kind; raise before a number is given to it."""
    is_turn, is_finding = kind is TURN, kind is FINDING
    if is_turn and "turn_type" in own:
        own["type"] = own.pop("turn_type")
    references = "memory_refs" if is_turn else "references"
    names = {"by": kind.actor, "references": references}
    given = (kind.actor, "severity", "confidence")
    fields = {  # in the order in which a person looks for them; None is left out
        kind.actor: "user" if is_turn else None,
        "type": "message" if is_turn else None,
        "severity": "medium" if is_finding else None,
        "topic": None,
        **dict.fromkeys(name for name in kind.required if name not in given),
        kind.text: None,
        "rationale": None,
        "confidence": "inferred" if "confidence" in kind.required else None,
        "resolution": {"status": "open"} if is_finding else None,
        references: None,
        "turn_ref": None,
        "pinned": None,
        "tags": None if kind in (TURN, RELATIONSHIP) else [],
        **{names.get(name, name): value for name, value in shared.items()},
        **further, **with_own_names(kind, own),
    }  # fmt: skip
    timestamp = fields.pop("timestamp", None)
    if kind.actor in kind.required and not fields.get(kind.actor):
        raise Invalid([f"{kind.actor!r} is missing: say who with --by"])
    if kind is RELATIONSHIP:
        for end in ("source", "target"):
            check_memory_name(fields.get(end, ""))
    if is_turn and fields["turn_ref"] is not None:
        raise Invalid(["a turn refers to another with --ref turn-N"])
    new_fields(kind, fields, timestamp or now(), target.scope.redaction)
    return _New(kind, fields, timestamp=timestamp)


def _write(to: Writer, new: _New) -> Record | None:
    """Write one memory; return None for a file of its own, which is read when all is written."""
    if new.kind == STATE:
        to.save_agent_state(new.name, new.fields)
    elif isinstance(new.kind, str):
        to.save_artifact(new.name, **new.fields)
    elif new.kind is RELATIONSHIP:
        said = dict(new.fields)
        ends = [said.pop(name) for name in RELATIONSHIP.required]
        return to.relate(*ends, timestamp=new.timestamp, **said)
    else:
        return to.record(new.kind, new.fields, new.timestamp)
    return None


def _all_or_none(
    target: Session | GlobalMemory, items: Sequence[Any],
    do: Callable[[Writer, Any], Record | None],
) -> list[Record]:  # fmt: skip
    """Write one item, or several in a transaction; return the memories as they are then."""
    if len(items) == 1:
        written = [do(target, items[0])]
    else:
        with target.transaction() as transaction:
            written = [do(transaction, item) for item in items]
    return [record or _saved(target, item) for record, item in zip(written, items, strict=True)]


def _saved(target: Session | GlobalMemory, new: _New) -> Record:
    assert isinstance(target, Session)
    if new.kind == ARTIFACT:
        return target.artifact(new.name)
    state = target.agent_state(new.name)
    data = {**state, "timestamp": state.get("last_updated")}
    return Record(new.name, "agent_state", target.id, data, "")


def parse_fields(texts: Sequence[str]) -> dict[str, Value]:
    """Return `name=value` as fields; a dot in a name leads into a mapping."""
    fields: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        path = name.split(".")
        if not equals or not all(path):
            raise Invalid([f"field {text!r} must be NAME=VALUE"])
        inner = fields
        for part in path[:-1]:
            deeper = inner.setdefault(part, {})
            if not isinstance(deeper, dict):
                raise Invalid([f"field {name!r} cannot be both a value and a mapping"])
            inner = deeper
        if path[-1] in inner:
            raise Invalid([f"field {name!r} is given twice"])
        inner[path[-1]] = _value(name, value)
    return fields


def _value(name: str, text: str) -> Value:
    """Return a number, true, false, null, or a list or quotes as in YAML; all else is text."""
    is_collection = text.startswith(("[", "{"))
    try:
        value = load(text)
    except BadYaml as error:
        if is_collection:
            problem = f"field {name!r} begins like a list or mapping and is none ({error.problem})"
            raise Invalid([f"{problem}; quote it as text"]) from error
        return text
    # As YAML, "see: this" would be a mapping, and " # 5" a comment: nobody means that in a shell.
    is_meant = is_collection or text.startswith(('"', "'")) or value is None
    return value if is_meant or isinstance(value, (bool, int, float)) else text


def _load(text: str) -> Value:
    try:
        return load(decode(text.encode("utf-8", "surrogatepass")))
    except BadYaml as error:
        raise Invalid([f"the YAML cannot be read, {error}"]) from error


# Changing.


def _change(
    call: Call, session: str, ids: Sequence[str], change: Callable[[Writer, str], Record],
    *others: str,
) -> None:  # fmt: skip
    """Change one memory, or several all or none, and print their ids. `others` are named too."""
    memory = call.memory()
    target = find_scope(memory, session)
    with suggesting_ids(memory, target.scope.name, [*ids, *others]):
        records = _all_or_none(target, ids, change)
    if call.as_json:
        found = [out.record_json(record) for record in records]
        out.print_json(found if len(found) > 1 else found[0])
    else:
        out.say("\n".join(record.id for record in records))


@click.command(epilog="""\b
smp resolve latest FIND-001 --by dev --action "The login allows five tries a minute\"""")
@memories_argument(ACTIVE, ids=_SOME)
@option("--by", "Who has resolved it.", metavar="WHO", required=True, callback=in_words)
@option("--action", "What was done about it.", metavar="TEXT", required=True)
@takes()
def resolve(call: Call, session: str, ids: tuple[str, ...], by: str, action: str) -> None:
    """Close findings of SESSION and say how they were resolved."""
    said = {"resolved_by": by, "action_taken": action}
    _change(call, session, ids, lambda to, one: to.resolve_finding(one, **said))
    _note_secrets(call.memory().everywhere.scope.redaction.spotted({"action_taken": action}))


@click.command(epilog="""\b
smp update latest DEC-001 --text "Use OAuth 2.1"
smp update latest DEC-001 DEC-002 --field status=rejected --field impact=null""")
@memories_argument(ACTIVE, GLOBAL, ids=_SOME)
@option("--text", "The new text, of one memory.")
@option("--field", "A field: impact=high, tags=[a,b], location.line=3; null takes it out; repeat"
        " it.", to="fields", multiple=True, metavar="NAME=VALUE")  # fmt: skip
@takes()
def update(
    call: Call, session: str, ids: tuple[str, ...], text: str | None, fields: tuple[str, ...]
) -> None:
    """Change the text or other fields of memories of SESSION."""
    check_usage(
        (text is None and not fields, "Say what is to change: --text TEXT, or --field NAME=VALUE."),
        (text is not None and len(ids) > 1, "--text goes with one memory."),
    )
    files = find_scope(call.memory(), session)
    given = {**parse_fields(fields), **({} if text is None else {"text": text})}

    def change(to: Writer, one: str) -> Record:
        new = with_own_names(files.kind_of_record(one), given)
        old = files.get(one, count_access=False).data
        for name, value in new.items():  # a mapping keeps its other parts: location.line=3
            if isinstance(value, dict) and isinstance(was := old.get(name), dict):
                merged = {**was, **value}
                new[name] = {key: part for key, part in merged.items() if part is not None}
        return to.update(one, **new)

    _change(call, session, ids, change)
    _note_secrets(files.scope.redaction.spotted(given))


@click.command()
@memories_argument(ACTIVE, GLOBAL, ids=_SOME)
@takes()
def pin(call: Call, session: str, ids: tuple[str, ...]) -> None:
    """Never let memories of SESSION decay or be evicted."""
    _change(call, session, ids, lambda to, one: to.pin(one))


@click.command()
@memories_argument(ACTIVE, GLOBAL, ids=_SOME)
@takes()
def unpin(call: Call, session: str, ids: tuple[str, ...]) -> None:
    """Let pinned memories of SESSION decay again."""
    _change(call, session, ids, lambda to, one: to.unpin(one))


@click.command(epilog="""\b
smp relate latest DEC-002 FIND-001 resolves
smp relate latest DEC-002 session-2026-01-11-abc123/DEC-001 supersedes""")
@session_argument()
@click.argument("new", shell_complete=complete_memory_id)
@click.argument("old", shell_complete=complete_memory_id)
@click.argument("relation")
@takes()
def relate(call: Call, session: str, new: str, old: str, relation: str) -> None:
    """Say how NEW of SESSION is related to OLD.

    RELATION is resolves, which closes a finding; supersedes, by which OLD no longer holds; or any
    other word. OLD may be of another session, as SESSION/ID.
    """
    _change(call, session, [new], lambda to, one: to.relate(one, old, relation), old)


@click.command(epilog="""\b
smp supersede latest DEC-001 --by DEC-004
smp supersede latest session-2026-01-11-abc123/DEC-001 --by DEC-004""")
@memories_argument(ACTIVE, GLOBAL, ids="OLD...")
@option("--by", "The memory of SESSION that holds now.",
        metavar="NEW", required=True, shell_complete=complete_memory_id)  # fmt: skip
@takes()
def supersede(call: Call, session: str, ids: tuple[str, ...], by: str) -> None:
    """Say that OLD no longer holds, because NEW of SESSION does.

    OLD may be of another session, as SESSION/ID. It stays readable, and is marked in every answer.
    """
    _change(call, session, ids, lambda to, one: to.supersede(one, by=by), by)

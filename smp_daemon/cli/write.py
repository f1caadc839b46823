"""Writing from a shell: `smp new`, `smp add`, and the commands that change memories.

Each prints the ids of what it wrote. Of several memories all are written, or none.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from smp_client import Invalid, Memory, Record, SMPError
from smp_client.disk.tree import READ_CAP_BYTES
from smp_client.model.layout import ACTIVE, GLOBAL
from smp_client.model.record import FINDING, RELATIONSHIP, TURN, Kind, check_memory_id
from smp_client.model.synonyms import taken_type, with_own_names
from smp_client.model.times import now, parse_time
from smp_client.redaction.redact import told
from smp_client.text.contents import new_fields
from smp_client.text.values import BadYaml, Value, decode, load

from . import output as out
from .arguments import Call, command, find_scope

if TYPE_CHECKING:
    from smp_client import GlobalMemory, Session
    from smp_client.writer import Writer

KINDS = ("turn", "decision", "finding", "preference", "learning", "relationship", "pattern",
         "state", "artifact")  # fmt: skip
# The words before the text, by kind, and the fields that they are.
_BEFORE = {"relationship": ("SOURCE", "TARGET", "RELATION"), "state": ("AGENT",),
           "artifact": ("NAME",)}  # fmt: skip
_FIELDS = {"relationship": RELATIONSHIP.required, "state": ("agent_id",), "artifact": ("id",)}
_OTHER_NAMES = {TURN.name: "turn", "conversation": "turn", "agent_state": "state"}
_NO_TEXT = "There is no text: give it behind the kind, with --file, or through stdin."
_ASKED = (ACTIVE, GLOBAL)


@command(
    "",
    "--user NAME  Whose session it is.",
    "--project NAME  The project.",
    "--phase NAME  The phase of the project.",
    "--topic TOPIC  The main topic.",
    "--tag WORD...  Repeat it for several.",
    "--agent NAME...  An agent that takes part; repeat it.",
    "--id NAME  Else one is made from the day and a random number.",
    "--quota-bytes BYTES  How large it may become; else as configured.",
)
def new(call: Call) -> None:
    """Make a session and print its id: S=$(smp new)."""
    from ..config.file import load as load_settings

    quota_bytes = call.quota_bytes
    if quota_bytes is None:
        quota_bytes = load_settings(None)["quota_bytes"]
    memory = _memory(call)
    session = memory.create_session(
        id=call.id, quota_bytes=quota_bytes, user=call.user, project=call.project,
        phase=call.phase, topic=call.topic, tags=call.tag, agents=call.agent,
    )  # fmt: skip
    redacted: Any = dict(session.metadata()).get("redacted") or {}
    said = {"id": session.id, "root": str(memory.root), "quota_bytes": session.quota_bytes()}
    call.print({**said, "redacted": redacted}, session.id)
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


@command(
    "SESSION [KIND] [TEXT]...",
    "--file CONTENT  The text; - is stdin, read also without a text.",
    "--yaml  Read records; each may say its type.",
    "--by WHO  Who said, decided, found or learned it.",
    "--tag TAG...  Repeat it for several.",
    "--timestamp WHEN  When, as 2026-01-11T14:30:00Z; else now.",
    "--severity WORD  Of a finding: critical, high, medium, low or info.",
    "--confidence WORD  Of a decision high, medium, low or uncertain; of a preference explicit,"
    " inferred or uncertain.",
    "--topic TOPIC  The topic.",
    "--rationale TEXT  Why.",
    "--ref ID...  A memory that it refers to; repeat it.",
    "--turn N  The turn that it comes from.",
    "--field NAME=VALUE...  A further field: impact=high, lines=[1,2], location.section=3;"
    " repeat it.",
    "--pin  Never let it decay.",
    places=_ASKED,
)
def add(call: Call) -> None:
    """Write a memory into SESSION and print its id.

    KIND is turn, decision, finding, preference, learning, relationship (then SOURCE TARGET
    RELATION), state (then the AGENT and its state in YAML) or artifact (then its NAME and
    Markdown). A preference or a pattern can go into the session "global". A text that begins with a
    dash goes behind --, and options before it.

    \b
    smp add latest decision "Use OAuth 2.0" --by architect --tag security
    smp add latest relationship DEC-001 FIND-001 resolves
    smp add latest artifact report-1 --file report.md
    smp add latest --yaml --file records.yaml
    """
    kind, words, is_yaml = call.kind, call.text, call.yaml
    before = () if is_yaml else _BEFORE.get(kind or "", ())
    call.check(
        (not is_yaml and kind is None,
         f"Say the kind behind the session: {', '.join(KINDS)}; or give --yaml."),
        (len(words) < len(before), f"Behind {kind!r} there must be {' '.join(before)}."),
    )  # fmt: skip
    memory = _memory(call)
    target = find_scope(memory, call.session)
    names = ("by", "timestamp", "severity", "confidence", "topic", "rationale")
    shared = {name: getattr(call, name) for name in names}
    shared |= {"references": [*map(check_memory_id, call.ref)], "turn_ref": call.turn,
               "pinned": call.pin, "tags": [*call.tag]}  # fmt: skip
    shared = {name: value for name, value in shared.items() if value not in (None, [], False)}
    further = parse_fields(call.field)
    text = _text(call, words[len(before) :])
    given: list[Any]
    if is_yaml:
        records = _load(text or "")
        given = records if isinstance(records, list) else [records]
    else:
        own: Any = {} if text is None else {"text": text}
        if kind == "state" and not isinstance(own := _load(text or "{}"), dict):
            raise Invalid(["a state must be a mapping in YAML or JSON"])
        given = [{**dict(zip(_FIELDS.get(str(kind), ()), words, strict=False)), **own}]
    news: list[tuple[Kind | str, dict[str, Any]]] = []
    problems: list[str] = []
    for number, one in enumerate(given, 1):
        try:
            news.append(_drafted(target, kind, one, shared, further))
        except Invalid as invalid:
            where = f"record {number}: " if is_yaml else ""
            problems += [f"{where}{problem}" for problem in invalid.problems]
    if problems:
        raise Invalid(problems)
    if call.session == GLOBAL:
        memory.create()
    taken = [target.scope.redaction.spotted(fields) for _, fields in news]
    written = _all_or_none(target, news, _write)
    beside: dict[str, Any] = {}
    if len(written) == 1:
        import sqlite3

        with suppress(SMPError, OSError, sqlite3.Error):  # a failing index must not fail the write
            beside = {"same_as": written[0].same_as, "similar": written[0].similar}
    found = [{**out.record_json(record), "redacted": kinds, **beside}
             for record, kinds in zip(written, taken, strict=True)]  # fmt: skip
    call.print(found if is_yaml else found[0], "\n".join(record.id for record in written))
    _note_secrets(sum(taken, Counter[str]()))
    if beside.get("same_as"):
        click.echo(f"note: the same stands already as {beside['same_as']}.", err=True)


def _text(call: Call, words: tuple[str, ...]) -> str | None:
    """Return the text: the one word, the file, or stdin; exactly one of them."""
    kind, file, is_yaml = call.kind, call.file, call.yaml
    is_related = kind == "relationship" and not is_yaml
    more = "There is more than one text: put it in quotes, and give it either here or with --file."
    call.check((len(words) + (file is not None) > (0 if is_related else 1), more))
    if is_related or (kind == "state" and call.field and not words and file is None):
        return None
    if words and words != ("-",):
        return words[0]
    stdin = sys.stdin
    call.check((file is None and (stdin is None or (stdin.isatty() and not words)), _NO_TEXT))
    content = (file or stdin.buffer).read(READ_CAP_BYTES + 1)
    if len(content) > READ_CAP_BYTES:
        raise Invalid([f"the text is longer than {READ_CAP_BYTES:,} bytes"])
    try:
        text = decode(content)
    except BadYaml as error:
        raise Invalid([f"the text is {error.problem}"]) from error
    if kind == "artifact" or is_yaml:
        return text
    call.check((not text.strip(), _NO_TEXT))
    return text.removesuffix("\n").removesuffix("\r")


def _drafted(
    target: Session | GlobalMemory, what: str | None, given: Any, shared: Mapping[str, Any],
    further: Mapping[str, Any],
) -> tuple[Kind | str, dict[str, Any]]:  # fmt: skip
    """Return the kind of a new memory, and its fields with defaults; raise where one is wrong."""
    if not isinstance(given, dict):
        raise Invalid(["it must be a mapping of fields"])
    own = dict(given)
    name = taken_type(own, (*KINDS, *_OTHER_NAMES)) or what
    if "type" in own and name != "turn":  # a turn has a type of its own, such as message
        name = str(own["type"])
    if name is None:
        raise Invalid(["it must say its 'type', or the kind must stand behind the session"])
    name = _OTHER_NAMES.get(name, name)
    kinds: dict[str, Kind | str] = {}
    kinds |= {"turn" if kind is TURN else kind.name: kind for kind in target.kinds}
    is_global = target.scope.name == GLOBAL
    kinds |= {} if is_global else {"state": "state", "artifact": "artifact"}
    if name not in kinds:
        where = "a session" if is_global else "global: smp add global"
        belongs = f"; a {name} belongs to {where}" if name in KINDS else ""
        whose = "global" if is_global else "a session"
        raise Invalid([f"{whose} holds {', '.join(kinds)}, not {name!r}{belongs}"])
    kind = kinds[name]
    if isinstance(kind, str):
        return kind, _file_fields(kind, own, shared, further)
    if kind is TURN and "turn_type" in own:
        own["type"] = own.pop("turn_type")
    shared = {"memory_refs" if key == "references" and kind is TURN else key: value
              for key, value in shared.items()}  # fmt: skip
    order = ("by", "severity", "topic", "text", "rationale")  # as a person looks for them
    first = with_own_names(kind, {**dict.fromkeys(order), **shared, **further})
    fields = {**first, **with_own_names(kind, own)}
    fields = {key: value for key, value in fields.items() if value is not None}
    defaults: dict[str, Any] = {} if kind in (TURN, RELATIONSHIP) else {"tags": []}
    if kind is TURN:
        defaults = {kind.actor: "user", "type": "message"}
    elif kind is FINDING:
        defaults |= {"severity": "medium", "resolution": {"status": "open"}}
    elif "confidence" in kind.required:
        defaults["confidence"] = "inferred"
    fields |= {key: value for key, value in defaults.items() if key not in fields}
    if kind.actor in kind.required and not fields.get(kind.actor):
        raise Invalid([f"{kind.actor!r} is missing: say who with --by"])
    body = {key: value for key, value in fields.items() if key != "timestamp"}
    new_fields(kind, body, fields.get("timestamp") or now(), target.scope.redaction)
    return kind, fields


def _file_fields(
    kind: str, own: dict[str, Any], shared: Mapping[str, Any], further: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of an agent's state, or of an artifact: each is a file, with a name."""
    key = _FIELDS[kind][0]
    if key not in own:
        raise Invalid([f"{key!r} of {'a state' if kind == 'state' else 'an artifact'} is missing"])
    if kind == "state":
        if shared:
            raise Invalid(["a state has no options but --field; say everything else in its YAML"])
        if len(fields := {**further, **own}) == 1:
            raise Invalid([f"there is nothing to save for {own[key]!r}: give its state as YAML"])
        return fields
    content = own.pop("content", own.pop("text", None))
    if not isinstance(content, str):
        raise Invalid(["'content' of an artifact must be a text"])
    fields = {**shared, **further, **own}
    if taken := {"self", "artifact_id", "version"} & {*fields}:
        raise Invalid([f"an artifact cannot have a field {taken.pop()!r}"])
    if "by" in fields:
        fields["created_by"] = fields.pop("by")
    if "timestamp" in fields:
        try:
            fields["timestamp"] = parse_time(str(fields["timestamp"]))
        except ValueError as error:
            wrong = f"timestamp {fields['timestamp']!r} must be an ISO 8601 time"
            raise Invalid([wrong]) from error
    return {**fields, "content": content}


def _write(to: Writer, new: tuple[Kind | str, dict[str, Any]]) -> Record | str:
    """Write one memory; return its name where it is a file, which is read when all is written."""
    kind, fields = new[0], dict(new[1])
    if isinstance(kind, Kind):
        timestamp = fields.pop("timestamp", None)
        if kind is not RELATIONSHIP:
            return to.record(kind, fields, timestamp)
        ends = [fields.pop(name) for name in RELATIONSHIP.required]
        return to.relate(*ends, timestamp=timestamp, **fields)
    name = str(fields.pop(_FIELDS[kind][0]))
    if kind == "state":
        to.save_agent_state(name, fields)
    else:
        to.save_artifact(name, **fields)
    return name


def _all_or_none(
    target: Session | GlobalMemory, items: Sequence[Any],
    do: Callable[[Writer, Any], Record | str],
) -> list[Record]:  # fmt: skip
    """Write one item, or several in a transaction; return the memories as they are then."""
    if len(items) == 1:
        written = [do(target, items[0])]
    else:
        with target.transaction() as transaction:
            written = [do(transaction, item) for item in items]
    return [target.get(one, count_access=False) if isinstance(one, str) else one for one in written]


def parse_fields(texts: Sequence[str]) -> dict[str, Value]:
    """Return `name=value` as fields; a dot in a name leads into a mapping."""
    fields: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        *path, last = name.split(".")
        if not equals or not all((*path, last)):
            raise Invalid([f"field {text!r} must be NAME=VALUE"])
        inner: Any = fields
        for part in path:
            inner = inner.setdefault(part, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or last in inner:
            raise Invalid([f"field {name!r} is given twice"])
        inner[last] = _value(name, value)
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
    call: Call, names: Sequence[str], change: Callable[[Writer, str], Record],
    said: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Change one memory, or several all or none, and print their ids. `said` may hold secrets."""
    target = call.scope()
    records = _all_or_none(target, names, change)
    found = [out.record_json(record) for record in records]
    ids = "\n".join(record.id for record in records)
    call.print(found if len(found) > 1 else found[0], ids)
    _note_secrets(target.scope.redaction.spotted(said or {}))


@command(
    "SESSION ID...",
    "--by WHY!  Who has resolved it.",
    "--action TEXT!  What was done about it.",
)
def resolve(call: Call) -> None:
    """Close findings of SESSION and say how they were resolved.

    \b
    smp resolve latest FIND-001 --by dev --action "The login allows five tries a minute"
    """
    said = {"resolved_by": call.by, "action_taken": call.action}
    _change(call, call.id, lambda to, one: to.resolve_finding(one, **said), said)


@command(
    "SESSION ID...",
    "--text TEXT  The new text, of one memory.",
    "--field NAME=VALUE...  A field: impact=high, tags=[a,b], location.line=3; null takes it out;"
    " repeat it.",
    places=_ASKED,
)
def update(call: Call) -> None:
    """Change the text or other fields of memories of SESSION.

    \b
    smp update latest DEC-001 --text "Use OAuth 2.1"
    smp update latest DEC-001 DEC-002 --field status=rejected --field impact=null
    """
    text = call.text
    call.check(
        (text is None and not call.field, "Say what changes: --text TEXT or --field NAME=VALUE."),
        (text is not None and len(call.id) > 1, "--text goes with one memory."),
    )
    files = call.scope()
    given = {**parse_fields(call.field), **({} if text is None else {"text": text})}

    def change(to: Writer, one: str) -> Record:
        new = with_own_names(files.kind_of_record(one), given)
        old = files.get(one, count_access=False).data
        for name, value in new.items():  # a mapping keeps its other parts: location.line=3
            if isinstance(value, dict) and isinstance(was := old.get(name), dict):
                merged = {**was, **value}
                new[name] = {key: part for key, part in merged.items() if part is not None}
        return to.update(one, **new)

    _change(call, call.id, change, given)


@command("SESSION ID...", places=_ASKED)
def pin(call: Call) -> None:
    """Never let memories of SESSION decay or be evicted."""
    _change(call, call.id, lambda to, one: to.pin(one))


@command("SESSION ID...", places=_ASKED)
def unpin(call: Call) -> None:
    """Let pinned memories of SESSION decay again."""
    _change(call, call.id, lambda to, one: to.unpin(one))


@command("SESSION NEW OLD RELATION")
def relate(call: Call) -> None:
    """Say how NEW of SESSION is related to OLD.

    RELATION is resolves, which closes a finding; supersedes, by which OLD no longer holds; or any
    other word. OLD may be of another session, as SESSION/ID.

    \b
    smp relate latest DEC-002 FIND-001 resolves
    smp relate latest DEC-002 session-2026-01-11-abc123/DEC-001 supersedes
    """
    _change(call, [call.new], lambda to, one: to.relate(one, call.old, call.relation))


@command("SESSION OLD...", "--by NEW!  The memory of SESSION that holds now.", places=_ASKED)
def supersede(call: Call) -> None:
    """Say that OLD no longer holds, because NEW of SESSION does.

    OLD may be of another session, as SESSION/ID. It stays readable, and is marked in every answer.

    \b
    smp supersede latest DEC-001 --by DEC-004
    smp supersede latest session-2026-01-11-abc123/DEC-001 --by DEC-004
    """
    _change(call, call.old, lambda to, one: to.supersede(one, by=call.by))

"""Writing from a shell: `smp new`, `smp add`, and the commands that change memories.

Each prints the ids of what it wrote. Of several memories all are changed, or none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from smp_client import Invalid, Record, SMPError
from smp_client.model.layout import GLOBAL
from smp_client.model.nearest import did_you_mean
from smp_client.model.record import RELATIONSHIP, Kind, check_memory_id
from smp_client.model.synonyms import with_own_names
from smp_client.redaction.redact import listed_kinds
from smp_client.text.values import BadYaml, Value, decode, load

from . import output as out
from .arguments import ADDED, Call, command, find_scope

if TYPE_CHECKING:
    from smp_client import GlobalMemory, Memory, Session
    from smp_client.writer import Writer

_NAMED = {"state": "AGENT", "artifact": "NAME"}  # the word before the text, by kind
_DEFAULTS: dict[str, dict[str, Any]] = {
    "turn": {"speaker": "user", "type": "message"},
    "finding": {"severity": "medium", "resolution": {"status": "open"}},
    "preference": {"confidence": "inferred"},
}
_COMPARED = ("decision", "finding", "preference", "learning", "pattern")  # with those before
_RESERVED = {"self", "artifact_id", "content"}
_NO_TEXT = "There is no text: give it behind the kind, with --file, or through stdin."


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
    names = ("user", "project", "phase", "topic", "id", "quota_bytes")
    about = {name: getattr(call, name) for name in names}
    memory = call.target()
    session = memory.create_session(**about, tags=call.tag, agents=call.agent)
    said = {"id": session.id, "root": str(memory.root), "quota_bytes": session.quota_bytes()}
    call.print(said, session.id)


@command(
    "SESSION [KIND] [TEXT]... --field",
    "--yaml ENTRIES  Many at once: a list in YAML or JSON, each with its type; - is stdin.",
    "--file CONTENT  The text; - is stdin, read also without a text.",
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
    "--pin  Never let it decay.",
    "--keep-both  A preference that replaces no earlier one of its topic.",
)
def add(call: Call) -> None:
    """Write a memory into SESSION and print its id.

    Behind state come the AGENT and its state in YAML, behind artifact its NAME and Markdown. A text
    that begins with a dash goes behind --.

    \b
    smp add latest decision "Use OAuth 2.0" --by architect --tag security
    smp add latest --yaml notes.yaml
    """
    if call.yaml is not None:
        _add_many(call)
        return
    call.check((call.kind is None, f"Say which kind: {', '.join(ADDED)}."))
    kind, words = call.kind, [*call.text]
    call.check((kind in _NAMED and not words, f"Behind {kind} there must be {_NAMED.get(kind)}."))
    name = words.pop(0) if kind in _NAMED else ""
    memory = call.target()
    target = find_scope(memory, call.session)
    if target.scope.name == GLOBAL:
        memory.create()
    references = [check_memory_id(one) for one in call.ref] or None
    fields = {"by": call.by, "severity": call.severity, "topic": call.topic,
              "text": _text(call, words), "rationale": call.rationale,
              "confidence": call.confidence, "timestamp": call.timestamp, "turn_ref": call.turn,
              "memory_refs" if kind == "turn" else "references": references,
              "pinned": call.pin or None, "keep_both": call.keep_both or None,
              "tags": [*call.tag] or None}  # fmt: skip
    fields = {name: value for name, value in fields.items() if value is not None}
    fields |= parse_fields(call.field)
    taken = target.scope.redaction.spotted(fields)
    record = _write(target, kind, name, fields)
    notes = [*record.notes, *_notes(memory, record)]
    call.print({**out.record_json(record), "redacted": taken, "notes": notes}, record.id)
    _note_secrets(taken)
    for note in notes:
        out.tell(f"note: {note}", err=True)


def _notes(memory: Memory, record: Record) -> list[str]:
    """Return a sentence for each memory that says the same, or that this one replaces."""
    if record.type not in _COMPARED:
        return []
    with suppress(SMPError):  # the memory is written, whatever the index says
        return memory.alike(record).sentences()
    return []


def _add_many(call: Call) -> None:
    """Write all memories of a list, or none of them."""
    call.check((call.kind or call.text, "--yaml goes without a kind and a text."))
    entries = _listed(call.yaml.read())
    target = find_scope(call.target(), call.session)
    kinds = _kinds(target)
    records: list[Record] = []
    with target.transaction(len(entries)) as transaction:
        for number, entry in enumerate(entries, 1):
            try:
                fields = dict(entry)
                kind = fields.pop("type", None)
                if kind not in kinds:
                    meant = did_you_mean(str(kind), kinds)
                    raise Invalid([f"'type' must be one of {', '.join(kinds)}{meant}"])
                records.append(_recorded(transaction, kinds[str(kind)], fields))
            except Invalid as error:
                raise Invalid([f"entry {number}: {one}" for one in error.problems]) from error
    call.print([out.record_json(one) for one in records], "\n".join(one.id for one in records))
    _note_secrets(target.scope.redaction.spotted({"entries": entries}))
    for note in transaction.notes:
        out.tell(f"note: {note}", err=True)


def _listed(content: bytes) -> list[dict[str, Any]]:
    """Return the entries of a list in YAML or JSON."""
    try:
        entries = load(decode(content))
    except BadYaml as error:
        raise Invalid([f"the YAML cannot be read, {error}"]) from error
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise Invalid(["--yaml must be a list of mappings, each with 'type' and 'text'"])
    if not entries:
        raise Invalid(["the list is empty"])
    return [one for one in entries if isinstance(one, dict)]


def _text(call: Call, words: Sequence[str]) -> str | None:
    """Return the text: the one word, the file, or stdin; exactly one of them."""
    kind, file = call.kind, call.file
    more = "There is more than one text: put it in quotes, and give it either here or with --file."
    call.check((len(words) + (file is not None) > 1, more))
    if kind == "state" and call.field and not words and not file:
        return None
    if words and words[0] != "-":
        return words[0]
    stdin = sys.stdin
    call.check((file is None and (stdin is None or (stdin.isatty() and not words)), _NO_TEXT))
    try:
        text = decode((file or stdin.buffer).read())
    except BadYaml as error:
        raise Invalid([f"the text is {error.problem}"]) from error
    call.check((kind != "artifact" and not text.strip(), _NO_TEXT))
    return text if kind == "artifact" else text.removesuffix("\n").removesuffix("\r")


def _write(
    target: Session | GlobalMemory, kind: str, name: str, fields: dict[str, Any]
) -> Record:  # fmt: skip
    """Write a memory of this kind and return it. A state and an artifact have a name."""
    if kind == "state":
        try:
            state = load(fields.pop("text", "{}"))
        except BadYaml as error:
            raise Invalid([f"the YAML cannot be read, {error}"]) from error
        if not isinstance(state, dict) or not {**fields, **state}:
            raise Invalid(["a state must be a mapping in YAML or JSON"])
        target.save_agent_state(name, {**fields, **state})
        return target.get(name, count_access=False)
    if kind == "artifact":
        if wrong := _RESERVED & {*fields}:
            raise Invalid([f"a field {wrong.pop()!r} cannot be given"])
        if "by" in fields:
            fields["created_by"] = fields.pop("by")
        target.save_artifact(name, fields.pop("text"), **fields)
        return target.get(name, count_access=False)
    kinds = _kinds(target)
    if kind not in kinds:
        where = "a session holds" if "turn" in kinds else "global holds"
        raise Invalid([f"{where} {', '.join(kinds)}, not {kind!r}"])
    return _recorded(target, kinds[kind], fields)


def _kinds(target: Session | GlobalMemory) -> dict[str, Kind]:
    """Return the kinds of records that a command writes there, by type."""
    return {one.type: one for one in target.kinds if one is not RELATIONSHIP}


def _recorded(target: Writer, kind: Kind, fields: Mapping[str, Any]) -> Record:
    """Record a memory of this kind, with the defaults of a command."""
    fields = {**_DEFAULTS.get(kind.type, {}), **with_own_names(kind, fields)}
    timestamp = fields.pop("timestamp", None)
    if kind.actor in kind.required and kind.actor not in fields:
        raise Invalid([f"{kind.actor!r} is missing: say who with --by"])
    if kind.type != "turn":
        fields.setdefault("tags", [])
    return target.record(kind, fields, timestamp)


def _note_secrets(kinds: Mapping[str, int]) -> None:
    if kinds:
        click.echo(f"note: redacted: {listed_kinds(kinds)}.", err=True)


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
        inner[last] = _value(value)
    return fields


def _value(text: str) -> Value:
    """Return a number, true, false, null, or a list or quotes as in YAML; all else is text."""
    try:
        value = load(text)
    except BadYaml:
        return text
    # As YAML, "see: this" would be a mapping, and " # 5" a comment: nobody means that in a shell.
    is_meant = text.startswith(("[", "{", '"', "'")) or value is None
    return value if is_meant or isinstance(value, (bool, int, float)) else text


def _change(
    call: Call, names: Sequence[str], change: Callable[[Writer, str], Record],
    said: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Change one memory, or several all or none, and print their ids. `said` may hold secrets."""
    target = call.scope()
    if len(names) == 1:
        records = [change(target, names[0])]
    else:
        with target.transaction() as transaction:
            records = [change(transaction, name) for name in names]
    found = [out.record_json(record) for record in records]
    call.print(found if len(found) > 1 else found[0], "\n".join(one.id for one in records))
    _note_secrets(target.scope.redaction.spotted(said or {}))


@command(
    "SESSION ID...",
    "--by ACCOUNT  Who has resolved it; else your account.",
    "--action TEXT:resolved  What was done.",
)
def resolve(call: Call) -> None:
    """Close findings of SESSION and say how they were resolved."""
    said = {"resolved_by": call.by, "action_taken": call.action}
    _change(call, call.id, lambda to, one: to.resolve_finding(one, **said), said)


@command("SESSION ID... --field", "--text TEXT  The new text.", "--by WHO  Who changes it.")
def update(call: Call) -> None:
    """Change the text or other fields of memories of SESSION; null takes a field out."""
    given = parse_fields(call.field) | ({} if call.text is None else {"text": call.text})
    call.check((not given, "Say what changes: --text TEXT or --field NAME=VALUE."))
    files = call.scope()

    def change(to: Writer, one: str) -> Record:
        new = with_own_names(files.kind_of_record(one), given)
        old = files.get(one, count_access=False).data
        for name, value in new.items():  # a mapping keeps its other parts: location.line=3
            if isinstance(value, dict) and isinstance(was := old.get(name), dict):
                merged = {**was, **value}
                new[name] = {key: part for key, part in merged.items() if part is not None}
        return to.update(one, by=call.by or "user", **new)

    _change(call, call.id, change, given)


@command("SESSION ID...")
def pin(call: Call) -> None:
    """Never let memories of SESSION decay or be evicted."""
    _change(call, call.id, lambda to, one: to.pin(one))


@command("SESSION ID...")
def unpin(call: Call) -> None:
    """Let pinned memories of SESSION decay again."""
    _change(call, call.id, lambda to, one: to.unpin(one))


@command("SESSION NEW OLD RELATION")
def relate(call: Call) -> None:
    """Say how NEW of SESSION is related to OLD.

    RELATION is resolves, which closes a finding; supersedes, by which OLD no longer holds; or any
    other word. OLD may be of another session, as SESSION/ID.
    """
    _change(call, [call.new], lambda to, one: to.relate(one, call.old, call.relation))


@command("NAME...", "--by NEW  The memory of SESSION that holds now; then name SESSION OLD...")
def supersede(call: Call) -> None:
    """Say that OLD no longer holds, because NEW does.

    \b
    smp supersede OLD NEW
    smp supersede SESSION OLD NEW
    smp supersede SESSION OLD... --by NEW

    Each may be SESSION/ID; an id alone will do if only one session has it.
    """
    session, olds, new = _superseding(call)
    call.session = session
    _change(call, olds, lambda to, one: to.supersede(one, by=new))


def _superseding(call: Call) -> tuple[str, list[str], str]:
    """Return the session of the memory that holds, the ids that do not, and its own id."""
    names = [*call.name]
    if call.by is not None:
        call.check((len(names) < 2, "Say which: SESSION OLD... --by NEW."))
        return names[0], names[1:], call.by
    call.check((len(names) not in (2, 3), "Say which: OLD NEW, or SESSION OLD NEW."))
    if len(names) == 3:
        return names[0], [names[1]], names[2]
    memory = call.memory()
    old, new = (memory.get(name, count_access=False) for name in names)
    is_near = old.session == new.session
    return new.session, [old.id if is_near else f"{old.session}/{old.id}"], new.id

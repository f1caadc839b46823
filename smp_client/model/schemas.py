"""JSON Schemas of the files, for programs in other languages, made of the tables of SMP.

`smp_client/schemas/` holds them, one a file of the tree. Each describes the values that the YAML of
the file has. Further fields are allowed everywhere: a reader has to keep them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from .fields import ANY, FLAG, MAPPING, MAPPINGS, NUMBER, TEXT, TEXTS, TIME, WHOLE, fields_of
from .metadata_forms import FORMS
from .record import CHOICES, GLOBAL_KINDS, REVISION, SESSION_KINDS, TURN, Kind

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_FORMS: Mapping[str, Mapping[str, object]] = {
    TEXT: {"type": "string"},
    TEXTS: {"type": "array", "items": {"type": "string"}},
    ANY: {},
    NUMBER: {"type": "number", "minimum": 0, "maximum": 1},
    WHOLE: {"type": "integer", "minimum": 0},
    FLAG: {"type": "boolean"},
    MAPPING: {"type": "object"},
    MAPPINGS: {"type": "array", "items": {"type": "object"}},
    TIME: {"type": "string", "format": "date-time"},
}
_DECAY = {
    "type": "object",
    "properties": {
        "priority": {"type": "number", "minimum": 0, "maximum": 1},
        "last_accessed": _FORMS[TIME],
        "access_count": _FORMS[WHOLE],
        "base_priority": {"type": "number", "minimum": 0, "maximum": 1},
    },
}


def record_schema(kind: Kind) -> dict[str, object]:
    """Return the schema of one record of a kind."""
    properties: dict[str, object] = {}
    for name, form in fields_of(kind).items():
        properties[name] = dict(_FORMS[form])
        choices = CHOICES.get((kind.name, name))
        if choices:
            properties[name] = {"enum": [*choices]}
    properties["decay"] = _DECAY
    for name in kind.required:
        if (kind.name, name) not in CHOICES:
            properties[name] = {"type": "string", "minLength": 1}
    return {"type": "object", "required": ["id", *kind.required], "properties": properties}


def file_schema(kind: Kind) -> dict[str, object]:
    """Return the schema of the file of a kind: its version, and the list of its records."""
    listed = {"type": ["array", "null"], "items": record_schema(kind)}
    properties: dict[str, object] = {"version": {"const": 1}, kind.key: listed}
    return _whole(kind.file, [kind.key], properties)


def metadata_schema() -> dict[str, object]:
    """Return the schema of `metadata.yaml`."""
    parts: dict[str, dict[str, object]] = {}
    for place, form in FORMS.items():
        part, _, name = place.partition(".")
        allowed = {**form, "type": [form["type"], "null"]}
        if "enum" in form:
            allowed["enum"] = [*form["enum"], None]  # type: ignore[misc]
        if not name:
            parts[part] = allowed
        else:
            inner = parts[part].setdefault("properties", {})
            assert isinstance(inner, dict)
            inner[name] = allowed
    session = {"type": "object", "required": ["id", "created_at"], "properties": parts}
    return _whole("metadata.yaml", ["session"], {"version": {"const": 1}, "session": session})


def state_schema() -> dict[str, object]:
    """Return the schema of the state of an agent."""
    state = {
        "type": "object",
        "required": ["agent_id"],
        "properties": {
            "agent_id": _FORMS[TEXT],
            "session_id": _FORMS[TEXT],
            "last_updated": _FORMS[TIME],
            "current_context": {},
            "working_memory": {},
            "session_learnings": {},
            "memory_refs": {},
            "decay": _DECAY,
        },
    }
    properties: dict[str, object] = {"version": {"const": 1}, "agent_state": state}
    return _whole("agent-states/{agent}.yaml", ["agent_state"], properties)


def turn_schema() -> dict[str, object]:
    """Return the schema of a turn, as the parsed `conversation.md` and an export have it."""
    return {"$schema": _DRAFT, "title": "A turn of conversation.md", **record_schema(TURN)}


def schemas() -> dict[str, str]:
    """Return every schema as a JSON text, by the name of its file."""
    kinds = [kind for kind in (*SESSION_KINDS, *GLOBAL_KINDS, REVISION) if kind is not TURN]
    made = {kind.file.removesuffix(".yaml"): file_schema(kind) for kind in kinds}
    made |= {"metadata": metadata_schema(), "agent-state": state_schema(), "turn": turn_schema()}
    return {f"{name}.schema.json": f"{json.dumps(one, indent=1)}\n" for name, one in made.items()}


def _whole(file: str, required: list[str], properties: Mapping[str, object]) -> dict[str, object]:
    about = {"$schema": _DRAFT, "title": file, "type": "object"}
    return {**about, "required": required, "properties": dict(properties)}

"""The entry by which each agent starts the server, in a file of its own, all else in which stays.

JSON is rendered anew with the indent it had. TOML is never rendered: our table is replaced or
appended, and the result must say the same as before but for our entry. A file in another format is
refused. Before it is written, a copy is put beside it.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tomllib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from smp_client.disk.tree import Tree
from smp_client.model.errors import Conflict

NAME = "smp"
_TABLE = re.compile(r"^[ \t]*\[mcp_servers\.smp\][^\n]*\n(?:(?![ \t]*\[)[^\n]*\n?)*", re.MULTILINE)
_INDENT = re.compile(r"^[\[{]\s*\n([ \t]+)")


@dataclass(frozen=True)
class Agent:
    """The place of an agent's servers: a file of the project or, with `~/`, the user, and a key."""

    title: str
    file: str
    key: str
    form: str = "plain"


AGENTS = {
    "claude": Agent("Claude Code", ".mcp.json", "mcpServers"),
    "codex": Agent("Codex", "~/.codex/config.toml", "mcp_servers"),
    "copilot": Agent("Copilot CLI", "~/.copilot/mcp-config.json", "mcpServers", "copilot"),
    "cursor": Agent("Cursor", ".cursor/mcp.json", "mcpServers", "cursor"),
    "gemini": Agent("Gemini CLI", ".gemini/settings.json", "mcpServers"),
    "opencode": Agent("OpenCode", "opencode.json", "mcp", "opencode"),
}


@dataclass(frozen=True)
class Plan:
    """A file with its new content and its present one (None where it is not there)."""

    path: Path
    entry: str  # as a person would write it
    after: bytes
    before: bytes | None


def plan(agent: Agent, project: Path, root: str | None, environment: Mapping[str, str]) -> Plan:
    """Return the file to write for an agent. Raise Conflict where it cannot be changed safely."""
    path = _path(agent, project, environment)
    before = path.read_bytes() if path.exists() else None
    entry = _entry(agent, root)
    with_entry = _toml if agent.file.endswith(".toml") else _json
    try:
        shown, after = with_entry((before or b"").decode(), agent.key, entry)
    except ValueError as error:
        alone = with_entry("", agent.key, entry)[0]
        advice = f"Nothing was written; put it there yourself:\n{alone}"
        wrong = f"{path} cannot be read as it should be ({error})."
        raise Conflict(wrong, advice=advice) from error
    return Plan(path, shown, after.encode(), before)


def apply(plan: Plan) -> Path | None:
    """Write the file, and return the name of its backup."""
    real = plan.path.resolve()  # files of settings are often links into a repository
    tree = Tree(real.parent)
    tree.create_root(())
    copy = None
    mode = stat.S_IMODE(real.stat().st_mode) if plan.before is not None else 0o644
    if plan.before is not None:
        copy = real.with_name(f"{real.name}.{datetime.now(UTC):%Y%m%dT%H%M%S.%f}.backup")
        tree.write_new(copy.name, plan.before)
    temporary = f".{real.name}.{uuid.uuid4().hex}"
    try:
        tree.write_new(temporary, plan.after)
        with tree.opened(temporary) as descriptor:
            os.fchmod(descriptor, mode)
        tree.rename(temporary, real.name)
    except BaseException:
        tree.unlink(temporary)
        raise
    tree.sync_parent(real.name)
    return copy


def _path(agent: Agent, project: Path, environment: Mapping[str, str]) -> Path:
    if not agent.file.startswith("~/"):
        return project / agent.file
    if agent.key == "mcp_servers" and environment.get("CODEX_HOME"):
        return Path(environment["CODEX_HOME"], "config.toml")
    return Path(agent.file).expanduser()


def _entry(agent: Agent, root: str | None) -> dict[str, Any]:
    """Return the server as the agent's file describes one, by this interpreter and not by PATH."""
    arguments = ["-P", "-m", "smp_daemon", "mcp"]
    arguments += ["--root", str(Path(root).absolute())] if root else []
    if agent.form == "opencode":
        return {"type": "local", "command": [sys.executable, *arguments], "enabled": True}
    if agent.form == "cursor":  # which starts servers in the home directory
        arguments += ["--directory", "${workspaceFolder}"]
    entry: dict[str, Any] = {"command": sys.executable, "args": arguments}
    return {"type": "local", **entry, "tools": ["*"]} if agent.form == "copilot" else entry


def _json(text: str, key: str, entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return the entry, and the text with it."""
    said = json.loads(text, object_pairs_hook=_once) if text.strip() else {}
    servers = said.get(key, {}) if isinstance(said, dict) else None
    old = servers.get(NAME, {}) if isinstance(servers, dict) else None
    if not isinstance(servers, dict) or not isinstance(old, dict):
        raise ValueError(f"it has no mapping of servers under {key!r}")
    new = {**said, key: {**servers, NAME: {**old, **entry}}}
    found = _INDENT.match(text)
    after = json.dumps(new, indent=found[1] if found else 2, ensure_ascii=False)
    shown = json.dumps({key: {NAME: new[key][NAME]}}, indent=2, ensure_ascii=False)
    return shown, after + "\n" * (not text or text.endswith("\n"))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _toml(text: str, key: str, entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return the table, and the text with it."""
    before = tomllib.loads(text)
    servers = before.get(key, {})
    old = servers.get(NAME, {}) if isinstance(servers, dict) else None
    if not isinstance(old, dict):
        raise ValueError(f"it has no tables of servers under {key!r}")
    # JSON of texts and lists of texts is TOML as well.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in entry.items()]
    table = f"[{key}.{NAME}]\n{''.join(lines)}"
    if _TABLE.search(text):
        after = _TABLE.sub(lambda found: table + "\n" * found[0].endswith("\n\n"), text, count=1)
    else:
        after = text + "\n" * (bool(text) and not text.endswith("\n")) + "\n" * bool(text) + table
    wanted = {name: value for name, value in old.items() if isinstance(value, dict)} | dict(entry)
    if tomllib.loads(after) != {**before, key: {**servers, NAME: wanted}}:
        raise ValueError(f"{key}.{NAME} stands there in a form that cannot be replaced alone")
    return table, after

"""`smp mcp --install`: the entry for each agent, and all else in its file as it was."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from daemons import smp

from smp_client import __version__
from smp_daemon.mcp.install import AGENTS

COMMAND = [sys.executable, "-P", "-m", "smp_daemon", "mcp"]
PLAIN = {"command": COMMAND[0], "args": COMMAND[1:]}
ENTRIES: dict[str, dict[str, Any]] = {
    "claude": PLAIN, "codex": PLAIN, "gemini": PLAIN,
    "copilot": {"type": "local", **PLAIN, "tools": ["*"]},
    "cursor": {**PLAIN, "args": [*COMMAND[1:], "--directory", "${workspaceFolder}"]},
    "opencode": {"type": "local", "command": COMMAND, "enabled": True},
}  # fmt: skip
FILES = {
    "claude": "project/.mcp.json", "codex": "home/.codex/config.toml", "copilot": "home/.copilot/mcp-config.json",
    "cursor": "project/.cursor/mcp.json", "gemini": "project/.gemini/settings.json", "opencode": "project/opencode.json",
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    return tmp_path


def install(place: Path, agent: str, *flags: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("CODEX_HOME", "CLAUDE_PROJECT_DIR")}
    return smp("mcp", "--install", agent, *flags, cwd=place / "project", env={**environment, "HOME": str(place / "home")})


def read(path: Path) -> Any:
    return tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())


def test_the_entry_for_the_registry_of_servers_is_of_this_version() -> None:
    top = Path(__file__).parent.parent.parent
    project = tomllib.loads((top / "pyproject.toml").read_text())["project"]
    entry = json.loads((top / "server.json").read_text())
    [package] = entry["packages"]
    assert entry["version"] == package["version"] == __version__
    assert package["identifier"] == project["name"]
    assert project["name"] in project["scripts"], "uvx runs the script that is named like the package"
    assert [one["value"] for one in package["runtimeArguments"]] == project["optional-dependencies"]["mcp"]
    assert len(entry["description"]) <= 100


@pytest.mark.parametrize("agent", FILES)
def test_the_entry_is_printed_and_written_only_when_asked(place: Path, agent: str) -> None:
    path = place / FILES[agent]
    shown = install(place, agent)
    assert shown.returncode == 0
    assert str(path) in shown.stderr
    assert not path.exists()
    assert install(place, agent, "--yes").returncode == 0
    entry = read(path)[AGENTS[agent].key]["smp"]
    assert ENTRIES[agent] | entry == entry
    assert (tomllib.loads(shown.stdout) if path.suffix == ".toml" else json.loads(shown.stdout)) == read(path)
    assert "already" in install(place, agent, "--yes").stderr
    assert len(list(path.parent.iterdir())) == 1, "nothing was there, so there is no copy"


def test_json_keeps_all_else_its_indent_its_mode_and_a_copy(place: Path) -> None:
    path = place / FILES["gemini"]
    path.parent.mkdir()
    before = {"theme": "café", "mcpServers": {"other": {"httpUrl": "https://example.org"}, "smp": {"command": "old", "timeout": 5}}}
    path.write_text(json.dumps(before, indent=4, ensure_ascii=False))
    path.chmod(0o640)
    text = path.read_bytes()
    assert install(place, "gemini", "--yes").returncode == 0
    after = read(path)
    assert after["theme"] == "café"
    assert after["mcpServers"]["other"] == before["mcpServers"]["other"]  # type: ignore[index]
    assert after["mcpServers"]["smp"] == {"command": COMMAND[0], "timeout": 5, "args": COMMAND[1:]}
    assert path.read_text().startswith('{\n    "theme": "café"')
    assert not path.read_text().endswith("\n"), "as it was"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    [copy] = [one for one in path.parent.iterdir() if one != path]
    assert copy.read_bytes() == text


TOML = """\
# my settings
model = "gpt"   # the good one

[mcp_servers.other]
command = "x"
args = ["[mcp_servers.smp]"]

[mcp_servers.smp]
command = "old" # remark
startup_timeout_sec = 3

[mcp_servers.smp.env]
KEY = "kept"

[profiles.a]
text = '''
[not.a.table]
'''
"""


def test_toml_changes_our_table_and_not_a_byte_of_the_rest(place: Path) -> None:
    """A link to the file stays a link."""
    path, real = place / FILES["codex"], place / "dotfiles.toml"
    path.parent.mkdir()
    path.symlink_to(real)
    real.write_text(TOML)
    assert install(place, "codex", "--yes").returncode == 0
    table = f'[mcp_servers.smp]\ncommand = "{COMMAND[0]}"\nargs = {json.dumps(COMMAND[1:])}\n\n'
    start, end = TOML.index("[mcp_servers.smp]\ncommand"), TOML.index("[mcp_servers.smp.env]")
    assert path.read_text() == TOML[:start] + table + TOML[end:]
    assert path.is_symlink()
    path.write_text('model = "gpt"')
    install(place, "codex", "--yes")
    assert path.read_text().startswith('model = "gpt"\n\n[mcp_servers.smp]\n')


@pytest.mark.parametrize(
    ("agent", "content"),
    [
        ("gemini", '{"a": 1, // a remark\n}'), ("gemini", '{"mcpServers": []}'), ("gemini", '{"a": 1, "a": 2}'),
        ("claude", b"\xff\xfe"), ("codex", "a = "), ("codex", "mcp_servers = 3"), ("codex", '[mcp_servers."smp"]\ncommand = "x"\n'),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_changed_with_certainty_is_left_alone(place: Path, agent: str, content: str | bytes) -> None:
    path = place / FILES[agent]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = path.read_bytes()
    done = install(place, agent, "--yes")
    assert done.returncode == 1
    assert done.stderr.startswith(f"smp: {path} cannot be read as it should be")
    assert "smp_daemon" in done.stderr, "it says what to put there by hand"
    assert "Traceback" not in done.stderr
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]

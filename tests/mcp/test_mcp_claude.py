"""The real Claude Code starts the server and calls it; only the model behind it is a stand-in, and there is no network."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smp_client import Memory
from smp_daemon.mcp.tools import TOOLS

OFFLINE = Path(__file__).parent / "offline.py"


def _claude() -> Path:
    found = importlib.util.find_spec("claude_agent_sdk")
    if found is None or found.origin is None:
        pytest.skip("Claude Code is not here: pip install claude-agent-sdk, which carries it")
    return Path(found.origin).parent / "_bundled/claude"


def _run(project: Path, tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """Let Claude Code call a tool, and return what it asked of its model, request by request."""
    claude = _claude()
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a network namespace needs root")
    installed = [sys.executable, "-P", "-m", "smp_daemon", "mcp", "--install", "claude", "--yes"]
    subprocess.run(installed, cwd=project, check=True, capture_output=True)
    asked = [str(claude), str(project / ".mcp.json"), f"mcp__smp__{tool}", json.dumps(arguments)]
    done = subprocess.run(
        ["unshare", "-n", sys.executable, str(OFFLINE), *asked], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert '"is_error":false' in said["result"], said
    requests: list[dict[str, Any]] = said["asked"]
    return requests


def _tool_result(request: dict[str, Any]) -> Any:
    [result] = [part for part in request["messages"][-1]["content"] if part["type"] == "tool_result"]
    assert not result.get("is_error"), result
    return result["content"]


@pytest.mark.slow
def test_claude_code_lists_the_tools_searches_and_finds_what_another_run_recorded(tmp_path: Path) -> None:
    project = tmp_path / "shop"
    project.mkdir()
    first, second = _run(project, "memory_record", kind="decision", text="Use OAuth 2.0 with JWT", why="SSO later")
    listed = json.dumps(first)
    assert all(f"mcp__smp__{tool.name}" in listed for tool in TOOLS)
    assert "SMP is the memory of this project" in listed, "the instructions reach the model"
    recorded = json.loads(_tool_result(second))["id"]
    [session] = Memory(project / ".bmad/sessions").sessions()
    assert session.get(recorded.partition("/")[2]).data["made_by"] == "claude"

    _, answered = _run(project, "memory_search", query="oauth")
    found = json.loads(_tool_result(answered))
    assert [hit["id"] for hit in found["hits"]] == [recorded]
    assert "Scope: every session in" in found["scope"]

    _, answered = _run(project, "memory_context", task="the login")
    assert "Use OAuth 2.0 with JWT" in json.dumps(_tool_result(answered)), "a text alone reaches the model, too"

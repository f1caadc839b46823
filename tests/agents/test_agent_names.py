"""One name for each agent."""

from __future__ import annotations

import pytest

from smp_client.model.agent_names import agent_name, file_name, names_of


@pytest.mark.parametrize(("given", "name"), [
    ("claude-code", "claude"), ("Claude Code", "claude"), ("claude-ai", "claude"),
    ("codex-mcp-client", "codex"), ("codex_cli_rs", "codex"),
    ("gemini-cli-mcp-client", "gemini"), ("gemini-cli-mcp-client-smp", "gemini"),
    ("cursor-vscode", "cursor"), ("qwen-code", "qwen"), ("Visual Studio Code", "copilot"),
    ("claude-ai (via mcp-remote 0.1.37)", "claude"),
    ("aider", "aider"), ("raw client", "raw client"), ("Vera", "Vera"), ("", ""),
])  # fmt: skip
def test_a_known_agent_has_one_name(given: str, name: str) -> None:
    assert agent_name(given) == name


def test_every_agent_has_a_name_that_files_can_have() -> None:
    assert file_name("raw client / 2") == "raw-client-2"
    assert file_name("Claude Code") == "claude"
    assert file_name("../..") == "agent"
    assert len(file_name("x" * 100)) == 64
    assert {"claude", "claude-code"} <= set(names_of("Claude Code"))
    assert "raw-client" in names_of("Raw client")

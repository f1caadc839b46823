"""One name for each agent, whatever a client, a hook or a person calls it."""

from __future__ import annotations

import re

# The further names of each agent, as file names in lower case.
_ALIASES = {
    "aider": ("aider-chat",),
    "claude": ("claude-code", "claude-ai", "claude-desktop", "claude-cli"),
    "cline": ("cline-bot",),
    "codex": ("codex-cli", "codex-cli-rs", "openai-codex"),
    "copilot": ("copilot-cli", "github-copilot", "github-copilot-cli", "visual-studio-code"),
    "cursor": ("cursor-agent", "cursor-cli", "cursor-vscode"),
    "gemini": ("gemini-cli",),
    "goose": ("goose-cli", "goose-desktop"),
    "opencode": ("open-code", "opencode-ai"),
    "qwen": ("qwen-cli", "qwen-code"),
    "roo": ("roo-code", "roo-cline"),
    "windsurf": ("windsurf-client",),
}
_NAMES = {alias: name for name, aliases in _ALIASES.items() for alias in (name, *aliases)}
_CLIENT = "-mcp-client"
_LONGEST = 64
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
# Codex and Gemini CLI name their clients so, with the name of the server behind it; bridges say
# through which program they come.
_BEHIND = re.compile(f"({_CLIENT}|-via-).*")


def agent_name(given: str) -> str:
    """Return the one name of a known agent; of others, the name as it is given."""
    return _NAMES.get(_plain(given), given)


def file_name(given: str) -> str:
    """Return the name of an agent as files can have it: the one name, if it is known."""
    return _UNFIT.sub("-", agent_name(given)).strip("-_")[:_LONGEST] or "agent"


def names_of(given: str) -> list[str]:
    """Return the file names, in lower case, under which an agent may have saved its state."""
    name = agent_name(given)
    names = [name, *_ALIASES.get(name, ())]
    names += [f"{one}{_CLIENT}" for one in names]
    return list(dict.fromkeys([given.lower(), *names, file_name(given).lower()]))


def _plain(given: str) -> str:
    words = _UNFIT.sub("-", given.strip().lower().replace("_", "-")).strip("-")
    return _BEHIND.sub("", words)

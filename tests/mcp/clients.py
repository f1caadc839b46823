"""The package's own client, for the tests: in this process, or over the pipes of a server that is a process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from smp_client import Memory
from smp_daemon.mcp.desk import Desk
from smp_daemon.mcp.server import build

HANDSHAKES = ["legacy", "auto"]  # initialize as in 2025, and server/discover as in 2026
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Said:
    """An answer as a client gets it."""

    text: str
    data: dict[str, Any] | None
    is_error: bool

    @property
    def size_bytes(self) -> int:
        data = json.dumps(self.data, ensure_ascii=False).encode() if self.data is not None else b""
        return len(self.text.encode()) + len(data)


class Agent:
    """A connected client; a refusal fails the test unless it is expected."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **given: Any) -> Said:
        said = await self.raw(tool, given)
        assert not said.is_error, said.text
        return said

    async def refused(self, tool: str, **given: Any) -> str:
        said = await self.raw(tool, given)
        assert said.is_error, said.text
        return said.text

    async def raw(self, tool: str, given: dict[str, Any]) -> Said:
        with anyio.fail_after(PATIENCE_S):
            result = await self.client.call_tool(tool, given)
        [content] = result.content
        assert content.type == "text"
        return Said(content.text, result.structured_content, bool(result.is_error))

    async def error(self, asked: Awaitable[Any]) -> str:
        """Return what the protocol's error says."""
        try:
            await asked
        except MCPError as error:
            return str(error)
        raise AssertionError("it was answered")


Story = Callable[[Agent], Awaitable[Any]]


def tell(server: Desk | StdioServerParameters, story: Story, mode: str = "auto") -> Any:
    """Run what a client does with a server: a desk in this process, or a process to be started."""

    async def run() -> Any:
        async with Client(build(server) if isinstance(server, Desk) else server, mode=mode) as client:
            return await story(Agent(client))

    return anyio.run(run)


def desk_in(directory: Path, **options: Any) -> Desk:
    directory.mkdir(parents=True, exist_ok=True)
    return Desk(Memory(directory / ".bmad/sessions"), directory, **options)


def kept_files(desk: Desk) -> dict[str, bytes]:
    """Return the files that are the truth."""
    kept = ("active", "archived", "deleted", "global")
    paths = [path for place in kept for path in (desk.memory.root / place).rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in paths if path.name != "access.log"}


def process_in(directory: Path, *arguments: str) -> StdioServerParameters:
    directory.mkdir(parents=True, exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if name != "SMP_ROOT"}
    command = ["-P", "-m", "smp_daemon", "mcp", *arguments]
    return StdioServerParameters(command=sys.executable, args=command, cwd=directory, env=inherited)

"""The server as a process: both handshakes over pipes, killed, and without its package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clients import HANDSHAKES, Agent, desk_in, process_in, tell
from daemons import smp

from smp_client import Memory
from smp_daemon.mcp.tools import TOOLS

SERVER = [sys.executable, "-P", "-m", "smp_daemon", "mcp"]
HELLO = {
    "jsonrpc": "2.0", "id": 0, "method": "initialize",
    "params": {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "raw client", "version": "1"}},
}  # fmt: skip


@pytest.mark.parametrize("mode", HANDSHAKES)
def test_every_tool_answers_over_pipes(tmp_path: Path, mode: str) -> None:
    async def story(agent: Agent) -> None:
        assert [tool.name for tool in (await agent.client.list_tools()).tools] == [tool.name for tool in TOOLS]
        said = await agent.call("memory_record", kind="finding", text="The café has no naïve limit: 日本", severity="high")
        assert said.data is not None
        finding = said.data["id"]
        found = (await agent.call("memory_search", query="naïve limit")).data
        assert found is not None
        assert [hit["id"] for hit in found["hits"]] == [finding]
        for tool, given in (
            ("memory_get", {"ids": [finding]}), ("memory_context", {}), ("memory_timeline", {}), ("memory_sessions", {}),
            ("memory_update", {"id": finding, "status": "resolved", "note": "limited"}),
        ):  # fmt: skip
            assert "日本" in (await agent.call(tool, **given)).text
        await agent.call("memory_forget", ids=[finding], reason="a test")
        assert "SMP is the memory" in (agent.client.instructions or "")

    tell(process_in(tmp_path / "shop"), story, mode)
    assert smp("check", "--root", tmp_path / "shop/.bmad/sessions").returncode == 0


class Raw:
    """A server spoken to line by line, as a client of 2024 does."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [*SERVER, *arguments], cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.send(HELLO)
        self.hello = self.receive()
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def call(self, number: int, tool: str, arguments: object) -> None:
        asked = {"name": tool, "arguments": arguments}
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": asked})

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.end()

    def end(self) -> tuple[int, bytes, bytes]:
        """Close its input, and return its exit code and what else it said."""
        said, errors = self.process.communicate()
        return self.process.returncode, said, errors


def test_a_client_of_2024_is_served_and_a_closed_pipe_ends_the_server(tmp_path: Path) -> None:
    with Raw(tmp_path / "shop") as server:
        assert server.hello["result"]["protocolVersion"] == "2024-11-05"
        nested = json.loads("[" * 900 + "]" * 900)
        for number, arguments in enumerate(([1], "text", 7, None, True, nested), 1):  # none of them an object
            server.call(number, "memory_search", arguments)
            said = server.receive()
            assert said["id"] == number
            assert "error" in said or said["result"]["isError"]
            assert "Traceback" not in json.dumps(said)
        server.call(7, "memory_search", {"query": "half an emoji: \ud83d"})
        assert "Nothing is remembered yet" in server.receive()["result"]["content"][0]["text"]
        server.call(9, "memory_record", {"kind": "learning", "text": "It works"})
        assert server.receive()["result"]["structuredContent"]["id"].endswith("/LEARN-001")
        assert server.end() == (0, b"", b"")
    [session] = Memory(tmp_path / "shop/.bmad/sessions").sessions()
    assert session.get("LEARN-001").data["learned_by"] == "raw client"


def test_a_server_that_is_killed_in_the_middle_of_a_call_loses_nothing_acknowledged(tmp_path: Path) -> None:
    directory = tmp_path / "shop"
    with Raw(directory) as server:
        for number in range(40):
            server.call(number + 1, "memory_record", {"kind": "decision", "text": f"Decision {number}", "why": "x" * 500})
        said = [server.receive() for _ in range(3)]
        server.process.kill()
        _, rest, _ = server.end()
    said += [json.loads(line) for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
    acknowledged = [one["result"]["structuredContent"]["id"] for one in said]
    assert 3 <= len(set(acknowledged)) == len(acknowledged)

    async def story(agent: Agent) -> None:
        for name in acknowledged:
            assert f"## {name}" in (await agent.call("memory_get", ids=[name])).text
        assert (await agent.call("memory_record", kind="decision", text="Life goes on")).data

    tell(desk_in(directory), story)
    assert smp("check", "--root", directory / ".bmad/sessions").returncode == 0


def test_a_server_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(SERVER, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'session-memory-persistence[mcp]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_named_like_the_package_does_not_take_its_place(tmp_path: Path) -> None:
    """Agents start the server in any directory."""
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp/__init__.py").write_text("raise SystemExit('not me')\n")
    assert tell(process_in(tmp_path), lambda agent: agent.client.list_tools()).tools

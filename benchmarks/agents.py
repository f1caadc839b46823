"""What it costs an agent to have the server: its start, each call and its memory, beside the bare package with an empty tool."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from .asking import filled_memory
from .measure import Bench, Row, Target, Timing, benchmark
from .processes import compiled_environment, resident_mb

MEMORIES = 10_000
CALL_S = 0.005
OURS = ["-P", "-m", "smp_daemon", "mcp"]
BARE = """
import anyio, mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

async def listed(_, __):
    return types.ListToolsResult(tools=[types.Tool(name="empty", input_schema={"type": "object"})])

async def called(_, __):
    return types.CallToolResult(content=[types.TextContent(type="text", text="")])

async def main():
    server = Server("bare", on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())

anyio.run(main)
"""
CALLS: dict[str, dict[str, Any]] = {
    "memory_search": {"query": "gateway token"},
    "memory_get": {"ids": ["DEC-007"]},
    "memory_context": {"task": "refresh the token"},
    "memory_timeline": {},
    "memory_sessions": {},
    "memory_record": {"kind": "learning", "text": "The gateway checks signatures only"},
}


class Connection:
    """A server that is spoken to line by line, with no client in between that costs time itself."""

    def __init__(self, bench: Bench, arguments: list[str], directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments], cwd=directory, env=compiled_environment(bench.directory), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._number = 0
        client = {"name": "benchmark", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        self._send({"method": "notifications/initialized"})

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, method: str, given: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdout is not None
        self._number += 1
        self._send({"id": self._number, "method": method, "params": given})
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in said or said["result"].get("isError"):
            raise RuntimeError(str(said))
        return said

    def call(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        return self.ask("tools/call", {"name": tool, "arguments": given})

    def end(self) -> None:
        self._process.communicate()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()


@benchmark("mcp start")
def start(bench: Bench) -> Iterator[Row]:
    root = str(filled_memory(bench, MEMORIES).root)
    times = bench.compare(
        partial(_started, bench, [*OURS, "--root", root]), partial(_started, bench, ["-P", "-c", BARE]), rounds=20
    )
    yield Row("start, until the tools are listed", f"{MEMORIES:,} memories", "the bare package", *times, Target(ratio=1.3))


def _started(bench: Bench, arguments: list[str]) -> None:
    connection = Connection(bench, arguments, bench.directory)
    connection.ask("tools/list", {})
    connection.end()


@benchmark("mcp calls")
def calls(bench: Bench) -> Iterator[Row]:
    with _both(bench) as (ours, bare):
        for tool, given in CALLS.items():
            times = bench.compare(partial(ours.call, tool, given), partial(bare.call, "empty", {}), rounds=200)
            size = len(json.dumps(ours.call(tool, given)["result"]))
            target = Target(seconds=CALL_S)
            yield Row(tool, f"{MEMORIES:,} memories", "an empty tool", *times, target, note=f"{size:,} bytes")


@benchmark("mcp memory")
def memory(bench: Bench) -> Iterator[Row]:
    with _both(bench) as (ours, bare):
        for tool, given in CALLS.items():
            ours.call(tool, given)
        bare.call("empty", {})
        size, other = resident_mb(ours.pid), resident_mb(bare.pid)
        yield Row("resident, after a call of each tool", f"{MEMORIES:,} memories", "the bare package",
                  Timing(size, size), Timing(other, other), unit="MB")  # fmt: skip


@contextmanager
def _both(bench: Bench) -> Iterator[tuple[Connection, Connection]]:
    root = str(filled_memory(bench, MEMORIES).root)
    ours = Connection(bench, [*OURS, "--root", root], bench.directory)
    bare = Connection(bench, ["-P", "-c", BARE], bench.directory)
    try:
        yield ours, bare
    finally:
        ours.end()
        bare.end()

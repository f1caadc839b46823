"""The server as a process: both handshakes over pipes, killed, and without its package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clients import HANDSHAKES, Agent, desk_in, process_in, tell
from daemons import smp

from smp_client import Memory
from smp_daemon.mcp.tools import TOOLS

SERVER = [sys.executable, "-P", "-m", "smp_daemon", "mcp"]
HELLO: dict[str, Any] = {
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


@contextmanager
def told(directory: Path, *calls: tuple[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server, and send calls of tools line by line, numbered from 1, as a client of 2024 does."""
    asked = [("tools/call", {"name": tool, "arguments": arguments}) for tool, arguments in calls]
    with asked_for(directory, *asked) as process:
        yield process


@contextmanager
def asked_for(directory: Path, *requests: tuple[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server, and send requests line by line, numbered from 1."""
    directory.mkdir(parents=True, exist_ok=True)
    messages = [HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
    for number, (method, params) in enumerate(requests, 1):
        messages.append({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    pipe = subprocess.PIPE
    with subprocess.Popen(SERVER, cwd=directory, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(b"".join(json.dumps(one).encode() + b"\n" for one in messages))
            process.stdin.flush()
            yield process
        finally:
            process.kill()


def received(process: subprocess.Popen[bytes], count: int) -> dict[int, Any]:
    """Return the answers to the greeting and to so many calls, by their numbers."""
    assert process.stdout is not None
    said = [json.loads(process.stdout.readline()) for _ in range(count + 1)]
    return {one["id"]: one for one in said}


def test_a_client_of_2024_is_served_and_a_closed_pipe_ends_the_server(tmp_path: Path) -> None:
    wrong = ([1], "text", 7, None, True, json.loads("[" * 900 + "]" * 900))  # none of them an object
    calls = [*(("memory_search", arguments) for arguments in wrong),
             ("memory_search", {"query": "half an emoji: \ud83d"})]  # fmt: skip
    with told(tmp_path / "shop", *calls, ("memory_record", {"kind": "learning", "text": "It works"})) as process:
        said = received(process, 8)
        assert (*process.communicate(), process.returncode) == (b"", b"", 0)
    assert said[0]["result"]["protocolVersion"] == "2024-11-05"
    for number in range(1, len(wrong) + 1):
        assert "error" in said[number] or said[number]["result"]["isError"]
        assert "Traceback" not in json.dumps(said[number])
    assert not said[7]["result"]["isError"]
    assert said[8]["result"]["structuredContent"]["id"].endswith("/LEARN-001")
    [session] = Memory(tmp_path / "shop/.bmad/sessions").sessions()
    assert session.get("LEARN-001").data["learned_by"] == "raw client"


LONG = "x" * 99_000
QUOTING: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "memory_get", "arguments": {"ids": [LONG]}}),
    ("tools/call", {"name": "memory_get", "arguments": {LONG: 1}}),
    ("tools/call", {"name": LONG, "arguments": {}}),
    ("tools/call", {"name": "memory_timeline", "arguments": {"session": LONG}}),
    ("tools/call", {"name": "memory_search", "arguments": {"query": LONG, "project": LONG}}),
    ("tools/call", {"name": "memory_update", "arguments": {"id": LONG, "note": "x"}}),
    ("tools/call", {"name": "memory_forget", "arguments": {"ids": [LONG], "reason": "x"}}),
    (
        "tools/call",
        {
            "name": "memory_record",
            "arguments": {"kind": "decision", "text": "x", "about": [f"resolves {LONG}"]},
        },
    ),
    ("resources/read", {"uri": f"smp://memory/{LONG}/DEC-001"}),
    ("resources/read", {"uri": LONG}),
    ("prompts/get", {"name": LONG}),
    ("prompts/get", {"name": "recall", "arguments": {"topic": LONG}}),
    ("prompts/get", {"name": "resume", "arguments": {LONG: "x"}}),
    (LONG, {}),
]


def test_no_refusal_is_longer_than_its_limit_whatever_it_quotes(tmp_path: Path) -> None:
    """The lines as they leave the server: answers, refusals, and the errors of the protocol."""
    project = tmp_path / "shop"
    Memory(project / ".bmad/sessions").create_session().record_decision("Limit", made_by="architect")
    with asked_for(project, *QUOTING) as process:
        for number, said in received(process, len(QUOTING)).items():
            line = json.dumps(said)
            assert len(line) <= 8192, (number, line[:200])
            assert "x" * 1001 not in line, (number, line[:200])


def test_a_server_that_is_killed_in_the_middle_of_a_call_loses_nothing_acknowledged(tmp_path: Path) -> None:
    directory = tmp_path / "shop"
    records = [("memory_record", {"kind": "decision", "text": f"Decision {number}", "why": "x" * 500}) for number in range(40)]
    with told(directory, *records) as process:
        said = received(process, 3)
        process.kill()
        rest, _ = process.communicate()
    said |= {one["id"]: one for one in map(json.loads, rest[: rest.rfind(b"\n") + 1].splitlines())}
    del said[0]
    acknowledged = [one["result"]["structuredContent"]["id"] for one in said.values()]
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

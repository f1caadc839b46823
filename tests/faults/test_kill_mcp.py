"""`kill -9` of an MCP server, between two requests and in the middle of one."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from smp_client import Memory

_HELLO = {"protocolVersion": "2024-11-05", "capabilities": {}}
_CLIENT = {"clientInfo": {"name": "test", "version": "1"}}


class Server:
    """A process of `smp mcp`, to which a client writes lines."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "smp_daemon", "mcp", "--root", str(root)]
        command += ["--directory", str(root.parent)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._number = 0
        self.ask("initialize", {**_HELLO, **_CLIENT})
        self.answer()
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any]) -> None:
        self._number += 1
        asked = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._send(asked)

    def record(self, text: str) -> None:
        arguments = {"kind": "decision", "text": text}
        self.ask("tools/call", {"name": "memory_record", "arguments": arguments})

    def answer(self) -> dict[str, Any] | None:
        """Return the answer to the last request; None if the server died before."""
        assert self._process.stdout
        while line := self._process.stdout.readline():
            said: dict[str, Any] = json.loads(line)
            if said.get("id") == self._number:
                return said
        return None

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()


@pytest.mark.parametrize("lives", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_a_record_that_was_acknowledged_over_mcp_survives_the_server(
    tmp_path: Path, lives: int
) -> None:
    """Nothing is there twice, ids are not given twice, and the next server goes on."""
    moment = random.Random(lives)
    root = tmp_path / "sessions"
    Memory(root).create_session(id="s1")
    acknowledged: dict[str, str] = {}  # ids by text
    asked: set[str] = set()
    for life in range(lives):
        server = Server(root)
        last = moment.randrange(1, 8)
        for number in range(last + 1):
            text = f"We decided number {life}-{number}."
            asked.add(text)
            server.record(text)
            if number == last and life % 2:
                time.sleep(moment.uniform(0, 0.02))  # waits for nothing: any moment will do
                server.kill()
            if (answer := server.answer()) is not None:
                acknowledged[text] = answer["result"]["structuredContent"]["id"]
        server.close()
    memory = Memory(root)
    found: Counter[str] = Counter()
    names: Counter[str] = Counter()
    for session in memory.sessions():
        for record in session.records("decision"):
            found[record.text] += 1
            names[f"{session.id}/{record.id}"] += 1
            if record.text in acknowledged:
                assert acknowledged[record.text] == f"{session.id}/{record.id}"
        assert session.problems() == []
    assert set(acknowledged) <= set(found) <= asked
    assert {*found.values(), *names.values()} == {1}
    assert len(acknowledged) >= lives

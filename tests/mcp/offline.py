"""Runs Claude Code once with a stand-in for its model, where no network is: `unshare -n python offline.py CLAUDE CONFIG TOOL JSON`.

The stand-in lets the agent call one tool, then says "Done." It prints what the agent sent to it, and the
agent's own result, as JSON.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_UP = 0x1
_SET_FLAGS = 0x8914  # SIOCSIFFLAGS


def main() -> None:
    claude, config, tool, arguments = sys.argv[1:]
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
    asked: list[dict[str, Any]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _model(tool, json.loads(arguments), asked))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "HOME": home, "PATH": os.environ["PATH"], "ANTHROPIC_API_KEY": "none", "IS_SANDBOX": "1",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}", "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1",
        }  # fmt: skip
        command = [claude, "-p", "Go on.", "--output-format", "json", "--mcp-config", config, "--strict-mcp-config"]
        done = subprocess.run([*command, "--allowedTools", tool], env=environment, capture_output=True, text=True, check=False)
    print(json.dumps({"asked": asked, "result": done.stdout, "errors": done.stderr}))


def _model(tool: str, arguments: object, asked: list[dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    class Model(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(b"{}", "application/json")

        do_HEAD = do_GET

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "/messages" not in self.path or "count_tokens" in self.path:
                self._answer(b'{"input_tokens": 1}', "application/json")
                return
            asked.append(body)
            is_first = '"tool_result"' not in json.dumps(body["messages"])
            events = _events(body["model"], tool, arguments) if is_first else _events(body["model"], None, "Done.")
            stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
            self._answer(stream.encode(), "text/event-stream")

        def _answer(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Model


def _events(model: str, tool: str | None, says: object) -> list[dict[str, Any]]:
    """Return a message of the model as it is streamed: a call of the tool, or a text."""
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": says}
    if tool:
        block = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(says)}
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage,
               "stop_reason": None, "stop_sequence": None}  # fmt: skip
    stop = {"stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": usage},
        {"type": "message_stop"},
    ]


if __name__ == "__main__":
    main()

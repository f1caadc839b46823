"""The log: JSON lines for the journal and for a file, readable lines on a terminal.

Each line has `timestamp`, `level`, `component`, `session_id` (null where it is about no session)
and `message`, which is `event` as well, then its values. Lines go to stderr or to one rotating
file. A line that cannot be written is dropped, and `problem` says why until a line is written
again. Secrets are redacted here, wherever a value comes from: names of files are given by others.
Only this module uses structlog.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from smp_client.disk.tree import Tree
from smp_client.redaction.redact import harmless

from .config.settings import Configuration

__all__ = ["FilteringBoundLogger", "Log", "ms_since"]

_FIRST = ("timestamp", "level", "component", "session_id", "message", "event")
_LEVELS = ("debug", "info", "warning", "error", "critical")
_STALLED_S = 1.0
_CONSOLE = structlog.dev.ConsoleRenderer(
    colors=False, sort_keys=False, exception_formatter=structlog.dev.plain_traceback
)


class Log:
    """A log that any thread may use, through `logger`."""

    def __init__(self, settings: Configuration) -> None:
        self.problem = ""  # why the last line was dropped
        self._lock = threading.Lock()
        self.configure(settings)
        level = structlog.processors.add_log_level
        stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
        self.logger: FilteringBoundLogger = structlog.wrap_logger(
            self,
            processors=[level, self._filter, stamp, self._render],
            wrapper_class=structlog.make_filtering_bound_logger("debug"),
        )

    def configure(self, settings: Configuration) -> None:
        """Use these settings from the next line on."""
        self._level: str = settings["log.level"]
        self._max_bytes: int = settings["log.max_bytes"]
        self._file: Path | None = settings["log.file"]
        is_seen = self._file is None and sys.stderr is not None and sys.stderr.isatty()
        self._console = _CONSOLE if is_seen else None

    def msg(self, line: str) -> None:
        """Write a rendered line, or drop it and note the problem."""
        # File names in a line may hold bytes that are not UTF-8.
        content = f"{line}\n".encode(errors="backslashreplace")
        with self._lock:
            try:
                if self._file is not None:
                    self._append(self._file, content)
                # Only the first line after a good one waits for a reader that has stopped reading.
                elif select.select([], [2], [], 0.0 if self.problem else _STALLED_S)[1]:
                    os.write(2, content)
                else:
                    raise TimeoutError("nobody reads stderr")
                self.problem = ""
            except Exception as error:
                self.problem = f"Log lines are lost: {error}"

    debug = info = warning = error = critical = exception = msg

    def _append(self, file: Path, content: bytes) -> None:
        """Append to a file of ours alone: made with mode 0600, and never a link or a FIFO."""
        tree, name = Tree(file.parent), file.name
        if not file.parent.is_dir():
            tree.create_root(())
        flags = os.O_WRONLY | os.O_APPEND | (0 if tree.exists(name) else os.O_CREAT)
        descriptor = tree.open(name, flags)
        try:
            size = os.fstat(descriptor).st_size
            if size and size + len(content) > self._max_bytes:
                tree.rename(name, f"{name}.1")
                os.close(descriptor)
                descriptor = tree.open(name, flags | os.O_CREAT)
            if os.write(descriptor, content) < len(content):
                raise OSError("there was no room for a whole line")
        finally:
            os.close(descriptor)

    def _filter(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Drop a line below the level, which may change while bound loggers are in use."""
        if _LEVELS.index(event["level"]) < _LEVELS.index(self._level):
            raise structlog.DropEvent
        return event

    def _render(self, logger: WrappedLogger, method: str, event: EventDict) -> str:
        event = structlog.processors.format_exc_info(logger, method, event)
        clean = {name: _clean(value) for name, value in event.items()}
        if self._console is not None:
            shown = {name: value for name, value in clean.items() if value not in (None, [], {})}
            return self._console(logger, method, shown)
        clean["message"] = clean.get("event")
        return json.dumps({name: clean.get(name) for name in _FIRST} | clean)


def _clean(value: object) -> object:
    """Return a value as the log may have it: without secrets, and made of types that JSON has."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {harmless(str(name)): _clean(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(item) for item in value]
    return harmless(str(value))


def ms_since(started: float) -> float:
    """Return the milliseconds since `started`, a time of `time.perf_counter`."""
    return round(1000 * (time.perf_counter() - started), 1)

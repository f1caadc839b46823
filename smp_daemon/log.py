"""The log: JSON lines for the journal and for a file, readable lines on a terminal.

Each line has `timestamp`, `level`, `component`, `event` and `session_id` (null where it is about
no session), then its values. Lines go to stderr or to one rotating file. A line that cannot be
written is dropped, and `problem` says why until a line is written again. Only this module uses
structlog.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import time
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from smp_client.disk.tree import Tree

from .config.settings import Configuration

__all__ = ["FilteringBoundLogger", "Log", "ms_since"]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_FIRST = ("timestamp", "level", "component", "event", "session_id")
_LAST = ("component", "pid", "root")  # on a terminal, where people look for the event
_EMPTY: tuple[object, ...] = (None, [], {}, ())
_STALLED_S = 1.0


class Log:
    """A log that any thread may use. `logger` stays the same object when the settings change."""

    def __init__(self, settings: Configuration) -> None:
        self.problem = ""  # why the last line was dropped
        self._use(settings)
        levels = [structlog.processors.add_log_level, self._drop_unimportant]
        stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
        self.logger: FilteringBoundLogger = structlog.wrap_logger(
            self,
            processors=[*levels, stamp, self._render],
            # `change` can lower the level, so the filter is a processor.
            wrapper_class=structlog.make_filtering_bound_logger(0),
        )

    def change(self, settings: Configuration) -> None:
        """Use other settings from the next line on. A file is opened again by its name."""
        self.close()
        self._use(settings)

    def close(self) -> None:
        with suppress(OSError):
            self._output.close()

    def retry(self) -> None:
        """Find out whether the log works again after a problem."""
        if self.problem:
            self.msg()

    def msg(self, *lines: str) -> None:
        """Write these rendered lines, or drop them and note the problem."""
        try:
            # Only the first line after a good one waits for a reader that has stopped reading.
            longest_s = 0.0 if self.problem else _STALLED_S
            if not self._is_file and not select.select([], [sys.stderr], [], longest_s)[1]:
                raise TimeoutError("nobody reads stderr")
            problem, self.problem = self.problem, ""
            if problem:
                self.logger.error("log lines lost", component="log", reason=problem)
            for line in lines:
                self._output.handle(logging.LogRecord("smp", logging.INFO, "", 0, line, (), None))
        except Exception as error:
            self.problem = f"Log lines are lost: {error}"
            self.close()  # a stream would write the dropped line later

    debug = info = warning = error = critical = exception = msg

    def _use(self, settings: Configuration) -> None:
        file, form = settings["log.file"], settings["log.format"]
        on_terminal = file is None and sys.stderr is not None and sys.stderr.isatty()
        self._is_pretty = form == "pretty" or (form == "auto" and on_terminal)
        self._console = structlog.dev.ConsoleRenderer(
            colors=on_terminal and not os.environ.get("NO_COLOR"), sort_keys=False,
            exception_formatter=structlog.dev.plain_traceback,
        )  # fmt: skip
        self._least = _LEVELS[settings["log.level"]]
        self._is_file = file is not None
        self._output: logging.Handler = logging.StreamHandler()
        if file is not None:
            size, keep = settings["log.max_bytes"], settings["log.keep"]
            self._output = _File(file, maxBytes=size, backupCount=keep, delay=True)
        self._output.handleError = _raise  # type: ignore[assignment, method-assign]

    def _drop_unimportant(self, _: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        if _LEVELS.get(event["level"], 50) < self._least:
            raise structlog.DropEvent
        return event

    def _render(self, logger: WrappedLogger, method: str, event: EventDict) -> str:
        if self._is_pretty:
            shown = {name: value for name, value in event.items() if value not in _EMPTY}
            last = {name: shown.pop(name) for name in _LAST if name in shown}
            return self._console(logger, method, shown | last)
        event = structlog.processors.format_exc_info(logger, method, event)
        return json.dumps({name: event.get(name) for name in _FIRST} | dict(event), default=str)


class _File(RotatingFileHandler):
    """A file of ours alone: made with mode 0600, and never a link or a FIFO."""

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        for directory in reversed(path.parents):
            Tree(directory).create_root(())
        tree = Tree(path.parent)
        flags = os.O_WRONLY | os.O_APPEND | (0 if tree.exists(path.name) else os.O_CREAT)
        descriptor = tree.open(path.name, flags)
        # File names in a line may hold bytes that are not UTF-8.
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


def _raise(_record: logging.LogRecord) -> None:
    raise  # the error that is being handled; `Log.msg` notes it


def ms_since(started: float) -> float:
    """Return the milliseconds since `started`, a time of `time.perf_counter`."""
    return round(1000 * (time.perf_counter() - started), 1)

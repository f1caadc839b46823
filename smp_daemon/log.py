"""Structured logs: JSON lines for the journal and for files, readable lines on a terminal. The only user of structlog.

Each line has `timestamp`, `level`, `component`, `event` and `session_id` (null where it is about no session), then its values.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from .log_output import Nowhere, Output, RotatingFile, Stream, Target
from .settings import LogSettings

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_FIRST = ("timestamp", "level", "component", "event", "session_id")
_LAST = ("component", "pid", "root")  # on a terminal, where people look for what happened


class Log:
    """`logger` is what the parts of the daemon are given; it stays the same when the settings change."""

    def __init__(self, settings: LogSettings) -> None:
        self._use(settings)
        target, complain = _targets(settings)
        self._output = Output(target, self._render_own, complain)
        self.logger: FilteringBoundLogger = structlog.wrap_logger(
            self._output,
            processors=[self._drop_unimportant, _add_time, self._render],
            wrapper_class=structlog.make_filtering_bound_logger(0),  # the level can change, so it is looked at below
        )

    @property
    def lost_lines(self) -> int:
        """How many lines could not be written since the start."""
        return self._output.lost_lines

    def change(self, settings: LogSettings) -> None:
        """Other settings from the next line on."""
        self._use(settings)
        self._output.redirect(*_targets(settings))

    def close(self) -> None:
        self._output.close()

    def _use(self, settings: LogSettings) -> None:
        self._least = _LEVELS[settings.level]
        on_terminal = settings.file is None and sys.stderr is not None and sys.stderr.isatty()
        pretty = settings.format == "pretty" or (settings.format == "auto" and on_terminal)
        self._renderer = _pretty(colors=on_terminal and not os.environ.get("NO_COLOR")) if pretty else _json_line

    def _drop_unimportant(self, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        event["level"] = "error" if method == "exception" else method
        if _LEVELS.get(event["level"], 50) < self._least:
            raise structlog.DropEvent
        return event

    def _render(self, logger: WrappedLogger, method: str, event: EventDict) -> str:
        try:
            return str(self._renderer(logger, method, event))
        except Exception as error:
            # Whatever a value's own code does when it is shown: the line is written without the values.
            known = {name: event[name] if isinstance(event.get(name), str) else None for name in _FIRST}
            return json.dumps({**known, "unrenderable": type(error).__name__})

    def _render_own(self, says: str, **values: object) -> str:
        """A line about the log itself."""
        event: EventDict = {"event": says, "level": "warning", "component": "log", **values}
        return self._render(None, "warning", _add_time(None, "warning", event))


def start(settings: LogSettings) -> Log:
    return Log(settings)


def _targets(settings: LogSettings) -> tuple[Target, Target | None]:
    """Where the lines go, and where to say that they cannot go there."""
    stderr: Target = Stream(sys.stderr.fileno()) if sys.stderr is not None else Nowhere()
    if settings.file is None:
        return stderr, None
    return RotatingFile(settings.file, settings.max_bytes, settings.keep), stderr


def _add_time(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["timestamp"] = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return event


def _json_line(logger: WrappedLogger, method: str, event: EventDict) -> str:
    event = structlog.processors.format_exc_info(logger, method, event)
    return json.dumps({name: event.get(name) for name in _FIRST} | dict(event), default=str, allow_nan=False)


def _pretty(*, colors: bool) -> Processor:
    plain = structlog.dev.plain_traceback
    renderer = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain, sort_keys=False)

    def render(logger: WrappedLogger, method: str, event: EventDict) -> str:
        said = {name: value for name, value in event.items() if value is not None and value not in ([], {}, ())}
        last = {name: said.pop(name) for name in _LAST if name in said}
        return renderer(logger, method, said | last)

    return render


__all__ = ["FilteringBoundLogger", "Log", "start"]


def ms_since(started: float) -> float:
    """How long it took, as lines say it; `started` is of `time.perf_counter`."""
    return round(1000 * (time.perf_counter() - started), 1)

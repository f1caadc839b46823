"""Structured logs on stderr: JSON lines for journald and files, readable lines on a terminal."""

from __future__ import annotations

import sys
from typing import TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor


def configure(stream: TextIO | None = None) -> FilteringBoundLogger:
    target = stream if stream is not None else sys.stderr
    pretty = target.isatty()
    renderer: Processor = structlog.dev.ConsoleRenderer() if pretty else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=lambda *_: _UnfailingLogger(target),
        cache_logger_on_first_use=True,
    )
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger


class _UnfailingLogger:
    """A log line that cannot be written (a full disk, a closed pipe) must never stop the work it speaks of."""

    def __init__(self, target: TextIO) -> None:
        self._target = target
        self.lost_lines = 0

    def msg(self, message: str) -> None:
        try:
            self._target.write(message + "\n")
            self._target.flush()
        except (OSError, ValueError):
            self.lost_lines += 1

    debug = info = warning = error = critical = exception = msg


__all__ = ["FilteringBoundLogger", "configure"]

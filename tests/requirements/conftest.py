from __future__ import annotations

from examples import example as example

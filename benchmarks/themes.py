"""The themes, in the order in which they are run. A new one is a module with `@benchmark` functions and a name here."""

from . import (
    agents,
    asking,
    daemon,
    growth,
    many,
    moving,
    parsing,
    reading,
    starting,
    upkeep,
    writing,
)

THEMES = (writing, reading, asking, parsing, starting, daemon, upkeep, moving, agents, growth, many)

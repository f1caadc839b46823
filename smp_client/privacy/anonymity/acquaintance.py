"""Whom a memory knows by name: from its metadata, from who spoke, from the user's profile, and from a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import Invalid, SMPError
from ...layout import GLOBAL
from ...records import TURN
from ...session_files import METADATA
from ...text.mapping import load_mapping
from ..deleting.standing import PROFILE, Standing, type_of_file
from .names import Names, is_somebody
from .placeholders import is_placeholder

if TYPE_CHECKING:
    from ...memory import Memory

_OWN_NAMES = (
    "name", "full_name", "first_name", "last_name", "given_name", "family_name", "display_name", "preferred_name", "nickname",
    "username", "user_name", "user_id", "login", "handle",
)  # fmt: skip


@dataclass
class Acquaintance:
    people: dict[str, None] = field(default_factory=dict)
    projects: dict[str, None] = field(default_factory=dict)
    speakers: dict[str, None] = field(default_factory=dict)
    actors: dict[str, None] = field(default_factory=dict)  # who is said to be an agent
    passed_over: dict[str, None] = field(default_factory=dict)  # too short, or too common, to be looked for

    def names(self) -> Names:
        """Whoever speaks is somebody, unless said to be an agent. What is a placeholder already is nobody's name."""
        people = [*self.people, *(name for name in self.speakers if name not in self.actors and is_somebody(name))]
        people, projects = ([name for name in names if not is_placeholder(name)] for names in (people, self.projects))
        return Names(people, projects)

    @property
    def agents(self) -> list[str]:
        """Those who took part and keep their names."""
        names = self.names()
        return [name for name in self.actors if is_somebody(name) and not is_placeholder(name) and not names.find(name)]

    def give(self, names: Iterable[str], projects: Iterable[str]) -> None:
        for known, given in ((self.people, names), (self.projects, projects)):
            for name in given:
                if len(name.strip()) < 2 or not any(map(str.isalnum, name)):
                    raise Invalid([f"{name!r} is too short for a name"])
                known[name.strip()] = None

    def meet_metadata(self, value: Mapping[str, Any]) -> None:
        participants, context = _mapping(value.get("participants")), _mapping(value.get("context"))
        agents = participants.get("agents")
        for agent in agents if isinstance(agents, list) else ():
            if isinstance(name := _mapping(agent).get("agent_id"), str):
                self.actors[name] = None
        self._meet(self.people, participants.get("user_id"))
        self._meet(self.projects, context.get("project_name"))

    def meet_profile(self, value: Mapping[str, Any]) -> None:
        for name in (part.get(key) for part in (value, _mapping(value.get("user"))) for key in _OWN_NAMES):
            self._meet(self.people, name)

    def meet_speaker(self, name: object) -> None:
        if isinstance(name, str) and name not in self.people:
            self.speakers[name] = None

    def meet_agent(self, name: str) -> None:
        self.actors[name] = None

    def told_passed_over(self) -> list[str]:
        """Names that are not looked for unless somebody gives them, in sentences."""
        return [f"{name!r} was not looked for: it is too short, or a word that is no name; give it with --name or --project."
                for name in self.passed_over if name not in self.people and name not in self.projects]  # fmt: skip

    def _meet(self, known: dict[str, None], name: object) -> None:
        if not isinstance(name, str) or not name.strip():
            return
        if is_somebody(name):
            known[name] = None
        # A user called `user` has no name; a project called so has.
        elif known is self.projects or not name.strip().isalpha() or len(name.strip()) < 2:
            self.passed_over[name] = None


def acquainted(memory: Memory, found: Iterable[Standing], names: Iterable[str] = (), projects: Iterable[str] = ()) -> Acquaintance:
    """Whom a session knows, all its turns looked at."""
    known = Acquaintance()
    known.give(names, projects)
    known.meet_profile(profile(memory))
    for one in found:
        if one.file == METADATA:
            known.meet_metadata(one.value)
        elif one.file == TURN.file:
            known.meet_speaker(one.value.get("speaker"))
        elif type_of_file(one.file) == "agent_state" and one.is_file:
            known.meet_agent(one.id)
    return known


def profile(memory: Memory) -> dict[str, Any]:
    """What the user says of themselves; nothing where that cannot be read."""
    try:
        return dict(load_mapping(memory._scope(GLOBAL).read(PROFILE), "user_profile", PROFILE))
    except (SMPError, OSError):
        return {}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

"""What a person can ask for by name: go on, look back, wrap up, hand over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from smp_client.agents.page import fenced

from .desk import Desk
from .parameter import Parameter, checked
from .tools import TOOLS


@dataclass(frozen=True)
class Prompt:
    """A prompt; `say` gets the desk and the arguments, and returns the text for the model."""

    name: str
    about: str
    say: Callable[[Desk, Mapping[str, str | None]], str]
    parameters: tuple[Parameter, ...] = ()

    def text(self, desk: Desk, given: Mapping[str, str]) -> str:
        return self.say(desk, checked(f"The prompt {self.name}", self.parameters, given))


def _answer(desk: Desk, tool: str, **given: str | None) -> str:
    return next(one for one in TOOLS if one.name == tool).call(desk, "prompt", given).text


def _resume(desk: Desk, given: Mapping[str, str | None]) -> str:
    about = f" with {fenced(given['topic'])}" if given["topic"] else ""
    return (
        f"Let us go on{about}. Below is what is remembered. Say in a few sentences where we stand,"
        " what is open and what"
        f" you would do next, then wait.\n\n{_answer(desk, 'memory_context', task=given['topic'])}"
    )


def _recall(desk: Desk, given: Mapping[str, str | None]) -> str:
    return (
        f"What do we know about {fenced(given['topic'] or '')}? Use the memories below, read those"
        " that matter with"
        " memory_get, cite their ids, and say plainly where nothing is remembered."
        f"\n\n{_answer(desk, 'memory_search', query=given['topic'])}"
    )


def _wrap_up(_: Desk, __: Mapping[str, str | None]) -> str:
    return (
        "Before we stop: go through this conversation and record with memory_record what was"
        " decided (with why), found"
        " (with severity), learned, and what I said I prefer; one fact a call, and nothing that is"
        " recorded already. Update"
        " with memory_update what was resolved or replaced. Then record next_steps, and list the"
        " ids for me."
    )


def _handoff(_: Desk, given: Mapping[str, str | None]) -> str:
    to = f" to {fenced(given['to'])}" if given["to"] else ""
    return (
        f"Hand this work over{to}. Record with memory_record what is decided and found but not"
        " recorded yet, then next_steps"
        " that somebody who was not here can follow: where things are, what was tried, what comes"
        " first. Then write me a"
        " short note with the ids that they should read."
    )


_topic = Parameter("topic", "What it is about.")
PROMPTS = (
    Prompt("resume", "Go on where the last session stopped.", _resume, (_topic,)),
    Prompt("wrap_up", "Record what this session decided, found and learned.", _wrap_up),
    Prompt(
        "recall",
        "What is known about a topic.",
        _recall,
        (Parameter("topic", _topic.about, required=True),),
    ),
    Prompt(
        "handoff",
        "Leave the work so that another agent can go on.",
        _handoff,
        (Parameter("to", "Who goes on."),),
    ),
)

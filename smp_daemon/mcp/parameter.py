"""The parameters of a tool: one description, which gives its schema and the check of each call.

The check is ours, and not the package's: an agent is told in one sentence the mistake and the
right. It is lenient where the meaning is plain: one text where a list is wanted, "5" for 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smp_client.model.quotation import shown

_TEXT_CHARACTERS = 100_000


class Refused(Exception):
    """A call that cannot be answered, in one sentence for the agent. Nothing was written."""


@dataclass(frozen=True)
class Parameter:
    """An argument of a tool. `type` is `string`, `integer`, `boolean` or `array` (of texts)."""

    name: str
    about: str
    type: str = "string"
    required: bool = False
    choices: tuple[str, ...] = ()
    least: int = 1  # value, or entries of a list
    most: int = 100
    default: Any = None

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the value."""
        said: dict[str, Any] = {"type": self.type, "description": self.about}
        choices = {"enum": list(self.choices)} if self.choices else {}
        if self.type == "array":
            said |= {"items": {"type": "string"} | choices, "maxItems": self.most}
            said |= {"minItems": self.least} if self.required else {}
        else:
            said |= choices
        if self.type == "integer":
            said |= {"minimum": self.least, "maximum": self.most}
        return said | ({"default": self.default} if self.default is not None else {})

    def checked(self, value: Any) -> Any:
        """Return the value in its type; raise Refused where it is none."""
        if value is None and not self.required:
            return self.default
        if self.type == "string":
            return self._text(value)
        if self.type == "integer":
            return self._number(value)
        if self.type == "boolean":
            flags = {"true": True, "false": False, True: True, False: False}
            key = value.lower() if isinstance(value, str) else value
            if not isinstance(key, (str, bool)) or key not in flags:
                raise self._refused("true or false", value)
            return flags[key]
        values = [value] if isinstance(value, str) else value
        least = self.least if self.required else 0
        if not isinstance(values, list) or not least <= len(values) <= self.most:
            raise self._refused(f"a list of {self.least} to {self.most} texts", value)
        return [self._text(item) for item in values]

    def _text(self, value: Any) -> str:
        limit = f"a text of 1 to {_TEXT_CHARACTERS:,} characters"
        one_of = f"one of {', '.join(self.choices)}" if self.choices else limit
        if not isinstance(value, str) or not value.strip() or len(value) > _TEXT_CHARACTERS:
            raise self._refused(one_of, value)
        if value.encode(errors="replace").decode() != value:
            raise Refused(f"{self.name} holds half of a surrogate pair, which is no character.")
        if self.choices and value not in self.choices:
            raise self._refused(one_of, value)
        return value

    def _number(self, value: Any) -> int:
        text = value if isinstance(value, str) and len(value) < 20 else ""
        number = int(text) if text.isdecimal() else value
        if type(number) is float and number.is_integer():
            number = int(number)
        if type(number) is not int or not self.least <= number <= self.most:
            raise self._refused(f"a whole number from {self.least} to {self.most}", value)
        return number

    def _refused(self, right: str, value: Any) -> Refused:
        return Refused(f"{self.name} must be {right}, not {shown(value)}.")


def schema(parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the JSON schema of a call."""
    return {
        "type": "object",
        "properties": {one.name: one.schema() for one in parameters},
        "required": [one.name for one in parameters if one.required],
        "additionalProperties": False,
    }


def checked(what: str, parameters: Sequence[Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call, each in its type. Raise Refused where one is wrong."""
    names = [one.name for one in parameters]
    wrong = [shown(name) for name in given if name not in names]
    missing = [one.name for one in parameters if one.required and given.get(one.name) is None]
    if wrong or missing:
        lacks, has = f"needs {' and '.join(missing)}", f"has no {', '.join(wrong[:3])}"
        its = f"its arguments are {', '.join(names) or 'none'}"
        raise Refused(f"{what} {lacks if missing else has}; {its}.")
    return {one.name: one.checked(given.get(one.name)) for one in parameters}

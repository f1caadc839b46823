"""The settings of what is kept of secrets: what is taken out of everything that is written."""

from __future__ import annotations

from dataclasses import dataclass

from smp_client.privacy.redaction import UNLOCKED, Redaction
from smp_client.privacy.secrets.shapes import PERSONAL_KINDS

from .kinds import ListOf, OneOf, Pairs, Patterns, TrueOrFalse, setting

_REDACTION = Redaction()


@dataclass(frozen=True)
class RedactionSettings:
    """What is taken out of everything that is written: secrets by their shapes, and what is named here."""

    enabled: bool = setting(_REDACTION.enabled, TrueOrFalse(), "Whether anything is taken out at all.")
    personal: tuple[str, ...] = setting(
        _REDACTION.personal, ListOf(OneOf(PERSONAL_KINDS), 0, len(PERSONAL_KINDS)), "Which personal data are taken out as well."
    )  # fmt: skip
    patterns: tuple[tuple[str, str], ...] = setting(
        Pairs(), Patterns(),
        "Further secrets, by a name for their kind. Every text that is written is searched for them: a slow one slows all.",
    )  # fmt: skip
    unlocked_edits: str = setting(
        _REDACTION.unlocked_edits, OneOf(UNLOCKED),
        "What the daemon does about secrets that came in past the library, as by an editor: report them, redact them in their file,"
        " or nothing. Only secrets by their shape are redacted there; what is named above is reported.",
    )  # fmt: skip

    @property
    def redaction(self) -> Redaction:
        return Redaction(self.enabled, self.personal, tuple(self.patterns), self.unlocked_edits)

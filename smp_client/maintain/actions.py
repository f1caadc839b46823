"""The result of a pass, under its old name."""

from ..model.outcome import Action as Action
from ..model.outcome import Action as MemoryAction
from ..model.outcome import Outcome as Outcome

__all__ = ["Action", "MemoryAction", "Outcome"]

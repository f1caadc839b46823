"""The drops of a session: those that wait, and rejected ones with a note that says why."""

from __future__ import annotations

from ..model.errors import SMPError
from .tree import Tree

INBOX, REJECTED = "inbox", "inbox/rejected"
NOTE = ".why.md"  # behind the name of a rejected drop
_NOTE_CAP_BYTES = 4096


def waiting(tree: Tree, directory: str) -> list[str]:
    """Return the names of the drops in the inbox of a session, whose directory this is."""
    names = [name for name in _names(tree, f"{directory}/{INBOX}") if name != "rejected"]
    return [name for name in names if name[0] != "." and not name.endswith((".tmp", ".part", "~"))]


def rejected(tree: Tree, directory: str) -> list[str]:
    """Return the names of the rejected drops of a session."""
    return [name for name in _names(tree, f"{directory}/{REJECTED}") if not name.endswith(NOTE)]


def note_of(name: str, why: str) -> str:
    """Return the note for a rejected drop."""
    mend = "Mend it and move it back into `inbox/`, or remove both files."
    return f"# {name} was not taken in\n\n{why}\n\n{mend}\n"


def why_rejected(tree: Tree, directory: str, name: str) -> str:
    """Return the reason in the note beside a rejected drop; an empty text where there is none."""
    try:
        content = tree.read(f"{directory}/{REJECTED}/{name}{NOTE}")[:_NOTE_CAP_BYTES]
    except (OSError, SMPError):
        return ""
    paragraphs = content.decode("utf-8", "replace").split("\n\n")
    return " ".join(paragraphs[1].split()) if len(paragraphs) > 1 else ""


def _names(tree: Tree, path: str) -> list[str]:
    try:
        return tree.list(path)
    except (OSError, SMPError):
        return []  # something else stands in the place of the directory

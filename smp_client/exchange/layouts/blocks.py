"""What a message says whose content is a list of blocks, as chats with models keep it: `[{"type": "text", "text": "…"}, …]`."""

from __future__ import annotations

_TEXTS = ("text", "input_text", "output_text")
_NAME_CHARACTERS = 40


def text_of(content: object) -> str | None:
    """Its texts, a blank line between them, and of every other block what it is: `[image]`; None where these are no blocks."""
    if not isinstance(content, list) or not content:
        return None
    told = [_told(block) for block in content]
    return None if None in told else "\n\n".join(text for text in told if text)


def _told(block: object) -> str | None:
    if isinstance(block, str):
        return block
    if not isinstance(block, dict) or not isinstance(kind := block.get("type"), str):
        return None
    if kind in _TEXTS and isinstance(text := block.get("text"), str):
        return text
    name = block.get("name")
    return f"[{_short(kind)}: {_short(name)}]" if isinstance(name, str) and name.strip() else f"[{_short(kind)}]"


def _short(name: str) -> str:
    return " ".join(name.split())[:_NAME_CHARACTERS]

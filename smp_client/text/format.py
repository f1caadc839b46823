"""The two forms of a record file, YAML lists and the conversation in Markdown, under one face."""

from __future__ import annotations

from typing import TypeAlias

from ..model.layout import FORMAT_VERSION
from ..model.record import TURN, Kind, kind_of_file
from . import mapping
from .markdown import Conversation
from .version import is_record_file, is_versioned, require_known, top_of, version_in
from .yaml_list import YamlList

Format: TypeAlias = YamlList | Conversation


def format_of(kind: Kind) -> Format:
    return Conversation() if kind is TURN else YamlList(kind)


def is_plain(file: str, content: bytes) -> bool:
    """Return whether a file can be changed in place. Any other is rendered at its next write."""
    if is_versioned(file) and version_in(file, content) != FORMAT_VERSION:
        return False
    if (top := top_of(file)) is not None:
        return mapping.is_plain(content, top, file)
    return not is_record_file(file) or format_of(kind_of_file(file)).is_plain(content)


def plain(file: str, content: bytes) -> bytes:
    """Return a record file as SMP would write it, with all that can be read of it.

    A file that is plain already is returned as it is.
    """
    require_known(version_in(file, content), file)
    if not content.strip() or is_plain(file, content):
        return content
    return format_of(kind_of_file(file)).render_plain(content)

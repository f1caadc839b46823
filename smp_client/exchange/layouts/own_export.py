"""The layout `smp`: a file that `smp export` wrote, in any of its forms."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import IO

from ...model.errors import Invalid
from .. import forms
from ..entry import Read
from .reader import Destination, Folder, Part, Reader
from .source import Source

LAYOUT = "smp"


def find(folder: Folder) -> Iterator[Part]:
    """Yield the file that was named, if it is an export. One in a folder must be named itself."""
    source = folder.source
    if source.is_folder:
        return
    for place in folder.places((source.file,)):
        if forms.recognise(source.beginning(place, forms.BEGINNING_BYTES)):
            yield Part((place,), partial(_read, source, place))


def _read(source: Source, place: str, _destination: Destination) -> Iterator[Read]:
    with source.opened(place) as opened:
        yield from read(opened, place)


def read(opened: IO[bytes], name: str) -> Iterator[Read]:
    """Yield the entries of an export; messages call it by its name."""
    form = forms.recognise(opened.read(forms.BEGINNING_BYTES))
    opened.seek(0)
    if form is None:
        advice = "Nothing was written; give it a file that smp export has written."
        raise Invalid([f"{name} is not an export of SMP"], advice=advice)
    yield from forms.read(opened, form, name)


READER = Reader(LAYOUT, find)

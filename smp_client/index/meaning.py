"""Meaning: memories that say a thing in other words, by the vectors of the extra `semantic`.

The vector of a text is the mean of the vectors of its words, from two data files of the package
`wordllama`; its code would look on the network. The daemon makes vectors, and the index keeps them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .database import Index

_NEEDS = ("numpy", "safetensors", "tokenizers", "wordllama")
_WORDS = "tokenizers/l2_supercat_tokenizer_config.json"
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_WIDTH = 256
_CAP = 2000  # characters of a memory: its beginning says what it is about
_UNRELATED = 0.1  # the likeness that two texts about different things may have
_MISSING = """
SELECT m.key, m.text FROM memories m LEFT JOIN vectors v ON v.memory = m.key
WHERE v.memory IS NULL LIMIT ?
"""


@functools.cache
def is_installed() -> bool:
    """Return whether the extra `semantic` is there."""
    return all(find_spec(name) for name in _NEEDS)


def make(index: Index, count: int) -> int:
    """Make the vectors of so many memories that have none, and return of how many."""
    rows = index.execute(_MISSING, (count,)).fetchall()
    # A sign and seven bits of each number are enough: the order of answers stays as it is.
    vectors = (127 * _vectors([text for _, text in rows])).round().astype("int8")
    made = [(key, vector.tobytes()) for (key, _), vector in zip(rows, vectors, strict=True)]
    if made:
        with index.batch(is_silent=True):
            index.connection.executemany("INSERT INTO vectors VALUES (?, ?)", made)
    return len(made)


def near(index: Index, scopes: Sequence[str], text: str, count: int) -> dict[int, float]:
    """Return the memories of these scopes that are nearest in meaning, each with a share of 1."""
    import numpy

    keys, owners, vectors = _kept(index)
    if not scopes or not len(keys):
        return {}
    asked = f"SELECT number FROM scopes WHERE scope IN (?{', ?' * (len(scopes) - 1)})"
    numbers = [number for (number,) in index.execute(asked, scopes)]
    likeness = vectors @ _vectors([text])[0] / 127
    likeness[~numpy.isin(owners, numbers)] = 0.0
    best = numpy.argsort(-likeness, kind="stable")[:count]
    shares = (likeness[best] - _UNRELATED) / (1 - _UNRELATED)
    shared = zip(keys[best].tolist(), shares.tolist(), strict=True)
    return {key: share for key, share in shared if share > 0}


def _kept(index: Index) -> tuple[Any, Any, Any]:
    """Return the keys, the scopes and the vectors that the index has, read anew after a change."""
    import numpy

    (version,) = index.execute("PRAGMA data_version").fetchone()
    if index.vectors is None or index.vectors[0] != version:
        asked = "SELECT v.memory, p.scope, v.vector FROM vectors v JOIN places p USING (memory)"
        rows = index.execute(asked).fetchall()
        keys, owners = (numpy.array([row[at] for row in rows], "int64") for at in (0, 1))
        whole = numpy.frombuffer(b"".join(row[2] for row in rows), "int8").reshape(-1, _WIDTH)
        index.vectors = (version, keys, owners, whole.astype("float32"))
    _, keys, owners, vectors = index.vectors
    return keys, owners, vectors


def _vectors(texts: Sequence[str]) -> Any:
    """Return one row of length 1 for each text; of a text without words, zeros."""
    import numpy

    words, weights = _model()
    found = numpy.zeros((len(texts), _WIDTH), "float32")
    begun = words.encode_batch([text[:_CAP] for text in texts], add_special_tokens=False)
    for row, encoded in zip(found, begun, strict=True):
        if encoded.ids:
            row[:] = weights[encoded.ids].astype("float32").mean(axis=0)
            row /= numpy.linalg.norm(row) or 1.0
    return found


@functools.cache
def _model() -> tuple[Any, Any]:
    from pathlib import Path

    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    found = find_spec("wordllama")
    assert found is not None  # nobody asks without the extra
    place = Path(str(found.origin)).parent
    words = Tokenizer.from_file(str(place / _WORDS))
    words.no_padding()
    return words, next(iter(load_file(place / _WEIGHTS).values()))

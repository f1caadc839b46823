"""The rows of the requirements that did not hold, by document and section.

Each is held by a test in this folder whose name has the section, by a test elsewhere, or by a line
under *Decided otherwise* in `smp_daemon/DESIGN.md`. `python tests/requirements/rows.py` counts.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
TOP = HERE.parent.parent
DESIGN = TOP / "smp_daemon" / "DESIGN.md"
HEADING = "## Decided otherwise"

ROWS = {
    "000": (
        "1.2.3b 1.2.6 2.1.5 2.2.1b 2.2.1e 2.2.1g 2.2.2b 2.2.2c 2.2.4e 2.3.1a 2.3.1b 2.3.1c 3.1.2"
        " 4.1.12 4.1.13 4.1.20 4.2.2 5.1.1b 5.1.3b 5.1.5b 5.1.5e 5.2.6 5.2.9 5.3.2 5.3.5 6.1.2"
        " 6.2.2 6.3.3 6.4.4 7.1.3 7.2.11 7.3.1 8.1.5 8.2.5 8.2.6 8.3.2 9.1.2 9.1.5 9.2.6 9.4.2"
        " 10.1.2 10.2.2 10.2.5 10.4.2 10.4.3 11.2.4 11.2.5 12.1.11 12.2.2 12.2.3 AppB.1b AppB.2b"
        " AppC.3b AppC.3c"
    ),
    "001": (
        "3.1b 3.4 4.1.1 4.1.3 4.2.2 4.3.2 5.1.8 5.3.3 7.2.2 7.3.3 7.3.4 7.3.5 7.3.6 8.3.3 9.1.3"
        " 9.1.5 9.1.9 10.1.6 10.2 12.2.1 12.2.2 12.2.4 12.2.5 13.1.2 16.4"
    ),
    "002": "1.2 2.1 3.1.2 4.2.4 5.1.2 8.2",
    "003": "1.3 3 5.1 7.1",
    "004": (
        "3.1.2 3.2.2 3.2.3 4.1.2 4.1.3 4.1.10 4.3.2 4.3.3 4.3.4 5.1.2 5.3.2 5.3.4 5.3.5 6.2.2"
        " 6.2.3 7.1.2 7.1.3 10.1.3 15.1.1 15.1.2 15.1.3 15.1.4 15.1.5 15.1.6 15.2.1 15.2.2 15.2.4"
        " 15.2.5"
    ),
}
# Rows without a test and without a line. It may only become shorter.
MISSING: dict[str, str] = {}


def rows(table: dict[str, str] = ROWS) -> list[str]:
    """Return every row as `000 4.1.12`."""
    return [f"{document} {row}" for document, given in table.items() for row in given.split()]


def with_tests() -> set[str]:
    """Return the rows that a test of this folder has in its name: `test_4_1_12_sort_names`.

    A test that holds several rows names the others in its docstring: `Also 003 5.1.`
    """
    found: set[str] = set()
    for path in sorted(HERE.glob("test_[0-9]*.py")):
        document = path.stem.split("_")[1]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found |= {row for row in rows() if _names(node.name, document, row)}
                also = re.search(r"Also ([^.]*(?:\.\w[^.]*)*)\.", ast.get_docstring(node) or "")
                found |= set(re.split(r",\s+", also[1])) if also else set()
    return found


def _names(test: str, document: str, row: str) -> bool:
    own, _, section = row.partition(" ")
    name = section.lower().replace(".", "_")
    return own == document and test.startswith(f"test_{name}_")


def decided() -> set[str]:
    """Return the rows that a line of the design answers, as `- 000 4.1.13, 002 3.1: …`."""
    _, _, part = DESIGN.read_text().partition(HEADING)
    part = re.split(r"\n## ", part)[0]
    heads = re.findall(r"^- (\d{3} [^:]*):", part, re.MULTILINE)
    return {row.strip() for head in heads for row in head.split(",")}


def missing() -> set[str]:
    return set(rows()) - with_tests() - decided()


if __name__ == "__main__":
    every = set(rows())
    print(f"{len(every)} rows: {len(every & with_tests())} have tests,", end=" ")
    print(f"{len(every & decided())} stand in the design, {len(missing())} are missing.")
    print("\n".join(sorted(missing())), end="")

"""Writes the JSON Schemas into `smp_client/schemas/`: `python tests/schema_files.py`."""

from __future__ import annotations

from pathlib import Path

from smp_client.model.schemas import schemas

FOLDER = Path(__file__).parent.parent / "smp_client" / "schemas"


def write() -> None:
    made = schemas()
    for path in FOLDER.glob("*.json"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    write()

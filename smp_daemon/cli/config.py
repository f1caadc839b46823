"""`smp config`: the settings, where they come from, and the mistakes in a file."""

from __future__ import annotations

import json
import sys

import click

from smp_client.text.values import Value, render_flow

from ..config.file import BadConfiguration, Loaded, read
from ..config.sample import plain, sample, shown
from ..config.settings import SETTINGS
from . import EXIT_BY_CODE

_json = click.option("--json", "as_json", is_flag=True, help="Say it in JSON.")


_WIDTH = max(map(len, SETTINGS)) + 2


_LINES = [f"  {key:<{_WIDTH}}{setting.says}" for key, setting in SETTINGS.items()]


@click.group(epilog="\b\nThe settings:\n" + "\n".join(_LINES))
def config() -> None:
    """Show, check and explain the settings."""


@config.command()
@click.option(
    "--config", "file", metavar="FILE",
    help="Use this file; else SMP_CONFIG, else the user's, else the system's.",
)
@_json
def show(file: str | None, as_json: bool) -> None:
    """Print every setting as it is in effect, and where it comes from."""
    loaded = read(file)
    values = shown(loaded.configuration)
    values["roots"], roots_from = _roots(loaded)
    origins = {key: _origin(loaded, key) for key in values} | {"roots": roots_from}
    if as_json:
        said = {key: {"value": value, "from": origins[key]} for key, value in values.items()}
        _print({"file": loaded.file and str(loaded.file), "settings": said})
        return
    texts = {key: render_flow(value) for key, value in values.items()}
    widths = max(map(len, texts)), min(40, max(map(len, texts.values())))
    for key, text in texts.items():
        click.echo(f"{key:<{widths[0]}}  {text:<{widths[1]}}  {origins[key]}")


@config.command()
@click.argument("file", required=False)
@_json
def check(file: str | None, as_json: bool) -> None:
    """Say everything that is wrong with FILE.

    Without it, with the file that is found. Exits 5 where something is.
    """
    try:
        loaded = read(file)
    except BadConfiguration as error:
        if not as_json:
            raise
        problems = [
            {"line": problem.line or None, "key": problem.key or None, "problem": problem.says}
            for problem in error.problems
        ]
        _print({"file": str(error.file), "ok": False, "problems": problems})
        sys.exit(EXIT_BY_CODE[error.code])
    if as_json:
        _print({"file": loaded.file and str(loaded.file), "ok": True, "problems": []})
    elif loaded.file is None:
        click.echo("There is no configuration file: the defaults are used.")
    else:
        given = f"{len(loaded.lines)} of {len(SETTINGS)} settings are given in it"
        click.echo(f"{loaded.file} is good: {given}.")


@config.command("sample")
@_json
def print_sample(as_json: bool) -> None:
    """Print a file with every setting, its default and what it is for."""
    if not as_json:
        click.echo(sample(), nl=False)
        return
    described = {
        key: {"default": plain(setting.default), "must_be": setting.type.says, "says": setting.says}
        for key, setting in SETTINGS.items()
    }
    _print(described)


def _print(answer: object) -> None:
    click.echo(json.dumps(answer, indent=2))


def _origin(loaded: Loaded, key: str) -> str:
    return f"{loaded.file}:{loaded.lines[key]}" if key in loaded.lines else "default"


def _roots(loaded: Loaded) -> tuple[Value, str]:
    """Return the roots as `smp run` would take them, and where they come from."""
    import os

    from .run import roots_of

    roots = [str(root) for root in roots_of((), loaded.configuration)]
    if os.environ.get("SMP_ROOT"):
        return list(roots), "SMP_ROOT"
    return list(roots), _origin(loaded, "roots") if loaded.configuration["roots"] else "found"

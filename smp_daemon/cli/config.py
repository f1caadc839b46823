"""`smp config`: what the settings are, where they come from, and what is wrong with them."""

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


@click.group(epilog="\b\nThe settings:\n" + "\n".join(f"  {key:<{_WIDTH}}{setting.says}" for key, setting in SETTINGS.items()))
def config() -> None:
    """Show, check and explain the settings."""


@config.command()
@click.option("--config", "file", metavar="FILE", help="Use this file; else SMP_CONFIG, else the user's, else the system's.")
@_json
def show(file: str | None, as_json: bool) -> None:
    """Print every setting as it is in effect, and where it comes from."""
    loaded = read(file)
    values = shown(loaded.configuration)
    values["roots"], roots_from = _roots(loaded)
    origins = {key: _origin(loaded, key) for key in values} | {"roots": roots_from}
    if as_json:
        said = {key: {"value": value, "from": origins[key]} for key, value in values.items()}
        click.echo(json.dumps({"file": loaded.file and str(loaded.file), "settings": said}, indent=2))
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
        problems = [{"line": each.line or None, "key": each.key or None, "problem": each.says} for each in error.problems]
        click.echo(json.dumps({"file": str(error.file), "ok": False, "problems": problems}, indent=2))
        sys.exit(EXIT_BY_CODE[error.code])
    if as_json:
        click.echo(json.dumps({"file": loaded.file and str(loaded.file), "ok": True, "problems": []}, indent=2))
    elif loaded.file is None:
        click.echo("There is no configuration file: the defaults are used.")
    else:
        click.echo(f"{loaded.file} is good: {len(loaded.lines)} of {len(SETTINGS)} settings are given in it.")


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
    click.echo(json.dumps(described, indent=2))


def _origin(loaded: Loaded, key: str) -> str:
    return f"{loaded.file}:{loaded.lines[key]}" if key in loaded.lines else "default"


def _roots(loaded: Loaded) -> tuple[Value, str]:
    """The roots as `smp run` would take them."""
    import os

    from .run import roots_of

    roots = [str(root) for root in roots_of((), loaded.configuration)]
    if os.environ.get("SMP_ROOT"):
        return list(roots), "SMP_ROOT"
    return list(roots), _origin(loaded, "roots") if loaded.configuration["roots"] else "found"

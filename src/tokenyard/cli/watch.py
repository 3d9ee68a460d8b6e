"""``tokenyard watch``: the Overview of what a server has done in the last minutes, while it runs."""

from __future__ import annotations

import math
from pathlib import Path

from rich.markup import escape

from tokenyard.cli.support.console import errors, results
from tokenyard.cli.support.flags.traces import WatchCommand
from tokenyard.cli.view import show
from tokenyard.errors import ConfigError
from tokenyard.web.newest import following, newest_trace, page_elsewhere


def execute(flags: WatchCommand) -> int:
    """Show the newest trace of a directory until interrupted, or open the page of a viewer elsewhere; 0 then."""
    if not (math.isfinite(flags.last) and flags.last > 0):
        raise ConfigError("last", flags.last, "must be a number of seconds above 0")
    if "://" in flags.source:
        return _elsewhere(page_elsewhere(flags.source, flags.last), is_opened=flags.browser)
    folder = Path(flags.source)
    newest = newest_trace(folder, lambda said: errors().print(f"[dim]{escape(said)}[/]", soft_wrap=True))
    state = following(str(newest), flags.last)
    return show((folder,), host=flags.host, port=flags.port, browser=flags.browser, state=state)


def _elsewhere(url: str, *, is_opened: bool) -> int:
    results().print(f"Watching at [bold]{escape(url)}[/]", soft_wrap=True)
    if is_opened:
        from tokenyard.web.serve import open_browser  # noqa: PLC0415 - an extra

        open_browser(url)
    else:
        errors().print("[dim]Open it in a browser.[/]")
    return 0

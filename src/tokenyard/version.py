"""Which Tokenyard this is."""

from __future__ import annotations

import os
import sys

_BEGIN, _END = "tokenyard-", ".dist-info"


def _installed() -> str:
    """The version of the installed package, or "unknown" where it runs from a bare source tree.

    The folder beside an installed package has it in its name: reading that takes a tenth of importlib.metadata's time.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - pathlib takes time to load, too
        except OSError:
            continue
        for name in names:
            if name.startswith(_BEGIN) and name.endswith(_END):
                return name.removeprefix(_BEGIN).removesuffix(_END)
    from importlib import metadata  # noqa: PLC0415 - other ways to install it

    try:
        return metadata.version("tokenyard")
    except metadata.PackageNotFoundError:
        return "unknown"


__version__ = _installed()

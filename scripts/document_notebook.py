"""A document's examples as a notebook: the text between them as text, each block as a cell with what it prints.

    python scripts/document_notebook.py docs/tasks/baselines.md examples/papers.ipynb            write it
    python scripts/document_notebook.py docs/tasks/baselines.md examples/papers.ipynb --check    say whether it is that

The documents are executed in CI, so that the outputs are what the code prints.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

__all__ = ["main", "notebook_of"]

_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```$(?:\n\n^```text\n(?P<printed>.*?)^```$)?", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://|#)([^)]*)\)")


def notebook_of(document: str, folder: str) -> dict[str, Any]:
    """The notebook of a document that lies in ``folder``, as seen from where the notebook lies."""
    cells: list[dict[str, Any]] = []
    end = 0
    for match in _BLOCK.finditer(document):
        _add_text(cells, document[end : match.start()], folder)
        printed = match["printed"]
        outputs = [] if printed is None else [{"output_type": "stream", "name": "stdout", "text": _lines(printed)}]
        code: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": outputs}
        cells.append({**code, "id": f"cell-{len(cells)}", "source": _lines(match["code"].rstrip("\n"))})
        end = match.end()
    _add_text(cells, document[end:], folder)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _add_text(cells: list[dict[str, Any]], text: str, folder: str) -> None:
    said = _LINK.sub(lambda link: f"]({folder}/{link[1]})", text.strip())
    if said:
        cells.append({"cell_type": "markdown", "id": f"cell-{len(cells)}", "metadata": {}, "source": _lines(said)})


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> int:
    """0 if it is written, or is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("document", type=Path)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; say whether it is up to date")
    args = parser.parse_args()
    folder = f"../{args.document.parent.as_posix()}"
    made = notebook_of(args.document.read_text(encoding="utf-8"), folder)
    text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
    if not args.check:
        args.notebook.write_text(text, encoding="utf-8")
        return 0
    if args.notebook.is_file() and args.notebook.read_text(encoding="utf-8") == text:
        return 0
    print(f"{args.notebook} is not what {args.document} says: run this without --check", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())

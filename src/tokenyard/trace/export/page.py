"""A trace inside a copy of the viewer: one HTML file that can be mailed and opens without a server or network.

The files are gzipped and in base64 inside an inert script tag, so nothing in a trace can end the tag or run. What was
said in prompts and answers is left out unless it is asked for: token ids as well as text, since ids are text to whoever
has the tokenizer.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import IO, Any

import msgspec

from tokenyard.errors import TraceError
from tokenyard.files.lines import DamagedFileError
from tokenyard.trace.read.files import TraceFiles, open_lines

__all__ = ["EMBEDDED_ID", "embed", "without_prompts"]

EMBEDDED_ID = "tokenyard-trace"
"""Id of the script tag (``viewer/src/data/embedded.ts`` looks for it)."""
_BETWEEN = b"\x1e\n"
"""Stands between the lines of the steps file and those of the requests file."""
_PRIVATE = re.compile(r"prompt|output|text|content|message|token_ids", re.IGNORECASE)
"""Fields that may hold what was said, if they hold text or a list; counts under such names are kept."""
_CONTENT_FREE = frozenset({"prompt_hash_runs", "output_hash_runs"})
_CHUNK = 3 * 64 * 1024


def embed(page: str, files: TraceFiles, out: IO[bytes], *, with_prompts: bool = False) -> int:
    """Write ``page`` with the trace in it; returns how many lines could not be read and were left out.

    Raises TraceError if ``page`` is no HTML page.
    """
    head, end, tail = page.rpartition("</body>")
    if not end:
        raise TraceError("the viewer's page has no </body>: build it again")
    paths = [path for path in files if path is not None]
    name = files.source.name.partition(".steps.")[0].partition(".requests.")[0]
    attributes = {
        "id": EMBEDDED_ID,
        "data-version": "1",
        "data-name": name,
        "data-steps-name": _plain_name(paths[0]),
        **({"data-requests-name": _plain_name(paths[1])} if len(paths) > 1 else {}),
        "data-prompts": "kept" if with_prompts else "removed",
    }
    shown = " ".join(f'{key}="{escape(value)}"' for key, value in attributes.items())
    out.write(f'{head}<script type="application/octet-stream" {shown}>'.encode())
    packed = _Packed(out)
    lost = 0
    for number, path in enumerate(paths):
        if number:
            packed.write(_BETWEEN)
        for line in _lines(path):
            kept = line if with_prompts else without_prompts(line)
            if kept is None:
                lost += 1
            else:
                packed.write(kept if kept.endswith(b"\n") else kept + b"\n")
    packed.finish()
    out.write(f"</script>\n{end}{tail}".encode())
    return lost


def _plain_name(path: Path) -> str:
    """The name of the file as it would be unpacked."""
    return path.name.partition(".jsonl")[0].removesuffix(".parquet") + ".jsonl"


class _Packed:
    """Gzip, then base64, written piece by piece; a piece's length is divisible by three, so that pieces join."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        self._held = bytearray()

    def write(self, data: bytes) -> None:
        self._held += self._packer.compress(data)
        if len(self._held) >= _CHUNK:
            self._out.write(base64.b64encode(self._held[:_CHUNK]))
            del self._held[:_CHUNK]

    def finish(self) -> None:
        self._out.write(base64.b64encode(self._held + self._packer.flush()))


def _lines(path: Path) -> Iterator[bytes]:
    try:
        for _, line in open_lines(path):
            yield line
    except DamagedFileError:
        return  # what came before the damage is the trace


def without_prompts(line: bytes) -> bytes | None:
    """A record without what was said; None if the line is no record, since nobody can tell what it holds."""
    if not _PRIVATE.search(line.decode(errors="replace")):
        return line
    try:
        record = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return None
    return msgspec.json.encode(_cleaned(record)) if isinstance(record, dict) else None


def _cleaned(value: Any) -> Any:
    """Whatever has a private name goes, unless it is a number; at any depth."""
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _cleaned(held)
        for name, held in value.items()
        if name in _CONTENT_FREE or not (isinstance(held, str | list | dict) and _PRIVATE.search(name))
    }

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
from pathlib import Path
from typing import IO, Any

import msgspec

from tokenyard.errors import TraceError
from tokenyard.trace.files import DamagedFileError, TraceFiles, open_lines

__all__ = ["EMBEDDED_ID", "embed", "without_prompts"]

EMBEDDED_ID = "tokenyard-trace"
"""Id of the script tag (``viewer/src/data/embedded.ts`` looks for it)."""
_PRIVATE = re.compile(r"prompt|output|text|content|message|token_ids|tokens_ids", re.IGNORECASE)
"""Fields that may hold what was said, if they hold text or a list; counts under such names are kept."""
_CHUNK = 3 * 64 * 1024
"""Divisible by three, so that pieces of base64 can be joined."""


def embed(page: str, files: TraceFiles, out: IO[bytes], *, with_prompts: bool = False) -> int:
    """Write ``page`` with the trace in it; returns how many lines could not be read and were left out.

    Raises TraceError if ``page`` is no HTML page.
    """
    head, end, tail = page.rpartition("</body>")
    if not end:
        raise TraceError("the viewer's page has no </body>: build it again")
    name = files.source.name.partition(".steps.")[0].partition(".requests.")[0]
    lost = 0
    out.write(head.encode())
    shown = msgspec.json.encode(name).replace(b"<", b"\\u003c")
    out.write(b'<script type="application/json" id="%b">{"version":1,"name":%b' % (EMBEDDED_ID.encode(), shown))
    for kind, path in (("steps", files.steps), ("requests", files.requests)):
        if path is not None:
            out.write(b',"%b":"' % kind.encode())
            lost += _write_packed(path, out, with_prompts=with_prompts)
            out.write(b'"')
    out.write(b"}</script>\n" + (end + tail).encode())
    return lost


def _write_packed(path: Path, out: IO[bytes], *, with_prompts: bool) -> int:
    """Gzip, then base64, piece by piece."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    held = bytearray()
    lost = 0
    for line in _lines(path):
        kept = line if with_prompts else without_prompts(line)
        if kept is None:
            lost += 1
            continue
        held += packer.compress(kept if kept.endswith(b"\n") else kept + b"\n")
        if len(held) >= _CHUNK:
            whole = len(held) - len(held) % 3
            out.write(base64.b64encode(held[:whole]))
            del held[:whole]
    held += packer.flush()
    out.write(base64.b64encode(held))
    return lost


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
        if not (isinstance(held, str | list | dict) and _PRIVATE.search(name))
    }

"""A trace inside a copy of the viewer: one HTML file that can be mailed and opens without a server or network.

The files are gzipped and in base64 inside an inert script tag, so nothing in a trace can end the tag or run. The
content of prompts and answers is left out unless it is requested: token ids as well as text, since the tokenizer turns
ids into text.
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
from tokenyard.files import Bounds, DamagedFileError, is_nested_deeper
from tokenyard.redaction import valid_text
from tokenyard.trace.reader import TraceFiles, open_lines
from tokenyard.trace.schema import STEP_EVENTS, RequestRecord
from tokenyard.trace.start import SECTION, DeploymentHeader

EMBEDDED_ID = "tokenyard-trace"
"""Id of the script tag (``viewer/src/data/embedded.ts`` looks for it)."""
ANSWER_ID = "tokenyard-answer"
"""Id of the script tag of the answer."""
MOST_BYTES = 600_000_000
"""Bytes of JSON lines that a page may hold: of 518 MB a browser shows all steps, of 701 MB it gives up among them."""
_BETWEEN = b"\x1e\n"
"""Stands between the lines of the steps file and those of the requests file."""
_PRIVATE = re.compile(r"prompt|output|text|content|message|token_ids", re.IGNORECASE)
"""Fields that may hold content of prompts or answers, if they hold text or a list; counts under such names are kept."""
_CONTENT_FREE = frozenset({"prompt_hash_runs", "output_hash_runs"})
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,79}")
_NAMING_SETTINGS = frozenset(
    {
        "dtype",
        "format",
        "gpu",
        "kind",
        "kv_cache_dtype",
        "kv_connector",
        "kv_load_failure_policy",
        "kv_role",
        "latency",
        "mamba_cache_mode",
        "method",
        "model",
        "policy",
        "prefix_caching_hash_algo",
        "stamped",
        "time_unit",
        "vllm_version",
        "workload",
    }
)
"""Settings whose text is a name out of a list, or that of a model or file."""
_CHUNK = 3 * 64 * 1024


def fitting(files: TraceFiles) -> tuple[TraceFiles, str | None]:
    """The files that fit a page, and what is left out, as a sentence; None if they fit as they are.

    Raises TraceError if not even the steps fit.
    """
    sizes = [0 if path is None else _size(path) for path in files]
    if sizes[0] > MOST_BYTES:
        raise TraceError(
            f"{files.source}: {sizes[0] / 1e6:,.0f} MB of steps are more than the {MOST_BYTES / 1e6:,.0f} MB that a "
            "browser reads from a page: open it with `tokenyard view`, or export a trace of fewer steps"
        )
    if files.steps is None or files.requests is None or sum(sizes) <= MOST_BYTES:
        return files, None
    most, records = (f"{size / 1e6:,.0f} MB" for size in (MOST_BYTES, sizes[1]))
    return TraceFiles(
        files.steps, None
    ), f"{records} of request records are left out: a browser reads {most} from a page"


def _size(path: Path) -> int:
    """Bytes of its JSON lines."""
    return path.stat().st_size if path.name.endswith(".jsonl") else sum(len(line) for line in _lines(path))


def embed(
    page: str,
    files: TraceFiles,
    out: IO[bytes],
    *,
    with_prompts: bool = False,
    state: str = "",
    answer: msgspec.Struct | None = None,
) -> int:
    """Write ``page`` with the trace in it; returns how many lines could not be read and were left out.

    ``answer`` is what the page says of it. ``state`` is what the page shows at first, as its address has it behind the
    ``#``; without it the beginning.
    Raises TraceError if ``page`` is no HTML page, or no line can be kept.
    """
    head, end, tail = page.rpartition("</body>")
    if not end:
        raise TraceError("the viewer's page has no </body>: build it again")
    paths = [path for path in files if path is not None]
    attributes = {
        "id": EMBEDDED_ID,
        "data-version": "1",
        "data-name": files.name,
        "data-steps-name": _plain_name(paths[0]),
        **({"data-requests-name": _plain_name(paths[1])} if len(paths) > 1 else {}),
        "data-prompts": "kept" if with_prompts else "removed",
        **({"data-state": state} if state else {}),
    }
    shown = " ".join(f'{key}="{escape(value)}"' for key, value in attributes.items())
    out.write(f'{head}<script type="application/octet-stream" {shown}>'.encode())
    packed = _Packed(out)
    lost = kept_lines = 0
    for number, path in enumerate(paths):
        if number:
            packed.write(_BETWEEN)
        for line in _lines(path):
            kept = line if with_prompts else without_prompts(line)
            if kept is None:
                lost += 1
            else:
                kept_lines += 1
                packed.write(kept if kept.endswith(b"\n") else kept + b"\n")
    if not kept_lines:
        raise TraceError(f"{files.source}: holds no record that can be read")
    packed.finish()
    out.write(b"</script>\n")
    if answer is not None:  # nothing in it can end the tag
        said = msgspec.json.encode(answer).replace(b"<", b"\\u003c")
        out.write(f'<script type="application/json" id="{ANSWER_ID}">'.encode() + said + b"</script>\n")
    out.write(f"{end}{tail}".encode())
    return lost


def _plain_name(path: Path) -> str:
    """The name of the file as it would be unpacked."""
    return valid_text(path.name.partition(".jsonl")[0].removesuffix(".parquet") + ".jsonl")


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
    """A record with what is known to be no prompt or answer; None if the line is no record.

    Kept are the fields of the trace format but those for text and token ids, and of a configuration numbers and the
    settings whose text is a name. The line is written anew, so that no way of writing it hides anything.
    """
    if is_nested_deeper(line, Bounds.from_env().nesting):
        return None
    try:
        record = msgspec.json.decode(line)
        types = _known_types(record)
        if types is None:
            return None
        kept = {name: _without_content(name, value, types[name]) for name, value in record.items() if name in types}
        return msgspec.json.encode({name: value for name, value in kept.items() if value is not _LEFT_OUT})
    except (ValueError, OverflowError):
        return None


def _known_types(record: object) -> dict[str, Any] | None:
    """The fields that the trace format knows in such a record, and their types; None if it is none of its records."""
    if not isinstance(record, dict):
        return None
    event = record.get("event")
    if event is None:
        return _TYPES[None]
    return _TYPES.get(event) if isinstance(event, str) else None


def _without_content(name: str, value: Any, type_: Any) -> Any:
    """What stays of a field of the trace format, whose type is ``type_``."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if name not in _CONTENT_FREE and _PRIVATE.search(name):
        return _LEFT_OUT
    return _settings(value) if name == "config" else _as_known(value, type_)


def _as_known(value: Any, type_: Any) -> Any:
    """``value`` with what ``type_`` knows of it: fields within it that are not known go."""
    try:
        return msgspec.to_builtins(msgspec.convert(value, type_))
    except msgspec.ValidationError:
        return _LEFT_OUT


def _settings(value: Any, name: str = "") -> Any:
    """A configuration, at any depth: numbers, and text where the setting is known to hold a name and no content.

    What is called like a prompt goes, unless it is a number, and so does what is called like no setting at all.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if _PRIVATE.search(name):
        return _LEFT_OUT
    if name == SECTION:
        known = _as_known(value, DeploymentHeader)
        return known if known is _LEFT_OUT else {key: held for key, held in known.items() if key in value}
    if isinstance(value, dict):
        kept = {key: _settings(held, key) for key, held in value.items() if _SETTING.fullmatch(key)}
        return {key: held for key, held in kept.items() if held is not _LEFT_OUT}
    if isinstance(value, list):
        return [held for held in (_settings(each, name) for each in value) if held is not _LEFT_OUT]
    return value if name in _NAMING_SETTINGS or not value else _LEFT_OUT


def _types_of(record: type[msgspec.Struct]) -> dict[str, Any]:
    return {"event": str, **{field.name: field.type for field in msgspec.structs.fields(record)}}


_LEFT_OUT = object()
_TYPES: dict[str | None, dict[str, Any]] = {
    None: _types_of(RequestRecord),
    **{event: _types_of(record) for event, record in STEP_EVENTS.items()},
}
"""Event, None for the requests file -> the fields of its record and their types."""

"""``GET /api/traces``: what there is to look at, a page at a time, newest first."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.server.web.listing.walk import Pair, Place, is_on_the_way, pairs_of, stretch
from tokenyard.server.web.problems import RefusedError, json_response
from tokenyard.server.web.roots import ANNOTATIONS_ENDING, Roots
from tokenyard.server.web.trace_summary import TraceFacts, facts_of_file
from tokenyard.trace.read.files import rank_of

__all__ = ["Catalog"]

_ENTRIES = 20_000
"""Directory entries looked at for a page."""
_TRACES = 2_000
"""On a page."""
_REMEMBERED = 20_000
"""Traces whose facts are kept."""


class _Page(NamedTuple):
    traces: list[dict[str, Any]]
    end: Place | None
    """Where the next page begins."""


class _Shared(NamedTuple):
    """The last page that was made."""

    place: Place
    began: float
    page: _Page


class Catalog:
    """Looks again at every question; what a file says about itself is remembered until the file changes."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._facts = lru_cache(_REMEMBERED)(_facts)
        self._lock = asyncio.Lock()
        self._last: _Shared | None = None

    async def serve(self, request: Request) -> Response:
        """Answer one request. Those that come while a page is being made share the next one."""
        place, came = _place(request.query_params.get("from")), time.monotonic()
        async with self._lock:
            last = self._last
            if last is None or last.place != place or last.began < came:
                began = time.monotonic()
                last = self._last = _Shared(place, began, await run_in_threadpool(self._page, place))
        page, headers = last.page, {}
        if page.end is not None:
            text = quote(msgspec.json.encode(page.end, enc_hook=str), safe="")
            headers["Link"] = f'</api/traces?from={text}>; rel="next"'
        return json_response(page.traces, headers=headers)

    def _page(self, place: Place) -> _Page:
        """One object per trace, the newest first. The files that were named are on the first page."""
        pairs = self._named() if place == Place() else []
        room = max(0, _TRACES - len(pairs))
        found = stretch(self._roots.directories, place, entries=_ENTRIES, most=room, wanted=self._stays_inside)
        pairs += found.pairs
        traces = [each for pair in pairs if (each := self._described(pair)) is not None]
        _mark_first_ranks(traces)
        return _Page(sorted(traces, key=lambda each: -each["mtime"]), found.end)

    def _named(self) -> list[Pair]:
        """The files that were named, but for those that a walk finds."""
        files = [path for path in sorted(self._roots.files) if path.is_file()]
        pairs = pairs_of(files)
        paired = {path for pair in pairs for path in (pair.steps, pair.requests)}
        others = [path for path in files if path not in paired and not path.name.endswith(ANNOTATIONS_ENDING)]
        directories = self._roots.directories
        apart = [pair for pair in pairs if not any(is_on_the_way(pair.stem.parent, root) for root in directories)]
        return apart + [Pair(path, path, None, is_only=False) for path in others]

    def _stays_inside(self, path: Path) -> bool:
        """It is no link that leads out."""
        return self._roots.allows(Path(os.path.realpath(path)))

    def _described(self, pair: Pair) -> dict[str, Any] | None:
        main = pair.steps or pair.requests
        assert main is not None
        try:
            status = main.stat()
            requests = pair.requests.stat().st_size if pair.requests is not None else None
        except OSError:
            return None  # gone meanwhile
        facts = TraceFacts()
        if pair.steps is not None:
            facts = self._facts(pair.steps, status.st_mtime_ns, status.st_size)
        steps = status.st_size if pair.steps is not None else None
        annotations = main.with_name(main.name + ANNOTATIONS_ENDING)
        rank = rank_of(main.parent)
        return {
            "name": self._name(pair),
            "date": datetime.fromtimestamp(status.st_mtime).astimezone().strftime("%Y-%m-%d %H:%M"),
            "mtime": status.st_mtime,
            "steps": [str(pair.steps)] if pair.steps is not None else [],
            "requests": [str(pair.requests)] if pair.requests is not None else [],
            "steps_mb": _megabytes(steps),
            "requests_mb": _megabytes(requests),
            "steps_bytes": steps,
            "requests_bytes": requests,
            "format": _format(main),
            "annotations": str(annotations) if annotations.is_file() else None,
            "run": str(main.parent if rank is None else main.parent.parent),
            "rank": rank,
            **msgspec.structs.asdict(facts),
        }

    def _name(self, pair: Pair) -> str:
        """The folder, as seen from its root; with the file's own name where a folder holds several traces."""
        folder = pair.stem.parent
        name = folder.name
        for root in self._roots.directories:
            if folder.is_relative_to(root) and folder != root:
                name = folder.relative_to(root).as_posix()
                break
        return name if pair.is_only and name else f"{name}/{pair.stem.name}".lstrip("/")


def _mark_first_ranks(traces: list[dict[str, Any]]) -> None:
    """A first engine that does not know of its siblings writes into the folder that holds theirs."""
    others = {each["run"] for each in traces if each["rank"] is not None}
    others -= {each["run"] for each in traces if each["rank"] == 0}
    alone = Counter(each["run"] for each in traces if each["rank"] is None)
    for each in traces:
        if each["rank"] is None and each["run"] in others and alone[each["run"]] == 1:
            each["rank"] = 0


def _place(text: str | None) -> Place:
    """Where a page begins, as the link to it says."""
    try:
        place = msgspec.json.decode(text, type=Place) if text is not None else Place()
    except (ValueError, RecursionError):
        place = Place(-1)
    if place.root < 0:
        raise RefusedError(400, "from", text, "take it from the Link header of the page before")
    return place


def _facts(path: Path, _mtime: int, _size: int) -> TraceFacts:
    return facts_of_file(path)


def _megabytes(count: int | None) -> float | None:
    return None if count is None else round(count / 1e6, 1)


def _format(path: Path) -> str:
    return {".gz": "gz", ".zst": "zst", ".parquet": "parquet"}.get(path.suffix, "jsonl")

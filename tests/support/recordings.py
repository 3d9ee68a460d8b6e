"""Which of the recorded decisions of vLLM are replayed: all of them, or a share that notices as much.

A later version's folder mostly repeats what the one before decided, so replaying all twelve costs twelve times one. The
share holds the newest version whole, and with it every scenario; of each other version one scenario in eight, another
eighth each time; and those in ``ALSO``, without which a switch turned in the wrong version would not be noticed.
``TOKENYARD_EXAMPLES=all`` (nightly) replays everything, and asks again whether the share notices every switch. With
``TOKENYARD_EXAMPLES=few`` it is a quarter of the share: the compiled core decides by the text that was replayed whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock
from zlib import crc32

from tests.support.examples import ALL, examples

from tokenyard.core.profiles import PROFILES
from tokenyard.core.releases import RELEASES
from tokenyard.errors import TokenyardError
from tokenyard.parity.comparison import RecordedVector, recordings
from tokenyard.parity.replay import replay_vector

__all__ = ["ALSO", "EVERYTHING", "drawn", "drawn_of_all", "noticed", "share", "turned_wrongly"]

EVERYTHING = examples(ALL) == ALL
"""Whether all of them are asked for."""
_Each = TypeVar("_Each")
_FEW = examples(ALL) < ALL // 4
_ONE_IN = 8
_ONE_IN_FEW = 4
ALSO: dict[str, tuple[str, ...]] = {
    "0.22": (
        "full_and_window",
        "grammars_drafts_async",
        "mamba_none_drafts",
    ),
    "0.23": (
        "cross_attention_mixed_blocks_priority",
        "drafts_model_length_reached",
        "grammars_drafts_async",
        "hybrid_drafts_async_mixed_blocks",
        "images_eagle_in_one_piece_async",
        "images_many_small",
        "pipeline_2_async",
    ),
    "0.24": (
        "images_eagle_in_one_piece_async",
        "later_whole_hits_padded",
        "mamba_align",
    ),
    "0.25": (
        "context_parallel_both_async",
        "later_whole_hits_padded",
        "mamba_align_eagle_unmarked",
        "pipeline_3_async_windows",
        "sessions",
    ),
    "0.26": (
        "context_parallel_both_async",
        "grammars_resets_in_flight",
        "mamba_align_eagle_unmarked",
        "pipeline_2_async",
        "pipeline_3_async_windows",
    ),
    "0.27": (
        "grammars_resets_in_flight",
        "images_many_small",
        "mamba_align_images",
        "mamba_all_drafts_async",
        "pipeline_2_async",
    ),
    "0.28": (
        "async_priority_drift",
        "cross_attention_mixed_blocks_priority",
        "images_eagle",
        "images_many_small",
        "mamba_align_images",
        "mamba_all_drafts_async",
        "repetitions",
    ),
    "0.29": (
        "images_eagle",
        "mamba_align_eagle_unmarked",
        "repetitions",
    ),
    "0.30": (
        "images_where_output_begins",
        "slices_of_24",
    ),
    "0.31": (
        "images_many_small",
        "images_where_output_begins",
        "mamba_align",
        "mamba_all_drafts_async",
    ),
    "0.32": (
        "drawn_517",
        "images_eagle_in_one_piece_async",
        "mamba_align",
    ),
}
"""Version -> recordings that are replayed whatever the draw."""


def share(folder: Path, folders: Sequence[Path]) -> list[RecordedVector]:
    """The share of a version's recordings; ``folders`` are those of all versions, the oldest first."""
    found = recordings(folder)
    if folder == folders[-1]:
        return found
    turn = folders.index(folder)
    also = ALSO.get(folder.name, ())
    return [each for each in found if _is_drawn(each.path, turn) or each.path.name.partition(".")[0] in also]


def drawn(folder: Path, folders: Sequence[Path]) -> list[RecordedVector]:
    """All recordings of a version, or the share, or a quarter of that."""
    if EVERYTHING:
        return recordings(folder)
    return _few_of(share(folder, folders), folders.index(folder))


def drawn_of_all(files: Sequence[Path]) -> list[Path]:
    """All of these files, or one in eight, or a quarter of that."""
    return list(files) if EVERYTHING else _few_of([path for path in files if _is_drawn(path, 0)], 0)


def _few_of(chosen: list[_Each], turn: int) -> list[_Each]:
    return chosen[turn % _ONE_IN_FEW :: _ONE_IN_FEW] if _FEW else chosen


def _is_drawn(path: Path, turn: int) -> bool:
    return (crc32(path.name.encode()) + turn) % _ONE_IN == 0


def turned_wrongly() -> Iterator[tuple[str, str, Any]]:
    """Every mistake in the table of versions: a version, a switch, and its value if that were turned late, or early."""
    before = ""
    for release in RELEASES:
        for switch, value in release.switches.items():
            yield release.version, switch, getattr(PROFILES[before], switch)
            yield before, switch, value
        before = release.version


def noticed(version: str, switch: str, value: Any, among: Sequence[RecordedVector]) -> bool:
    """Whether one of these recordings differs where that version's profile has ``switch`` at ``value``."""
    with mock.patch.dict(PROFILES, {version: replace(PROFILES[version], **{switch: value})}):
        return any(_differs(each) for each in among)


def _differs(recording: RecordedVector) -> bool:
    try:
        return replay_vector(*recording).difference is not None
    except TokenyardError:
        return True

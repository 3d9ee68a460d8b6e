"""The table of architectures: a row each, which says which fields of a ``config.json`` fill which piece.

What a row may say stands in :mod:`~tokenyard.models.reading.pieces`; the rows stand in ``rows_*.py``, by kind. Names
that share a row are aliases. A row is there only if vLLM's own model class and planner were seen to come to the same
(``scripts/record_registry.py``, ``docs/models.md``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from tokenyard.models.reading import rows_dense
from tokenyard.models.reading.row import ArchitectureRow


def _generating() -> Iterator[Mapping[str, ArchitectureRow]]:
    """Rows of models that generate. Those that most have come first: the others are loaded where none of them is it."""
    yield rows_dense.ROWS
    from tokenyard.models.reading import rows_experts

    yield rows_experts.ROWS
    from tokenyard.models.reading import (
        rows_further,
        rows_mixtures,
        rows_others,
        rows_published,
        rows_recent,
        rows_rings,
        rows_sound,
        rows_states,
        rows_towers,
    )

    yield rows_states.ROWS
    yield rows_towers.ROWS
    yield rows_mixtures.ROWS
    yield rows_sound.ROWS
    yield rows_others.ROWS
    yield rows_published.ROWS
    yield rows_recent.ROWS
    yield rows_further.ROWS
    yield rows_rings.ROWS


def _pooling() -> Iterator[Mapping[str, ArchitectureRow]]:
    from tokenyard.models.reading import rows_pooling, rows_retrieval

    yield rows_pooling.ROWS
    yield rows_retrieval.ROWS


class _Rows(Mapping[str, ArchitectureRow]):
    """The rows of all modules, of which no two have the same name; to look one up loads no more than it takes."""

    def __getitem__(self, name: str) -> ArchitectureRow:
        for rows in chain(_generating(), _pooling()):
            if name in rows:
                return rows[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(chain(_generating(), _pooling()))

    def __len__(self) -> int:
        return sum(map(len, chain(_generating(), _pooling())))


ROWS: Mapping[str, ArchitectureRow] = _Rows()
"""Name in ``architectures`` -> row."""


def only_pools(name: str) -> bool:
    """Whether vLLM serves an architecture for its hidden states alone: embeddings, scores, labels."""
    return not any(name in rows for rows in _generating()) and any(name in rows for rows in _pooling())


POOLS_WHOLE_PROMPTS = frozenset(
    (
        "ColBERTLfm2Model", "ColPaliForRetrieval", "ColQwen3", "ColQwen3_5", "OpsColQwen3Model",
        "Qwen2ForProcessRewardModel", "Qwen3VLNemotronEmbedModel",
    )
)  # fmt: skip
"""Pooling classes that need a prompt's first token or its steps, so that vLLM computes it in one step."""

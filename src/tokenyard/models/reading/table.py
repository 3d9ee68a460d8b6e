"""The table of architectures: a row each, which says which fields of a ``config.json`` fill which piece.

What a row may say stands in :mod:`~tokenyard.models.reading.pieces`; the rows stand in ``rows_*.py``, by kind. Names
that share a row are aliases. A row is there only if vLLM's own model class and planner were seen to come to the same
(``scripts/record_registry.py``, ``docs/models.md``).
"""

from __future__ import annotations

from tokenyard.models.reading import (
    rows_dense,
    rows_experts,
    rows_further,
    rows_mixtures,
    rows_others,
    rows_pooling,
    rows_published,
    rows_recent,
    rows_retrieval,
    rows_rings,
    rows_sound,
    rows_states,
    rows_towers,
)
from tokenyard.models.reading.row import ArchitectureRow

ROWS: dict[str, ArchitectureRow] = {
    **rows_dense.ROWS,
    **rows_experts.ROWS,
    **rows_states.ROWS,
    **rows_towers.ROWS,
    **rows_mixtures.ROWS,
    **rows_sound.ROWS,
    **rows_others.ROWS,
    **rows_published.ROWS,
    **rows_recent.ROWS,
    **rows_further.ROWS,
    **rows_rings.ROWS,
    **rows_pooling.ROWS,
    **rows_retrieval.ROWS,
}
"""Name in ``architectures`` -> row."""

POOLING = frozenset((*rows_pooling.ROWS, *rows_retrieval.ROWS))
"""Names that vLLM serves for their hidden states alone: embeddings, scores, labels."""
POOLS_WHOLE_PROMPTS = frozenset(
    (
        "ColBERTLfm2Model", "ColPaliForRetrieval", "ColQwen3", "ColQwen3_5", "OpsColQwen3Model",
        "Qwen2ForProcessRewardModel", "Qwen3VLNemotronEmbedModel",
    )
)  # fmt: skip
"""Pooling classes that need a prompt's first token or its steps, so that vLLM computes it in one step."""

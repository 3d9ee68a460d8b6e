"""A model by name, or from the ``config.json`` of a Hugging Face checkpoint."""

from __future__ import annotations

from tokenyard.models.named import model_spec as model_shape

__all__ = ["model_shape"]

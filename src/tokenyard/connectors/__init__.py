"""KV connectors: CPU memory, shared storage, and the way from a prefill engine to a decode engine.

Each has two halves that never meet but through a step's :class:`~tokenyard.connectors.tiers.TransferPlan`: the
scheduler half decides which blocks go where, the worker half moves them. A replay puts a model of the links in the
place of the worker half.

What this package offers beyond ``KVConnector`` and ``KVTransferConfig``: the connectors there are, and what one of your
own takes and gives.
"""

from __future__ import annotations

from tokenyard.lazy import lazy_names

OFFERED, __all__, __getattr__, __dir__ = lazy_names(__name__)

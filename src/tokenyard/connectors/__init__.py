"""KV connectors: CPU memory, shared storage, and the way from a prefill engine to a decode engine.

Each has two halves that never meet but through a step's :class:`~tokenyard.connectors.plan.TransferPlan`: the
scheduler half decides which blocks go where, the worker half moves them. A replay puts a model of the links in the
place of the worker half.
"""

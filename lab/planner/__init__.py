"""Asks vLLM's own planner what it would do on a GPU, on a machine that has none (see ``record_kv_plans.py``)."""

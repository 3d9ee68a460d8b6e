"""Records decision vectors from real vLLM: its own scheduler, driven tick by tick with a fake model.

    plan        what arrives and happens, and on which configuration
    workloads   seeded makers of requests and events
    scenarios   the list that is recorded, read from scenarios.json
    drawn       scenarios drawn at random, for a search rather than a record
    host        vLLM's scheduler without a model, a tokenizer or a network
    worker      the fake model: tokens and drafts
    drive       the tick loop: arrivals, events, schedule, fake model, update
    records     vLLM's outputs as plain values
    vectors     the file format

Only ``host``, ``drive`` and ``records`` import vLLM. It reads its environment when it is imported, so that is set here.
"""

from __future__ import annotations

import os

__all__: list[str] = []

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

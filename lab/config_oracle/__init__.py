"""Asks vLLM itself what a line of flags comes to, and compares that with what a replay makes of the same line.

    draw        one numbered case: flags, variables, a model and a GPU
    theirs      vLLM's own parser and `create_engine_config`, under a pretended GPU
    ours        `tokenyard run --serve LINE`, as far as the first step
    compare     what may not differ, and the verdict
    drafts      the draft models of the drawn lines, as folders with a config.json

Runs in an environment of vLLM's (``make differential-config``); no GPU, no network and no weights are needed.
"""

from __future__ import annotations

import os

__all__: list[str] = []

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

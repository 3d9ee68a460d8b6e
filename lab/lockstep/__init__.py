"""Two schedulers in one process, call by call: vLLM's own and ours behind vLLM's interface.

    pair        both behind one set of methods: each call goes to both, and the answers are compared
    compare     what may not differ, field by field, and the first field that does
    scenario    one random scenario through a pair: equal, different, refused, or given up by vLLM itself
    shrink      a scenario that differs, with ever fewer requests and events
    report      what was found, in a terminal

Runs in an environment of vLLM's (``make differential``). The stream is the recorder's: ``recorder.drawn``.
"""

from __future__ import annotations

import os

__all__: list[str] = []

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

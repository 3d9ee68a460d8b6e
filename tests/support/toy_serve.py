"""``tokenyard serve`` with a toy model in the place of PyTorch: for tests, in a process of its own.

python -m tests.support.toy_serve toy --port 0 ...; TOY_SECONDS is how long a step takes at least, TOY_LOADING how
long loading takes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any
from unittest import mock

from tests.support.toy_model import toy_core, toy_tokenizer

from tokenyard.cli.main import main
from tokenyard.core.engine import EngineCore
from tokenyard.serve.openai import assembly

_TAKEN = ("max_num_seqs", "max_num_batched_tokens")


def _load(_: object, flags: Mapping[str, Any]) -> EngineCore:
    time.sleep(float(os.environ.get("TOY_LOADING", "0")))
    limits = {name: flags[name] for name in _TAKEN}
    return toy_core(seconds=float(os.environ.get("TOY_SECONDS", "0")), clock=flags["clock"], **limits)


if __name__ == "__main__":
    tokenizer = mock.patch.object(assembly, "tokenizer_of", return_value=toy_tokenizer())
    with mock.patch.object(assembly, "load_core", _load), tokenizer:
        sys.exit(main(["serve", *sys.argv[1:]]))

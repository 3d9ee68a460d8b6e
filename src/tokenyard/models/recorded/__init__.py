"""What classes of vLLM 0.33 and of ``transformers`` were seen to do, a table a file, each written by a script.

==================  ==============================================================  ====================================
``class_defaults``  what a configuration class fills in where a file leaves it out  ``lab/record_class_defaults.py``
``class_sections``  of which kind it makes the sections of a file                   ``lab/record_class_defaults.py``
``field_names``     words in vLLM's code for an architecture                        ``lab/record_field_names.py``
``unread``          fields that its class does not read                             ``lab/record_registry.py``
``versions``        the versions of vLLM that have a class                          ``lab/record_architectures.py``
``stages``          what two stages of a pipeline hold                              ``lab/record_stages.py``
``towers``          matrices of encoders that are quantised                         ``lab/record_towers.py``
``encoder_modes``   classes that heed ``--mm-encoder-tp-mode data``                 ``lab/record_encoders.py``
``inputs``          the inputs that encoders are loaded for                         ``lab/record_limits.py``
``items``           the inputs that a prompt may have, and how many of each         ``lab/record_items.py``
``limits``          classes that heed sizes of pictures and videos in a line        ``lab/record_limited_items.py``
==================  ==============================================================  ====================================
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from tokenyard.files import packaged


@cache
def recorded(table: str) -> Any:
    """Return a table, read once; not to be changed."""
    return msgspec.json.decode(packaged(__package__, f"{table}.json"))

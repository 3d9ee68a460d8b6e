"""The scenarios that are recorded: small engines, so that limits are met often, and seeds of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recorder.scenarios.asynchronous import ASYNCHRONOUS
from recorder.scenarios.endings import ENDINGS
from recorder.scenarios.hybrid import HYBRID
from recorder.scenarios.limits import FIRST_COME, LIMITS, PREFILL
from recorder.scenarios.memory import MEMORY
from recorder.scenarios.mixtures import EVERYTHING, LATER
from recorder.scenarios.multimodal import MULTIMODAL
from recorder.scenarios.passing import PASSING
from recorder.scenarios.prefixes import PREFIXES
from recorder.scenarios.priority import PRIORITY
from recorder.scenarios.ranks import RANKS
from recorder.scenarios.recurrent import RECURRENT
from recorder.scenarios.rings import RINGS
from recorder.scenarios.speculation import SPECULATION
from recorder.scenarios.structured import STRUCTURED

if TYPE_CHECKING:
    from recorder.plan import Scenario

__all__ = ["LATER", "RINGS", "SCENARIOS"]

SCENARIOS: tuple[Scenario, ...] = (
    *FIRST_COME,
    *MEMORY,
    *PREFILL,
    *PRIORITY,
    *PREFIXES,
    *ENDINGS,
    *LIMITS,
    *EVERYTHING,
    *SPECULATION,
    *ASYNCHRONOUS,
    *HYBRID,
    *MULTIMODAL,
    *STRUCTURED,
    *PASSING,
    *RECURRENT,
    *RANKS,
)

"""Two profiles that tests ask for by name: the first version that was modelled, and 0.33."""

from __future__ import annotations

from tokenyard.core.profiles import decision_profile

VLLM_0_22 = decision_profile("0.22")
VLLM_0_33 = decision_profile("0.33")

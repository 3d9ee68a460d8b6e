"""An encoder-cache connector whose images are late: vLLM loads it by the path of this module."""

from __future__ import annotations

from collections import Counter
from typing import Any

from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorMetadata

__all__ = ["LATE_BY", "LateImages"]

LATE_BY = 3
"""Times that a request asks in vain."""


class LateImages(ECConnectorBase):  # type: ignore[misc]
    """Brings nothing, and says so late: every request with images waits until it has asked ``LATE_BY`` times."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked: Counter[str] = Counter()

    def ensure_cache_available(self, request: Any, num_computed_tokens: int) -> bool:
        self.asked[request.request_id] += 1
        return self.asked[request.request_id] > LATE_BY

    def has_cache_item(self, identifier: str) -> bool:
        return False

    def start_load_caches(self, encoder_cache: Any, **options: Any) -> None: ...

    def save_caches(self, encoder_cache: Any, mm_hash: str, **options: Any) -> None: ...

    def update_state_after_alloc(self, request: Any, index: int) -> None: ...

    def build_connector_meta(self, scheduler_output: Any) -> ECConnectorMetadata:
        return ECConnectorMetadata()

"""What the engine cannot run is refused when it is added, and names what to leave out."""

from __future__ import annotations

from tokenyard.engine.core import EngineCore
from tokenyard.engine.torch.executor import TorchExecutor
from tokenyard.errors import RequestError
from tokenyard.request import Request

__all__ = ["TorchEngineCore"]

_UNSUPPORTED = {
    "mm_features": "the engine runs text models: leave them out",
    "prompt_embeds": "the engine takes token ids alone: leave them out",
    "resumable": "the engine has no sessions: leave it out",
}


class TorchEngineCore(EngineCore):
    """An engine core whose executor is a :class:`TorchExecutor`."""

    executor: TorchExecutor

    def _check_request(self, request: Request) -> None:
        """Raise RequestError for what the engine cannot do."""
        for field, fix in _UNSUPPORTED.items():
            value = getattr(request, field)
            if value is not None and value is not False and not (isinstance(value, tuple) and not value):
                raise RequestError(request.request_id, field, value, fix)
        adapters = self.executor.model.adapters
        if request.lora_name is not None and request.lora_name not in adapters:
            known = ", ".join(adapters) or "none"
            fix = f"the engine's adapters are: {known}; name one, or leave it out"
            raise RequestError(request.request_id, "lora_name", request.lora_name, fix)
        vocabulary = self.executor.model.vocab_size
        largest = int(request.token_slice(0, request.num_prompt_tokens).max())
        if largest >= vocabulary:
            fix = f"the model knows token ids from 0 to {vocabulary - 1}"
            raise RequestError(request.request_id, "prompt_token_ids", largest, fix)
        super()._check_request(request)

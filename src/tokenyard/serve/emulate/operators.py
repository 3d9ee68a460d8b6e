"""Paths that hosts and tools of operators ask for beside vLLM's own: SageMaker's, and what there is to be told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from tokenyard.serve.emulate.application import Endpoint, Path
from tokenyard.serve.emulate.forms import Forms
from tokenyard.serve.emulate.host import Emulation, Front
from tokenyard.serve.openai.fields import NO_JSON, ApiError
from tokenyard.web.connections import json_body, json_response

_POST = ("POST",)


def operators_paths(
    emulation: Emulation, front: Front, forms: Forms, endpoints: Mapping[str, Endpoint], most_bytes: int
) -> list[Path]:
    """``endpoints`` by a field of the body that tells which one is meant, in the order in which they are tried."""
    own = _Operators(emulation, front, forms, endpoints, most_bytes)
    return [
        Path("/invocations", own.invocations, _POST),
        Path("/adapters", own.register, _POST),
        Path("/adapters/", own.unregister, ("DELETE",)),
        Path("/get_world_size", own.world_size),
        Path("/weight_info", own.weight_info),
        Path("/is_scaling_elastic_ep", own.is_scaling, _POST),
        Path("/reset_mm_cache", own.nothing, _POST),
        Path("/reset_encoder_cache", own.nothing, _POST),
    ]


class _Operators:
    """The endpoints."""

    def __init__(
        self, emulation: Emulation, front: Front, forms: Forms, endpoints: Mapping[str, Endpoint], most_bytes: int
    ) -> None:
        self._emulation, self._front, self._forms = emulation, front, forms
        self._endpoints, self._most_bytes = endpoints, most_bytes

    async def invocations(self, http: Request) -> Response:
        """Whatever the body is for."""
        body: bytes | None = await json_body(http, self._most_bytes)
        try:
            fields = json.loads(body or b"null")
        except (ValueError, RecursionError) as error:
            raise ApiError(400, f"the body is no JSON: {error}", code=NO_JSON) from None
        *_, last = self._endpoints.values()
        known = fields if isinstance(fields, dict) else {}
        endpoint = next((each for name, each in self._endpoints.items() if name in known), last)

        async def again() -> Message:
            nonlocal body
            told, body = body, None
            return await http.receive() if told is None else {"type": "http.request", "body": told}

        return await endpoint(Request(http.scope, again))

    async def register(self, http: Request) -> Response:
        """An adapter by name; its weights are not looked at."""
        try:
            fields = json.loads(await json_body(http, self._most_bytes))
        except (ValueError, RecursionError) as error:
            raise ApiError(400, f"the body is no JSON: {error}", code=NO_JSON) from None
        name, adapters = fields.get("name") if isinstance(fields, dict) else None, self._front.model.adapters
        if not isinstance(name, str) or not name or not fields.get("src"):
            raise ApiError(415, "name and src have to be given")  # told as 400, of no field
        if self._emulation.resolved.scheduler.max_loras < 1:
            raise ApiError(500, "the server was started without --enable-lora")
        if name in adapters:
            raise ApiError(400, f"The lora adapter '{name}' has already been loaded.")
        adapters.append(name)
        return Response(f"Adapter {name} registered")

    async def unregister(self, http: Request) -> Response:
        """No more requests for it."""
        name, adapters = http.path_params["name"], self._front.model.adapters
        if name not in adapters:
            raise ApiError(404, f"The lora adapter '{name}' cannot be found.")
        adapters.remove(name)
        return Response(f"Adapter {name} unregistered")

    async def world_size(self, http: Request) -> Response:
        """GPUs of a server, or of one of its data-parallel ranks."""
        settled = self._emulation.resolved.settled
        of_one = http.query_params.get("include_dp", "true").lower() in ("false", "0")
        ranks = settled.parallel.data_parallel_size if of_one else 1
        return json_response({"world_size": settled.num_gpus // max(ranks, 1)})

    async def weight_info(self, _: Request) -> Response:
        """Weights are never replaced here."""
        return json_response({"weight_version": "default"})

    async def is_scaling(self, _: Request) -> Response:
        """The number of ranks stays."""
        more: dict[str, Any] = {"phase": "idle", "epoch": None, "error": None, "requested_data_parallel_size": None}
        return json_response(
            {"is_scaling_elastic_ep": False, **(more if self._forms.facts.scaling_tells_phase else {})}
        )

    async def nothing(self, _: Request) -> Response:
        """There is nothing to be forgotten."""
        return Response()

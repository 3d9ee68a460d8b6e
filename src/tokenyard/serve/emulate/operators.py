"""Paths that hosts and tools of operators ask for beside vLLM's own: SageMaker's, and their answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from tokenyard.serve.emulate.application import Endpoint, Path
from tokenyard.serve.emulate.forms import Forms, told_plainly
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
        Path("/kv_event_sources", own.kv_event_sources),
        Path("/server_info", own.server_info),
        Path("/abort_requests", own.abort_requests, _POST),
        *([] if front.model.is_pooling else [Path("/scale_elastic_ep", own.scale, _POST)]),
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
            raise ApiError(415, "name and src have to be given")  # answered with 400, without a field
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

    async def scale(self, http: Request) -> Response:
        """Scale to as many ranks as there are: there is no other cluster to grow into."""
        fields = await self._object(http)
        number, seconds = fields.get("new_data_parallel_size"), fields.get("drain_timeout", 120)
        if number is None:
            raise told_plainly(400, "new_data_parallel_size is required")
        for name, value in (("new_data_parallel_size", number), ("drain_timeout", seconds)):
            if not isinstance(value, int) or value <= 0:
                raise told_plainly(400, f"{name} must be a positive integer")
        if number != self._emulation.resolved.settled.parallel.data_parallel_size:
            raise told_plainly(500, "Scale failed")
        return json_response({"message": f"Scaled to {number} data parallel engines"})

    async def kv_event_sources(self, _: Request) -> Response:
        """Where each rank publishes what enters and leaves its prefix cache."""
        ranks = len(self._emulation.engines.groups[self._front.group].ranks)
        own = self._emulation.event_sources[self._front.group * ranks :][:ranks]
        return json_response({str(rank): each for rank, each in enumerate(own)})

    async def server_info(self, http: Request) -> Response:
        """What is emulated, in the place of vLLM's own settings; the machine is not looked at."""
        form = http.query_params.get("config_format", "text")
        if form not in ("text", "json"):
            raise ApiError(400, f"config_format = {form}: use text or json", param="query.config_format", is_form=True)
        resolved = self._emulation.resolved
        known = {"scheduler_config": resolved.scheduler, "cache_config": resolved.cache}
        settings = {name: msgspec.to_builtins(each, enc_hook=str) for name, each in known.items()}
        told = settings if form == "json" else ", ".join(f"{name}={each}" for name, each in settings.items())
        return json_response({"vllm_config": told, "vllm_env": {}, "system_env": {}})

    async def abort_requests(self, http: Request) -> Response:
        """End those that are named, or all."""
        named, llm = (await self._object(http)).get("request_ids"), self._front.llm
        under_way = [each for each in llm.processor.generations() if not named or each.request_id in named]
        ids = [request_id for each in under_way for request_id in each.unfinished_ids]
        self._emulation.engines.abort(self._front.group, ids)
        llm.aborted(ids)
        return json_response({"status": "aborted", "aborted": len(named or ids)})

    async def _object(self, http: Request) -> dict[str, Any]:
        try:
            fields = json.loads(await json_body(http, self._most_bytes))
        except (ValueError, RecursionError):
            raise told_plainly(400, "Invalid JSON format") from None
        if not isinstance(fields, dict):
            raise told_plainly(400, "Request body must be a JSON object")
        return fields

    async def nothing(self, _: Request) -> Response:
        """There is nothing to be forgotten."""
        return Response()

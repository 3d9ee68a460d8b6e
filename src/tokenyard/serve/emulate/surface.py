"""The application: vLLM's paths over one front of an emulation."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenyard.core.engine import PauseMode
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import ConfigError
from tokenyard.serve.emulate.answers import MadeUpText
from tokenyard.serve.emulate.application import EmulatedApplication, Endpoint, Path
from tokenyard.serve.emulate.faults import Faults, fault_of
from tokenyard.serve.emulate.forms import ALWAYS_NAMED, Forms, vllm_error
from tokenyard.serve.emulate.host import Emulation, Front
from tokenyard.serve.emulate.made_up import Work, made_up_json
from tokenyard.serve.emulate.messages import Messages
from tokenyard.serve.emulate.operators import operators_paths
from tokenyard.serve.emulate.responses import Responses
from tokenyard.serve.emulate.scoring import Scoring, scoring_paths
from tokenyard.serve.generation import GenerationDefaults
from tokenyard.serve.openai.app import Utilities, scraped, together
from tokenyard.serve.openai.asking import ClientLimits, ServerContext, compiled
from tokenyard.serve.openai.chat import ChatCompletions, chat_prompt
from tokenyard.serve.openai.completions import Completions
from tokenyard.serve.openai.embeddings import Embeddings
from tokenyard.serve.openai.fields import ApiError, ChatCompletionRequest, as_api_error, bad_field
from tokenyard.serve.openai.generating import AnswerWriter, PromptNews, asked_of, output_room, reply, request_id_of
from tokenyard.serve.openai.tool_calls.parsers import parser_named
from tokenyard.serve.recorded_surface import surface_of
from tokenyard.web.connections import ApiKeys, Guard, RefusedError, is_loopback, json_body, json_response

# ---------------------------------------------------------------------------------------------------------------------
# ``POST /v1/chat/completions/batch``: several talks in one request, an answer to each.


class _BatchRequest(ChatCompletionRequest, kw_only=True):
    """The fields of a chat, but for ``messages``, which are those of each talk."""

    messages: list[list[dict[str, Any]]]  # type: ignore[assignment]


class BatchChatCompletions:
    """The endpoint."""

    def __init__(self, context: ServerContext, chat: ChatCompletions) -> None:
        self._context, self._chat = context, chat

    async def serve(self, http: Request) -> Response:
        """Answer, or raise."""
        context = self._context
        http.state.prompt_field = "messages"
        body = await context.body(http, _BatchRequest)
        request: _BatchRequest = body.request
        if request.n not in (None, 1):
            raise bad_field("n", request.n, "there is one answer to each talk", code=ALWAYS_NAMED)
        empty = [f"messages[{i}]" for i, each in enumerate(request.messages) if not each]
        for field in empty if request.messages else ["messages"]:
            raise ApiError(400, f"{field} = []: give at least one", param=field, is_form=True)
        talks, request.stream, request.tools = request.messages, None, None
        context.check_model(request.model)
        context.check_open()
        context.check_room(len(talks), 1)
        prompts, rooms = [], []
        newer = request.max_completion_tokens is not None
        field = "max_completion_tokens" if newer else "max_tokens"
        wanted = request.max_completion_tokens if newer else request.max_tokens
        for messages in talks:
            request.messages = messages  # type: ignore[assignment]
            prompts.append(await chat_prompt(context, request))
            rooms.append(output_room(context, prompts[-1], wanted, field=field, prompt_field="messages"))
        name = request_id_of(request, "chatcmpl", http)
        num_top = (request.top_logprobs or 0) if request.logprobs else None
        grammars = await compiled(http, context, request, len(talks), None, most_tokens=max(rooms))
        asked = asked_of(http, context, request, name, prompts, max_tokens=rooms, logprobs=num_top, grammars=grammars)
        writers = [context.formed("chat", self._chat.writer(request, name, num_top or 0), request) for _ in talks]
        return await reply(http, context, asked, _Batch(writers), stream=False, ignored=body.ignored)


class _Batch(AnswerWriter):
    """Puts the answers to all talks together, each with its number."""

    def __init__(self, talks: Sequence[AnswerWriter]) -> None:
        super().__init__()
        self._talks = talks

    def whole(self, pieces: Sequence[PromptNews]) -> dict[str, Any]:
        """All of it at once."""
        in_order = sorted(pieces, key=lambda each: each.prompt)
        told = [self._talks[piece.prompt].whole([piece]) for piece in in_order]
        choices = [
            {**choice, "index": piece.prompt}
            for piece, each in zip(in_order, told, strict=True)
            for choice in each["choices"]
        ]
        usage = {**told[0]["usage"], "prompt_tokens_details": None}  # batches do not record what was cached
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            usage[name] = sum(each["usage"][name] for each in told)
        return {**told[0], "choices": choices, "usage": usage, "prompt_token_ids": None}


# ---------------------------------------------------------------------------------------------------------------------

_LEAST_BYTES, _BYTES_PER_TOKEN = 8 * 2**20, 8
"""The largest body: so much, or what the ids of the longest prompt take."""
_MOST_OF_A_CALL = 5_000
"""Work on the arguments of a call of a tool."""
_POST = ("POST",)
_OF_HEALTH = frozenset(("/health", "/ping"))
"""Paths that ask for no key."""


def make_app(
    emulation: Emulation, front: Front, deployment: Deployment, faults: Faults, *, host: str = "127.0.0.1"
) -> EmulatedApplication:
    """An ASGI application that starts the engines when it starts.

    ``host`` is the address it will listen on: on a loopback address pages of other sites are refused, but those that
    the command line allows.
    """
    asked = deployment.settings.launch.asked
    forms = Forms(
        surface_of(emulation.settings.surface or emulation.resolved.settled.version),
        tells_cached=bool(asked.value("enable-prompt-tokens-details")),
        block_size=emulation.resolved.cache.block_size if emulation.resolved.cache.enable_prefix_caching else 0,
    )
    context = _context(emulation, front, deployment, forms)
    if asked.value("enable-auto-tool-choice"):
        others = front.metrics[0].more
        front.metrics[0].more = lambda: chain(others(), forms.metrics_of_calls(front.names[0]))
    admin = _Admin(emulation, front, forms, context, faults)
    utilities = Utilities(context)
    paths, invoked = _vectors(context) if front.model.is_pooling else _answers(context, forms)
    paths += [
        Path("/v1/models", admin.models),
        Path("/v1/responses/", admin.response),
        Path("/v1/responses//cancel", admin.response, _POST),
        Path("/health", admin.health),
        Path("/ping", admin.health, ("GET", "POST")),
        Path("/load", admin.load),
        Path("/version", admin.version),
        Path("/metrics", utilities.metrics),
        Path("/tokenize", utilities.tokenize, _POST),
        Path("/detokenize", utilities.detokenize, _POST),
        Path("/v1/load_lora_adapter", admin.load_lora, _POST),
        Path("/v1/unload_lora_adapter", admin.unload_lora, _POST),
        Path("/sleep", admin.sleep, _POST),
        Path("/wake_up", admin.wake_up, _POST),
        Path("/is_sleeping", admin.is_sleeping),
        Path("/pause", admin.pause, _POST),
        Path("/resume", admin.resume, _POST),
        Path("/is_paused", admin.is_paused),
        Path("/reset_prefix_cache", admin.reset_prefix_cache, _POST),
        Path("/emulate/fault", admin.fault, ("POST", "GET", "DELETE")),
        *operators_paths(emulation, front, forms, invoked, context.limits.max_body_bytes),
    ]
    return EmulatedApplication(
        context,
        paths,
        faults=faults,
        clock=emulation.engines.wall,
        late_seconds=lambda: emulation.engines.late_seconds,
        heads=[(b"x-approximate-tokens", b"true")] if emulation.is_approximate else [],
        sites=_sites(asked),
        guard=guarding(asked, host),
    )


def _vectors(context: ServerContext) -> tuple[list[Path], dict[str, Endpoint]]:
    """Paths of a model that makes vectors, and what ``/invocations`` calls by the field that a request has."""
    embeddings = Embeddings(context)
    scoring = Scoring(context, embeddings)
    paths = [Path("/v1/embeddings", embeddings.serve, _POST), *scoring_paths(scoring)]
    return paths, {**scoring.invoked, "input": embeddings.serve}


def _answers(context: ServerContext, forms: Forms) -> tuple[list[Path], dict[str, Endpoint]]:
    """The same of a model that answers."""
    chat, completions = ChatCompletions(context), Completions(context)
    messages = Messages(context, forms, chat)
    paths = [
        Path("/v1/chat/completions", chat.serve, _POST),
        Path("/v1/chat/completions/batch", BatchChatCompletions(context, chat).serve, _POST),
        Path("/v1/messages", messages.serve, _POST),
        Path("/v1/messages/count_tokens", messages.count_tokens, _POST),
        Path("/v1/completions", completions.serve, _POST),
        Path("/v1/responses", Responses(context, forms).serve, _POST),
    ]
    return paths, {"messages": chat.serve, "prompt": completions.serve}


def guarding(asked: Any, host: str) -> Callable[[ASGIApp], ASGIApp]:
    """Puts before an application what every server has: keys on all paths but health, and no page of another site.

    A key is asked for where the line has one, and any is right: the true one is replaced as the line is read.
    """

    def guard(app: ASGIApp) -> ASGIApp:
        if asked.value("api-key"):
            app = ApiKeys(app, None, refuse=lambda: json_response({"error": "Unauthorized"}, 401), is_open=_is_open)
        if not is_loopback(host):
            return app
        sites = Guard(app, host, _refused, origins=_origins(asked))

        async def admitted(scope: Scope, receive: Receive, send: Send) -> None:
            # What a browser asks before (OPTIONS) is refused by what answers it, in vLLM's form.
            refusal = None if scope["method"] == "OPTIONS" else sites.refusal(scope)
            await (refusal or app)(scope, receive, send)

        return admitted  # answers keep the heads that vLLM's have

    return guard


def _refused(problem: RefusedError) -> Response:
    return json_response(vllm_error(as_api_error(problem)), problem.status)


def _is_open(scope: Scope) -> bool:
    return scope["method"] == "OPTIONS" or scope["path"] in _OF_HEALTH


def _context(emulation: Emulation, front: Front, deployment: Deployment, forms: Forms) -> ServerContext:
    asked = deployment.settings.launch.asked
    auto, named = bool(asked.value("enable-auto-tool-choice")), asked.value("tool-call-parser")
    tools = _Tools(
        front, enabled=auto, parser=None if named is None else str(named), echo=emulation.settings.answers == "echo"
    )
    metrics = [scraped(each.registry) for each in front.metrics]

    def text() -> tuple[bytes, str]:
        found = [each() for each in metrics]
        return together([text for text, _ in found]), found[0][1]

    return ServerContext(
        llm=front.llm,
        names=front.names,
        limits=ClientLimits(max_body_bytes=max(_LEAST_BYTES, _BYTES_PER_TOKEN * front.model.max_model_len)),
        grammars=front.forms,  # type: ignore[arg-type]  # makes texts where a compiler makes grammars
        defaults=GenerationDefaults({}),
        tool_parser=tools.parser,
        heads_first=True,
        is_lenient=True,
        formed=forms.formed,
        script=tools.script,
        check=tools.check,
        metrics=text,
    )


class _Tools:
    """The answer to a chat that no model makes: a call of a tool, or the client's last message."""

    def __init__(self, front: Front, *, enabled: bool, parser: str | None, echo: bool) -> None:
        self._front, self._enabled, self._echo = front, enabled, echo
        self._name = parser
        known = parser if parser in _CALLS else "hermes"
        self.parser = parser_named(known if enabled else None, enabled=enabled)
        self._form = known

    def check(self, request: ChatCompletionRequest) -> None:
        """ApiError for what vLLM does not take of a chat."""
        if request.stream_options is not None and not request.stream:
            raise bad_field("stream_options", {}, "goes with stream = true")
        if request.tools is None and request.tool_choice not in (None, "none"):
            raise bad_field("tool_choice", request.tool_choice, "goes with tools")
        if request.tools is not None and not request.tools:
            raise bad_field("tools", [], "give at least one, or leave it out")
        choice = request.tool_choice or ("auto" if request.tools else "none")
        if choice != "none" and not self._enabled:
            fix = "a choice of tools requires --enable-auto-tool-choice and --tool-call-parser to be set"
            raise ApiError(400, fix)

    def script(self, request: ChatCompletionRequest) -> MadeUpText | None:
        """A text, or None: words. Raises ApiError where vLLM would."""
        if request.response_format is not None or request.structured_outputs is not None:
            return None
        last = request.messages[-1] if request.messages else {}
        if request.tools and request.tool_choice in (None, "auto") and last.get("role") != "tool":
            return self._call(request.tools)
        if self._echo and isinstance(last.get("content"), str) and last["content"]:
            return MadeUpText.of(str(last["content"]), self._front.tokenizer)
        return None

    def _call(self, tools: Sequence[Mapping[str, Any]]) -> MadeUpText | None:
        """A call of one of the tools, in the form that the parser reads; after a tool has answered there is none."""
        chance = self._front.forms.chance
        function = chance.choice(list(tools)).get("function")
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise bad_field("tools", list(tools), 'give {"type": "function", "function": {"name": ...}}')
        schema = function.get("parameters") or {"type": "object"}
        try:
            arguments = made_up_json(schema, chance, Work(_MOST_OF_A_CALL))
        except ConfigError as error:
            raise bad_field("tools", schema, error.fix) from None
        text = _CALLS[self._form](function["name"], arguments if isinstance(arguments, dict) else {})
        return MadeUpText.of(text, self._front.tokenizer)


_CALLS: dict[str, Callable[[str, dict[str, Any]], str]] = {
    "hermes": lambda name, arguments: (
        f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
    ),
    "llama3_json": lambda name, arguments: json.dumps({"name": name, "parameters": arguments}),
}
"""How a call is written, for the parsers that there are; for others it is Hermes's form."""


def _sites(asked: Any) -> dict[str, Any]:
    """Sites from which browsers may send requests: none, unless the command line names them."""
    return {
        "allow_origins": _origins(asked),
        "allow_methods": _listed(asked, "allowed-methods", ("*",)),
        "allow_headers": _listed(asked, "allowed-headers", ("*",)),
        "allow_credentials": bool(asked.value("allow-credentials")),
    }


def _origins(asked: Any) -> Sequence[str]:
    return _listed(asked, "allowed-origins", ())


def _listed(asked: Any, flag: str, default: Sequence[str]) -> Sequence[str]:
    given = asked.value(flag)
    if isinstance(given, str):
        given = json.loads(given) if given.startswith("[") else [given]
    return default if given is None else [str(each) for each in given]


# ---------------------------------------------------------------------------------------------------------------------
# What operators ask for.


class _Admin:
    """The endpoints beside those that generate."""

    def __init__(
        self, emulation: Emulation, front: Front, forms: Forms, context: ServerContext, faults: Faults
    ) -> None:
        self._emulation, self._front, self._forms = emulation, front, forms
        self._context, self._faults = context, faults
        self._ranks = emulation.engines.groups[front.group].ranks
        self._is_paused = self._sleeps = False

    async def models(self, _: Request) -> Response:
        """The names of the model, and its adapters."""
        front, forms = self._front, self._forms
        length, created = front.model.max_model_len, int(time.time())
        data = [forms.model_card(name, None, front.model.name, created, length) for name in front.names]
        data += [forms.model_card(each, front.names[0], each, created, length) for each in front.model.adapters]
        return json_response({"object": "list", "data": data})

    async def response(self, http: Request) -> Response:
        """None is kept."""
        text = f"Response with id '{http.path_params['name']}' not found."
        error = {"message": text, "type": "invalid_request_error", "param": "response_id", "code": 404}
        return json_response({"error": error}, 404)

    async def health(self, _: Request) -> Response:
        """200 while requests are answered."""
        if self._context.llm.death is not None:
            return Response(status_code=503)
        return Response()

    async def load(self, _: Request) -> Response:
        """Requests that are being answered."""
        return json_response({"server_load": self._context.llm.num_unfinished})

    async def version(self, _: Request) -> Response:
        """The vLLM that is emulated."""
        return json_response({"version": self._forms.version})

    # ---- adapters

    async def load_lora(self, http: Request) -> Response:
        """An adapter by name; its weights are not looked at."""
        fields = await self._fields(http)
        name, path, adapters = fields.get("lora_name"), fields.get("lora_path"), self._front.model.adapters
        if not name or not path:
            missing = "lora_path" if name else "lora_name"
            fix = f"{missing}: is missing, and has to be given"
            raise ApiError(400, fix, param=missing, code="missing_field", is_form=True)
        if self._emulation.resolved.scheduler.max_loras < 1:
            raise ApiError(500, "the server was started without --enable-lora")
        if name in adapters and not fields.get("load_inplace"):
            raise ApiError(400, f"The lora adapter '{name}' has already been loaded.")
        if name not in adapters:
            adapters.append(str(name))
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload_lora(self, http: Request) -> Response:
        """No more requests for it."""
        name, adapters = (await self._fields(http)).get("lora_name"), self._front.model.adapters
        if not name:
            raise ApiError(400, "'lora_name' needs to be provided to unload a LoRA adapter.")
        if name not in adapters:
            raise ApiError(404, f"The lora adapter '{name}' cannot be found.")
        adapters.remove(str(name))
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    # ---- sleep, pause, caches

    async def sleep(self, http: Request) -> Response:
        """The engine is as after ``/sleep`` of vLLM: nothing is scheduled, and the cache is forgotten."""
        level = http.query_params.get("level", "1")
        self._pause(PauseMode.ABORT)
        self._sleeps = True
        for rank in self._ranks:
            rank.core.reset_prefix_cache(reset_running_requests=True)
        for each in self._front.metrics:
            each.sleep_state = "discard_all" if level == "2" else "weights_offloaded"
        return Response()

    async def wake_up(self, _: Request) -> Response:
        """Go on."""
        self._sleeps = False
        self._resume()
        for each in self._front.metrics:
            each.sleep_state = "awake"
        return Response()

    async def is_sleeping(self, _: Request) -> Response:
        return json_response({"is_sleeping": self._sleeps})

    async def pause(self, http: Request) -> Response:
        """``mode``: abort, wait or keep."""
        try:
            self._pause(PauseMode(http.query_params.get("mode", "abort")))
        except ValueError:
            raise bad_field("mode", http.query_params.get("mode"), "use abort, wait or keep") from None
        return json_response({"status": "paused"})

    async def resume(self, _: Request) -> Response:
        """Go on."""
        self._resume()
        return json_response({"status": "resumed"})

    async def is_paused(self, _: Request) -> Response:
        return json_response({"is_paused": self._is_paused})

    def _pause(self, mode: PauseMode) -> None:
        self._is_paused = True
        for rank in self._ranks:
            rank.receive()
            self._context.llm.aborted([each.request_id for each in rank.core.pause(mode)])
        self._emulation.engines.wake()

    def _resume(self) -> None:
        self._is_paused = False
        for rank in self._ranks:
            rank.core.resume()
            rank.receive()
        self._emulation.engines.wake()

    async def reset_prefix_cache(self, http: Request) -> Response:
        """Forget what is cached; refused while blocks are in use, unless running requests may start again."""
        running = http.query_params.get("reset_running_requests", "false").lower() == "true"
        done = True
        for rank in self._ranks:
            done = rank.core.reset_prefix_cache(reset_running_requests=running) and done
        self._emulation.engines.wake()
        return json_response({"success": done})

    # ---- faults

    async def fault(self, http: Request) -> Response:
        """Begin one (POST), end one or all (DELETE), list those in force."""
        if http.method == "DELETE":
            self._faults.end(http.query_params.get("kind"))
        elif http.method == "POST":
            try:
                self._faults.begin(fault_of(await self._fields(http)))
            except ConfigError as error:
                raise bad_field("fault", error.value, error.fix) from None
        return json_response({"faults": [each.record() for each in self._faults.in_force()]})

    async def _fields(self, http: Request) -> dict[str, Any]:
        body = await json_body(http, self._context.limits.max_body_bytes)
        try:
            fields = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise ApiError(400, f"the body is no JSON: {error}") from None
        if not isinstance(fields, dict):
            raise ApiError(400, "the body has to be an object")
        return fields

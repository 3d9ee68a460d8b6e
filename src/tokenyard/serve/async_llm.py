"""Online: requests come and go while one thread steps the engine."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import count
from typing import Protocol

import msgspec

from tokenyard.core.engine import EngineCore
from tokenyard.core.params import PoolingParams, SamplingParams, StructuredOutput
from tokenyard.core.request import Request
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.errors import (
    ConfigError,
    EngineDeadError,
    QueueFullError,
    RequestError,
    StuckError,
    text_of,
)
from tokenyard.serve.generation import (
    EmbeddingOutput,
    GenerationOutput,
    GenerationParams,
    Prompt,
    Turn,
    check_num_samples,
)
from tokenyard.serve.output_processor import Generation, OutputProcessor
from tokenyard.serve.served_model import GenerationMaker, GrammarSource, ServedModel, grammars_of, model_of
from tokenyard.serve.text import TextTokenizer

# ---------------------------------------------------------------------------------------------------------------------
# The thread that steps an engine while others submit requests.
#
#     submit, abort ─► the core's inbox ─► [gather] ─► step ─► StepNews ─► on_news ...
#                                             ▲                   │
#                                             └───────────────────┘   until stopped, or until a step raises
#
# An error that concerns one request does not end it: one whose grammar raises ends as an error in a step that
# follows, and one at which the engine is stuck is aborted.
#
# Requests join at the boundary of a step. An engine without any waits; the first that comes may be given company:
# with ``gather_seconds`` the step that it is admitted in waits for others that long.

_log = logging.getLogger("tokenyard")
_SECONDS_BETWEEN = 0.001
"""Pause between steps that schedule no request: all wait for a grammar, or for KV from elsewhere."""
_MOST_UNTOLD = 64
"""Steps whose news may lie untaken: with so many, the next step waits."""


class StepNews(msgspec.Struct, frozen=True):
    """What is new after a step, or at the end."""

    outputs: EngineOutputs | None = None
    refused: Sequence[RequestError | StuckError] = ()
    """Submitted requests that can never be served, and one at which the engine was stuck."""
    error: BaseException | None = None
    """The engine has ended with it: no news will follow."""


class Stepper(Protocol):
    """What steps an engine, and says what is new to who made it."""

    def start(self) -> None:
        """Begin."""

    def submit(self, requests: Sequence[Request]) -> None:
        """Have requests added before the next step."""

    def abort(self, request_ids: Sequence[str]) -> None:
        """Have requests aborted before the next step."""

    def taken(self) -> None:
        """The news of one call have been taken in."""

    def stop(self) -> None:
        """End; may be called in any thread."""


class StepThread:
    """``on_news`` is called in the thread, after every step that brought anything; it should return at once.

    Its owner takes the news, and says so by :meth:`taken`.
    """

    def __init__(self, core: EngineCore, on_news: Callable[[StepNews], None], gather_seconds: float = 0.0) -> None:
        self._core = core
        self._on_news = on_news
        self._gather_seconds = gather_seconds
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._untold = threading.Semaphore(_MOST_UNTOLD)
        self._thread = threading.Thread(target=self._run, name="tokenyard-step", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """It steps, or waits for requests."""
        return self._thread.is_alive()

    def submit(self, requests: Sequence[Request]) -> None:
        """Have requests added, from any thread."""
        for each in requests:
            self._core.submit(each)
        self._wake.set()

    def abort(self, request_ids: Sequence[str]) -> None:
        """Have requests aborted, from any thread."""
        self._core.submit_abort(request_ids)
        self._wake.set()

    def taken(self) -> None:
        """The news of one call have been taken in."""
        self._untold.release()

    def stop(self) -> None:
        """End after the step under way, and wait for that; the core is left as it is then."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    # ---- in the thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if self._core.has_work:
                    self._step()
                else:
                    self._wait_for_requests()
        except BaseException as error:  # noqa: BLE001 - whatever it is, those that wait have to know
            self._on_news(StepNews(refused=self._core.take_refused(), error=error))

    def _wait_for_requests(self) -> None:
        self._wake.wait()
        self._wake.clear()
        if self._gather_seconds and self._core.has_work:
            self.gather(self._gather_seconds)

    def gather(self, seconds: float) -> None:
        """Let others come that long, before the first step is begun."""
        self._stopping.wait(seconds)

    def _step(self) -> None:
        outputs, stuck = self._stepped()
        for error in outputs.errors.values() if outputs is not None else ():
            _log.warning("%s", error, exc_info=error)
        refused: list[RequestError | StuckError] = [*self._core.take_refused(), *stuck]
        if refused or (outputs is not None and len(outputs)):
            self._tell(StepNews(outputs, refused))
        elif outputs is not None and not self._core.scheduler.running:
            self._wake.wait(_SECONDS_BETWEEN)
            self._wake.clear()

    def _stepped(self) -> tuple[EngineOutputs | None, list[StuckError]]:
        """What a step brought, and the request at which the engine was stuck: it is aborted."""
        try:
            return self._core.step(), []
        except StuckError as error:
            _log.error("%s", error)
            self._core.abort_requests(error.request_id)
            return None, [error]

    def _tell(self, news: StepNews) -> None:
        while not self._untold.acquire(timeout=0.1):
            if self._stopping.is_set():
                return
        self._on_news(news)


# ---------------------------------------------------------------------------------------------------------------------
# Online: requests come and go while one thread steps the engine; answers are asyncio streams.
#
#     event loop                                   thread
#     generate ── submit ──────────────────────►   step
#        ▲                                           │
#     text, stop strings ◄── call_soon_threadsafe ───┘
#
# A caller who goes away (the stream is closed, or its task cancelled) has the request aborted. What a slow caller has
# not taken is put together: a stream holds one answer, however late it is read.
#
# Callers are notified in a turn of the loop of their own, one after the other, of all that steps have brought by then.


class News:
    """Wakes the one who waits for it; an ``asyncio.Event`` for several costs thrice as much, for every token."""

    __slots__ = ("_are_there", "_waiter")

    def __init__(self) -> None:
        self._are_there = False
        self._waiter: asyncio.Future[None] | None = None

    def tell(self) -> None:
        """There are some."""
        self._are_there = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def come(self) -> None:
        """Wait until there are some, and take them."""
        if not self._are_there:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._are_there = False


class AsyncLLM:
    """An engine behind asyncio (vLLM's ``AsyncLLM``).

    All methods belong to the event loop in which :meth:`start` was awaited. ``async with`` starts and shuts down.
    """

    def __init__(
        self,
        core: EngineCore,
        *,
        tokenizer: TextTokenizer | None = None,
        gather_ms: float = 0.0,
        max_queued_requests: int = 1000,
        max_logprobs: int = 20,
        grammars: GrammarSource | None = None,
        model: ServedModel | None = None,
        stepper: Callable[[Callable[[StepNews], None]], Stepper] | None = None,
    ) -> None:
        """``core`` must not be stepped by any other caller.

        ``gather_ms``: when the engine has no request, the first that comes waits so many milliseconds for others that
        share its first step. ``max_queued_requests``: unfinished requests beyond those that can run at once
        (``max_num_seqs``); more are refused. ``grammars`` makes the compiler for ``structured_outputs``.
        ``model`` stands for what the executor reports; ``stepper`` makes what steps the engine in the event loop
        itself, in the place of a thread, and is given what takes its news in. Raises ConfigError.
        """
        if not 0 <= gather_ms <= 10_000:
            raise ConfigError("gather_ms", gather_ms, "give milliseconds from 0 to 10000")
        if max_queued_requests < 0:
            raise ConfigError("max_queued_requests", max_queued_requests, "give a whole number from 0 on")
        self.core = core
        """The engine."""
        self.model: ServedModel = model_of(core) if model is None else model
        """What it was loaded from."""
        self.tokenizer = tokenizer
        source = grammars or grammars_of(self.model, tokenizer)
        self._maker = GenerationMaker(
            self.model, tokenizer, core.scheduler.clock, max_logprobs=max_logprobs, grammars=source
        )
        self._most = core.scheduler.config.max_num_seqs + max_queued_requests
        self.processor = OutputProcessor()
        self._changed: dict[Generation, None] = {}
        """Generations whose callers are to be notified of something."""
        self._numbers = count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._death: EngineDeadError | None = None
        self._thread: Stepper = (
            StepThread(core, self._from_thread, gather_ms / 1000) if stepper is None else stepper(self._take_in)
        )

    # ---- life

    async def start(self) -> None:
        """Begin to step."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def death(self) -> EngineDeadError | None:
        """Why nothing is generated any more; None: the engine is well."""
        return self._death

    @property
    def num_unfinished(self) -> int:
        """Requests to the scheduler that have not ended, as far as is known here."""
        return self.processor.num_requests

    async def shutdown(self) -> None:
        """End after the step under way; who still waits gets an EngineDeadError. Lets go of the model."""
        await asyncio.to_thread(self._thread.stop)
        self._die(EngineDeadError("it was shut down"))
        self.core.shutdown()

    async def __aenter__(self) -> AsyncLLM:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    # ---- requests

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams,
        request_id: str | None = None,
        *,
        turn: Turn | None = None,
        grammars: Sequence[StructuredOutput] = (),
        add_special_tokens: bool = True,
    ) -> AsyncGenerator[GenerationOutput, None]:
        """The outputs for a prompt, as ``GenerationParams.output_kind`` says; the last one is ``finished``.

        ``grammars`` has one for each sample, or none. Raises RequestError for a prompt that cannot be served,
        QueueFullError, and EngineDeadError.
        """
        news = News()
        generation = self.begin(
            prompt,
            sampling_params,
            request_id,
            told=news.tell,
            turn=turn,
            grammars=grammars,
            add_special_tokens=add_special_tokens,
        )
        try:
            finished = False
            while not finished:
                await news.come()
                if generation.error is not None:
                    raise generation.error
                changed, finished = generation.news(), generation.is_finished
                if changed is not None:
                    yield generation.output(changed)
        finally:
            self.leave(generation)

    def begin(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams,
        request_id: str | None = None,
        *,
        told: Callable[[], None],
        turn: Turn | None = None,
        grammars: Sequence[StructuredOutput] = (),
        add_special_tokens: bool = True,
    ) -> Generation:
        """What :meth:`generate` asks, for a caller who looks at the generation whenever ``told`` is called.

        That is in the event loop, after steps that brought something and at the end; it must not raise. The caller
        leaves the generation when it has ended, or before. Raises what :meth:`generate` does.
        """
        name = str(next(self._numbers)) if request_id is None else request_id
        check_num_samples(name, getattr(sampling_params, "n", 1))
        self.check_room(getattr(sampling_params, "n", 1))
        generation = self._maker.make(
            name, prompt, sampling_params, turn=turn, grammars=grammars, add_special_tokens=add_special_tokens
        )
        self._add(generation, told)
        return generation

    def leave(self, generation: Generation) -> None:
        """Its caller does not wait for it any more; what has not ended is aborted."""
        generation.told = None
        left = generation.unfinished_ids
        self.processor.forget(generation)
        if left and self._death is None:
            self._thread.abort(left)

    async def embed(
        self,
        prompt: Prompt,
        pooling_params: PoolingParams | None = None,
        request_id: str | None = None,
        *,
        turn: Turn | None = None,
    ) -> EmbeddingOutput:
        """The prompt's vector; raises what :meth:`generate` does."""
        name = str(next(self._numbers)) if request_id is None else request_id
        pooling = PoolingParams() if pooling_params is None else pooling_params
        generation = self._maker.make(name, prompt, GenerationParams(), turn=turn, pooling=pooling)
        news = News()
        self._add(generation, news.tell)
        try:
            while not generation.is_finished:
                await news.come()
                if generation.error is not None:
                    raise generation.error
            return generation.embedding()
        finally:
            self.leave(generation)

    def check_room(self, num_requests: int) -> None:
        """QueueFullError if so many more requests to the scheduler would be refused now, before any work on them."""
        num = self.processor.num_requests
        if num + num_requests > self._most:
            raise QueueFullError(num, self._most, num_requests)

    def aborted(self, request_ids: Sequence[str]) -> None:
        """The engine has ended these requests of its own accord, as a pause may: their callers are notified."""
        self._tell(self.processor.abort(request_ids))

    def _add(self, generation: Generation, told: Callable[[], None]) -> None:
        if self._death is not None:
            raise _again(self._death)
        if self._loop is None:
            raise EngineDeadError("it was not started: await start(), or use it in `async with`")
        if generation.request_id in self.processor:
            fix = "an unfinished request has this id: choose another"
            raise RequestError(generation.request_id, "request_id", generation.request_id, fix)
        self.check_room(len(generation.samples))
        generation.told = told
        self.processor.add(generation)
        self._thread.submit([sample.request for sample in generation.samples])

    # ---- news

    def _from_thread(self, news: StepNews) -> None:
        """Called in the thread."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._take_in, news)
        except RuntimeError:  # the loop is closed: no caller waits for anything
            self._thread.taken()

    def _take_in(self, news: StepNews) -> None:
        try:
            self._process(news)
        except Exception as error:  # noqa: BLE001 - whatever it is, those that wait have to know
            self._die(_death_by(error))
        finally:
            self._thread.taken()

    def _process(self, news: StepNews) -> None:
        for refusal in news.refused:
            refused = self.processor.refuse(refusal.request_id, refusal)
            if refused is not None:
                generation, others = refused
                self._tell([generation])
                self._thread.abort(others)
        if news.outputs is not None:
            changes = self.processor.process(news.outputs)
            if changes.to_abort:
                self._thread.abort(changes.to_abort)
            self._tell(changes.generations)
        if news.error is not None:
            self._die(_death_by(news.error))

    def _die(self, death: EngineDeadError) -> None:
        """The first failure counts; every caller that waits gets it."""
        self._death = self._death or death
        for generation in self.processor.generations():
            self.processor.fail(generation, _again(self._death))
            self._tell([generation])

    def _tell(self, generations: Sequence[Generation]) -> None:
        """Their callers, when those that brought the news have done."""
        if generations and not self._changed:
            assert self._loop is not None
            self._loop.call_soon(self._tell_callers)
        self._changed.update(dict.fromkeys(generations))

    def _tell_callers(self) -> None:
        """Notify first the callers that wait for a first token: they come last in a step."""
        changed, self._changed = self._changed, {}
        for generation in reversed(changed):
            if generation.told is not None:
                generation.told()


def _death_by(error: BaseException) -> EngineDeadError:
    death = EngineDeadError(f"{type(error).__name__}: {text_of(error)}")
    death.__cause__ = error
    return death


def _again(death: EngineDeadError) -> EngineDeadError:
    """The same, to be raised once more: an error that is raised keeps what has raised it."""
    again = EngineDeadError(death.why)
    again.__cause__ = death.__cause__
    return again

"""What an emulated model says: how much, which words, and texts that were requested in a form."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from copy import copy
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.core.params import PoolingParams
from tokenyard.core.request import Request
from tokenyard.core.sched.outputs import ModelAuxOutput, ModelOutput, TokenLogprobs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import ConfigError
from tokenyard.serve.emulate.made_up import Work, WorkError, json_pieces, match_pieces, wholly
from tokenyard.serve.form_work import check_form, is_long
from tokenyard.serve.front import MAX_GRAMMAR_BYTES
from tokenyard.serve.generation import GenerationParams
from tokenyard.serve.grammars import DaemonPool
from tokenyard.serve.text import TextTokenizer
from tokenyard.sim.executor import SimulatedModel, SimulatedSpeculation
from tokenyard.workload.tokens import seed_of

Int64s = npt.NDArray[np.int64]

_SAYING = (
    "the of and to in a is that it was for on are as with they be at one have this from or had by hot word but what "
    "some we can out other were all there when up use your how said an each she which do their time if will way about "
    "many then them write would like so these her long make thing see him two has look more day could go come did "
    "number sound no most people my over know water than call first who may down side been now find any new work part "
    "take get place made live where after back little only round man year came show every good me give our under name"
)
_MEDIAN, _SPREAD = 180.0, 0.8
"""Lengths of answers for which nothing tells one: logarithms are distributed normally."""


def spoken_words(tokenizer: TextTokenizer) -> Int64s:
    """Ids of common words, one token each, with the space before them."""
    found = [tokenizer.encode(f" {word}", add_special_tokens=False) for word in _SAYING.split()]
    ids = [each[0] for each in found if len(each) == 1]
    return np.array(ids or found[0][:1], np.int64)


class Answer(msgspec.Struct, frozen=True):
    """The answer to one request."""

    seed: int
    """Seed of the words."""
    end: int | None
    """Output tokens before the token that ends it; None: it goes on until a limit ends it."""
    script: Int64s | None = None
    """Tokens that an answer has in the place of words."""
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt: Int64s | None = None
    """The prompt's tokens after the first, where log-probabilities of them are sent."""


class MadeUpText:
    """Tokens that are answered one after the other, where vLLM would have a grammar; it stands for one there."""

    problem: str | None = None

    def __init__(self, made: Future[Int64s]) -> None:
        self.compiled = made

    @classmethod
    def of(cls, text: str, tokenizer: TextTokenizer) -> MadeUpText:
        """One that is known."""
        made: Future[Int64s] = Future()
        made.set_result(np.array(tokenizer.encode(text, add_special_tokens=False), np.int64))
        return cls(made)

    @property
    def is_ready(self) -> bool:
        return self.compiled.done()

    @property
    def token_ids(self) -> Int64s:
        """The tokens, once they are made."""
        return self.compiled.result()

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        """It is taken out of its request before there are any."""
        return True

    def bitmask(self, num_positions: int) -> npt.NDArray[np.int32]:
        """The same."""
        raise AssertionError("a text that is made up reaches no scheduler")

    def another(self) -> MadeUpText:
        """The same, for another answer."""
        return MadeUpText(self.compiled)


_AT_ONCE = 2_000
"""Work that is done in the event loop itself; what takes more is done again in a thread."""
_ENCODED = 2_000
"""Characters that become tokens together."""
_THREADS = 2


class MadeUpForms:
    """What a grammar compiler is to real models: makes texts of the form that is requested."""

    def __init__(self, tokenizer: TextTokenizer, seed: int, *, most_tokens: int) -> None:
        """``most_tokens``: those of an answer."""
        self.chance = random.Random(seed)
        """Shared by whatever is made up."""
        self._tokenizer, self._most_tokens = tokenizer, most_tokens
        self._threads = DaemonPool(_THREADS, "made-up")

    def for_answers(self, most_tokens: int) -> MadeUpForms:
        """The same, which makes no more than so many tokens."""
        made = copy(self)
        made._most_tokens = most_tokens  # noqa: SLF001 - its own
        return made

    @property
    def is_busy(self) -> bool:
        return self._threads.is_busy

    def compile(self, **asked: Any) -> MadeUpText:
        """A text. Raises ConfigError, as a compiler does, at once or where it is waited for."""
        (kind, wanted), *more = asked.items()
        if more:
            raise ConfigError("structured_outputs", list(asked), "ask for one form")
        seed, most = self.chance.getrandbits(64), self._most_tokens

        def made(work: Work) -> Int64s:
            check_form(kind, wanted, MAX_GRAMMAR_BYTES)
            return wholly(lambda work: self._tokens(_pieces(kind, wanted, random.Random(seed), work), most), work)

        if is_long(wanted):
            return MadeUpText(self._threads.submit(lambda: made(Work())))
        try:
            at_once: Future[Int64s] = Future()
            at_once.set_result(made(Work(_AT_ONCE)))
            return MadeUpText(at_once)
        except WorkError:
            return MadeUpText(self._threads.submit(lambda: made(Work())))

    def _tokens(self, pieces: Iterator[str], most: int) -> Int64s:
        """The first tokens of a text; it is made no further than they go."""
        ids, held, size = list[int](), list[str](), 0
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size >= _ENCODED:
                ids += self._tokenizer.encode("".join(held), add_special_tokens=False)
                held, size = [], 0
                if len(ids) >= most:
                    break
        ids += self._tokenizer.encode("".join(held), add_special_tokens=False)
        return np.array(ids[:most], np.int64)

    def shutdown(self) -> None:
        """Nothing more is made."""
        self._threads.shutdown()


def _pieces(kind: str, wanted: Any, chance: random.Random, work: Work) -> Iterator[str]:
    """Pieces of a text of a form."""
    if kind == "json":
        return json_pieces(_schema(wanted), chance, work)
    if kind == "json_object":
        return iter(('{"answer": "made up"}',))
    if kind == "choice":
        return iter((str(chance.choice(list(wanted))),))
    if kind == "regex":
        return match_pieces(wanted, chance, work)
    raise ConfigError(kind, wanted, "no text of that form is made up here: give a JSON schema, choice or regex")


def _schema(wanted: Any) -> Any:
    if not isinstance(wanted, str):
        return wanted
    try:
        return json.loads(wanted)
    except ValueError as error:
        raise ConfigError("json", wanted, f"is no JSON schema: {error}") from None


class AnswerMaker:
    """Says how each request is answered; the same requests in the same order are answered alike."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        eos_token_id: int,
        *,
        lengths: Sequence[int] = (),
        echo: bool = False,
        seed: int = 0,
    ) -> None:
        """``lengths``: those of other answers, to draw from. ``echo``: prompts without messages are repeated."""
        self._tokenizer, self._eos = tokenizer, eos_token_id
        self._lengths, self._echo = lengths, echo
        self._chance = random.Random(seed)
        self._seed, self._number = seed, 0

    def answer(self, request: Request, params: GenerationParams) -> Answer:
        """The answer to ``request``, of which nothing has been sent yet."""
        form = request.structured_output
        made = form.token_ids if isinstance(form, MadeUpText) else None
        if made is not None:
            request.structured_output, request.status = None, type(request.status).WAITING
        self._number += 1
        given = request.sampling_params.seed
        seed = seed_of("emulate", self._seed, self._number) if given is None else seed_of("given", given)
        request.output_seed = seed
        if isinstance(request.pooling_params, PoolingParams):
            return Answer(seed, None)
        script = self._script(request) if made is None else made
        end = max(len(script) if script is not None else self._length(), params.min_tokens)
        prompt = None
        if params.prompt_logprobs is not None:
            prompt = request.token_slice(1, request.num_prompt_tokens).astype(np.int64)
        end_at = None if params.ignore_eos else end
        return Answer(seed, end_at, script, params.logprobs, params.prompt_logprobs, prompt)

    def _script(self, request: Request) -> Int64s | None:
        if self._echo:
            return request.token_slice(0, request.num_prompt_tokens).astype(np.int64)
        return None

    def _length(self) -> int:
        """Tokens of an answer that its form does not give."""
        if self._lengths:
            return max(1, self._chance.choice(self._lengths) - 1)
        return max(1, round(_MEDIAN * self._chance.lognormvariate(0.0, _SPREAD)))


# ---------------------------------------------------------------------------------------------------------------------
# The model: the stream of a request as in a replay, in words; then its end.

_NEVER = np.int64(2**62)
_LIKELY = -0.1
"""Log-probability of the token of the answer; those of others follow."""
_HIDDEN = 64
"""Numbers of a made-up vector where the model's size is not known."""


class SpokenModel(SimulatedModel):
    """Says what ``answers`` holds for a request, by its id."""

    def __init__(
        self,
        answers: Mapping[str, Answer],
        words: Int64s,
        eos_token_id: int,
        *,
        hidden_size: int = _HIDDEN,
        speculation: SimulatedSpeculation | None = None,
    ) -> None:
        super().__init__(speculation)
        self._answers, self._words, self._eos, self._hidden_size = answers, words, eos_token_id, hidden_size
        self._ends = np.zeros(0, np.int64)
        """Per slot: the position of the token that ends the answer."""
        self._starts = np.zeros(0, np.int64)
        """Per slot: the position of the first token of the answer."""
        self._scripts: dict[int, Int64s] = {}
        """Slot -> tokens that the answer has in the place of words."""
        self._told: dict[str, Answer] = {}
        """Requests whose log-probabilities are sent."""
        self._pooled: dict[str, int] = {}
        """Requests that want a vector -> its seed."""

    def execute(self, output: SchedulerOutput) -> ModelOutput:
        for request_id in output.finished_req_ids:
            self._told.pop(request_id, None)
            self._pooled.pop(request_id, None)
        made = super().execute(output)
        if self._pooled or self._told:
            return self._with_extras(output, made)
        return made

    def _remember(self, output: SchedulerOutput) -> None:
        super()._remember(output)
        missing = len(self._offsets) - len(self._ends)
        if missing:
            self._ends = np.concatenate((self._ends, np.full(missing, _NEVER)))
            self._starts = np.concatenate((self._starts, np.zeros(missing, np.int64)))
        for row in range(output.num_running, len(output.req_ids)):
            slot, request_id = int(output.slots[row]), output.req_ids[row]
            answer, start = self._answers.get(request_id), int(output.num_prompt[row])
            self._starts[slot] = start
            self._scripts.pop(slot, None)
            if answer is None:  # its client has gone
                self._ends[slot] = start
                continue
            self._ends[slot] = _NEVER if answer.end is None else start + answer.end
            if answer.script is not None and len(answer.script):
                self._scripts[slot] = answer.script
            if answer.logprobs is not None or answer.prompt_logprobs is not None:
                self._told[request_id] = answer
        for row, request in output.new_requests.items():
            if request.pooling_params is not None:
                self._pooled[output.req_ids[row]] = request.output_seed

    def _tokens(self, slots: Int64s, positions: Int64s) -> Int64s:
        tokens: Int64s = self._words[super()._tokens(slots, positions) % len(self._words)]
        if self._scripts:
            for i, slot in enumerate(slots.tolist()):
                script = self._scripts.get(slot)
                if script is not None:
                    tokens[i] = script[(positions[i] - self._starts[slot]) % len(script)]
        tokens[positions == self._ends[slots]] = self._eos
        return tokens

    def _with_extras(self, output: SchedulerOutput, made: ModelOutput) -> ModelOutput:
        logprobs: dict[int, TokenLogprobs] = {}
        of_prompts: dict[int, TokenLogprobs] = {}
        pooled: list[object | None] = [None] * len(output.req_ids)
        counts = made.num_sampled.copy()
        chunks = output.is_prefill_chunk
        for row, request_id in enumerate(output.req_ids):
            seed = self._pooled.get(request_id)
            if seed is not None:
                counts[row] = 0
                if chunks is None or not chunks[row]:
                    pooled[row] = _vector(seed, self._hidden_size)
                continue
            answer = self._told.get(request_id)
            if answer is None or not counts[row]:
                continue
            if answer.logprobs is not None:
                logprobs[row] = _told(made.sampled[row, : counts[row]], answer.logprobs, self._words)
            if answer.prompt is not None and int(output.num_computed[row]) < int(output.num_prompt[row]):
                of_prompts[row] = _told(answer.prompt, answer.prompt_logprobs or 0, self._words)
        extras = ModelAuxOutput(
            pooler_output=pooled if self._pooled else (), logprobs=logprobs, prompt_logprobs=of_prompts
        )
        return ModelOutput(made.sampled, counts, made.connector, extras)


def _told(tokens: Int64s, most: int, words: Int64s) -> TokenLogprobs:
    """Made-up log-probabilities: the token of the answer is the likeliest, words follow."""
    most = min(max(most, 0), len(words))
    ids = np.empty((len(tokens), 1 + most), np.int64)
    ids[:, 0] = tokens
    if most:
        ids[:, 1] = tokens
        ids[:, 2:] = words[: most - 1]
    values = np.empty(ids.shape)
    values[:, 0] = _LIKELY
    values[:, 1:] = _LIKELY - 2.5 * np.arange(most)
    return TokenLogprobs(ids, values, np.ones(len(tokens), np.int64))


def _vector(seed: int, size: int) -> npt.NDArray[np.float32]:
    vector = np.random.default_rng(seed & 0xFFFF_FFFF_FFFF_FFFF).standard_normal(size)
    made: npt.NDArray[np.float32] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return made

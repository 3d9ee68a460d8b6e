"""A model that recites, behind the executor protocol: whatever it answers can be worked out from the prompt.

The vocabulary is bytes, so a character of several bytes comes in several tokens. A prompt picks a place in ``VERSE``;
from there on the model recites byte by byte, and ends with the end-of-sequence token where the verse ends. Behind it
works a ``Worker`` that believes nothing: a wrong block is found when it is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import tokenizers
from tests.support.worker import Worker
from tokenizers import decoders, models, pre_tokenizers

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.engine import EngineCore, StepFuture
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.features.grammars import GrammarOutput
from tokenyard.core.sched.observer import StepObserver
from tokenyard.core.sched.outputs import DraftTokens, ModelAuxOutput, ModelOutput, TokenLogprobs
from tokenyard.core.sched.policy import Policy
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.serve.text import ChatTemplate, TextTokenizer

__all__ = [
    "BOS",
    "EOS",
    "VERSE",
    "VOCAB_SIZE",
    "ToyExecutor",
    "ToyModel",
    "answer_to",
    "byte_tokenizer",
    "text_to",
    "toy_core",
    "toy_tokenizer",
]

VERSE = (
    "the quick brown fox jumps over the lazy dog; zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. "
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, いろはにほへと ちりぬるを, съешь же ещё этих мягких французских булок 🦊🐕 "
) * 4
_CHARACTERS = [character.encode() for character in VERSE]
BOS, EOS = 256, 257
VOCAB_SIZE = 272
"""More than the tokenizer knows, as models have it."""
TEMPLATE = (
    "{{ bos_token }}{% if tools %}[tools {{ tools | tojson }}]\n{% endif %}"
    "{% for message in messages %}{% if message.role == 'nobody' %}{{ raise_exception('nobody speaks') }}{% endif %}"
    "[{{ message.role }}] {{ message.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
)


class ToyModel(NamedTuple):
    """What was loaded."""

    name: str = "toy"
    device: str = "cpu"
    bytes_per_block: int | None = 4096
    vocab_size: int = VOCAB_SIZE
    max_model_len: int = 512
    eos_token_ids: Sequence[int] = (EOS,)
    adapters: Sequence[str] = ()
    tokenizer: Path | None = None


def _recited(prompt: Sequence[int]) -> list[int]:
    """All that the model says to a prompt."""
    start = crc32(np.asarray(prompt, np.int32).tobytes()) % len(_CHARACTERS)
    return [*b"".join(_CHARACTERS[start:]), EOS]


def answer_to(prompt: Sequence[int], max_tokens: int) -> list[int]:
    """The tokens that a client must see."""
    return _recited(prompt)[:max_tokens]


def text_to(prompt: Sequence[int], max_tokens: int) -> str:
    """The text that a client must see; a character that is cut is U+FFFD."""
    return bytes(each for each in answer_to(prompt, max_tokens) if each < BOS).decode(errors="replace")


def byte_tokenizer() -> tokenizers.Tokenizer:
    """A token per byte, and two special ones; byte-level, as GPT-2's."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [each for each in range(256) if each not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(rest)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab={letters[byte]: byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def toy_tokenizer() -> TextTokenizer:
    """With a chat template."""
    return TextTokenizer(byte_tokenizer(), ChatTemplate(TEMPLATE, {"bos_token": "<s>", "eos_token": "</s>"}))


class ToyExecutor:
    """Runs the toy model; ``seconds`` is how long a step takes at least, ``fails_at`` the step at which it breaks."""

    def __init__(self, cache: CacheConfig, *, max_model_len: int, seconds: float = 0.0, checks: bool = True) -> None:
        self.model = ToyModel(max_model_len=max_model_len)
        self.fails_at: int | None = None
        self.steps: list[tuple[str, ...]] = []
        """The requests in each step that computed anything; a run without checks, which may be long, keeps none."""
        self._keeps_steps = checks
        self.is_shut_down = False
        self.worker = Worker(cache) if checks else TrustingWorker(cache)
        self._prompts: dict[str, int] = {}
        """Request -> length of its prompt."""
        self._seconds = seconds

    def execute_model(self, plan: SchedulerOutput) -> None:
        if plan.step == self.fails_at:
            raise RuntimeError("the device is gone")
        if plan.req_ids and self._keeps_steps:
            self.steps.append(plan.req_ids)
        for request_id in plan.finished_req_ids:
            self._prompts.pop(request_id, None)
        for row, new in plan.new_requests.items():
            self._prompts[plan.req_ids[row]] = len(new.prompt_token_ids)

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> StepFuture:
        if self._seconds and plan.req_ids:
            time.sleep(self._seconds)
        masks = (
            {}
            if grammar is None
            else dict(zip(grammar.structured_output_request_ids, grammar.grammar_bitmask, strict=True))
        )
        rows = self.worker.execute(plan, self._sampler(masks))
        logprobs = {
            row: _logprobs(tokens, wanted)
            for row, (name, tokens) in enumerate(zip(plan.req_ids, rows, strict=True))
            if tokens and (wanted := self.worker.requests[name].sampling_params.logprobs) is not None
        }
        future: Future[ModelOutput] = Future()
        extras = ModelAuxOutput(logprobs=logprobs) if logprobs else None
        future.set_result(ModelOutput.from_lists(rows, extras=extras))
        return future

    def _sampler(self, masks: dict[str, Any]) -> Callable[[str, list[int]], list[int]]:
        def sample(name: str, drafts: list[int]) -> list[int]:
            tokens, length = self.worker.tokens[name], self._prompts[name]
            verse = _recited(tokens[:length])
            said = verse[min(len(tokens) - length, len(verse) - 1)]
            mask = masks.get(name)
            return [said if mask is None else _allowed(mask, said)]

        return sample

    def take_draft_token_ids(self) -> DraftTokens | None:
        return None

    def shutdown(self) -> None:
        self.is_shut_down = True


class TrustingWorker(Worker):
    """Keeps tokens alone, for runs of many requests."""

    def execute(self, output: SchedulerOutput, sample: Callable[[str, list[int]], list[int]]) -> list[list[int]]:
        rows = []
        for task in self._receive(output):
            tokens = sample(task.name, []) if task.samples else []
            self.tokens[task.name] += tokens
            rows.append(tokens)
        return rows


def _allowed(mask: Any, said: int) -> int:
    """``said``, or the last token that the mask allows: in most grammars one that goes on, or ends."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return said if bits[said] else int(bits.nonzero()[0][-1])


def _logprobs(tokens: Sequence[int], wanted: int) -> TokenLogprobs:
    """The token itself is the likeliest, those after it in the vocabulary half as likely each."""
    ids = np.array([[token, *((token + i) % VOCAB_SIZE for i in range(wanted))] for token in tokens])
    values = np.array([[-0.5, *(-0.5 - i for i in range(wanted))] for _ in tokens])
    return TokenLogprobs(ids, values, np.ones(len(tokens), np.int64))


def toy_core(
    *,
    observer: StepObserver | None = None,
    seconds: float = 0.0,
    checks: bool = True,
    num_gpu_blocks: int = 400,
    async_scheduling: bool = False,
    clock: Callable[[], float] = time.monotonic,
    policy_object: Policy | None = None,
    kv_connector: KVConnector | None = None,
    **settings: Any,
) -> EngineCore:
    """An engine with the toy model; ``settings`` are those of SchedulerConfig."""
    cache = CacheConfig(num_gpu_blocks=num_gpu_blocks, block_size=4)
    limits = {"max_num_seqs": 16, "max_num_batched_tokens": 256, "max_model_len": 512} | settings
    config = SchedulerConfig(async_scheduling=async_scheduling, **limits)
    scheduler = Scheduler(
        config, cache, clock=clock, observer=observer, policy=policy_object, kv_connector=kv_connector
    )
    executor = ToyExecutor(cache, max_model_len=config.max_model_len, seconds=seconds, checks=checks)
    return EngineCore(scheduler, executor)

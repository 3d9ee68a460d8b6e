"""An engine core whose executor, grammars, connector and policy raise, answer late, answer twice or answer nonsense, at
every call of theirs, in any order with arrivals, aborts, pauses and resets.

What holds: a request whose grammar makes a mistake ends as an error, and all others get an answer; a wrong answer of a
step leaves everything as it was, and is asked for again; a policy, a connector or an executor that raises is named, and
closes the engine; clients are told exactly what was sampled; the scheduler's invariants hold after every call; and
once mistakes and delays are over, an engine that was not closed comes to rest with every block free. The watchdog never
takes a wait for a standstill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.support.examples import examples
from tests.support.machines import TALLIES, Floor, machine_test
from tests.support.profiles import VLLM_0_22, VLLM_0_33
from tests.support.toy_connector import ToyConnector

from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig, SpeculativeMethod
from tokenyard.core.engine import EngineCore, PauseMode
from tokenyard.core.request import FinishReason, Request, SamplingParams
from tokenyard.core.sched.connector import KVConnector, Match
from tokenyard.core.sched.features.grammars import GrammarOutput
from tokenyard.core.sched.outputs import ConnectorOutput, DraftTokens, ModelAuxOutput, ModelOutput
from tokenyard.core.sched.policy import Policy, make_policy
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import ConnectorError, EngineDeadError, PolicyError, RequestError

VOCABULARY = 8
SEEDS = st.integers(0, 2**32 - 1)
MOST_STEPS = 3000
_SOON = 40
"""Steps in a row after which a wait would be called a standstill, if it were taken for one."""
_FATAL = 0.05
"""How often a part makes a mistake by which the engine ends, for one that it survives."""
_NEVER = {"bind", "new_queue", "next_moment", "reset_cache", "shutdown", "take_events"}


class HookError(Exception):
    """What a hook raises."""


class Mischief:
    """Decides who makes a mistake, and counts."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.often = 0.1
        self.num_made = 0
        self.by_whom = ""
        """The plug-in that has made the mistake that ends the engine."""

    def strikes(self, how_often: float = 1.0) -> bool:
        made = self.random.random() < self.often * how_often
        self.num_made += made
        return made

    def raises(self, whose: str, call: Callable[..., Any], nonsense: Sequence[object] = ()) -> Callable[..., Any]:
        """``call``, which raises now and then, or answers one of ``nonsense``: the engine ends by it."""

        def struck(*given: Any) -> Any:
            if not self.strikes(_FATAL):
                return call(*given)
            self.by_whom = whose
            answer = self.random.choice([HookError, *nonsense])
            if answer is HookError:
                raise HookError(whose)
            return answer

        return struck


class Grammar:
    """Forbids a token. Its request is guilty once it has made a mistake."""

    def __init__(self, mischief: Mischief, forbids: int) -> None:
        self._mischief, self._forbids = mischief, forbids
        self.is_compiled = False
        self.is_guilty = False

    def _ask(self, right: Any, nonsense: Sequence[object]) -> Any:
        if not self._mischief.strikes():
            return right
        self.is_guilty = True
        answer = self._mischief.random.choice([HookError, *nonsense])
        if answer is HookError:
            raise HookError("a grammar")
        return answer

    @property
    def is_ready(self) -> bool:
        return bool(self._ask(self.is_compiled, ())) if self.is_compiled else False

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        answer: bool = self._ask(self._forbids not in tokens, (None, 1, "yes"))
        return answer

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        stop = next((i for i, token in enumerate(tokens) if token == self._forbids), len(tokens))
        answer: list[int] = self._ask(list(tokens[:stop]), (None, [*tokens, 1], 7))
        return answer

    def bitmask(self, drafts: Sequence[int]) -> npt.NDArray[np.int32]:
        right = np.full((1 + len(drafts), 1), ((1 << VOCABULARY) - 1) & ~(1 << self._forbids), np.int32)
        answer: npt.NDArray[np.int32] = self._ask(right, (None, right[:0], right[0], right.astype(np.int64)))
        return answer


class Connector(ToyConnector):
    """Its far end answers sooner or later, and says some things twice."""

    def reported(self, random: Random, chance: float) -> ConnectorOutput:
        received = {name for name in sorted(self.loading) if random.random() < chance}
        invalid = set()
        for name in received:
            load = self.loading.pop(name)
            if random.random() < 0.15:
                invalid.add(load.blocks[load.start // 4])
        sent = {name for name in sorted(self.sending) if random.random() < chance}
        self.sending -= sent
        return ConnectorOutput(
            finished_receiving=frozenset(received),
            finished_sending=frozenset(sent),
            invalid_block_ids=frozenset(invalid),
        )


class Answer:
    """A step's future: late, or at once; sometimes it raises, or brings nonsense, before it brings the answer."""

    def __init__(self, executor: Executor, right: ModelOutput) -> None:
        self._executor, self._right = executor, right
        self._reported: ConnectorOutput | None = None

    def done(self) -> bool:
        return self._executor.mischief.random.random() < 0.5

    def result(self) -> ModelOutput:
        executor, right = self._executor, self._right
        if executor.mischief.strikes():
            too_many = [_too_many] * executor.is_bounded
            raised_or_wrong = executor.mischief.random.choice((HookError, *_NONSENSE, *too_many))
            if raised_or_wrong is HookError:
                raise HookError("a future")
            return raised_or_wrong(right)  # type: ignore[no-any-return]
        if executor.connector is not None and self._reported is None:
            self._reported = executor.connector.reported(executor.mischief.random, executor.chance)
        right.connector = self._reported
        return right


_NONSENSE: Sequence[Callable[[ModelOutput], Any]] = (
    lambda right: None,
    lambda right: ModelOutput.from_lists([[1]] * (len(right.num_sampled) + 1)),
    lambda right: ModelOutput(right.sampled, right.num_sampled, extras=ModelAuxOutput(failed=frozenset({"nobody"}))),
    lambda right: ModelOutput(
        right.sampled, right.num_sampled, ConnectorOutput(finished_sending=frozenset({"nobody"})), right.extras
    ),
)


def _too_many(right: ModelOutput) -> ModelOutput:
    return ModelOutput.from_lists([[1] * 20] * max(1, len(right.num_sampled)))


class Executor:
    """Samples what grammars allow."""

    def __init__(self, mischief: Mischief, num_drafts: int, connector: Connector | None, *, is_bounded: bool) -> None:
        """``is_bounded``: a step brings a token and its drafts, and no tokens that have yet to be computed."""
        self.mischief, self.num_drafts, self.connector = mischief, num_drafts, connector
        self.is_bounded = is_bounded
        self.chance = 0.3
        """The report that a transfer has ended."""
        self.dies = False
        self._plan: SchedulerOutput | None = None

    def execute_model(self, plan: SchedulerOutput) -> None:
        if self.dies:
            raise HookError("the device is gone")
        self._plan = plan

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> Answer:
        masks: dict[str, Any] = {}
        drafts = plan.scheduled_spec_decode_tokens
        if grammar is not None:
            first = 0
            for name in grammar.structured_output_request_ids:
                masks[name] = grammar.grammar_bitmask[first : first + 1 + len(drafts.get(name, ()))]
                first += len(masks[name])
            assert first == len(grammar.grammar_bitmask)
        chunks = plan.is_prefill_chunk
        rows = [
            [] if chunks is not None and chunks[row] else self._sampled(drafts.get(name, []), masks.get(name))
            for row, name in enumerate(plan.req_ids)
        ]
        return Answer(self, ModelOutput.from_lists(rows))

    def _sampled(self, drafts: list[int], masks: Any) -> list[int]:
        random = self.mischief.random
        certain = drafts.index(-1) if -1 in drafts else len(drafts)
        taken = random.randint(0, certain)
        mask = -1 if masks is None else int(masks[taken][0])
        return [*drafts[:taken], random.choice([token for token in range(VOCABULARY) if mask >> token & 1])]

    def take_draft_token_ids(self) -> DraftTokens | None:
        assert self._plan is not None
        random, rows = self.mischief.random, len(self._plan.req_ids)
        if self.mischief.strikes(_FATAL):
            self.mischief.by_whom = "rows of drafts"
            return DraftTokens.from_lists([[1]] * (rows + 1))
        most = self.num_drafts
        return DraftTokens.from_lists(
            [random.choices(range(VOCABULARY), k=random.randint(0, most)) for _ in range(rows)]
        )

    def shutdown(self) -> None:
        pass


def draw_scheduler(random: Random, mischief: Mischief) -> tuple[Scheduler, Connector | None]:
    is_async = random.random() < 0.5
    method = random.choice([None, SpeculativeMethod.NGRAM_GPU if is_async else SpeculativeMethod.NGRAM])
    drafts = None if method is None else SpeculativeConfig(num_speculative_tokens=random.randint(1, 3), method=method)
    connector = Connector(random) if random.random() < 0.4 else None
    config = SchedulerConfig(
        max_num_seqs=random.randint(1, 5),
        max_num_batched_tokens=random.randint(8, 40),
        max_model_len=32,
        async_scheduling=is_async,
        pipeline_parallel_size=random.choice([1, 1, 2]) if drafts is None else 1,
        profile=random.choice([VLLM_0_22, VLLM_0_33]),
        rolled_back_work_stays_cached=False,
        scheduler_reserve_full_isl=random.random() < 0.5,
        kv_load_failure_policy="recompute",  # else innocent ones end as errors
    )
    cache = CacheConfig(num_gpu_blocks=random.randint(12, 24), block_size=4)
    note(f"{config}\n{cache}\n{drafts}\nconnector: {connector is not None}")
    wrong: Any = (1.5, -16, "7", True)
    nonsense: dict[str, list[object]] = {
        "KVConnector.get_num_new_matched_tokens": [None, 5, (3, True), *map(Match, wrong), Match(4, *wrong[:1])],
        "KVConnector.request_finished": [None, True, (1, None), (True, "x"), (False,)],
        "Policy.victim": [None, -1, 100],
        "Policy.next_queue": [None],
        "Policy.keeps_blocks": [None],
    }
    policy = make_policy(random.choice(["fcfs", "priority"]))
    for owner, protocol in ((policy, Policy), (connector, KVConnector)):
        for hook, plain in vars(protocol).items() if owner is not None else ():
            if hook[0] != "_" and hook not in _NEVER and callable(plain):
                whose = f"{type(owner).__name__}.{hook}"
                setattr(
                    owner,
                    hook,
                    mischief.raises(whose, getattr(owner, hook), nonsense.get(f"{protocol.__name__}.{hook}", ())),
                )
    scheduler = Scheduler(config, cache, speculative_config=drafts, policy=policy, kv_connector=connector, debug=True)
    return scheduler, connector


class CoreMachine(RuleBasedStateMachine):
    """Everybody may make a mistake at any call."""

    num_errors = 0
    num_closed = 0

    @initialize(seed=SEEDS)
    def build(self, seed: int) -> None:
        TALLIES[type(self)].runs += 1
        self.mischief = Mischief(Random(seed))
        self.scheduler, self.connector = draw_scheduler(Random(seed), self.mischief)
        num_drafts, is_async = self.scheduler.num_speculative_tokens, self.scheduler.config.async_scheduling
        bounded = is_async or num_drafts > 0
        self.executor = Executor(self.mischief, num_drafts, self.connector, is_bounded=bounded)
        self.core = EngineCore(self.scheduler, self.executor)
        self.requests: dict[str, Request] = {}
        self.told: dict[str, list[int]] = {}
        self.ended: dict[str, FinishReason] = {}
        """By id, what the client was told; None for those who were aborted."""
        self.gone: set[str] = set()
        self.errors: set[str] = set()
        self.num_explained = 0
        self.counter = 0
        self.is_closed = False

    def _attempt(self, call: Callable[..., Any], *given: Any) -> Any:
        """An error is right only if a part has made a mistake since the last one."""
        if self.is_closed:
            self._says_who_closed_it(call, *given)
            return None
        try:
            return call(*given)
        except (HookError, PolicyError, ConnectorError, ValueError) as error:
            if self.mischief.num_made == self.num_explained:
                raise  # although no part made a mistake
            self._note_error(error)
            return None
        finally:
            self.num_explained = self.mischief.num_made
            if not self.is_closed:
                self.scheduler.check_invariants()

    def _note_error(self, error: Exception) -> None:
        CoreMachine.num_errors += 1
        whom = self.mischief.by_whom
        assert (self.core.death is not None) == bool(whom), f"{whom} has made a mistake: {error!r}"
        self.is_closed = bool(whom)
        CoreMachine.num_closed += self.is_closed
        assert whom in str(error), "who has made it is named"

    def _says_who_closed_it(self, call: Callable[..., Any], *given: Any) -> None:
        with pytest.raises(EngineDeadError) as dead:
            call(*given)
        assert self.mischief.by_whom in str(dead.value)

    # ---- what happens

    @rule(seeds=st.lists(SEEDS, min_size=1, max_size=4), steps=st.integers(0, 2), submits=st.booleans())
    def add(self, seeds: list[int], steps: int, submits: bool) -> None:
        for seed in seeds:
            random = Random(seed)
            self.counter += 1
            name = f"r{self.counter}"
            grammar = Grammar(self.mischief, random.randrange(VOCABULARY)) if random.random() < 0.4 else None
            params = SamplingParams(max_tokens=random.randint(1, 8), eos_token_id=random.choice([None, 0]))
            prompt = [*range(100, 100 + random.choice([0, 5, 9])), *random.choices(range(20, 29), k=3)]
            request = Request(name, prompt, params, structured_output=grammar, arrival_time=self.counter / 1000)
            self.requests[name], self.told[name] = request, []
            if self.is_closed:
                self._says_who_closed_it(self.core.add_request, request)
                return
            if submits:
                self.core.submit(request)
            else:
                self._attempt(self.core.add_request, request)
                if name not in self.scheduler.requests:
                    del self.requests[name]  # a hook raised: it is not there
            TALLIES[type(self)].accepted += name in self.requests
            self._steps(steps)

    @rule(steps=st.integers(1, 15))
    def run(self, steps: int) -> None:
        self._steps(steps)

    def _steps(self, steps: int) -> None:
        for _ in range(steps):
            outputs = self._attempt(self.core.step)
            self._take_refused()
            if self.is_closed:
                return
            TALLIES[type(self)].steps += outputs is not None and len(outputs) > 0
            for news in outputs or ():
                if news.error is not None:
                    self.errors.add(news.request_id)
                    CoreMachine.num_errors += 1
                assert news.request_id not in self.ended, "an output after the last one"
                assert news.request_id not in self.gone, "an output of a request that was aborted"
                self.told[news.request_id] += news.new_token_ids
                if news.finish_reason is not None:
                    self.ended[news.request_id] = news.finish_reason
            assert self.scheduler.standstill(_SOON) is None, "a wait was taken for a standstill"

    def _take_refused(self) -> None:
        for refused in self.core.take_refused():
            assert isinstance(refused, RequestError)
            self.requests.pop(refused.request_id, None)

    @rule(pick=st.integers(0, 9))
    def compile_grammar(self, pick: int) -> None:
        late = [each for each in self._grammars() if not each.is_compiled]
        if late:
            late[pick % len(late)].is_compiled = True

    def _grammars(self) -> list[Grammar]:
        given = (request.structured_output for request in getattr(self, "requests", {}).values())
        return [each for each in given if isinstance(each, Grammar)]

    @rule(picks=st.lists(st.integers(0, 50), min_size=1, max_size=3))
    def abort(self, picks: list[int]) -> None:
        live = list(self.scheduler.requests)
        names = {live[pick % len(live)] for pick in picks} if live else set()
        self._attempt(self.core.abort_requests, sorted(names))
        self.gone |= names
        if self.is_closed:
            return
        assert not names & self.scheduler.requests.keys(), "an abort that raised has not aborted"

    @rule(mode=st.sampled_from(PauseMode))
    def pause(self, mode: PauseMode) -> None:
        live = set(self.scheduler.requests)
        self._attempt(self.core.pause, mode)
        if mode is PauseMode.ABORT and not self.is_closed:
            self.gone |= live
            assert not self.scheduler.requests

    @rule()
    def resume(self) -> None:
        self._attempt(self.core.resume)

    @precondition(lambda self: self.scheduler.num_speculative_tokens == 0)
    @rule()
    def reset(self) -> None:
        self._attempt(lambda: self.core.reset_prefix_cache(reset_running_requests=True))

    # ---- the end

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        if self.is_closed:
            self.mischief.often = 0.0
            self.core.shutdown()
            return
        self.mischief.often = 0.0
        self.executor.chance = 1.0
        self.core.resume()
        for each in self._grammars():
            each.is_compiled = True
        for _ in range(MOST_STEPS):
            if not self.core.has_work:
                break
            self._steps(1)
        assert not self.core.has_work, f"it does not come to rest: {list(self.scheduler.requests.values())}"
        for name, request in self.requests.items():
            if name in self.gone:
                continue
            assert name in self.ended, f"{request} was forgotten"
            grammar = request.structured_output
            guilty = isinstance(grammar, Grammar) and grammar.is_guilty
            assert (self.ended[name] is FinishReason.ERROR) is guilty, f"{request}: {self.ended[name]}"
            assert (name in self.errors) is guilty, "the last output says what the grammar has done"
            assert self.told[name] == request.output_token_ids
        assert self.scheduler.num_free_blocks == self.scheduler.num_total_blocks - 1
        self._dies()

    def _dies(self) -> None:
        """In the end the executor dies in the middle of a step."""
        self.core.add_request(Request("last", [1, 2, 3], SamplingParams(max_tokens=3)))
        self.executor.dies = True
        for expected in (HookError, EngineDeadError, EngineDeadError):
            with pytest.raises(expected):
                self.core.step()
        self.core.shutdown()
        self.scheduler.check_invariants()
        assert self.core.num_in_flight == 0


_EXAMPLES = 150


class TestCoreMachine(machine_test(CoreMachine, Floor(accepted=1, steps=1), max_examples=_EXAMPLES, step_count=30)):  # type: ignore[misc]
    def runTest(self) -> None:  # noqa: N802  # unittest's name
        errors, closed = CoreMachine.num_errors, CoreMachine.num_closed
        super().runTest()
        if examples(_EXAMPLES) < _EXAMPLES:  # one search in ten that is so short ends no engine
            return
        assert CoreMachine.num_errors - errors > 15, "hardly a hook made a mistake"
        assert CoreMachine.num_closed - closed > 4, "hardly one made a mistake that ends the engine"

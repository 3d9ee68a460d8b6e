"""A KV connector: tokens from elsewhere, blocks that a worker still reads, loads that fail."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.support.toy_engine import ToyEngine, Watcher

from tokenyard.core.config import CacheConfig, GroupKind, KVCacheGroup, SchedulerConfig
from tokenyard.core.kv.allocation import Blocks
from tokenyard.core.profiles import decision_profile
from tokenyard.core.request import FinishReason, Request, RequestStatus, SamplingParams
from tokenyard.core.sched.connector import KVConnector, Match
from tokenyard.core.sched.outcomes import Reason
from tokenyard.core.sched.outputs import ConnectorOutput, EngineOutputs, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput


class Remote(KVConnector):
    """Answers what it was told to, and remembers what it is told."""

    def __init__(self, *matches: Match, keeps: bool = False) -> None:
        self.matches = list(matches)
        self.keeps = keeps
        self.allocated: list[tuple[str, Blocks, int]] = []

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
        return self.matches.pop(0) if self.matches else Match(0)

    def update_state_after_alloc(self, request: Request, blocks: Blocks, num_external_tokens: int) -> None:
        self.allocated.append((request.request_id, blocks, num_external_tokens))

    def build_connector_meta(self, output: SchedulerOutput) -> object:
        return ("step", output.step)

    def request_finished(self, request: Request, blocks: Blocks) -> tuple[bool, Mapping[str, object] | None]:
        return self.keeps, None


class Site:
    """A scheduler with a remote, a watcher and a toy model."""

    def __init__(
        self,
        remote: Remote,
        policy: str = "fail",
        *,
        groups: tuple[KVCacheGroup, ...] = (KVCacheGroup(),),
        version: str = "0.22",
    ) -> None:
        self.remote = remote
        self.watcher = Watcher()
        self.scheduler = Scheduler(
            SchedulerConfig(
                max_num_seqs=4,
                max_num_batched_tokens=64,
                max_model_len=64,
                kv_load_failure_policy=policy,
                profile=decision_profile(version),
            ),
            CacheConfig(num_gpu_blocks=41, block_size=4, groups=groups),
            observer=self.watcher,
            kv_connector=remote,
        )

    def add(self, request_id: str, length: int, max_tokens: int = 2, first: int = 0) -> Request:
        request = Request(
            request_id, list(range(first, first + length)), SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        )
        self.scheduler.add_request(request)
        return request

    def step(self, report: ConnectorOutput | None = None) -> tuple[SchedulerOutput, EngineOutputs]:
        output = self.scheduler.schedule()
        result = self.scheduler.update_from_output(output, ModelOutput.from_lists([[7]] * len(output.req_ids), report))
        self.scheduler.check_invariants()
        return output, result


def test_tokens_that_are_there_at_once_are_not_computed() -> None:
    site = Site(Remote(Match(8)))
    request = site.add("a", 14)
    output, _ = site.step()
    assert output.num_scheduled_tokens == {"a": 6}
    assert output.scheduled_new_reqs[0].num_computed_tokens == 8
    assert site.remote.allocated == [("a", ([1, 2, 3, 4],), 8)]
    assert output.kv_connector_metadata == ("step", 0)
    assert request.num_external_computed_tokens == 8


def test_a_connector_is_asked_for_what_the_cache_has_not() -> None:
    """Four tokens lie in the cache: of the ten others the connector has four."""
    site = Site(Remote(Match(0), Match(4)))
    site.add("a", 4)
    site.step()
    site.add("b", 14)
    output, result = site.step()
    assert output.scheduled_new_reqs[0].num_computed_tokens == 8
    asked = result.scheduler_stats.connector_prefix_cache_stats
    assert asked is not None
    assert (asked.requests, asked.queries, asked.hits) == (1, 10, 4)


def test_an_undecided_connector_is_asked_again_while_others_go_first() -> None:
    site = Site(Remote(Match(None), Match(0), Match(4)))
    site.add("undecided", 10)
    site.add("other", 6, first=500)
    output, _ = site.step()
    assert output.num_scheduled_tokens == {"other": 6}
    assert [each.reason for each in site.watcher.outcomes.skipped] == [Reason.CONNECTOR_UNDECIDED]
    output, _ = site.step()
    assert output.num_scheduled_tokens["undecided"] == 6


def test_an_asynchronous_load_waits_with_its_blocks_and_then_computes_the_rest() -> None:
    site = Site(Remote(Match(8, is_async=True)))
    request = site.add("a", 10)
    output, _ = site.step()
    assert output.num_scheduled_tokens == {}
    assert [each.reason for each in site.watcher.outcomes.skipped] == [Reason.ASYNC_KV_LOAD_STARTED]
    assert request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
    assert len(site.scheduler.kv.get_block_ids(request)[0]) == 2
    site.step()
    assert [each.reason for each in site.watcher.outcomes.skipped] == [Reason.WAITING_REMOTE_KV]
    site.step(ConnectorOutput(finished_receiving=frozenset({"a"})))
    output, _ = site.step()
    assert output.num_scheduled_tokens == {"a": 2}
    again = Request("again", list(range(10)))
    assert site.scheduler.kv.get_computed_blocks(again).num_tokens == 8, "what was loaded is findable now"


def test_a_prompt_that_was_loaded_whole_computes_its_last_token() -> None:
    site = Site(Remote(Match(8, is_async=True)))
    site.add("a", 8)
    site.step()
    site.step(ConnectorOutput(finished_receiving=frozenset({"a"})))
    output, _ = site.step()
    assert output.num_scheduled_tokens == {"a": 1}


@pytest.mark.parametrize("then", [Match(1, is_async=True), Match(0)], ids=str)
def test_a_prompt_of_one_token_is_computed_and_not_loaded(then: Match) -> None:
    """Its only token has to be computed again after the load: the connector would be asked once more, for ever."""
    remote = Remote(Match(1, is_async=True), *[then] * 50)
    site = Site(remote)
    request = site.add("a", 1)
    step, _ = site.step()
    assert step.num_scheduled_tokens == {"a": 1}
    assert [tokens for _, _, tokens in remote.allocated] == [0], "the connector learns that nothing is to be brought"
    assert len(remote.matches) == 50, "and is asked once"
    site.step()
    assert request.status is RequestStatus.FINISHED_LENGTH_CAPPED


@pytest.mark.parametrize(("offer", "taken"), [(Match(9), 7), (Match(9, is_async=True), 8), (Match(8), 7)], ids=str)
def test_no_more_is_taken_than_the_request_can_use(offer: Match, taken: int) -> None:
    remote = Remote(offer)
    site = Site(remote)
    site.add("a", 8)
    site.step()
    assert [tokens for _, _, tokens in remote.allocated] == [taken]


def test_blocks_stay_until_they_have_been_sent() -> None:
    site = Site(Remote(keeps=True))
    site.add("a", 6, max_tokens=1)
    site.step()
    assert site.scheduler.num_free_blocks == 38
    assert site.scheduler.has_requests(), "the host has to go on until the blocks are free"
    site.step(ConnectorOutput(finished_sending=frozenset({"a"})))
    assert site.scheduler.num_free_blocks == 40
    assert not site.scheduler.has_finished_requests()


def test_an_abort_during_a_load_frees_the_blocks_when_the_load_is_over() -> None:
    site = Site(Remote(Match(8, is_async=True)))
    site.add("a", 10)
    site.step()
    site.scheduler.finish_requests("a")
    assert site.scheduler.num_free_blocks == 38
    site.step(ConnectorOutput(finished_receiving=frozenset({"a"})))
    assert site.scheduler.num_free_blocks == 40


@pytest.mark.parametrize("bad", [0, 1])
def test_a_failed_load_is_recomputed_from_the_first_bad_block(bad: int) -> None:
    site = Site(Remote(Match(8)), policy="recompute")
    request = site.add("a", 10)
    output = site.scheduler.schedule()
    blocks = site.scheduler.kv.get_block_ids(request)[0]
    report = ConnectorOutput(invalid_block_ids=frozenset({blocks[bad]}))
    result = site.scheduler.update_from_output(output, ModelOutput.from_lists([[7]], report))
    assert len(result) == 0, "what was sampled after bad KV is void"
    assert request.num_computed_tokens == bad * 4
    site.scheduler.check_invariants()
    output, _ = site.step()
    assert output.num_scheduled_tokens == {"a": 10 - bad * 4}


WINDOW = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=9)
LAYOUTS = {
    "longer": (KVCacheGroup(block_size=8),),
    "shorter": (KVCacheGroup(block_size=2),),
    "two sizes": (KVCacheGroup(block_size=8), KVCacheGroup(block_size=2)),
    "a window": (KVCacheGroup(), WINDOW),
    "a window alone": (WINDOW,),
    "a window of other blocks": (KVCacheGroup(block_size=8), WINDOW),
}
"""KV-cache groups whose blocks are not the cache's, or which forget."""


@pytest.mark.parametrize("version", ["0.22", "0.33"])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_whichever_block_of_whichever_group_fails_nothing_goes_on_from_it(
    layout: str, version: str, *, is_async: bool
) -> None:
    """Whichever loaded block it is, what lies behind its beginning is computed again, and the request ends."""
    places, place = 1, 0
    while place < places:
        site = Site(Remote(Match(24, is_async=is_async)), "recompute", groups=LAYOUTS[layout], version=version)
        request = site.add("a", 30)
        output = site.scheduler.schedule()
        kv = site.scheduler.kv
        loaded = [
            (i * size, block)
            for size, blocks in zip(kv.config.group_block_sizes, kv.get_block_ids(request), strict=True)
            for i, block in enumerate(blocks)
            if block and i * size < 24
        ]
        places = len(loaded)
        start, bad = loaded[place]
        report = ConnectorOutput(invalid_block_ids=frozenset({bad}))
        answer = ModelOutput.from_lists([[7]] if output.req_ids else [], report)
        assert len(site.scheduler.update_from_output(output, answer)) == 0
        site.scheduler.check_invariants()
        assert request.num_computed_tokens <= start
        if is_async:
            site.step(ConnectorOutput(finished_receiving=frozenset({"a"})))
        resumed = 0
        while not request.status.is_finished:
            step, _ = site.step()
            resumed += step.total_num_scheduled_tokens
            site.scheduler.check_invariants()
        assert resumed >= 30 - start
        place += 1


def test_a_failed_asynchronous_load_is_tried_again_from_what_is_valid() -> None:
    site = Site(Remote(Match(8, is_async=True)), policy="recompute")
    request = site.add("a", 10)
    site.step()
    bad = site.scheduler.kv.get_block_ids(request)[0][1]
    site.step(ConnectorOutput(invalid_block_ids=frozenset({bad})))
    assert request.num_computed_tokens == 4
    site.step(ConnectorOutput(finished_receiving=frozenset({"a"})))
    output, _ = site.step()
    assert output.num_scheduled_tokens == {"a": 6}


def test_a_failed_load_ends_the_request_if_the_policy_says_so() -> None:
    site = Site(Remote(Match(8)), policy="fail")
    request = site.add("a", 10)
    output = site.scheduler.schedule()
    bad = site.scheduler.kv.get_block_ids(request)[0][0]
    report = ConnectorOutput(invalid_block_ids=frozenset({bad}))
    result = site.scheduler.update_from_output(output, ModelOutput.from_lists([[7]], report))
    assert [(news.request_id, news.new_token_ids, news.finish_reason) for news in result] == [
        ("a", [], FinishReason.ERROR)
    ]
    assert request.status is RequestStatus.FINISHED_ERROR
    site.scheduler.check_invariants()
    assert site.scheduler.num_free_blocks == 40
    again = Request("again", list(range(10)))
    assert site.scheduler.kv.get_computed_blocks(again).num_tokens == 0, "nothing bad can be found"


def test_output_in_flight_of_a_request_whose_blocks_are_kept_is_dropped() -> None:
    """It keeps its slot while they are read: that does not make it alive."""
    toy = ToyEngine(async_scheduling=True, kv_connector=Remote(keeps=True))
    toy.add("a", stop_token_ids=(0,), max_tokens=9)
    toy.add("b", max_tokens=9)
    first, second = toy.schedule(), toy.schedule()
    assert len(toy.update(first, {"a": [0], "b": [5]})) == 2
    assert [news.request_id for news in toy.update(second)] == ["b"]


def test_a_host_can_reach_the_connector_and_shut_it_down() -> None:
    class Closing(Remote):
        closed = False

        def shutdown(self) -> None:
            self.closed = True

    remote = Closing()
    toy = ToyEngine(kv_connector=remote)
    assert toy.scheduler.get_kv_connector() is remote
    toy.scheduler.shutdown()
    assert remote.closed
    assert ToyEngine().scheduler.get_kv_connector() is None
    ToyEngine().scheduler.shutdown()


def test_what_shares_a_failed_block_starts_over_and_nothing_bad_can_be_found() -> None:
    site = Site(Remote(Match(8)), policy="recompute")
    owner, sharer = site.add("owner", 12), site.add("sharer", 14)
    output = site.scheduler.schedule()
    bad = site.scheduler.kv.get_block_ids(owner)[0][0]
    assert site.scheduler.kv.get_block_ids(sharer)[0][0] == bad, "found where the other one is being loaded"
    report = ConnectorOutput(invalid_block_ids=frozenset({bad}))
    result = site.scheduler.update_from_output(output, ModelOutput.from_lists([[7], [7]], report))
    site.scheduler.check_invariants()
    assert len(result) == 0
    assert (owner.num_computed_tokens, owner.status) == (0, RequestStatus.RUNNING)
    assert sharer.status is RequestStatus.PREEMPTED
    again = Request("again", list(range(12)))
    assert site.scheduler.kv.get_computed_blocks(again).num_tokens == 0
    site.step()
    assert site.scheduler.kv.get_computed_blocks(again).num_tokens == 8, "computed again, and findable again"


def test_what_a_request_computed_from_a_failed_load_is_forgotten_though_it_was_aborted() -> None:
    site = Site(Remote(Match(4)), policy="recompute")
    request = site.add("a", 12)
    output = site.scheduler.schedule()
    bad = site.scheduler.kv.get_block_ids(request)[0][0]
    site.scheduler.finish_requests("a")
    report = ConnectorOutput(invalid_block_ids=frozenset({bad}))
    site.scheduler.update_from_output(output, ModelOutput.from_lists([[7]], report))
    assert site.scheduler.num_cached_blocks == 0

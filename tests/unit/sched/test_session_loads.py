"""A session whose answer ends while a load writes into its blocks, or while a further step samples for it."""

from __future__ import annotations

import pytest
from tests.unit.sched.test_connector import Remote

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.profiles import decision_profile
from tokenyard.core.request import FinishReason, Request, RequestStatus, SamplingParams
from tokenyard.core.sched.connector import Match
from tokenyard.core.sched.outputs import ConnectorOutput, EngineOutputs, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput

LOADING, WAITS = RequestStatus.WAITING_FOR_REMOTE_KVS, RequestStatus.WAITING_FOR_STREAMING_REQ
ARRIVED = ConnectorOutput(finished_receiving=frozenset({"r"}))
USABLE = 19


class Site:
    """A reset while the last token of a session's answer is in flight, and a load that has begun since."""

    def __init__(self, version: str, policy: str = "recompute") -> None:
        config = SchedulerConfig(
            profile=decision_profile(version), pipeline_parallel_size=2, kv_load_failure_policy=policy
        )
        remote = Remote(Match(0), Match(2, is_async=True))
        self.scheduler = Scheduler(config, CacheConfig(num_gpu_blocks=1 + USABLE, block_size=1), kv_connector=remote)
        self.session = piece([1, 2, 3])
        self.scheduler.add_request(self.session)
        self.take_in(self.scheduler.schedule(), 4)
        self.last = self.scheduler.schedule()
        self.scheduler.reset_prefix_cache(reset_running_requests=True)
        self.loading = self.scheduler.schedule()
        assert self.status is LOADING

    @property
    def status(self) -> RequestStatus:
        return self.session.status

    def take_in(
        self, step: SchedulerOutput, token: int | None = None, report: ConnectorOutput | None = None
    ) -> EngineOutputs:
        outputs = self.scheduler.update_from_output(step, ModelOutput.from_lists([[token]] if token else [], report))
        self.scheduler.check_invariants()
        return outputs

    def end_answer(self, report: ConnectorOutput | None = None) -> None:
        """The token that was in flight comes."""
        [news] = self.take_in(self.last, 5, report)
        assert (news.new_token_ids, news.finish_reason) == ([5], FinishReason.LENGTH)

    def load_ends(self, report: ConnectorOutput = ARRIVED) -> EngineOutputs:
        return self.take_in(self.loading, report=report)

    def held(self) -> int:
        return USABLE - self.scheduler.num_free_blocks

    def step(self) -> SchedulerOutput:
        output = self.scheduler.schedule()
        self.take_in(output, 6 if output.req_ids else None)
        return output


def piece(tokens: list[int], *, resumable: bool = True) -> Request:
    return Request("r", tokens, SamplingParams(max_tokens=2, ignore_eos=True), resumable=resumable)


@pytest.fixture(params=["0.22", "0.25"])
def site(request: pytest.FixtureRequest) -> Site:
    """Later versions drop the token, and the answer does not end."""
    return Site(str(request.param))


def test_the_end_of_the_session_leaves_its_blocks_to_the_load(site: Site) -> None:
    site.end_answer()
    site.scheduler.add_request(piece([1], resumable=False))
    assert site.held() == 2, "the load writes into them"
    site.load_ends()
    assert site.held() == 0
    assert not site.scheduler.has_unfinished_requests()


def test_an_end_announced_before_leaves_its_blocks_to_the_load(site: Site) -> None:
    site.scheduler.add_request(piece([1], resumable=False))
    site.end_answer()
    assert (site.status, site.held()) == (RequestStatus.FINISHED_LENGTH_CAPPED, 2)
    site.load_ends()
    assert site.held() == 0


def test_an_abort_leaves_its_blocks_to_the_load(site: Site) -> None:
    site.end_answer()
    site.scheduler.finish_requests("r")
    assert site.held() == 2
    site.load_ends()
    assert site.held() == 0


def test_it_waits_for_input_once_the_load_is_over(site: Site) -> None:
    site.end_answer()
    assert site.status is LOADING
    assert site.scheduler.has_unfinished_requests(), "the host has to go on until the load is over"
    site.load_ends()
    assert (site.status, site.held()) == (WAITS, 2)
    assert not site.scheduler.has_unfinished_requests()
    site.scheduler.add_request(piece([7, 8]))
    assert site.session.all_token_ids == [1, 2, 3, 4, 7, 8]
    assert site.step().num_scheduled_tokens == {"r": 4}, "all but the two that were loaded"


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_input_that_came_early_is_taken_once_the_load_is_over(site: Site, when: str) -> None:
    if when == "before":
        site.scheduler.add_request(piece([7, 8]))
    site.end_answer()
    if when == "meanwhile":
        site.scheduler.add_request(piece([7, 8]))
    assert (site.status, site.session.num_tokens) == (LOADING, 5)
    site.load_ends()
    assert (site.status, site.session.all_token_ids) == (RequestStatus.WAITING, [1, 2, 3, 4, 7, 8])
    assert site.step().num_scheduled_tokens == {"r": 4}


@pytest.mark.parametrize("more", [True, False])
def test_a_load_that_ends_with_the_answer_is_no_load_any_more(site: Site, *, more: bool) -> None:
    if more:
        site.scheduler.add_request(piece([7, 8]))
    site.end_answer(ARRIVED)
    assert site.status is (RequestStatus.WAITING if more else WAITS)
    assert not list(site.load_ends(ConnectorOutput()))


def test_a_failed_load_leaves_what_is_valid(site: Site) -> None:
    site.end_answer()
    bad = site.scheduler.kv.get_block_ids(site.session)[0][1]
    site.load_ends(ConnectorOutput(finished_receiving=frozenset({"r"}), invalid_block_ids=frozenset({bad})))
    assert (site.status, site.session.num_computed_tokens) == (WAITS, 1)
    site.scheduler.add_request(piece([7, 8]))
    assert site.step().num_scheduled_tokens == {"r": 5}


def test_a_load_of_which_nothing_is_valid_leaves_nothing(site: Site) -> None:
    site.end_answer()
    bad = site.scheduler.kv.get_block_ids(site.session)[0][0]
    site.load_ends(ConnectorOutput(finished_receiving=frozenset({"r"}), invalid_block_ids=frozenset({bad})))
    assert (site.status, site.held()) == (WAITS, 0)
    site.scheduler.add_request(piece([7, 8]))
    assert site.step().num_scheduled_tokens == {"r": 6}


def test_a_failed_load_ends_the_session_if_the_policy_says_so() -> None:
    site = Site("0.22", policy="fail")
    site.end_answer()
    bad = site.scheduler.kv.get_block_ids(site.session)[0][0]
    [news] = site.load_ends(ConnectorOutput(invalid_block_ids=frozenset({bad})))
    assert news.finish_reason is FinishReason.ERROR
    site.take_in(site.scheduler.schedule(), report=ARRIVED)
    assert site.held() == 0


def test_room_for_input_is_that_of_a_session_without_an_answer(site: Site) -> None:
    """What its answer could have grown to is not counted any more."""
    site.end_answer()
    site.scheduler.add_request(piece(list(range(11))))  # 5 tokens, 11 and an answer of 2: 18 blocks of 19
    site.load_ends()
    assert site.session.num_tokens == 15


def test_a_version_that_drops_the_token_goes_on_answering() -> None:
    site = Site("0.33")
    assert not list(site.take_in(site.last, 5))
    site.load_ends()
    assert site.step().num_scheduled_tokens == {"r": 2}


@pytest.mark.parametrize("version", ["0.22", "0.25"])
def test_a_second_token_in_flight_does_not_end_the_answer_again(version: str) -> None:
    """Reset between two steps that both sample its last token: the session would wait for input twice."""
    config = SchedulerConfig(profile=decision_profile(version), pipeline_parallel_size=2)
    scheduler = Scheduler(config, CacheConfig(num_gpu_blocks=1 + USABLE, block_size=1))
    session = piece([1, 2, 3])
    scheduler.add_request(session)
    scheduler.update_from_output(scheduler.schedule(), ModelOutput.from_lists([[4]]))
    last = scheduler.schedule()
    scheduler.reset_prefix_cache(reset_running_requests=True)
    again = scheduler.schedule()
    assert list(again.req_ids) == ["r"]
    [news] = scheduler.update_from_output(last, ModelOutput.from_lists([[5]]))
    assert news.finish_reason is FinishReason.LENGTH
    assert not list(scheduler.update_from_output(again, ModelOutput.from_lists([[6]])))
    assert (session.status, session.output_token_ids) == (WAITS, [4, 5])
    scheduler.add_request(piece([7, 8]))
    assert scheduler.has_unfinished_requests(), "one session, which has got its input"
    scheduler.check_invariants()

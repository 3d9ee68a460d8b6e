"""Which engine gets a request: the shipped routers, and vLLM's own balancing with what it knows at the moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tokenyard.core.request import Request, SamplingParams
from tokenyard.errors import ConfigError
from tokenyard.sim.kv_routers import LLMD, CacheAware, DynamoKV, PrefixAware, RayServe, SessionAffinity
from tokenyard.sim.named_routers import KV_ROUTERS, ROUTERS, router_maker, router_names
from tokenyard.sim.routers import (
    DPCoordinator,
    EngineReport,
    Fleet,
    LeastLoaded,
    PrefixAffinity,
    PublishedCounts,
    RoundRobin,
    VLLMBalancing,
)


@dataclass
class Engine:
    rank: int
    num_waiting: int = 0
    num_running: int = 0
    kv_usage: float = 0.0
    cached: dict[str, int] = field(default_factory=dict)

    def num_cached_tokens(self, request: Request) -> int:
        return self.cached.get(request.request_id, 0)


def request(name: str = "a") -> Request:
    return Request(name, [1, 2, 3], SamplingParams(max_tokens=1))


def report(rank: int, waiting: int, running: int, *, usage: float = 0.0, step: int = 0) -> EngineReport:
    return EngineReport(rank, waiting, running, usage, 0, step)


def choices(router: VLLMBalancing, count: int, now: float = 0.0, name: str = "r") -> list[int]:
    engines = [Engine(0), Engine(1), Engine(2)]
    return [router.choose(now, request(f"{name}{now}-{i}"), engines) for i in range(count)]


def test_round_robin_looks_at_nothing() -> None:
    engines = [Engine(0, num_waiting=99), Engine(1), Engine(2)]
    router = RoundRobin()
    assert [router.choose(0.0, request(), engines) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_least_loaded_counts_requests_then_memory_then_order() -> None:
    router = LeastLoaded()
    assert router.choose(0.0, request(), [Engine(0, 1, 3), Engine(1, 0, 3), Engine(2, 4, 0)]) == 1
    assert router.choose(0.0, request(), [Engine(0, 1, 1, 0.5), Engine(1, 0, 2, 0.25)]) == 1
    assert router.choose(0.0, request(), [Engine(0), Engine(1)]) == 0


def test_prefix_affinity_follows_the_cache_then_the_load() -> None:
    router = PrefixAffinity()
    engines = [Engine(0), Engine(1, 9, 9, cached={"a": 32}), Engine(2, cached={"a": 16})]
    assert router.choose(0.0, request(), engines) == 1
    assert router.choose(0.0, request("b"), engines) == 0
    assert router.choose(0.0, request("b"), [Engine(0, 1), Engine(1)]) == 1


def test_prefix_affinity_ignores_those_too_far_ahead() -> None:
    router = PrefixAffinity(most_ahead=3)
    for running, expected in ((4, 1), (5, 0)):
        engines = [Engine(0, num_running=2), Engine(1, num_running=running, cached={"a": 32})]
        assert router.choose(0.0, request(), engines) == expected


def test_by_0_22_waiting_weighs_four_times_and_ties_go_to_the_first() -> None:
    router = VLLMBalancing(Fleet(3, steps_together=True, vllm_version="0.22"))
    for rank, waiting, running in ((0, 1, 1), (1, 0, 6), (2, 0, 6)):
        router.engine_reported(0.01, report(rank, waiting, running))
    assert choices(router, 1, now=0.02) == [0], "nothing is published yet"
    # Published after 50 ms of silence, not before 100 ms have passed: scores 5, 6, 6, then 9, 6, 6, then 9, 10, 6.
    assert choices(router, 3, now=0.2) == [0, 1, 2]


def test_by_0_22_the_engines_of_a_dense_model_report_nothing() -> None:
    """Scores are of what a front end itself has sent, until all is forgotten after five seconds."""
    router = VLLMBalancing(Fleet(3, vllm_version="0.22"))
    router.engine_reported(0.0, report(1, 50, 50))
    assert choices(router, 4) == [0, 1, 2, 0]
    assert choices(router, 2, now=4.9) == [1, 2]
    assert choices(router, 1, now=4.95) == [0]
    assert choices(router, 1, now=5.1) == [0], "not engine 1, whose turn it was"


def test_front_ends_take_turns_and_know_only_what_they_sent() -> None:
    router = VLLMBalancing(Fleet(3, num_front_ends=3))
    assert choices(router, 6) == [0, 1, 2, 1, 2, 0]


def test_by_0_33_ties_rotate() -> None:
    router = VLLMBalancing(Fleet(3, vllm_version="0.33"))
    assert choices(router, 6) == [0, 1, 2, 0, 1, 2]


def test_by_0_33_what_has_ended_counts_no_more_and_the_start_moves_on() -> None:
    router = VLLMBalancing(Fleet(2, vllm_version="0.33"))
    engines = [Engine(0), Engine(1)]
    assert router.choose(0.0, request("a"), engines) == 0
    router.engine_reported(0.1, report(0, 0, 1))
    router.engine_reported(0.2, report(0, 0, 0))
    router.request_ended(0.2, "a", 0)
    assert router.choose(0.9, request("b"), engines) == 1, "both are empty: the scan begins at engine 1"
    assert router.choose(0.9, request("c"), engines) == 0


def test_by_0_33_waiting_weighs_more_where_memory_is_short() -> None:
    def chosen(usage: float, running: int, others: int) -> int:
        router = VLLMBalancing(Fleet(2, vllm_version="0.33"))
        router.engine_reported(0.1, report(0, 2, running, usage=usage))
        router.engine_reported(0.1, report(1, 0, others))
        return router.choose(0.5, request(), [Engine(0), Engine(1)])

    assert chosen(0.4, 2, 5) == 0  # 4 against 5
    assert chosen(0.4, 4, 5) == 1  # 6 against 5
    assert chosen(1.0, 2, 9) == 1  # 4 + 6 x 2 x 0.5 against 9
    assert chosen(1.0, 2, 11) == 0


def test_by_0_33_requests_of_its_own_count_until_they_have_ended() -> None:
    router, engines = VLLMBalancing(Fleet(2, vllm_version="0.33")), [Engine(0), Engine(1)]
    assert [router.choose(0.0, request(name), engines) for name in "ab"] == [0, 1]
    router.request_ended(0.1, "b", 1)
    for rank in (0, 1):
        router.engine_reported(0.2, report(rank, 0, 0))
    assert router.choose(0.9, request("c"), engines) == 1, "nothing is published of a, which is under way to engine 0"


def test_by_0_33_requests_of_its_own_count_as_often_as_there_are_front_ends() -> None:
    router, engines = VLLMBalancing(Fleet(2, vllm_version="0.33", num_front_ends=2)), [Engine(0), Engine(1)]
    assert [router.choose(0.0, request(name), engines) for name in "ab"] == [0, 1]
    router.engine_reported(0.2, report(0, 0, 0))
    router.engine_reported(0.2, report(1, 0, 3))
    assert router.choose(0.9, request("c"), engines) == 0  # 2 x 1 against 3


def test_by_0_33_ranks_that_step_together_publish_after_silence_and_between_steps() -> None:
    def chosen(now: float, *reports: tuple[float, EngineReport]) -> int:
        router = VLLMBalancing(Fleet(2, steps_together=True, vllm_version="0.33"))
        for moment, told in reports:
            router.engine_reported(moment, told)
        return router.choose(now, request(), [Engine(0), Engine(1)])

    silent = (0.09, report(0, 0, 9))
    assert (chosen(0.12, silent), chosen(0.15, silent)) == (0, 1)
    first = [(0.01, report(rank, 0, 1 + rank, step=1)) for rank in (0, 1)]
    assert chosen(0.16, *first, (0.09, report(0, 0, 9, step=2))) == 0, "of the second step half was heard"


def test_counts_are_published_after_silence_and_not_more_often_than_ten_times_a_second() -> None:
    told = DPCoordinator(1, needs_silence=True, steps_together=False)
    told.hear(1.00, report(0, 1, 0))
    assert told.published(1.04) == (0, (PublishedCounts(),))
    told.hear(1.04, report(0, 2, 0))
    assert told.published(1.08)[1] == (PublishedCounts(),), "the silence was broken"
    assert told.published(1.10) == (1, (PublishedCounts(2),))
    told.hear(1.11, report(0, 3, 0))
    assert told.published(1.18)[1] == (PublishedCounts(2),)
    assert told.published(1.20)[1] == (PublishedCounts(3),)
    assert told.published(7.0)[0] == 3, "every five seconds without a change"


def test_counts_are_those_between_two_steps() -> None:
    told = DPCoordinator(2, needs_silence=True, steps_together=True)
    told.hear(0.01, report(0, 1, 0, step=1))
    told.hear(0.01, report(1, 2, 0, step=1))
    told.hear(0.09, report(0, 7, 0, step=2))
    assert told.published(0.11) == (1, (PublishedCounts(1), PublishedCounts(2))), "half of the second step was heard"
    assert told.published(0.5) == (2, (PublishedCounts(7), PublishedCounts(2)))


def test_routers_by_name_and_from_a_file(tmp_path: Path) -> None:
    made = {name: router_maker(name)(Fleet(2)) for name in router_names()}
    assert len(made) >= len({*ROUTERS, *KV_ROUTERS}) == len({type(each) for each in made.values()}) == 10
    for router in made.values():
        assert router.choose(0.0, request(), [Engine(0), Engine(1)]) in (0, 1)
    file = tmp_path / "mine.py"
    file.write_text(
        "from tokenyard.sim.routers import Router\n\n\n"
        "class Last(Router):\n    def choose(self, now, request, engines):\n        return len(engines) - 1\n"
    )
    assert router_maker(f"{file}:Last")(Fleet(3)).choose(0.0, request(), [Engine(0), Engine(1)]) == 1
    with pytest.raises(ConfigError, match=r"router = 'nobody': use one of: vllm, round-robin"):
        router_maker("nobody")
    with pytest.raises(ConfigError, match=r"router = .*holds no Other: use .*mine.py:Last"):
        router_maker(f"{file}:Other")
    with pytest.raises(ConfigError, match="there is no file"):
        router_maker(f"{tmp_path}/none.py:X")


def long(name: str = "a", job: str | None = None) -> Request:
    return Request(name, list(range(320)), SamplingParams(max_tokens=1), job_id=job)


def test_llm_d_adds_three_scores() -> None:
    """3 x cached + 2 x emptiness of the queue + 2 x free KV."""
    half = {"a": 160}
    assert LLMD().choose(0.0, long(), [Engine(0), Engine(1, cached=half)]) == 1
    # 1.5 + 0 + 2 against 0 + 2 + 2
    assert LLMD().choose(0.0, long(), [Engine(0), Engine(1, num_waiting=4, cached=half)]) == 0
    # 3 + 0 + 2 against 0 + 2 + 2
    assert LLMD().choose(0.0, long(), [Engine(0), Engine(1, num_waiting=4, cached={"a": 320})]) == 1
    # 1.5 + 0 + 2 against 0 + 2 + 2: the queue is counted from the shortest to the longest
    assert LLMD().choose(0.0, long(), [Engine(0, num_waiting=5), Engine(1, num_waiting=9, cached=half)]) == 0
    # 1.5 + 2 + 0.2 against 0 + 2 + 2
    assert LLMD().choose(0.0, long(), [Engine(0), Engine(1, kv_usage=0.9, cached=half)]) == 0
    assert LLMD().choose(0.0, long(), [Engine(0, num_running=3), Engine(1, num_running=2)]) == 1


def test_dynamo_counts_blocks_to_compute_and_under_way() -> None:
    router = DynamoKV()
    engines = [Engine(0, cached={"b": 320, "c": 160}), Engine(1)]
    assert router.choose(0.0, long("a"), engines) == 0
    assert router.choose(0.0, long("b"), engines) == 0  # 0 + 20 against 20 + 0: the first
    assert router.choose(0.0, long("c"), engines) == 1  # 10 + 40 against 20 + 0
    router.request_ended(1.0, "a", 0)
    router.request_ended(1.0, "b", 0)
    assert router.choose(1.0, long("c"), engines) == 0


def test_dynamo_gives_as_much_credit_for_cached_blocks_as_is_said() -> None:
    for overlap, chosen in ((1.0, 0), (0.5, 1)):  # 20 - 20 + 20 against 20 + 5; 20 - 10 + 20 against it
        router, engines = DynamoKV(overlap), [Engine(0, cached={"c": 320}), Engine(1)]
        assert router.choose(0.0, long("a"), engines) == 0
        assert router.choose(0.0, Request("b", [1] * 80, SamplingParams(max_tokens=1)), engines) == 1
        assert router.choose(0.0, long("c"), engines) == chosen


def test_dynamo_counts_a_request_that_is_sent_again_once() -> None:
    router, engines = DynamoKV(), [Engine(0), Engine(1)]
    assert [router.choose(0.0, long("a"), engines) for _ in range(3)] == [0, 0, 0]
    router.request_ended(1.0, "a", 0)
    assert [router.choose(2.0, long(name), engines) for name in "bc"] == [0, 1], "nothing is under way"


def test_cache_aware_needs_a_share_of_the_prompt_and_some_balance() -> None:
    router = CacheAware()
    assert router.choose(0.0, long(), [Engine(0), Engine(1, num_running=9, cached={"a": 96})]) == 1
    assert router.choose(0.0, long(), [Engine(0, kv_usage=0.2), Engine(1, kv_usage=0.3, cached={"a": 95})]) == 0
    busy = Engine(1, num_running=66, cached={"a": 320})
    assert router.choose(0.0, long(), [Engine(0, num_running=1), busy]) == 0
    assert router.choose(0.0, long(), [Engine(0, num_running=2), busy]) == 1
    for running in (50, 44):
        assert CacheAware(most_ahead=8).choose(0.0, long(), [Engine(0, num_running=running), busy]) == 1
    assert CacheAware(most_ahead=8).choose(0.0, long(), [Engine(0, num_running=43), busy]) == 0


def test_ray_serve_follows_the_cache_while_loads_are_alike() -> None:
    router = RayServe()
    first = router.choose(0.0, long(), [Engine(0), Engine(1)])
    assert router.choose(0.0, long(), [Engine(0), Engine(1)]) == 1 - first, "it was sent the least that is new"
    assert router.choose(0.0, long(), [Engine(0), Engine(1, num_running=9, cached={"a": 32})]) == 1
    assert router.choose(0.0, long(), [Engine(0), Engine(1, num_waiting=9, cached={"a": 31})]) == 0
    ahead = [Engine(0, num_waiting=3), Engine(1, num_running=13, cached={"a": 320}), Engine(2, num_waiting=3)]
    chosen = [RayServe(seed=seed).choose(0.0, long(), ahead) for seed in range(50)]
    assert set(chosen) == {0, 2}, "of two that are drawn the emptier"
    for most, loads, expected in ((5, (0, 5), 0), (6, (0, 5), 1), (10, (8, 9), 1)):
        alike = RayServe(most_ahead=most)
        alike.choose(0.0, long("first"), [Engine(0), Engine(1)])
        engines = [Engine(rank, num_running=load) for rank, load in enumerate(loads)]
        engines[1].cached["a"] = 320
        assert alike.choose(0.0, long(), engines) == expected
    assert {RayServe(seed=seed).choose(0.0, long(), [Engine(i) for i in range(3)]) for seed in range(20)} == {0, 1}


def test_ray_serve_records_of_a_prompt_what_was_not_cached() -> None:
    router = RayServe()
    first = router.choose(0.0, long("a"), [Engine(0), Engine(1)])
    other = 1 - first
    assert router.choose(0.0, long("b"), [Engine(i, cached={"b": 320} if i == other else {}) for i in (0, 1)]) == other
    assert router.choose(0.0, long("c"), [Engine(0), Engine(1)]) == other, "it was sent nothing new"
    assert router.choose(0.0, long("d"), [Engine(0), Engine(1)]) == 0, "both were sent as much"


def test_ray_serve_knows_engines_by_their_ranks_where_some_have_left() -> None:
    router = RayServe(seed=3)
    assert router.choose(0.0, long(), [Engine(4)]) == 0
    assert router.choose(0.0, long(), [Engine(2), Engine(4)]) == 0, "engine 4 has been sent a prompt"
    assert router.choose(0.0, long(), [Engine(4), Engine(7)]) == 1


def test_sessions_keep_their_engine_and_few_move() -> None:
    router, four = SessionAffinity(), [Engine(i) for i in range(4)]
    before = {job: router.choose(0.0, long(f"{job}-1", job), four) for job in map(str, range(200))}
    assert all(router.choose(0.0, long(f"{job}-2", job), four) == rank for job, rank in before.items())
    assert all(30 < list(before.values()).count(rank) < 70 for rank in range(4))
    alone = [router.choose(0.0, long(str(i)), four) for i in range(40)]
    assert set(alone) == {0, 1, 2, 3}, "a request without a session is one of its own"
    after = {job: router.choose(0.0, long(job, job), [*four, Engine(4)]) for job in before}
    assert all(after[job] in (rank, 4) for job, rank in before.items())
    assert 20 < list(after.values()).count(4) < 60, "a fifth goes to the new one"


class Point:
    """What importlib.metadata has of an entry point."""

    def __init__(self, name: str, made: object) -> None:
        self.name, self.value, self._made = name, f"package:{name}", made

    def load(self) -> object:
        if isinstance(self._made, Exception):
            raise self._made
        return self._made


def test_a_method_that_is_called_almost_as_one_of_routers_is_refused() -> None:
    with pytest.raises(ConfigError, match="request_end"):
        type("Mine", (RoundRobin,), {"request_end": lambda *_: None})


def test_packages_register_routers(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        Point("mine", RoundRobin),
        Point("broken", ImportError("gone")),
        Point("needs", PrefixAffinity.choose),
        Point("other", dict),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points if group == "tokenyard.routers" else [])
    assert isinstance(router_maker("mine")(Fleet(2)), RoundRobin)
    for name, problem in (
        ("broken", "package:broken cannot be loaded: ImportError: gone"),
        ("needs", "package:needs cannot be called without arguments: TypeError"),
        ("other", "package:other makes a dict: derive it from tokenyard.sim.Router"),
    ):
        with pytest.raises(ConfigError, match=problem):
            router_maker(name)
    with pytest.raises(ConfigError, match="mine"):
        router_maker("nothing")


def test_the_production_stacks_prefix_router_goes_by_what_it_has_sent_alone() -> None:
    def prompt(name: str, *ids: int) -> Request:
        return Request(name, [each for each in ids for _ in range(32)], SamplingParams(max_tokens=1))

    router = PrefixAware()
    engines = [Engine(0), Engine(1, 90, 90), Engine(2), Engine(3)]
    first = router.choose(0.0, prompt("a", 1, 2, 3), engines)
    assert {router.choose(0.0, prompt(f"b{i}", 1, 9 + i), engines) for i in range(9)} == {first}, (
        "one beginning for all"
    )
    others = {router.choose(0.0, prompt(f"c{i}", 100 + i), engines) for i in range(40)}
    assert others == {0, 1, 2, 3}, "drawn from all where nothing is known, the busiest as well"
    left = [each for each in engines if each.rank != first]
    moved = left[router.choose(0.0, prompt("d", 1, 2, 3), left)].rank
    assert moved != first, "those who have gone are not chosen"
    both = {engines[router.choose(0.0, prompt(f"e{i}", 1, 2, 3), engines)].rank for i in range(20)}
    assert both == {first, moved}, "both were sent as much"

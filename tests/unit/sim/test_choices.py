"""One way to say which policy, router, observer and connector: a name, a class, an object, a function."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tokenyard import (
    CacheConfig,
    ConfigError,
    KeyedPolicy,
    KVTransferConfig,
    Policy,
    ReportBuilder,
    Request,
    SchedulerConfig,
    StepObserver,
    Workload,
    WorkloadBuilder,
    compare,
    replay,
    replay_split,
)
from tokenyard.core.sched.policy import FCFS
from tokenyard.sim import (
    ConstantLatency,
    EngineState,
    Fleet,
    KVLink,
    KVTransfer,
    ReplaySettings,
    Router,
    SimulatedConnector,
    replay_parallel,
)
from tokenyard.sim.routers import PrefixAffinity, RoundRobin, VLLMBalancing

CONFIG = SchedulerConfig(max_num_seqs=2, max_model_len=2048, max_num_batched_tokens=2048)
CACHE = CacheConfig(num_gpu_blocks=300)
LATENCY = ConstantLatency(seconds=0.02)


class Shortest(KeyedPolicy):
    reads_tokens = False
    made = 0

    def __init__(self, weight: float = 1.0) -> None:
        Shortest.made += 1
        self.weight = weight

    def key(self, request: Request) -> tuple[float, ...]:
        return (self.weight * request.num_prompt_tokens,)


class Counter(StepObserver):
    def __init__(self) -> None:
        self.ended: list[str] = []

    def request_finished(self, ts: float, request: Request) -> None:
        self.ended.append(request.request_id)


class First(Router):
    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        return 0


@pytest.fixture(scope="module")
def workload() -> Workload:
    w = WorkloadBuilder("mine")
    for i in range(12):
        w.request(at=0.01 * i, prompt=400 - 30 * i, output=5)
    return w.build()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(
        "import tokenyard as ty\n"
        "class Mine(ty.KeyedPolicy):\n"
        "    def key(self, request):\n"
        "        return (request.num_prompt_tokens,)\n"
    )
    return f"{path}:Mine"


def _order(workload: Workload, policy: Any) -> list[str]:
    seen = Counter()
    replay(workload, CONFIG, CACHE, LATENCY, policy=policy, observer=seen)
    return seen.ended


def test_a_policy_is_said_in_any_way(workload: Workload, file: str) -> None:
    fcfs = _order(workload, None)
    assert _order(workload, "fcfs") == _order(workload, Policy) == _order(workload, Policy()) == fcfs
    mine = _order(workload, Shortest)
    assert mine != fcfs
    ways = (Shortest(), lambda: Shortest(2.0), partial(Shortest, weight=0.5), file)
    assert all(_order(workload, each) == mine for each in ways)


def test_what_the_configuration_names_may_be_a_file(workload: Workload, file: str) -> None:
    seen = Counter()
    config = SchedulerConfig(max_num_seqs=2, max_model_len=2048, max_num_batched_tokens=2048, policy=file)
    replay(workload, config, CACHE, LATENCY, observer=seen)
    assert seen.ended == _order(workload, Shortest)


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("nobody", "policy = 'nobody': use one of: "),
        (3, "policy = 3: give a name, a class derived from tokenyard.Policy"),
        (int, "policy = <class 'int'>: give a name, a class"),
        (lambda: 3, "policy = 3: .* has to make an object of a class derived from Policy"),
        (lambda: 1 / 0, "it cannot be made without arguments: ZeroDivisionError"),
    ],
)
def test_what_is_no_policy_is_refused(workload: Workload, policy: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        replay(workload, CONFIG, CACHE, LATENCY, policy=policy)
    with pytest.raises(ConfigError, match=told):
        replay_parallel(workload, CONFIG, CACHE, LATENCY, RoundRobin, data_parallel_size=2, policy=policy)
    with pytest.raises(ConfigError, match=told):
        replay_split(workload, CONFIG, CACHE, LATENCY, KVLink(1000, 10.0), policy=policy)


def test_several_engines_have_a_policy_each(workload: Workload) -> None:
    Shortest.made = 0
    result = replay_parallel(workload, CONFIG, CACHE, LATENCY, "round-robin", data_parallel_size=3, policy=Shortest)
    assert (result.num_finished, Shortest.made) == (12, 3)
    with pytest.raises(ConfigError, match="policy = 'Shortest': an object serves one engine: give the class"):
        replay_parallel(workload, CONFIG, CACHE, LATENCY, RoundRobin, data_parallel_size=2, policy=Shortest())
    replay_parallel(workload, CONFIG, CACHE, LATENCY, RoundRobin, data_parallel_size=2, policies=[Shortest(), "fcfs"])
    split = replay_split(workload, CONFIG, CACHE, LATENCY, KVLink(1000, 10.0), policy=Shortest, router=RoundRobin)
    assert split.num_finished == 12


@pytest.mark.parametrize(
    "router",
    ["vllm", VLLMBalancing, RoundRobin, RoundRobin(), partial(PrefixAffinity, most_ahead=2), lambda *_: First()],
)
def test_a_router_is_said_in_any_way(workload: Workload, router: Any) -> None:
    result = replay_parallel(workload, CONFIG, CACHE, LATENCY, router, data_parallel_size=2)
    assert result.num_finished == 12


@pytest.mark.parametrize(
    ("router", "told"),
    [
        ("nobody", "router = 'nobody': use one of: "),
        (3, r"router = 3: give a name, a class derived from tokenyard\.sim\.Router"),
        (Shortest, "router = .*Shortest.*: give a name"),
        (lambda: 3, "router = 3: the function has to make"),
        (Router, "router = 'Router': it cannot be made without arguments: TypeError"),
    ],
)
def test_what_is_no_router_is_refused(workload: Workload, router: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        replay_parallel(workload, CONFIG, CACHE, LATENCY, router, data_parallel_size=2)


def test_each_side_of_a_split_needs_a_router_of_its_own(workload: Workload) -> None:
    with pytest.raises(ConfigError, match="router = 'RoundRobin': each side needs one of its own"):
        replay_split(workload, CONFIG, CACHE, LATENCY, KVLink(1000, 10.0), fleet=Fleet(2), router=RoundRobin())


def test_observers_are_said_in_any_way(workload: Workload) -> None:
    made: list[Counter] = []

    def make() -> Counter:
        made.append(Counter())
        return made[-1]

    mine, builder = Counter(), ReportBuilder()
    replay(workload, CONFIG, CACHE, LATENCY, observer=[mine, make, Counter, builder])
    assert len(mine.ended) == len(made[0].ended) == 12
    report = builder.report()
    assert (report.requests_finished, report.header.policy) == (12, "fcfs")
    assert report.ttft_ms.mean is not None
    everywhere = Counter()
    replay_parallel(workload, CONFIG, CACHE, LATENCY, RoundRobin, data_parallel_size=3, observer=[everywhere, make])
    assert len(everywhere.ended) == 12
    assert [len(each.ended) for each in made[1:]] == [4, 4, 4]
    replay_split(workload, CONFIG, CACHE, LATENCY, KVLink(1000, 10.0), observer=make)
    assert [len(each.ended) for each in made[4:]] == [12, 12]


class _Duck:
    def request_finished(self, ts: float, request: Request) -> None: ...


@pytest.mark.parametrize("observer", [_Duck(), 3, [3], _Duck])
def test_what_is_no_observer_is_refused(workload: Workload, observer: Any) -> None:
    with pytest.raises(ConfigError, match=r"give an object or a class derived from tokenyard\.StepObserver"):
        replay(workload, CONFIG, CACHE, LATENCY, observer=observer)


def test_a_report_of_several_engines_is_not_one_builder(workload: Workload) -> None:
    with pytest.raises(ConfigError, match="replay with rows=True, and ask for its report"):
        replay_parallel(workload, CONFIG, CACHE, LATENCY, RoundRobin, data_parallel_size=2, observer=ReportBuilder())


def test_connectors_are_said_in_any_way(workload: Workload) -> None:
    offload = KVTransferConfig(
        kv_connector="OffloadingConnector", kv_connector_extra_config={"cpu_bytes_to_use": 1 << 20}
    )
    ours = KVTransfer(config=offload, bytes_per_block=1024)
    made: list[object] = []

    def make(*parts: Any) -> SimulatedConnector:
        made.append(parts)
        return ours.make(*parts)

    class Mine:
        def make(self, *parts: Any) -> SimulatedConnector:
            return make(*parts)

    ways: list[Any] = [ours, make, Mine(), Mine]
    for way in ways:
        assert replay(workload, CONFIG, CACHE, LATENCY, kv_transfer=way).num_finished == 12
    assert len(made) == 3
    wrong: Any = "OffloadingConnector"
    with pytest.raises(ConfigError, match=r"give KVTransfer\(config=KVTransferConfig"):
        replay(workload, CONFIG, CACHE, LATENCY, kv_transfer=wrong)


# ---- what else is refused at once, and what need not be made


def test_a_name_is_no_workload_and_no_latency_model(workload: Workload) -> None:
    name: Any = "chat"
    with pytest.raises(ConfigError, match="workload = 'chat': give a Workload: load_workload"):
        replay(name, CONFIG, CACHE, LATENCY)
    with pytest.raises(ConfigError, match="latency = 'chat': give a latency model"):
        replay_parallel(workload, CONFIG, CACHE, name, "vllm", data_parallel_size=2)
    with pytest.raises(ConfigError, match="latency = 'chat': give a latency model"):
        replay_split(workload, CONFIG, CACHE, name, KVLink(1000, 10.0))


def test_a_misspelt_hook_of_a_router_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"router = 'Mine\.request_end': is no hook, .*did you mean request_ended"):
        type("Mine", (First,), {"request_end": lambda self: None})


class _Peek(StepObserver):
    """Whether tokens were made, although it says that it looks at none."""

    reads_tokens = False
    made = False

    def request_arrived(self, ts: float, request: Request) -> None:
        self.made = self.made or any(request.prompt_token_ids)


class _Unsaid(FCFS):
    """Its base says that it looks at no token, and it does not."""


class _Blind(Policy):
    reads_tokens = False


@pytest.mark.parametrize(
    ("policy", "made"),
    [
        *(("fcfs", False), ("priority", False), ("shortest-remaining", False), (Policy, False), (_Blind, False)),
        *((_Unsaid, True), (Shortest, False), ("continuum-ttl", True)),
    ],
)
def test_tokens_are_made_for_policies_that_may_look_at_them(workload: Workload, policy: Any, made: bool) -> None:
    peek = _Peek()
    replay(workload, CONFIG, CACHE, LATENCY, policy=policy, observer=peek)
    assert peek.made == made
    peek = _Peek()
    replay(workload, CONFIG, CACHE, LATENCY, policy=policy, observer=peek, rows=True)
    assert peek.made == made, "rows look at none"


# ---- comparisons


def _compare(workload: Workload, policies: Any) -> tuple[str, ...]:
    return compare(workload, ReplaySettings(CONFIG, CACHE, LATENCY), policies).policies


def test_a_comparison_takes_classes_and_functions(workload: Workload, file: str) -> None:
    assert _compare(workload, ["fcfs", Shortest, partial(Shortest, 2.0), partial(Shortest, weight=0.5)]) == (
        *("fcfs", "Shortest", "Shortest(2.0)", "Shortest(weight=0.5)"),
    )
    assert _compare(workload, {"theirs": file, "mine": lambda: Shortest(3.0)}) == ("theirs", "mine")


@pytest.mark.parametrize(
    ("policies", "told"),
    [
        ([], "name at least one, and none twice"),
        ([Shortest, "Shortest"], "name at least one, and none twice"),
        ([lambda: Shortest(1.0)], "it has no name of its own: give a dictionary"),
        ([Shortest()], "policies = 'Shortest': an object serves one replay"),
        (["nobody"], "policies = 'nobody': use one of"),
    ],
)
def test_other_comparisons_are_refused(workload: Workload, policies: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        _compare(workload, policies)


@pytest.mark.parametrize("way", [replay, replay_parallel, replay_split])
def test_an_option_that_a_replay_does_not_take_is_refused_in_its_name(way: Any) -> None:
    given: dict[str, Any] = {"untl": 3.0}
    builder = WorkloadBuilder("one")
    builder.request(at=0.0, prompt=4, output=2)
    arguments: list[Any] = [builder.build(), CONFIG, CACHE, LATENCY]
    if way is replay_parallel:
        arguments.append(RoundRobin())
        given["data_parallel_size"] = 2
    if way is replay_split:
        arguments.append(KVLink(1000, 10.0))
    with pytest.raises(TypeError, match=rf"^untl = 3\.0: {way.__name__}\(\) takes no .*: did you mean until\?"):
        way(*arguments, **given)

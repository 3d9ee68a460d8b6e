"""Decision profiles: each switch is documented, and both of its positions do what they say."""

from __future__ import annotations

from dataclasses import fields, replace
from inspect import signature
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.profiles import VLLM_0_22, VLLM_0_33
from tests.support.toy_engine import ToyEngine

import generate_versions
from tokenyard import ConfigError, SchedulerConfig, decision_profile
from tokenyard.core.config import (
    CacheConfig,
    GroupKind,
    HashAlgo,
    KVCacheGroup,
    MambaCacheMode,
)
from tokenyard.core.kv.block_pool import BlockPool
from tokenyard.core.kv.encoder_cache import EncoderCache, ItemEncoderCache
from tokenyard.core.kv.groups import GroupBlocks, Reachable, Retention, SlidingWindowManager
from tokenyard.core.kv.hashing import LookaheadBlockHasher
from tokenyard.core.kv.mamba import MambaManager
from tokenyard.core.outside import OUTSIDE, Outside, outside, outside_features
from tokenyard.core.params import MultiModalItem
from tokenyard.core.profiles import (
    NEWEST,
    PROFILES,
    DecisionProfile,
    ReleaseFacts,
    nearest_version,
    release_facts,
    turned_between,
    versions_with,
)
from tokenyard.core.releases import RELEASES, VERSIONS, version_that_brought
from tokenyard.core.request import Request, RequestStatus, SamplingParams
from tokenyard.core.sched.candidate import StepBudget
from tokenyard.core.sched.features.encoder import EncoderInputs
from tokenyard.core.sched.features.feature_set import Features
from tokenyard.core.sched.features.grammars import GrammarGate
from tokenyard.core.sched.features.per_slot import StateAlignment
from tokenyard.core.sched.in_flight import StepsInFlight
from tokenyard.core.sched.queues import FCFSQueue, HoldersFirstQueues
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.update import stop_status
from tokenyard.deploy.vllm_serve.defaults import DEFAULT_VERSION, known_version
from tokenyard.serve import load_engine
from tokenyard.sim import Fleet

SWITCHES = [field for field in fields(DecisionProfile) if field.name != "vllm_version"]


def test_a_profile_is_named_by_its_version() -> None:
    assert decision_profile("0.22") is VLLM_0_22
    assert decision_profile("0.33") is VLLM_0_33
    with pytest.raises(ConfigError, match=r"vllm_version.*0\.21.*use one of: 0\.22, 0\.23, .*0\.33"):
        decision_profile("0.21")
    with pytest.raises(ConfigError, match="profile"):
        SchedulerConfig(profile="0.33")  # type: ignore[arg-type]


def test_the_library_has_one_default_the_newest_version() -> None:
    """What is made by hand, the engine that runs models, and the balancing of several engines."""
    assert known_version(DEFAULT_VERSION) == NEWEST.vllm_version == Fleet(2).vllm_version
    assert SchedulerConfig().profile is NEWEST
    assert signature(load_engine).parameters["profile"].default is NEWEST


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("0.11.0", "0.22"),
        ("0.22.1", "0.22"),
        ("0.23.0", "0.23"),
        ("0.27.1", "0.27"),
        ("0.34.0", NEWEST.vllm_version),
        ("0.33.1.dev3", "0.33"),
        ("unknown", NEWEST.vllm_version),
    ],
)
def test_every_release_has_the_profile_of_its_version(version: str, nearest: str) -> None:
    assert nearest_version(version) == nearest


def test_every_switch_differs_between_the_profiles_and_has_its_line() -> None:
    lines = list(generate_versions.switches())
    for switch in SWITCHES:
        assert getattr(VLLM_0_22, switch.name) == switch.default, switch.name
        assert len({getattr(profile, switch.name) for profile in PROFILES.values()}) > 1, switch.name
        assert sum(f"`{switch.name}`" in line for line in lines) == 1, f"{switch.name}: lines in the table of switches"


def test_a_version_is_the_one_before_it_with_the_switches_that_it_turned() -> None:
    assert len(PROFILES) >= 12
    assert list(PROFILES) == list(VERSIONS) == [f"0.{number}" for number in range(22, 22 + len(PROFILES))]
    turns = {each.version: set(each.switches) for each in RELEASES}
    for (_, before), (version, after) in pairwise(PROFILES.items()):
        turned = {each.name for each in SWITCHES if getattr(before, each.name) != getattr(after, each.name)}
        assert turned == turns[version], version
    assert turned_between("0.31", "0.32")["mamba_mode_all"] == "0.32"
    assert turned_between("0.28", "0.26").keys() >= {"drafts_take_input_slots", "zeroes_all_attention"}
    assert "uncached_blocks_first" not in turned_between("0.26", "0.28"), "0.27 turned it off, 0.28 on again"
    assert turned_between("0.29", "0.30") == dict.fromkeys(
        ("idle_admission_pads", "eagle_keeps_block_below", "states_free_across_gaps"), "0.30"
    )
    turned_back = {
        "windows_free_unhashed_first",
        "encoder_lags_behind_head",
        "admissions_end_at_junctions",
        "kept_states_wait_again",
    }
    assert set(turned_between("0.22", "0.33")) == {each.name for each in SWITCHES} - turned_back


def test_facts_of_a_release_are_those_of_the_one_before_with_what_changed() -> None:
    names = {each.name for each in fields(ReleaseFacts)}
    assert {name for release in RELEASES for name in release.facts} == names
    assert version_that_brought("kept_states_wait_again") == "0.33", "0.32 turned it on, 0.33 off again"
    assert version_that_brought("has_bitsandbytes") == "0.28"
    assert release_facts("0.22.1") == ReleaseFacts()
    assert not release_facts("0.27").largest_budget_on_160_gib
    assert release_facts("0.28.0").largest_budget_on_160_gib
    assert versions_with("has_bitsandbytes") == ("0.22", "0.23", "0.24", "0.25", "0.26", "0.27")


def test_what_a_profile_does_not_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(outside(version) for version in PROFILES)
    lacks = Outside("0.23", "0.32", "as 0.22", lambda _, cache: any(g.kind is GroupKind.MAMBA for g in cache.groups))
    monkeypatch.setitem(OUTSIDE, "states", lacks)
    assert outside("0.22") == outside("0.33") == {}
    assert outside("0.23") == {"states": "as 0.22"}
    states = CacheConfig(
        num_gpu_blocks=9,
        groups=(KVCacheGroup(kind=GroupKind.MAMBA, block_size=16),),
        mamba_cache_mode=MambaCacheMode.ALIGN,
    )
    with_states = [
        version
        for version, profile in PROFILES.items()
        if "states" in outside_features(SchedulerConfig(profile=profile), states)
    ]
    assert with_states == [version for version in PROFILES if "0.22" < version < "0.33"]
    assert outside_features(SchedulerConfig(profile=PROFILES["0.27"]), CacheConfig(num_gpu_blocks=9)) == {}


def test_nothing_that_decides_asks_for_a_version() -> None:
    package = Path(__file__).resolve().parents[2] / "src" / "tokenyard"
    asking = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        if "vllm_version" in path.read_text(encoding="utf-8") and path.name not in ("profiles.py", "outside.py")
    ]
    deciding = [path for path in asking if path.split("/")[0] in ("core", "policies")]
    assert deciding == ["core/sched/request_checks.py"], "it only names the version in its errors"


# ---- blocks


@pytest.mark.parametrize(("version", "order"), [("0.22", [4, 3, 2, 1]), ("0.24", [3, 1, 4, 2])])
def test_where_freed_blocks_go(version: str, order: list[int]) -> None:
    pool = BlockPool(5, put_back=PROFILES[version].unhashed_blocks_first)
    pool.take(4)
    pool.publish(2, b"two", 0)
    pool.publish(4, b"four", 0)
    pool.release([4, 3, 2, 1])
    assert pool.free_blocks() == order


def _window() -> SlidingWindowManager:
    return SlidingWindowManager(GroupBlocks(BlockPool(64), 4), 9, 8, 8)


@pytest.mark.parametrize(
    ("reachable", "kept"),
    [
        (Reachable(0, (30,)), [5, 6]),
        (Reachable(0, (30, 17)), [2, 3, 5, 6]),
        (Reachable(16, (30,)), [2, 3, 5, 6, 7]),
    ],
)
def test_a_window_keeps_what_lies_before_the_positions_that_hits_end_at(reachable: Reachable, kept: list[int]) -> None:
    mask = _window().publishable(0, 8, 4, reachable)
    assert mask is not None
    assert [i for i, keep in enumerate(mask) if keep] == kept


def test_a_state_is_one_block() -> None:
    states = MambaManager(GroupBlocks(BlockPool(64), 4), 0, 64)
    mask = states.publishable(2, 8, 4, Reachable(0, (30, 17)))
    assert mask == [False, True, False, False, True, False]
    assert states.publishable(0, 8, 4) is None


def test_a_repeated_prompt_resumes_before_its_last_token() -> None:
    request = Request("r", range(1, 33))
    assert Retention().of(request) is None
    assert Retention(0).of(request) == (0, (31,))
    request.shared_prefix_boundary = 16
    assert Retention(8).of(request) == (8, (31, 16))


def test_a_hash_that_looks_ahead_waits_for_the_next_token_and_covers_it() -> None:
    hasher = LookaheadBlockHasher(4, HashAlgo.XXH3_128, "")
    eight, nine, other = (Request(f"{last}", [*range(8), *last]) for last in ((), (50,), (51,)))
    assert len(hasher.extend(eight)) == 1, "the last block's next token is not known"
    assert len(hasher.extend(nine)) == len(hasher.extend(other)) == 2
    assert eight.block_hashes[0] == nine.block_hashes[0] == other.block_hashes[0]
    assert nine.block_hashes[1] != other.block_hashes[1]
    hasher.forget_beyond(nine, 8)
    assert len(nine.block_hashes) == 1


# ---- queues


def test_requests_with_blocks_are_tried_first_and_the_others_keep_their_places() -> None:
    queues = HoldersFirstQueues(lambda *_: FCFSQueue(), 4)
    first, second, loading = (Request(name, [1, 2, 3]) for name in ("first", "second", "loading"))
    queues.add(first)
    queues.add(second)
    aside = FCFSQueue()
    queues.take(queues.waiting, into=aside)
    queues.take_back(aside)
    assert [r.request_id for r in queues.waiting] == ["first", "second"]
    assert queues.counts == (1, 1)
    loading.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    queues.add(loading)
    assert queues.next_queue(ToyEngine().scheduler.policy) is queues.skipped
    assert queues.num_going_on == 1
    assert HoldersFirstQueues(lambda *_: FCFSQueue(), 4, go_on=False).num_going_on == 0
    queues.discard_all([first])
    assert queues.counts == (1, 1)


# ---- budget


def test_each_request_takes_the_slots_of_its_drafter() -> None:
    budget = StepBudget(10, slots_per_request=1, tokens=9)
    assert budget.tokens == 9
    budget.spend(9)
    assert (budget.tokens, budget.tokens_used) == (0, 9)
    budget.refund(9)
    assert (budget.tokens, budget.tokens_used) == (9, 0)


@pytest.mark.parametrize(
    ("tokens", "end", "asked"),
    [(12, 3, 9), (11, 3, 9), (10, 3, 8), (9, 3, 7), (8, 2, 6), (7, 2, 6), (6, 2, 5), (3, 1, 3), (2, 1, 2)],
)
def test_rows_that_take_slots_beside_their_tokens(tokens: int, end: int, asked: int) -> None:
    budget = StepBudget(tokens + 1, slots_per_request=1, tokens=tokens)
    granted = list[int]()
    while len(granted) < 3 and budget.tokens > 0:
        granted.append(min(3, budget.tokens))
        budget.spend(granted[-1])
    assert (len(granted), sum(granted), budget.tokens_used) == (end, asked, asked)
    for each in reversed(granted):
        budget.refund(each)
    assert (budget.tokens, budget.tokens_used) == (tokens, 0)


# ---- ends and images


@pytest.mark.parametrize(("bars", "status"), [(True, None), (False, RequestStatus.FINISHED_STOPPED)])
def test_whether_min_tokens_bar_an_end_of_sequence(*, bars: bool, status: RequestStatus | None) -> None:
    request = Request("r", [1, 2], SamplingParams(min_tokens=5, eos_token_id=9, max_tokens=20))
    assert stop_status(request, 9, 3, 64, min_tokens_bar_stops=bars) is status


@pytest.mark.parametrize(("version", "room"), [("0.22", 8), ("0.28", 8), ("0.29", 4), ("0.33", 4)])
def test_an_image_that_is_shown_twice(version: str, room: int) -> None:
    profile = PROFILES[version]
    cache = ItemEncoderCache(8, profile) if profile.encoder_refers_to_items else EncoderCache(8)
    items = [MultiModalItem(mm_hash="cat", offset=at, length=4) for at in (0, 10)]
    request = Request("r", [1] * 20, mm_features=items)
    cache.allocate(request, items[0])
    assert cache.refer(request, items[1])
    cache.release(request, items[0])
    assert cache.num_reclaimable == room
    cache.release(request, items[1])
    assert cache.num_reclaimable == 8


def _computed(version: str, *, placeholders: int = 0) -> tuple[ItemEncoderCache, Request]:
    """A cache of one image that stands before a text, most of which is computed."""
    cache = ItemEncoderCache(4, PROFILES[version], 1 if PROFILES[version].encoder_lags_behind_head else 0)
    request = Request("r", [1] * 20, mm_features=[MultiModalItem(mm_hash="cat", offset=0, length=4)])
    cache.allocate(request, request.mm_features[0])
    request.num_computed_tokens, request.num_output_placeholders = 4 + placeholders, placeholders
    return cache, request


def test_when_an_image_has_been_passed() -> None:
    for version, placeholders, passed in (("0.23", 0, 1), ("0.24", 0, 0), ("0.32", 0, 0), ("0.33", 0, 1)):
        cache, request = _computed(version, placeholders=placeholders)
        assert len(cache.passed_items(request)) == passed, version
    for version, passed in (("0.23", 1), ("0.33", 1)):
        cache, request = _computed(version, placeholders=2)
        assert len(cache.passed_items(request)) == passed
        request.num_output_placeholders = 3
        assert len(cache.passed_items(request)) == (version == "0.23")


@pytest.mark.parametrize(("version", "told"), [("0.27", ("cat",)), ("0.28", ())])
def test_what_is_told_as_evicted(version: str, told: tuple[str, ...]) -> None:
    cache, request = _computed(version)
    cache.free(request)
    assert cache.make_room(4)
    cache.allocate(request, request.mm_features[0])
    assert cache.take_evicted() == told


@pytest.mark.parametrize(
    ("version", "head", "num_new", "granted", "items"),
    [
        ("0.22", 1, 10, 10, ()),  # the head alone would read the image
        ("0.28", 1, 10, 10, (0,)),
        ("0.32", 1, 12, 9, ()),  # no room: the head looks one token ahead
        ("0.33", 1, 12, 10, ()),
    ],
)
def test_how_far_an_image_lets_a_prompt_go(
    version: str, head: int, num_new: int, granted: int, items: tuple[int, ...]
) -> None:
    config = SchedulerConfig(profile=PROFILES[version], max_num_encoder_input_tokens=8, encoder_cache_size=8)
    inputs = EncoderInputs(config, shift=head)
    request = Request("r", [1] * 30, mm_features=[MultiModalItem(mm_hash="cat", offset=10, length=4)])
    grant = inputs.plan(request, 0, num_new, 8 if num_new == 10 else 0)
    assert (grant.num_new_tokens, grant.items) == (granted, items)


# ---- states


@pytest.mark.parametrize(
    ("new", "computed", "junction", "granted"),
    [(7, 0, 0, 4), (20, 0, 0, 16), (3, 16, 0, 3), (9, 4, 8, 4), (3, 4, 0, 0), (2, 5, 0, 2)],
)
def test_chunks_end_at_states(new: int, computed: int, junction: int, granted: int) -> None:
    alignment = StateAlignment(4, SchedulerConfig(profile=VLLM_0_33, max_num_batched_tokens=64), drops_last_hit=False)
    request = Request("r", range(1, 20))
    request.shared_prefix_boundary = junction
    if (new, computed) == (2, 5):
        granted = 0  # a chunk within a block, where a whole one could be had
    assert alignment.split_request(request, new, computed) == granted


@pytest.mark.parametrize(
    ("version", "prompt", "new", "computed", "granted"),
    [
        ("0.23", 19, 7, 2, 4),  # whole blocks of tokens, wherever they begin
        ("0.26", 19, 7, 2, 2),  # where a block ends
        ("0.26", 19, 18, 0, 16),
        ("0.26", 19, 2, 16, 2),  # behind the last whole block
        ("0.27", 19, 2, 16, 0),  # but the last chunk only
        ("0.31", 16, 16, 0, 16),
        ("0.32", 16, 16, 0, 12),  # a repeated prompt resumes there
    ],
)
def test_where_versions_cut_prompts_of_models_with_states(
    version: str, prompt: int, new: int, computed: int, granted: int
) -> None:
    cache = CacheConfig(
        num_gpu_blocks=20,
        block_size=4,
        groups=(KVCacheGroup(kind=GroupKind.MAMBA),),
        mamba_cache_mode=MambaCacheMode.ALIGN,
    )
    config = SchedulerConfig(profile=PROFILES[version], max_num_batched_tokens=64)
    kv = Scheduler(config, cache).kv
    alignment = Features.of(config, None, kv, None, StepsInFlight(), GrammarGate()).alignment
    assert alignment is not None
    assert alignment.split_request(Request("r", range(1, prompt + 1)), new, computed) == granted


def test_modes_that_a_version_does_not_have_are_refused() -> None:
    config = SchedulerConfig(profile=VLLM_0_33)
    group = KVCacheGroup(kind=GroupKind.MAMBA)
    with pytest.raises(ConfigError, match=r"mamba_cache_mode.*vLLM 0\.33 has no such mode"):
        Scheduler(config, CacheConfig(num_gpu_blocks=10_318, groups=(group,), mamba_cache_mode=MambaCacheMode.ALL))
    small = KVCacheGroup(kind=GroupKind.FULL, block_size=8)
    with pytest.raises(ConfigError, match="not modelled"):
        Scheduler(
            config, CacheConfig(num_gpu_blocks=10_318, groups=(small, group), mamba_cache_mode=MambaCacheMode.ALIGN)
        )


def test_single_switches_can_be_turned() -> None:
    profile = replace(VLLM_0_22, lookups_count_at_admission=True)
    toy = ToyEngine(profile=profile, num_gpu_blocks=3)
    assert toy.scheduler.config.profile.lookups_count_at_admission

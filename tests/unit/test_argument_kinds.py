"""What is no id, no text or no path is answered with field, value and fix, whatever it is asked of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenyard
from tokenyard import (
    CacheConfig,
    ConfigError,
    Deployment,
    Recording,
    RequestError,
    RunResult,
    SchedulerConfig,
    Workload,
)
from tokenyard.errors import MissingExtraError, NotModelledError, TraceError, WorkloadError
from tokenyard.policies import VTC, FastServe, NoisySJF, PrefillReload
from tokenyard.sim import (
    Autoscaling,
    ConstantLatency,
    KVLink,
    SimulatedSpeculation,
    Transfer,
    replay_parallel,
    router_maker,
)

SMALL = Deployment(model="llama-3.2-1b", gpu="l4")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    path = tmp_path_factory.mktemp("recorded") / "trace"
    return SMALL.replay("random", num_prompts=2, input_len=8, output_len=2, trace=path)


def _refused(ask: Callable[..., object], *given: Any, **named: Any) -> tuple[str, object, str]:
    with pytest.raises(ConfigError) as caught:
        ask(*given, **named)
    return caught.value.field, caught.value.value, caught.value.fix


@pytest.mark.parametrize("wrong", [3, None, "", ["r0"], b"r0", 1.5])
def test_the_id_of_a_request_is_a_text(recorded: RunResult, wrong: Any) -> None:
    assert recorded.trace is not None
    refused = ("request_id", wrong, "give the id of a request, as a text")
    assert _refused(tokenyard.why, recorded.trace, wrong) == refused
    assert _refused(Recording(recorded.trace).why, wrong) == refused
    assert _refused(recorded.why, wrong) == refused
    if wrong is not None:
        assert _refused(recorded.token_gaps, wrong) == refused
        job = ("job_id", wrong, "give the id of a job, as a text")
        assert _refused(tokenyard.waiting, recorded.trace, wrong) == job
        assert _refused(Recording(recorded.trace).waiting, wrong) == job


@pytest.mark.parametrize("wrong", [3, None, "", ["trace"], b"trace"])
def test_a_trace_is_a_path(recorded: RunResult, wrong: Any) -> None:
    fix = "give a path, as a text or a pathlib.Path"
    for ask in (tokenyard.report, tokenyard.whatif, Recording):
        assert _refused(ask, wrong) == ("trace", wrong, fix)
    of_traces = (tokenyard.waiting, tokenyard.standstills, tokenyard.prefix_misses)
    for look in (partial(tokenyard.why, request_id="r0"), *of_traces):
        assert _refused(look, wrong) == ("path", wrong, fix)
    assert _refused(tokenyard.compare_recordings, recorded.trace, wrong) == ("b", wrong, fix)
    if wrong is not None:
        assert _refused(SMALL.replay, "random", trace=wrong) == ("trace", wrong, fix)


def test_what_is_one_passes(recorded: RunResult) -> None:
    assert recorded.trace is not None
    for path in (recorded.trace, str(recorded.trace), Recording(Path(recorded.trace))):
        assert tokenyard.why(path, recorded.requests["request_id"][0]).finished_us  # type: ignore[arg-type]


FEW: dict[str, Any] = {"num_prompts": 2, "input_len": 8, "output_len": 2}
SPACE = {"max_num_seqs": [2, 4]}
QUESTIONS: dict[str, Callable[..., object]] = {
    "run": partial(tokenyard.run, "random", SMALL, **FEW),
    "sweep": partial(tokenyard.sweep, "random", SMALL, **FEW),
    "plan": partial(tokenyard.plan, "random", SMALL, **FEW),
    "study": partial(tokenyard.study, "random", SMALL, **FEW),
    "split": partial(tokenyard.split, "random", SMALL, **FEW),
    "compare": partial(tokenyard.compare, "random", SMALL, **FEW),
    "accuracy": tokenyard.accuracy,
    "image_tokens": partial(tokenyard.image_tokens, width=100, height=100),
    "load_latency": partial(tokenyard.load_latency, "calibrated"),
    "Deployment": Deployment,
    "Deployment.from_settings": Deployment.from_settings,
    "policy_maker": tokenyard.policy_maker,
    "make_policy": tokenyard.make_policy,
    "decision_profile": tokenyard.decision_profile,
    "router_maker": router_maker,
}
MODEL: dict[str, Any] = {"model": "qwen2.5-vl-7b"}
PRICED: dict[str, Any] = {"model": "llama-3.2-1b", "gpu": "l4"}
THING = object()
WRONG: list[tuple[str, str, Any, dict[str, Any]]] = [
    *((name, "progress", 3, {}) for name in ("run", "split", "study", "accuracy")),
    ("sweep", "progress", "line", {"space": SPACE}),
    ("plan", "progress", 1.5, {"space": SPACE}),
    ("compare", "progress", True, {"policies": ["fcfs", "priority"]}),
    *((name, "output", 3, {}) for name in ("sweep", "plan", "study")),
    *((name, "space", 3, {}) for name in ("sweep", "plan", "compare")),
    *(("sweep", "variants", wrong, {}) for wrong in (3, {"max_num_seqs": 4}, b"file")),
    *((name, "by", ["priority"], {"space": SPACE}) for name in ("sweep", "plan", "compare")),
    *((name, "slo", wrong, {}) for name in ("run", "split", "study") for wrong in (b"ttft:1", [3], 3)),
    *(("split", "kv_link_gb_per_s", wrong, {"shape": "1+1"}) for wrong in (None, "fast", [], THING)),
    *(("sweep", "split", wrong, {"space": SPACE}) for wrong in (THING,)),
    *(("run", name, THING, {}) for name in ("client_timeout", "front_end_delay")),
    *(("Deployment", name, THING, {}) for name in ("gpu", "router", "latency", "vllm_version", "replicas", "config")),
    *(("Deployment", name, b"x", {}) for name in ("gpu", "router", "config")),
    *(("Deployment.from_settings", "settings", wrong, {}) for wrong in (None, {"model": "x"})),
    *(("image_tokens", "model", wrong, {}) for wrong in (None, 3, b"x")),
    *(("image_tokens", "mm_processor_kwargs", wrong, MODEL) for wrong in (3, "max_pixels")),
    *(("accuracy", "files", wrong, {}) for wrong in (3, [None], b"x")),
    *(("load_latency", name, 3, PRICED) for name in ("model", "gpu", "speculative")),
]


@pytest.mark.parametrize(("name", "field", "wrong", "around"), WRONG)
def test_a_value_of_another_kind_names_its_argument(
    name: str, field: str, wrong: Any, around: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found, value, fix = _refused(QUESTIONS[name], **{**around, field: wrong})
    assert found == field
    assert value in (wrong, *(wrong if isinstance(wrong, list) else ()))
    assert fix


@pytest.mark.parametrize("wrong", [None, 3, [], b"fcfs", THING])
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("policy_maker", "policy"),
        ("make_policy", "policy"),
        ("decision_profile", "vllm_version"),
        ("router_maker", "router"),
    ],
)
def test_a_name_is_a_text(name: str, field: str, wrong: Any) -> None:
    assert _refused(QUESTIONS[name], wrong)[:2] == (field, wrong)


@pytest.mark.parametrize("wrong", [3.5, [], {}, None])
def test_a_column_is_a_text(recorded: RunResult, wrong: Any) -> None:
    assert _refused(recorded.by, wrong)[:2] == ("by", wrong)
    assert _refused(recorded.requests.__getitem__, wrong)[:2] == ("column", wrong)
    assert _refused(recorded.workload.save, wrong)[:2] == ("path", wrong)


def test_other_errors_say_what_to_do() -> None:
    with pytest.raises(WorkloadError) as unknown:
        tokenyard.load_workload("nowhere.jsonl")
    assert (unknown.value.field, unknown.value.value) == ("workload", "nowhere.jsonl")
    assert str(unknown.value.fix).startswith("give the path of a file, or a built-in workload (")
    with pytest.raises(NotModelledError) as flags:
        Deployment(model="llama-3.2-1b", gpu="l4", compilation_config={"mode": 0}).resolve()
    assert (flags.value.field, flags.value.value) == ("flags", flags.value.flags)
    assert flags.value.fix == "leave it out, or go on without it by ignore_unmodelled=True"
    assert MissingExtraError("ray", "ray").fix == "run  pip install 'tokenyard[ray]'"


WORKLOAD = tokenyard.load_workload("random", num_prompts=2, input_len=8, output_len=2)
CONFIG = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=512, max_model_len=1024)
CACHE = CacheConfig(num_gpu_blocks=200)
GIVEN = (WORKLOAD, CONFIG, CACHE, ConstantLatency(seconds=0.01))
REPLAYS: dict[str, Callable[..., object]] = {
    "replay": partial(tokenyard.replay, *GIVEN),
    "replay_parallel": partial(replay_parallel, *GIVEN, router="vllm", data_parallel_size=2),
    "replay_split": partial(tokenyard.replay_split, *GIVEN, link=KVLink(1000, 10.0)),
    "CacheConfig": partial(CacheConfig, num_gpu_blocks=200),
    "Workload": partial(Workload, "w", list(WORKLOAD)),
    "describe_run": partial(tokenyard.describe_run, scheduler=CONFIG, cache=CACHE, host="replay"),
    "TraceWriter": tokenyard.TraceWriter,
    "TraceReader": tokenyard.TraceReader,
    "ReportBuilder": tokenyard.ReportBuilder,
}


@pytest.mark.parametrize("wrong", [3, "x", THING])
@pytest.mark.parametrize(
    ("name", "field"),
    [
        *(("replay", each) for each in ("pace", "speculation", "make_scheduler", "on_progress", "observer", "policy")),
        *(("replay_parallel", each) for each in ("observers", "policies", "autoscaling", "router")),
        *(("replay_split", each) for each in ("link", "fleet", "decode", "observers")),
        *(
            ("CacheConfig", "groups"),
            ("describe_run", "scheduler"),
            ("describe_run", "cache"),
            ("TraceWriter", "config"),
        ),
        ("ReportBuilder", "slos"),
    ],
)
def test_what_a_replay_is_given_is_named(name: str, field: str, wrong: Any) -> None:
    found, value, fix = _refused(REPLAYS[name], **{field: wrong})
    assert (found, value) == (field, wrong)
    assert fix


@pytest.mark.parametrize(("name", "field"), [("Workload", "notes"), ("TraceReader", "path")])
def test_no_number_is_a_list_or_a_path(name: str, field: str) -> None:
    assert _refused(REPLAYS[name], **{field: 3})[:2] == (field, 3)


@pytest.mark.parametrize(
    ("link", "field"), [((0, 10.0), "bytes_per_block"), ((1000, 0), "gb_per_s"), ((1000, "a"), "gb_per_s")]
)
def test_a_link_carries_something(link: tuple[Any, Any], field: str) -> None:
    assert _refused(REPLAYS["replay_split"], link=KVLink(*link))[0] == field


def test_a_report_is_printed_on_a_console(recorded: RunResult) -> None:
    printing: Callable[..., object] = tokenyard.print_report
    assert _refused(printing, recorded.report, "a console")[0] == "console"
    assert _refused(printing, recorded, "a console")[0] == "report"


def test_the_end_of_an_answer_is_a_number() -> None:
    wrong: Any = "soon"
    with pytest.raises(RequestError, match="ends_after = 'soon': give a whole number"):
        tokenyard.Scheduler(CONFIG, CACHE).add_request(tokenyard.Request("r", [1, 2], ends_after=wrong))


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return SMALL.replay("chat", limit=4, trace=tmp_path_factory.mktemp("chat") / "trace")


def test_whatif_calls_changes_so(chat: RunResult) -> None:
    assert chat.trace is not None
    ask = Recording(chat.trace).whatif
    assert _refused(ask, {"max_num_seq": 2})[:2] == ("changes", "max_num_seq")
    assert _refused(ask, "max_num_seqs")[:2] == ("changes", "max_num_seqs")
    assert _refused(ask, {"x": {"max_num_seq": 2}})[0] == "changes"
    assert _refused(ask, 3)[:2] == ("changes", 3)
    assert _refused(ask, {"max_num_seqs": "two"})[0] == "max_num_seqs"


def test_what_a_trace_does_not_hold_is_data(chat: RunResult, tmp_path: Path) -> None:
    assert chat.trace is not None
    for ask, field, wrong, near in (
        (tokenyard.why, "request_id", "chat_0003_tt0", "chat_0003_t0"),
        (tokenyard.waiting, "job_id", "chat_003", "chat_0003"),
    ):
        with pytest.raises(TraceError) as caught:
            ask(chat.trace, wrong)
        assert (caught.value.field, caught.value.value) == (field, wrong)
        assert near in str(caught.value.fix)
        assert near in str(caught.value)
    with pytest.raises(TraceError) as nowhere:
        tokenyard.report(tmp_path / "nowhere")
    assert (nowhere.value.field, nowhere.value.value) == ("path", str(tmp_path / "nowhere"))
    assert nowhere.value.fix == "name a trace file or the directory that holds it"


def test_words_that_are_near_are_told(chat: RunResult) -> None:
    assert _refused(SMALL.replay, "chat", slo={"tftt": "1s"}) == ("slo", "tftt", "did you mean ttft?")
    assert _refused(SMALL.replay, "chat", slo={"gold:tftt_p90": "1s"}) == ("slo", "gold:tftt_p90", "did you mean ttft?")
    assert _refused(SMALL.replay, "chat", slo={"ttft": None})[:2] == ("slo", None)
    assert _refused(tokenyard.compare_recordings, chat.trace, chat.trace, align="steps") == (
        *("align", "steps", "use one of: step, time, job"),
    )
    field, value, fix = _refused(SMALL.plan, "chat", space={"max_num_seqs": [2]}, minimize="cost", price={"h1000": 2})
    assert (field, value) == ("price", "h1000")
    assert "h100" in fix


def test_figures_of_a_study_are_functions_and_names(chat: RunResult) -> None:
    few: dict[str, Any] = {"num_prompts": 2, "input_len": 8, "output_len": 2}
    assert _refused(tokenyard.study, "random", SMALL, metrics={"mine": 3}, **few)[0] == "metrics"
    study = tokenyard.study("random", SMALL, **few)
    means: Callable[..., object] = study.means
    assert _refused(means, 3)[:2] == ("metric", 3)
    assert _refused(means, None)[:2] == ("metric", None)


NUMBERS: list[tuple[Callable[..., object], str, str]] = [
    *((partial(Autoscaling, least=1, most=2), each, each) for each in ("startup", "sync", "window", "tolerance")),
    (partial(Autoscaling, least=1, most=2), "target", "scale_target"),
    *((Transfer, each, each) for each in ("bandwidth", "latency")),
    *((PrefillReload, each, each) for each in ("base", "linear", "quadratic")),
    *((FastServe, "promote", "promote"), (NoisySJF, "sigma", "sigma")),
]


@pytest.mark.parametrize("wrong", [None, "1", True, -1.0, float("nan"), THING])
@pytest.mark.parametrize(("ask", "name", "field"), NUMBERS)
def test_a_number_is_a_number(ask: Callable[..., object], name: str, field: str, wrong: Any) -> None:
    found, value, fix = _refused(ask, **{name: wrong})
    assert found == field
    assert value is wrong
    assert fix


def test_numbers_of_numpy_count() -> None:
    three: Any = np.float32(3)
    assert Autoscaling(least=1, most=2, window=three).window == 3
    for wrong in ({"ann": 0}, {"ann": "2"}, {"ann": None}, 3, ["ann"]):
        weights: Any = wrong
        assert _refused(VTC, weights=weights)[0] == "weights"


@pytest.mark.parametrize("wrong", [3, None, (), (2.0,), ("0.5",)])
def test_acceptance_is_probabilities(wrong: Any) -> None:
    config = tokenyard.SpeculativeConfig(num_speculative_tokens=2)
    field, _, fix = _refused(partial(SimulatedSpeculation, config=config), acceptance=wrong)
    assert field == "acceptance"
    assert fix

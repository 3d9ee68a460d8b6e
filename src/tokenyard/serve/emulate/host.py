"""From a deployment to live engines, what they say, and what stands before them."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.connectors.prefill_decode import PrefillDecodeConnector
from tokenyard.core.kv.events import KVEventBatch
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.observer import Observers, StepObserver
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.spec import ResolvedDeployment, seconds_of
from tokenyard.errors import ConfigError, RequestError
from tokenyard.quick_dataclass import dataclass
from tokenyard.serve.async_llm import AsyncLLM
from tokenyard.serve.emulate.answers import Answer, AnswerMaker, MadeUpForms, SpokenModel, spoken_words
from tokenyard.serve.emulate.approximate import ApproximateTokenizer
from tokenyard.serve.emulate.capacity import Capacity
from tokenyard.serve.emulate.faults import Faults, FaultyTransfers
from tokenyard.serve.emulate.live import LATE, GroupStepper, LateRequests, LiveEngines, NewsOfSteps, WallClock
from tokenyard.serve.emulate.settings import EmulateSettings
from tokenyard.serve.kv_publisher import KVEventPublisher
from tokenyard.serve.metrics import MetricsObserver
from tokenyard.serve.openai.fields import ApiError
from tokenyard.serve.output_processor import Generation
from tokenyard.serve.text import TextTokenizer
from tokenyard.sim.choices import router_of
from tokenyard.sim.executor import WorkerTransfers
from tokenyard.sim.loop import EngineGroup, EngineParts
from tokenyard.sim.replay import load_seconds, prefill_seconds
from tokenyard.sim.routers import Fleet
from tokenyard.sim.settings import KVLink
from tokenyard.sim.transfers import DecodeTransfers, Link, PrefillTransfers
from tokenyard.steptime.model import LatencyModel, MappedLatency
from tokenyard.steptime.pace import VirtualClock
from tokenyard.steptime.scaled import front_end_of
from tokenyard.workload.load import read_workload

_MOST_QUEUED = 1_000_000
"""vLLM's own queue has no end."""


@dataclass(slots=True)
class EmulatedModel:
    """A ``ServedModel`` that is not there."""

    name: str
    device: str
    bytes_per_block: int | None
    vocab_size: int
    max_model_len: int
    eos_token_ids: Sequence[int]
    adapters: list[str] = field(default_factory=list)
    """Names of LoRA adapters; they come and go."""
    tokenizer: Path | None = None
    is_pooling: bool = False
    """Whether it makes vectors in place of answers."""


class EmulatedLLM(AsyncLLM):
    """``AsyncLLM`` on live engines, which get the tokens of the answers."""

    def __init__(
        self,
        *args: Any,
        answers: dict[str, Answer],
        maker: AnswerMaker,
        sources: frozenset[str],
        engines: LiveEngines,
        max_late_s: float = 0.0,
        **options: Any,
    ) -> None:
        """``sources``: the engines that may hold the KV of a prompt; ``max_late_s``: beyond, requests are refused."""
        super().__init__(*args, **options)
        self._answers, self._answer_maker, self._sources = answers, maker, sources
        self._engines, self._max_late_s = engines, max_late_s
        self._late = dict[Generation, float]()
        """By how much the tokens of those that are under way were late, at most."""
        self.late_requests = LateRequests()

    def check_room(self, num_requests: int) -> None:
        super().check_room(num_requests)
        late = self._engines.late_seconds if self._max_late_s else 0.0
        if late > self._max_late_s:
            text = f"answers are {late:.1f} s late: this machine does not keep up, and takes no more (--max-late-s)"
            raise ApiError(503, text, code="late", headers={"Retry-After": str(ceil(late))})

    def _tell(self, generations: Sequence[Generation]) -> None:
        late = self._engines.delivered_late
        for each in generations:
            if late > self._late.get(each, -1.0):
                self._late[each] = late
        super()._tell(generations)

    def _add(self, generation: Generation, told: Callable[[], None]) -> None:
        params = generation.samples[0].request.kv_transfer_params or {}
        if params.get("do_remote_prefill") and params.get("remote_engine_id") not in self._sources:
            fix = f"no such engine prefills here: {', '.join(sorted(self._sources)) or 'give --split 1+1'}"
            given = params.get("remote_engine_id")
            raise RequestError(generation.request_id, "kv_transfer_params.remote_engine_id", given, fix)
        super()._add(generation, told)
        for sample in generation.samples:
            self._answers[sample.request.request_id] = self._answer_maker.answer(sample.request, generation.params)

    def leave(self, generation: Generation) -> None:
        late = self._late.pop(generation, None)
        if late is not None and generation.is_finished:
            self.late_requests.add(late)
            LATE.set(max(late, LATE.get() or 0.0))
        super().leave(generation)
        for sample in generation.samples:
            self._answers.pop(sample.request.request_id, None)


@dataclass(slots=True)
class Front:
    """One server: a port, and the engines behind it."""

    llm: EmulatedLLM
    names: Sequence[str]
    model: EmulatedModel
    tokenizer: TextTokenizer
    forms: MadeUpForms
    metrics: Sequence[MetricsObserver]
    group: int = 0
    """Which engines are behind it."""
    role: str | None = None
    """prefill or decode, where they are apart."""


@dataclass(slots=True)
class Emulation:
    """All of it, before it listens."""

    resolved: ResolvedDeployment
    settings: EmulateSettings
    engines: LiveEngines
    faults: Faults
    fronts: Sequence[Front]
    publishers: Sequence[KVEventPublisher]
    event_sources: Sequence[Mapping[str, Any]]
    """What vLLM reports of each of them, in the same order."""
    is_approximate: bool
    """Tokens are not those of the model's own tokenizer."""
    capacity: Capacity | None = None
    """What it can hold, where that is known."""

    def start_log(self) -> list[str]:
        """What vLLM would say of its memory as it starts, and what is made up."""
        plan, settled, stamp = self.resolved.plan, self.resolved.settled, time.strftime("%m-%d %H:%M:%S")
        prefix = f"INFO {stamp} [kv_cache_utils.py]"
        model, config = self.resolved.settings.hardware.model, self.resolved.scheduler
        length, core = config.max_model_len, f"INFO {stamp} [core.py]"
        lines = [
            f"{core} Emulating vLLM {settled.version} at speed {self.settings.speed:g}",
            f"{core} {model} on {settled.num_gpus} x {settled.gpu.name}",
            f"{prefix} GPU KV cache size: {plan.num_tokens:,} tokens",
            f"{prefix} Maximum concurrency for {length:,} tokens per request: {plan.max_concurrency:.2f}x",
            f"{core} {config.max_num_seqs:,} sequences at a time, {config.max_num_batched_tokens:,} tokens a step",
        ]
        if self.is_approximate:
            lines.append(
                f"WARNING {stamp} [tokenizer] there is no tokenizer.json of {model} on this machine: "
                "tokens are counted approximately (X-Approximate-Tokens: true)"
            )
        if self.capacity is not None:
            kind = "INFO" if self.capacity.streams >= self.capacity.most_streams else "WARNING"
            lines.append(f"{kind} {stamp} [emulate] {self.capacity.sentence}")
        lines += [f"WARNING {stamp} [emulate] without effect: {each}" for each in self.resolved.ignored]
        return lines

    def close(self) -> None:
        """Let go of sockets."""
        for each in self.publishers:
            each.close()


def emulate(
    deployment: Deployment,
    settings: EmulateSettings,
    *,
    observers: Sequence[StepObserver] = (),
    wall: WallClock | None = None,
    publishes: bool = True,
) -> Emulation:
    """What behaves as the deployment would. Raises TokenyardError.

    ``observers`` watch every engine, one each. ``wall`` counts from now if it is not given. ``publishes``: KV events
    are, where the line asks for them.
    """
    resolved = deployment.resolve()
    clock, wall, faults = VirtualClock(), wall or WallClock(settings.speed), Faults(settings.seed)
    tokenizer = _tokenizer(deployment, resolved, _model(deployment, resolved))
    making = _EngineMaker(deployment, resolved, settings, clock, faults, tokenizer, list(observers))
    groups = making.apart(settings.split) if settings.split is not None else making.alike(settings.servers)
    way = _way(settings.front_end_delay, resolved.latency)
    engines = LiveEngines([each.engines for each in groups], [each.news for each in groups], clock, wall, way)
    faults.bind(engines, load_kv=any(group.has_connector for group in groups))
    lengths = [] if settings.lengths is None else [each.max_tokens for each in read_workload(settings.lengths)]
    fronts = [_front(making, group, engines, number, lengths) for number, group in enumerate(groups)]
    publishers = _publishers(deployment, groups) if publishes else []
    sources = [_source(deployment, each) for each in publishers]
    engines.on_event.append(lambda: _publish(groups, publishers, wall))
    for group, front in zip(groups, fronts, strict=True):
        group.metrics[0].more = partial(lateness_metrics, engines, front.llm.late_requests, fronts[0].names)
    is_approximate = isinstance(tokenizer, ApproximateTokenizer)
    return Emulation(resolved, settings, engines, faults, fronts, publishers, sources, is_approximate)


def _way(given: str | None, latency: LatencyModel) -> Callable[[int], float]:
    """Seconds from a request's arrival to the scheduler, by its prompt tokens: as given, else as fitted, else none."""
    if given is not None:
        seconds = seconds_of("front_end_delay", given)
        return lambda _: seconds
    front_end = front_end_of(latency)
    return (lambda _: 0.0) if front_end is None else front_end.seconds


def _front(making: _EngineMaker, group: _Group, engines: LiveEngines, number: int, lengths: Sequence[int]) -> Front:
    """What stands before the engines of a group."""
    deployment, settings, tokenizer = making.deployment, making.settings, making.tokenizer
    model = _model(deployment, making.resolved)
    forms = MadeUpForms(tokenizer, settings.seed, most_tokens=model.max_model_len)
    maker = AnswerMaker(
        tokenizer, model.eos_token_ids[0], lengths=lengths, echo=settings.answers == "echo", seed=settings.seed
    )
    llm = EmulatedLLM(
        group.engines.ranks[0].core,
        answers=group.answers,
        maker=maker,
        sources=group.sources,
        engines=engines,
        max_late_s=settings.max_late_s,
        tokenizer=tokenizer,
        max_queued_requests=_MOST_QUEUED,
        max_logprobs=_number(deployment, "max-logprobs", 20),
        model=model,
        grammars=lambda: forms,
        stepper=lambda take: GroupStepper(engines, number, take),
    )
    return Front(llm, served_names(deployment), model, tokenizer, forms, group.metrics, number, group.role)


def lateness_metrics(engines: LiveEngines, requests: LateRequests, names: Sequence[str]) -> Iterator[Any]:
    """Whether the machine keeps up, for Prometheus."""
    from prometheus_client.core import (  # noqa: PLC0415 - an extra
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    late, labels = engines.lateness, ["model_name"]
    for name, text, value in (
        ("tokenyard:emulated_steps", "Steps that were delivered.", late.steps),
        ("tokenyard:emulated_late_steps", "Steps delivered later than 5 % of their own time.", late.late_steps),
        ("tokenyard:emulated_late_seconds", "Seconds by which steps were delivered late, added up.", late.seconds),
    ):
        family = CounterMetricFamily(name, text, labels=labels)
        family.add_metric([names[0]], value)
        yield family
    text = "Seconds by which the latest token of a request was delivered late, at its end."
    late_requests = HistogramMetricFamily("tokenyard:emulated_request_late_seconds", text, labels=labels)
    late_requests.add_metric([names[0]], requests.buckets, requests.seconds)
    yield late_requests
    speed = GaugeMetricFamily("tokenyard:emulated_speed", "Emulated seconds in a second.", labels=labels)
    speed.add_metric([names[0]], engines.wall.speed)
    yield speed


# ---------------------------------------------------------------------------------------------------------------------
# The engines behind one server.


_SPLIT = re.compile(r"([1-9][0-9]?)\+([1-9][0-9]?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Engines, with what watches them and what they say."""

    engines: EngineGroup
    answers: dict[str, Answer]
    """What each request that is under way is answered with."""
    news: Sequence[NewsOfSteps]
    """Outputs of each engine that are still to be sent."""
    metrics: Sequence[MetricsObserver]
    has_connector: bool
    role: str | None
    """prefill or decode, where they are apart."""
    sources: frozenset[str]
    """Engines that may hold the KV of a prompt."""


class _EngineMaker(msgspec.Struct, frozen=True):
    """What all engines are made of."""

    deployment: Deployment
    resolved: ResolvedDeployment
    settings: EmulateSettings
    clock: VirtualClock
    faults: Faults
    tokenizer: TextTokenizer
    observers: list[StepObserver]
    """Observers that no engine has been given yet."""

    def alike(self, number: int) -> list[_Group]:
        """``number`` servers of the deployment."""
        parallel, scaling = self.resolved.settled.parallel, self.resolved.autoscaling
        size = parallel.data_parallel_size if scaling is None else scaling.most
        return [self._group([None] * size) for _ in range(number)]

    def apart(self, split: str) -> list[_Group]:
        """A server that prefills and one that decodes, as ``P+D`` engines. Raises ConfigError."""
        found = _SPLIT.fullmatch(split)
        if found is None:
            raise ConfigError("split", split, "give the engines that prefill and those that decode: 1+1, 2+4")
        if self.resolved.kv_transfer is not None or self.resolved.speculation is not None:
            raise ConfigError("split", split, "goes with no other connector, and without drafts")
        cache, now, plan = self.resolved.cache, self.clock.now, self.resolved.plan
        link = KVLink(plan.bytes_per_block, self.settings.kv_link_gb_per_s)
        sources = {f"prefill-{rank}": PrefillTransfers(now, Link(link.seconds_of)) for rank in range(int(found[1]))}
        targets = {
            f"decode-{rank}": DecodeTransfers(now, link.bytes_per_block, sources) for rank in range(int(found[2]))
        }
        groups = []
        for role, transfers in (("prefill", sources), ("decode", targets)):
            pairs = [(PrefillDecodeConnector(cache, name, now), each) for name, each in transfers.items()]
            groups.append(self._group(pairs, role=role, sources=frozenset(sources)))
        return groups

    def _group(
        self,
        connectors: Sequence[tuple[KVConnector, WorkerTransfers] | None],
        *,
        role: str | None = None,
        sources: frozenset[str] = frozenset(),
    ) -> _Group:
        """An engine for each of ``connectors``; None stands for the deployment's own, if it has one."""
        news = [NewsOfSteps() for _ in connectors]
        metrics = [self._metrics(rank) for rank in range(len(connectors))]
        parts = [self._parts(*each) for each in zip(connectors, news, metrics, strict=True)]
        answers: dict[str, Answer] = {}
        return _Group(
            engines=self._engines(parts, answers),
            answers=answers,
            news=news,
            metrics=metrics,
            has_connector=any(each.transfers is not None for each in parts),
            role=role,
            sources=sources,
        )

    def _metrics(self, rank: int) -> MetricsObserver:
        """What an engine tells Prometheus."""
        resolved, speculation = self.resolved, self.resolved.speculation
        return MetricsObserver(
            model_name=served_names(self.deployment)[0],
            engine=rank,
            version=self.settings.surface or resolved.settled.version,
            max_model_len=resolved.scheduler.max_model_len,
            num_speculative_tokens=0 if speculation is None else speculation.config.num_speculative_tokens,
            max_loras=resolved.scheduler.max_loras,
            cache_info=_cache_info(resolved),
        )

    def _parts(self, given: tuple[KVConnector, WorkerTransfers] | None, *watching: StepObserver) -> EngineParts:
        """The scheduler of one engine, and what moves its KV."""
        resolved, cache = self.resolved, self.resolved.cache
        if _events(self.deployment):
            cache = replace(cache, enable_kv_cache_events=True)
        if given is None and resolved.kv_transfer is not None:
            given = resolved.kv_transfer.make(cache, self.clock, self._latency(None))
        connector, transfers = (None, None) if given is None else (given[0], FaultyTransfers(given[1], self.faults))
        if self.observers:
            watching += (self.observers.pop(0),)
        scheduler = Scheduler(
            resolved.scheduler,
            cache,
            clock=self.clock.now,
            observer=Observers(*watching),
            policy=resolved.policy(),
            kv_connector=connector,
            speculative_config=None if resolved.speculation is None else resolved.speculation.config,
            prefill_seconds=prefill_seconds(resolved.latency),
            load_seconds=None if given is None else load_seconds(given[1], cache.tokens_per_block),
        )
        return EngineParts(scheduler, transfers)

    def _engines(self, parts: Sequence[EngineParts], answers: dict[str, Answer]) -> EngineGroup:
        """The engines, which say ``answers``."""
        resolved, settled, size = self.resolved, self.resolved.settled, len(parts)
        fleet = Fleet(size, settled.steps_together, settled.version, settled.parallel.api_server_count or size)
        words, eos = spoken_words(self.tokenizer), _model(self.deployment, resolved).eos_token_ids[0]
        hidden_size, speculation = settled.model.hidden_size, resolved.speculation
        return EngineGroup(
            self.clock,
            self._latency(None),
            router_of(resolved.router, fleet) if size > 1 else None,
            parts,
            steps_together=fleet.steps_together,
            latencies=[self._latency(rank) for rank in range(size)],
            speculation=speculation,
            autoscaling=resolved.autoscaling,
            models=[SpokenModel(answers, words, eos, hidden_size=hidden_size, speculation=speculation) for _ in parts],
        )

    def _latency(self, rank: int | None) -> MappedLatency:
        """Step times of a rank, slower as long as a fault makes them; None: of ranks that step together."""
        return MappedLatency(self.resolved.latency, lambda seconds, _: seconds * self.faults.slowness(rank))


def _publish(groups: Sequence[_Group], publishers: Sequence[KVEventPublisher], wall: WallClock) -> None:
    """Notify subscribers of what has entered and left the prefix caches."""
    if not publishers:
        return
    ranks = [
        (rank if len(group.engines.ranks) > 1 else None, each)
        for group in groups
        for rank, each in enumerate(group.engines.ranks)
    ]
    for (number, rank), publisher in zip(ranks, publishers, strict=True):
        batch = rank.scheduler.take_kv_events()
        if batch is not None:
            publisher.publish(KVEventBatch(wall.unix(batch.ts), batch.events, number))


def _cache_info(resolved: ResolvedDeployment) -> dict[str, object]:
    """What vLLM reports of its cache in a metric, as far as it is known here."""
    plan, cache = resolved.plan, resolved.cache
    return {
        "block_size": cache.block_size,
        "gpu_memory_utilization": resolved.settled.hardware.gpu_memory_utilization,
        "cache_dtype": plan.kv_cache_dtype,
        "enable_prefix_caching": cache.enable_prefix_caching,
        "num_gpu_blocks": plan.num_blocks,
        "kv_cache_size_tokens": plan.num_tokens,
        "kv_cache_max_concurrency": plan.max_concurrency,
    }


def _events(deployment: Deployment) -> Mapping[str, Any]:
    """What ``--kv-events-config`` says; empty where events are not wanted."""
    given = deployment.settings.launch.asked.value("kv-events-config")
    if isinstance(given, str):
        given = json.loads(given)
    return given if isinstance(given, Mapping) and given.get("enable_kv_cache_events") else {}


def _publishers(deployment: Deployment, groups: Sequence[_Group]) -> list[KVEventPublisher]:
    """One for each engine, at ports that count up, as vLLM's data-parallel engines have them."""
    config = _events(deployment)
    if not config or config.get("publisher", "zmq") != "zmq":
        return []
    made = []
    for rank in range(sum(len(group.engines.ranks) for group in groups)):
        endpoint, replay = (_counted(config.get(name), rank) for name in ("endpoint", "replay_endpoint"))
        made.append(
            KVEventPublisher(
                endpoint or _counted("tcp://127.0.0.1:5557", rank) or "",
                replay,
                topic=str(config.get("topic", "")),
                buffer_steps=int(config.get("buffer_steps", 10_000)),
            )
        )
    return made


def _source(deployment: Deployment, publisher: KVEventPublisher) -> dict[str, Any]:
    """The settings of a publisher, as vLLM has them."""
    config = _events(deployment)
    return {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": publisher.endpoint,
        "replay_endpoint": publisher.replay_endpoint,
        "buffer_steps": config.get("buffer_steps", 10_000),
        "hwm": config.get("hwm", 100_000),
        "max_queue_size": config.get("max_queue_size", 100_000),
        "topic": config.get("topic", ""),
    }


def _counted(endpoint: str | None, rank: int) -> str | None:
    """The endpoint of an engine; where all addresses are meant it is this machine alone that listens."""
    if endpoint is None:
        return None
    own = endpoint.replace("//*:", "//127.0.0.1:", 1)
    host, colon, port = own.rpartition(":")
    return f"{host}{colon}{int(port) + rank}" if port.isdecimal() and int(port) else own


# ---------------------------------------------------------------------------------------------------------------------
# The model that is not there: its names, its tokenizer.


def served_names(deployment: Deployment) -> tuple[str, ...]:
    """Names by which clients call the model."""
    given = deployment.settings.launch.asked.value("served-model-name")
    names = (given,) if isinstance(given, str) else tuple(map(str, given or ()))  # type: ignore[call-overload]
    return names or (deployment.settings.hardware.model,)


def lora_names(deployment: Deployment) -> list[str]:
    """The adapters that the command line names."""
    given = deployment.settings.launch.asked.value("lora-modules")
    texts = [given] if isinstance(given, str) else list(given or ())  # type: ignore[call-overload]
    return [json.loads(each)["name"] if each.lstrip().startswith("{") else each.partition("=")[0] for each in texts]


def _number(deployment: Deployment, flag: str, otherwise: int) -> int:
    value = deployment.settings.launch.asked.value(flag)
    return value if isinstance(value, int) else otherwise


def _model(deployment: Deployment, resolved: ResolvedDeployment) -> EmulatedModel:
    spec, asked = resolved.settled.model, deployment.settings.launch.asked
    folder = _folder(str(asked.value("tokenizer") or deployment.settings.hardware.model))
    eos = _eos(folder) if folder is not None else []
    return EmulatedModel(
        name=deployment.settings.hardware.model,
        device=resolved.settled.gpu.name,
        bytes_per_block=resolved.plan.bytes_per_block,
        vocab_size=spec.vocab_size,
        max_model_len=resolved.scheduler.max_model_len,
        eos_token_ids=eos or [spec.vocab_size - 1],
        adapters=lora_names(deployment),
        tokenizer=folder,
        is_pooling=resolved.settled.pools or asked.value("task") in ("embed", "embedding"),
    )


def _folder(model: str) -> Path | None:
    """Where the model's tokenizer is on this machine: its own folder, or Hugging Face's cache. Nothing is fetched."""
    own = Path(model).expanduser()
    if (own / "tokenizer.json").is_file():
        return own
    home = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME", "~/.cache/huggingface"), "hub")
    snapshots = Path(home).expanduser() / f"models--{model.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob("*/tokenizer.json")) if snapshots.is_dir() else []
    return found[-1].parent if found else None


def _eos(folder: Path) -> list[int]:
    for name in ("generation_config.json", "config.json"):
        try:
            given = msgspec.json.decode((folder / name).read_bytes()).get("eos_token_id")
        except (OSError, msgspec.DecodeError, AttributeError):
            continue
        if given is not None:
            return [given] if isinstance(given, int) else list(given)
    return []


def _tokenizer(deployment: Deployment, resolved: ResolvedDeployment, model: EmulatedModel) -> TextTokenizer:
    template = deployment.settings.launch.asked.value("chat-template")
    if model.tokenizer is not None:
        return TextTokenizer.load(model.tokenizer, None if template is None else str(template))
    return ApproximateTokenizer(resolved.settled.model.vocab_size)

"""Which vLLM this is, and every place where its versions differ in what we touch.

No other module of the package asks for a version or looks for a field that only some versions have.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, replace
from dataclasses import fields as dataclass_fields
from inspect import signature
from itertools import takewhile
from typing import Any, NamedTuple

from tokenyard.core.config import GroupKind, KVCacheGroup
from tokenyard.core.profiles import PROFILES, decision_profile, nearest_version, release_facts
from tokenyard.core.releases import RELEASES
from tokenyard.errors import ConfigError, MissingExtraError, RequestError
from tokenyard.trace.config import TraceConfig

# ---------------------------------------------------------------------------------------------------------------------
# What our schedulers inside vLLM share: twins, what they write, whose request it is, groups of the KV cache.

# ---------------------------------------------------------------------------------------------------------------------
# The right one of two scheduler classes: vLLM has one for synchronous and one for asynchronous scheduling.
#
# An engine that schedules asynchronously counts on ``AsyncScheduler``, and vLLM does not check what a
# ``--scheduler-cls`` derives from. So our classes come in pairs, and whichever is named, the engine gets the one that
# it runs with. The asynchronous twin derives from the synchronous class, and its ``super()`` reaches vLLM's
# ``AsyncScheduler``.


def is_async(vllm_config: Any) -> bool:
    """Whether an engine with this ``VllmConfig`` schedules the next step before the last one's output is there."""
    return bool(vllm_config.scheduler_config.async_scheduling)


class Twins:
    """Put before vLLM's class among the bases; each class of a pair names both in ``twins``."""

    twins: tuple[type[Any], type[Any]]
    """For synchronous and for asynchronous scheduling."""

    def __new__(cls, vllm_config: Any, *args: Any, **options: Any) -> Any:
        """An instance of the twin that ``vllm_config`` asks for; a class of the user's own stays what it is."""
        pair = cls.__dict__.get("twins")
        if pair is None or cls not in pair:
            return super().__new__(cls)
        wanted = pair[is_async(vllm_config)]
        if issubclass(wanted, cls):  # then ``__init__`` is called by Python
            return super().__new__(wanted)
        return wanted(vllm_config, *args, **options)


# ---------------------------------------------------------------------------------------------------------------------
# What a class inside vLLM is asked to write, from the environment of the server.

_log = logging.getLogger("tokenyard.vllm")

_MAX_IDS = 64
"""Ids named per list unless the environment says otherwise: as many as ``tokenyard run`` names."""


def trace_settings(vllm_config: Any, policy: str, environ: Mapping[str, str] | None = None) -> TraceConfig:
    """The ``SCHED_TRACE_*`` variables; without a path nothing is written.

    Per-request records hold token ids, so they are written only if requested. The engines of a data-parallel server
    write into ``rank-1``, ``rank-2`` ... of the directory. Raises ConfigError that names the variable.
    """
    env = os.environ if environ is None else environ
    config = TraceConfig.from_env(env)
    if not config.enabled:
        return config
    if not env.get("SCHED_TRACE_POLICY"):
        config = replace(config, policy=policy)
    if not env.get("SCHED_TRACE_REQUEST_RECORDS"):
        config = replace(config, request_records=False)
    if not env.get("SCHED_TRACE_MAX_IDS"):
        config = replace(config, max_ids_per_step=_MAX_IDS)
    rank = data_parallel_rank(vllm_config)
    if rank is not None and config.path is not None:
        config = replace(config, path=config.path / f"rank-{rank}")
    return config


def warn_no_trace(settings: TraceConfig, error: Exception) -> None:
    """Say that an engine runs without the trace that was requested, and why."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    _log.warning("no trace is written to %s, vLLM goes on without: %s", settings.path, reason)


# ---------------------------------------------------------------------------------------------------------------------
# Which job a request of vLLM's belongs to, and what its client says of the job.
#
# Clients of the OpenAI API give ``vllm_xargs`` (``extra_body`` in the Python client), which vLLM puts into
# ``SamplingParams.extra_args``.


class JobTurn(NamedTuple):
    """What a client says of the turn that a request is."""

    job_id: str | None = None
    is_last_step: bool = False
    """Its job ends with it: nothing of it need be kept."""
    this_func_call: str | None = None
    """Name of the tool that it will call."""


def _extra_args(request: Any) -> dict[str, Any]:
    """The extra arguments of a vLLM request; {} without any."""
    params = request.sampling_params
    given = None if params is None else params.extra_args
    return given if isinstance(given, dict) else {}


def job_of(request: Any) -> str | None:
    """Its job: ``job_id`` of the extra arguments, else its session; None if it has neither."""
    job = _extra_args(request).get("job_id")
    return session_of(request) if job is None else str(job)


def turn_of(request: Any) -> JobTurn:
    """The turn that a vLLM request is; RequestError for extra arguments that are none of ours."""
    given = _extra_args(request)
    last, tool = given.get("is_last_step", False), given.get("this_func_call")
    if last not in (True, False, 0, 1, "true", "false"):
        raise RequestError(request.request_id, "vllm_xargs is_last_step", last, "give true or false")
    if tool is not None and not isinstance(tool, str):
        raise RequestError(request.request_id, "vllm_xargs this_func_call", tool, "give the tool's name as text")
    return JobTurn(job_of(request), last in (True, 1, "true"), tool)


# ---------------------------------------------------------------------------------------------------------------------
# vLLM's KV-cache groups as ours.

KINDS = {
    "FullAttentionSpec": GroupKind.FULL,
    "MLAAttentionSpec": GroupKind.FULL,
    "TQFullAttentionSpec": GroupKind.FULL,
    "SlidingWindowSpec": GroupKind.SLIDING_WINDOW,
    "SlidingWindowMLASpec": GroupKind.SLIDING_WINDOW,
    "ChunkedLocalAttentionSpec": GroupKind.CHUNKED_LOCAL,
    "MambaSpec": GroupKind.MAMBA,
}
"""vLLM's class of a KV-cache spec -> ours; those that are absent have rules of their own."""


def known_group(group: Any) -> KVCacheGroup | None:
    """The group of a ``KVCacheConfig``; None if we have no rules for its kind."""
    spec = group.kv_cache_spec
    kind = KINDS.get(type(spec).__name__)
    if kind is None:
        return None
    window = getattr(spec, "sliding_window", None) if kind is GroupKind.SLIDING_WINDOW else None
    if kind is GroupKind.CHUNKED_LOCAL:
        window = spec.attention_chunk_size
    return KVCacheGroup(
        kind=kind,
        block_size=spec.block_size,
        window=window or 0,
        is_eagle=bool(getattr(group, "is_eagle_group", False)),
    )


# ---------------------------------------------------------------------------------------------------------------------

TESTED = tuple(each.tested for each in RELEASES)
"""Releases that the tests ran with: all with the scheduler, some with tiny models."""

_RELEASE = re.compile(r"\d+(?:\.\d+)*")


class UntestedVersionWarning(UserWarning):
    """This version of vLLM was never tried."""


def installed_version() -> str:
    """Release of the installed vLLM without its build, as ``0.33.0``. Raises MissingExtraError where there is none."""
    try:
        from vllm import __version__ as version
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != "vllm":
            raise
        raise MissingExtraError("vllm", "vllm") from None
    found = _RELEASE.match(str(version))
    return found.group() if found else str(version)


def check_version() -> str:
    """The installed version; one that was never tried is a warning that names those that were."""
    version = installed_version()
    if version not in TESTED:
        warnings.warn(
            f"vLLM {version} was never tried with this Tokenyard, vLLM {', '.join(TESTED)} were: compare a short run "
            "with vLLM's own scheduler first",
            UntestedVersionWarning,
            stacklevel=2,
        )
    return version


def waiting_queues(scheduler: Any) -> Sequence[Any]:
    """The waiting queues of a vLLM scheduler, the one that is tried first in front.

    Until 0.30 that is ``skipped_waiting`` (requests that were skipped), since 0.31
    ``kv_holding_waiting`` (requests that hold blocks while they wait).
    """
    first = getattr(scheduler, "kv_holding_waiting", None)
    if first is None:
        first = scheduler.skipped_waiting
    return first, scheduler.waiting


def max_running(scheduler: Any) -> int:
    """Most requests that a vLLM scheduler has running at once; since 0.31 fewer than the workers have rows for."""
    return int(getattr(scheduler, "max_num_active_reqs", scheduler.max_num_running_reqs))


def draft_slots(scheduler: Any) -> int:
    """Tokens that each scheduled request takes from the step beside its own, for drafts: since 0.28, 0 before.

    Until then the step's budget is smaller by as much for the most requests that may run.
    """
    speculation = scheduler.vllm_config.speculative_config
    nearest = nearest_version(installed_version())
    if speculation is None or not decision_profile(nearest).drafts_take_input_slots:
        return 0
    return int(speculation.max_num_new_slots_for_drafting)


def max_batched(vllm_config: Any) -> int:
    """Most tokens that a step of the engine computes."""
    return int(vllm_config.scheduler_config.max_num_batched_tokens)


def lookup_methods(manager: Any) -> Sequence[str]:
    """Names of a KV-cache manager's methods that look up a request's prefix; the second number they give is its length.

    Later versions have another one for hybrid models with a connector, which may ask the first.
    """
    names = ("get_computed_blocks", "get_computed_blocks_for_connector")
    return [name for name in names if hasattr(manager, name)]


def encoder_transfers(scheduler: Any) -> Any | None:
    """What makes requests wait for encoder outputs from elsewhere: later versions ask their encoder-cache connector."""
    connector = scheduler.ec_connector
    return connector if hasattr(connector, "ensure_cache_available") else None


def puts_off_prefills(scheduler: Any, *, throttled: bool) -> bool:
    """Whether the step that begins leaves prompts to a later one: only with ``--prefill-schedule-interval``.

    ``throttled``: the engine counts the steps and says so, one of several with 0.24 and later; since 0.33 an engine
    that is alone lets its scheduler count.
    """
    interval = getattr(scheduler, "local_prefill_interval", 1)
    if interval > 1:
        throttled |= scheduler.num_executed_steps + 1 < scheduler.last_prefill_step + interval
    if not throttled or scheduler.prefill_capacity_bound:
        return False
    return any(not request.is_prefill_chunk for request in scheduler.running)


def waits_for_its_round(scheduler: Any, request: Any) -> bool:
    """Whether a running request decodes in a later step only: once in a round of the stages, in later versions."""
    return bool(getattr(request, "next_decode_eligible_step", 0) > getattr(scheduler, "current_step", 0))


def data_parallel_rank(vllm_config: Any) -> int | None:
    """Number of this engine among those that share the traffic; None if it is the only one, as far as it knows.

    Engines of dense models are configured as single engines, but keep their number: the first of them, 0, cannot tell.
    """
    parallel = vllm_config.parallel_config
    rank = int(parallel.data_parallel_index)
    return rank if rank or parallel.data_parallel_size > 1 else None


def status_name(request: Any) -> str:
    """Name of the status of a vLLM request; those of all versions are those of our ``RequestStatus``."""
    return str(request.status.name)


def session_of(request: Any) -> str | None:
    """``session_id`` of a vLLM request, which has one since 0.30."""
    session = getattr(request, "session_id", None)
    return None if session is None else str(session)


# ---- what FastScheduler has to know


DECIDES_AS = "TOKENYARD_DECIDES_AS"
"""Environment variable: the profile by which a vLLM is served that no profile was compared with."""


class NotComparedWarning(UserWarning):
    """No profile of ours was compared with this version of vLLM; the one that was requested decides."""


def profile_name() -> str:
    """Which of our profiles decides as the installed vLLM.

    Raises ConfigError for a version that was compared with none, unless ``TOKENYARD_DECIDES_AS`` names the one to use.
    """
    version = check_version()
    nearest = nearest_version(version)
    if decides_alike(version):
        return nearest
    asked = os.environ.get(DECIDES_AS)
    if asked is None:
        fix = (
            f"no profile was compared with it: use vLLM's own scheduler, traced (tokenyard.vllm.TracingScheduler), a "
            f"newer Tokenyard, or set {DECIDES_AS}={nearest} to have it served as vLLM {nearest} would"
        )
        raise ConfigError("vllm", version, fix)
    if asked not in PROFILES:
        raise ConfigError(DECIDES_AS, asked, f"use one of: {', '.join(PROFILES)}")
    warnings.warn(
        f"FastScheduler decides as vLLM {asked} and this is {version}: "
        "who is served when may differ from vLLM's own scheduler, what is answered does not",
        NotComparedWarning,
        stacklevel=2,
    )
    return asked


def decides_alike(version: str) -> bool:
    """Whether a profile of ours was compared with this version, decision by decision."""
    return ".".join(version.split(".")[:2]) in PROFILES


def takes_from(function: Any, name: str) -> bool:
    """Whether a function of vLLM's has a parameter of that name."""
    return name in signature(function).parameters


def plan_fields(num_drafts: int) -> dict[str, Any]:
    """Fields of a ``SchedulerOutput`` that only some versions have, and that are the same in every step."""
    fields = _plan_fields()
    return {"num_spec_tokens_to_schedule": num_drafts} if "num_spec_tokens_to_schedule" in fields else {}


def skips_drafts() -> bool:
    """Whether a plan may tell the drafter that its drafts cannot be used."""
    return "skip_drafts" in _plan_fields()


def wants_common_prefix() -> bool:
    """Whether a plan has to say how many leading blocks all requests share: cascade attention, gone since."""
    field = _plan_fields()["num_common_prefix_blocks"]
    return field.default is MISSING and field.default_factory is MISSING


def _plan_fields() -> dict[str, Any]:
    from vllm.v1.core.sched.output import SchedulerOutput

    return {field.name: field for field in dataclass_fields(SchedulerOutput)}


def new_request_maker(vllm_config: Any) -> Callable[[Any, tuple[list[int], ...], list[int] | None], Any]:
    """Makes ``NewRequestData`` of a vLLM request, its blocks and, for the second model runner, its tokens.

    Later versions send media without those that are computed already.
    """
    from vllm.v1.core.sched.output import NewRequestData

    make = NewRequestData.from_request
    more: dict[str, Any] = {}
    if takes_from(make, "uses_mrope"):
        more["uses_mrope"] = vllm_config.model_config.uses_mrope
    return lambda request, block_ids, tokens: make(request, block_ids, tokens, **more)


def accept_tokens(manager: Any, request: Any, tokens: list[int]) -> bool:
    """Advance a request's grammar; False if it does not allow the tokens. The manager does it itself since 0.2x."""
    if hasattr(manager, "accept_tokens"):
        return bool(manager.accept_tokens(request, tokens))
    if not manager.should_advance(request):
        return True
    return bool(request.structured_output_request.grammar.accept_tokens(request.request_id, tokens))


def validate_tokens(manager: Any, request: Any, tokens: list[int]) -> list[int]:
    """The leading drafts that a request's grammar allows."""
    if hasattr(manager, "validate_tokens"):
        return list(manager.validate_tokens(request, tokens))
    if not manager.should_advance(request):
        return tokens
    return list(request.structured_output_request.grammar.validate_tokens(tokens))


def grammar_output(ids: list[str], mask: Any, drafts: dict[str, list[int]]) -> Any:
    """vLLM's ``GrammarOutput``; later versions say how many leading drafts of each request the mask covers."""
    from vllm.v1.core.sched.output import GrammarOutput

    if "num_acceptable_drafts" not in {field.name for field in dataclass_fields(GrammarOutput)}:
        return GrammarOutput(ids, mask)
    known = (takewhile(lambda each: each != -1, drafts.get(rid, ())) for rid in ids)
    return GrammarOutput(ids, mask, [len(list(each)) for each in known])


def finished(requests: Sequence[Any]) -> list[Any]:
    """What ``finish_requests`` returns of vLLM's requests: until 0.2x pairs of id and client."""
    from vllm.v1.core.sched.interface import SchedulerInterface

    if "tuple" in str(signature(SchedulerInterface.finish_requests).return_annotation):
        return [(request.request_id, request.client_index) for request in requests]
    return list(requests)


def request_error(message: str) -> Any:
    """The ``error`` of an ``EngineCoreOutput``; None in versions whose clients only learn that there was one."""
    from vllm.v1.engine import EngineCoreOutput

    if "error" not in EngineCoreOutput.__struct_fields__:  # 0.32 has a record for it, and no place
        return None
    from vllm.outputs import RequestError

    return RequestError(code="validation_error", message=message)


def resets_without_connector() -> bool:
    """Whether resetting the cache of a connector that is not there counts as done: it does where one may not ask."""
    return release_facts(installed_version()).resets_ask_no_connector


def stats_without_connector() -> dict[str, Any]:
    """Fields of ``SchedulerStats`` that count a connector's loads, as they are without one."""
    from vllm.v1.metrics import stats

    stages = getattr(stats, "KV_FETCH_STAGES", None)
    return {} if stages is None else {"num_kv_fetch_reqs_by_stage": dict.fromkeys(stages, 0)}


def counts_later_hits() -> bool:
    """Whether statistics of a prompt are those of its request's last lookup before its first output."""
    return release_facts(installed_version()).hits_count_at_last_lookup


def takes_media(vllm_config: Any, registry: Any) -> bool:
    """Whether the model takes images and the like: the registry knew until the configuration did."""
    model = vllm_config.model_config
    if hasattr(registry, "supports_multimodal_inputs"):
        return bool(registry.supports_multimodal_inputs(model))
    return bool(model.supports_multimodal_inputs)

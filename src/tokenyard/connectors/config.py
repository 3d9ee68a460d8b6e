"""How a connector is chosen: vLLM's ``KVTransferConfig``, the part of it that means something here.

vLLM's own connectors go by vLLM's names; the settings of a connector stand in ``kv_connector_extra_config``. What
vLLM has no name for is marked as ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any

from tokenyard.connectors.secondary import Drive, TieredMemory
from tokenyard.connectors.tiered import STORE_ON
from tokenyard.connectors.tiers import (
    CPUTier,
    check_namespace,
    check_storage_path,
    make_eviction_policy,
    require_amount,
    require_text,
)
from tokenyard.core.config import MAX_COUNT
from tokenyard.errors import ConfigError
from tokenyard.plugins import is_foreign
from tokenyard.quick_dataclass import dataclass

OFFLOADING = "OffloadingConnector"
STORAGE = "SharedStorageConnector"
PREFILL_DECODE = "NixlConnector"
_ALIASES = {"SimpleCPUOffloadConnector": OFFLOADING, "ExampleConnector": STORAGE}
_ROLES = ("kv_producer", "kv_consumer", "kv_both")

_BETWEEN_ENGINES = (
    "kv_buffer_device", "kv_buffer_size", "kv_connector_module_path", "kv_ip", "kv_parallel_size", "kv_port", "kv_rank",
    "enable_permute_local_kv",
)  # fmt: skip
"""Where engines meet and how they pass KV on: nothing here depends on it."""

_ANY_TIER = ("load_async",)
SETTINGS: dict[str, tuple[str, ...]] = {
    OFFLOADING: (*_ANY_TIER, "cpu_bytes_to_use", "eviction_policy", "store_on", "spec_name", "secondary_tiers"),
    STORAGE: (*_ANY_TIER, "shared_storage_path", "namespace", "read_gb_per_s", "write_gb_per_s"),
    PREFILL_DECODE: (),
}
"""Connector -> names that ``kv_connector_extra_config`` may hold."""
_ONE_TIER, _TIERS = "CPUOffloadingSpec", "TieringOffloadingSpec"
_OURS = ("bytes_to_use", "read_gb_per_s", "write_gb_per_s")
_OF_A_DISK = ("type", "root_dir", "n_read_threads", "n_write_threads", *_OURS)
"""What a secondary tier of files may say."""
READ_GB_PER_S, WRITE_GB_PER_S = 6.0, 4.0
"""A good NVMe drive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVTransferConfig:
    """A connector and its settings."""

    kv_connector: str
    """``OffloadingConnector``, ``SharedStorageConnector`` (vLLM 0.22: ``ExampleConnector``) or ``NixlConnector``."""
    kv_role: str = "kv_both"
    """``kv_producer`` (prefill), ``kv_consumer`` (decode) or ``kv_both``."""
    engine_id: str = "0"
    """Distinguishes engines that exchange KV."""
    kv_load_failure_policy: str = "fail"
    """``recompute`` or ``fail``: what happens to a request whose KV could not be loaded."""
    kv_connector_extra_config: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the connector."""

    def __post_init__(self) -> None:
        require_text("kv_connector", self.kv_connector)
        require_text("engine_id", self.engine_id)
        name = _ALIASES.get(self.kv_connector, self.kv_connector)
        if name not in SETTINGS and not is_foreign("kv_connector", name):
            fix = f"use {OFFLOADING} or {STORAGE}; {PREFILL_DECODE} with two engines (tokenyard split); or FILE.py:NAME"
            raise ConfigError("kv_connector", self.kv_connector, fix)
        object.__setattr__(self, "kv_connector", name)
        if self.kv_role not in _ROLES:
            raise ConfigError("kv_role", self.kv_role, f"use one of: {', '.join(_ROLES)}")
        if self.kv_load_failure_policy not in ("recompute", "fail"):
            raise ConfigError("kv_load_failure_policy", self.kv_load_failure_policy, "use recompute or fail")
        self._check_extra()

    def _check_extra(self) -> None:
        extra = self.kv_connector_extra_config
        if not isinstance(extra, Mapping):
            raise ConfigError("kv_connector_extra_config", extra, "give an object of settings")
        if self.kv_connector not in SETTINGS:
            return  # what it may hold is for its own code to say
        known = SETTINGS[self.kv_connector]
        for name, value in extra.items():
            if name not in known:
                raise ConfigError(name, value, f"{self.kv_connector} knows: {', '.join(sorted(known)) or 'no setting'}")
        for name in ("cpu_bytes_to_use", "read_gb_per_s", "write_gb_per_s"):
            self.positive(name, 1.0)
        if "shared_storage_path" in extra:
            check_storage_path(extra["shared_storage_path"])
        if "namespace" in extra:
            check_namespace(extra["namespace"])
        make_eviction_policy(self.get("eviction_policy", "lru"), 1)
        self._check_tiers()
        if self.get("store_on", "finish") not in STORE_ON:
            raise ConfigError("store_on", self.get("store_on", None), f"use one of: {', '.join(STORE_ON)}")
        if not isinstance(self.get("load_async", True), bool):
            raise ConfigError("load_async", self.get("load_async", None), "give true or false")

    def _check_tiers(self) -> None:
        spec, tiers = self.get("spec_name", _ONE_TIER), self.get("secondary_tiers", [])
        if spec not in (_ONE_TIER, _TIERS):
            raise ConfigError("spec_name", spec, f"use {_ONE_TIER} or {_TIERS}")
        if not isinstance(tiers, list) or len(tiers) > 1 or not all(isinstance(each, Mapping) for each in tiers):
            raise ConfigError("secondary_tiers", tiers, 'give a list of one tier, {"type": "fs", "root_dir": FOLDER}')
        if tiers and spec != _TIERS:
            raise ConfigError("secondary_tiers", tiers, f'it needs "spec_name": "{_TIERS}"')
        for tier in tiers:
            if tier.get("type") != "fs":
                raise ConfigError(
                    "secondary_tiers", tier.get("type"), "a tier of files (fs) is modelled, no other type"
                )
            for name in tier:
                if name not in _OF_A_DISK:
                    raise ConfigError(f"secondary_tiers.{name}", tier[name], f"fs knows: {', '.join(_OF_A_DISK)}")
            for name in _OURS:
                if name in tier:
                    require_amount(f"secondary_tiers.{name}", tier[name])

    @property
    def disk(self) -> Mapping[str, Any] | None:
        """The tier below CPU memory, if there is one."""
        tiers: list[Mapping[str, Any]] = self.get("secondary_tiers", [])
        return tiers[0] if tiers else None

    @classmethod
    def from_json(cls, text: str) -> KVTransferConfig:
        """Read the JSON that ``--kv-transfer-config`` takes. Raises ConfigError if it is not an object of known
        settings.
        """
        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError("kv_transfer_config", text, f"give a JSON object ({error})") from None
        if not isinstance(given, dict) or "kv_connector" not in given:
            raise ConfigError("kv_transfer_config", text, 'give a JSON object with "kv_connector"')
        known = [each.name for each in fields(cls)]
        for name in given:
            if name not in (*known, *_BETWEEN_ENGINES):
                raise ConfigError(f"kv_transfer_config.{name}", given[name], f"use some of: {', '.join(known)}")
        return cls(**{name: value for name, value in given.items() if name in known})

    def get(self, name: str, default: Any) -> Any:
        """A setting of the connector."""
        return self.kv_connector_extra_config.get(name, default)

    def positive(self, name: str, default: float) -> float:
        """A setting that has to be a number above 0."""
        return require_amount(name, self.get(name, default))


def cpu_tier(
    config: KVTransferConfig,
    bytes_per_block: int,
    num_gpus: int = 1,
    drive: Callable[[float, float], Drive] | None = None,
) -> CPUTier:
    """The tier that ``cpu_bytes_to_use`` pays for, which is for all GPUs that share the model.

    ``drive`` makes what moves blocks between it and a disk, of GB/s to read and to write; None: a disk is refused.
    Raises ConfigError if no setting says how much that is, or if not even one block fits.
    """
    if "cpu_bytes_to_use" not in config.kv_connector_extra_config:
        raise ConfigError("cpu_bytes_to_use", None, "say how much memory it may use, or give --kv-offloading-size")
    room = config.positive("cpu_bytes_to_use", 1)
    num_blocks = int(room / num_gpus) // bytes_per_block
    if not num_blocks:
        raise ConfigError("cpu_bytes_to_use", room, f"a KV block alone has {bytes_per_block:,} bytes")
    order, disk = config.get("eviction_policy", "lru"), config.disk
    if disk is None:
        return CPUTier(num_blocks, order)
    if drive is None:
        raise ConfigError(
            "secondary_tiers", dict(disk), "a disk below CPU memory is replayed, and not driven: leave it"
        )
    speeds = (float(disk.get("read_gb_per_s", READ_GB_PER_S)), float(disk.get("write_gb_per_s", WRITE_GB_PER_S)))
    below = min(int(disk.get("bytes_to_use", MAX_COUNT * bytes_per_block) / num_gpus) // bytes_per_block, MAX_COUNT)
    if not below:
        raise ConfigError("secondary_tiers.bytes_to_use", disk["bytes_to_use"], f"a KV block has {bytes_per_block:,}")
    return TieredMemory(num_blocks, below, drive(*speeds), order)

"""Factors of GPUs that nothing was measured on but kernels: what these reach beside those of GPUs that are in the fit.

    python lab/fit_kernels.py [SYSTEMS] [--write]

SYSTEMS is the folder ``systems/data`` of the package ``aiconfigurator-core`` (Apache-2.0), by default of the one that
is installed; its tables are timings of vLLM 0.24's kernels. Of each kind of kernel the share of the data sheet's rate
that large shapes reach is compared with the share on GPUs of the fit, of the same generation where there are any. That
ratio times the factor that the fit has there is the GPU's own; written as ``kernels``. What kernels do not tell
(launches, the host, links) keeps the common values.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fit_latency import TARGET, written
from tokenyard.models.gpus import GPU, named_gpu

VERSION = "0.24.0"
FITTED = {"h100": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm", "b300": "b300_sxm"}
KNOWN_BY_KERNELS = {"l40s": "l40s", "gb200": "gb200", "gb300": "gb300"}

Column = npt.NDArray[Any]


class Table:
    """Columns of one table, and rows of it."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = columns

    @classmethod
    def read(cls, folder: Path, kind: str, name: str) -> Table:
        """The table of one kind of kernel."""
        from pyarrow.parquet import read_table

        found = read_table(folder / kind / "vllm" / VERSION / f"{name}.parquet")
        return cls({each: found[each].to_numpy(zero_copy_only=False) for each in found.schema.names})

    def where(self, **ends: tuple[float, float] | str) -> Table:
        """Rows whose columns are that text, or lie between two numbers."""
        mask = np.ones(len(next(iter(self._columns.values()))), bool)
        for name, end in ends.items():
            own = self._columns[name]
            mask &= own == end if isinstance(end, str) else (own >= end[0]) & (own <= end[1])
        return Table({name: own[mask] for name, own in self._columns.items()})

    def __getattr__(self, name: str) -> Column:
        return self._columns[name].astype(np.float64)

    def rate(self, work: Column) -> float:
        """Work a second, the median."""
        return float(np.median(work / (self.latency * 1e-3)))


LARGE = 1 << 12, 1 << 14


def shares(folder: Path, gpu: GPU) -> Iterator[tuple[str, float]]:
    """Group of constants -> the share of the data sheet's rate that its kernels reach."""
    gemm = Table.read(folder, "gemm", "gemm_perf").where(gemm_dtype="bfloat16", n=LARGE, k=LARGE)
    many, few = gemm.where(m=(2048, 8192)), gemm.where(m=(1, 8))
    yield "gemm", many.rate(2 * many.m * many.n * many.k) / gpu.bf16_flops
    yield "memory", few.rate(2 * few.n * few.k) / gpu.memory_bandwidth
    plain: dict[str, Any] = {"window_size": (0, 0), "head_dim": (128, 128), "kv_cache_dtype": "bfloat16"}
    prompts = Table.read(folder, "attention", "context_attention_perf").where(isl=(4096, 1 << 20), **plain)
    pairs = prompts.batch_size * prompts.num_heads * prompts.isl**2 / 2
    yield "attention", prompts.rate(4 * pairs * prompts.head_dim) / gpu.bf16_flops
    decodes = Table.read(folder, "attention", "generation_attention_perf")
    decodes = decodes.where(step=(4095, 1 << 20), batch_size=(64, 1024), num_key_value_heads=(4, 8), **plain)
    read = 4 * decodes.batch_size * decodes.step * decodes.num_key_value_heads * decodes.head_dim
    yield "kv_memory", decodes.rate(read) / gpu.memory_bandwidth
    experts = Table.read(folder, "moe", "moe_perf").where(
        moe_dtype="bfloat16", moe_ep_size=(1, 1), num_experts=(64, 1024), hidden_size=(2048, 1 << 20)
    )
    many, few = experts.where(num_tokens=(8192, 1 << 20)), experts.where(num_tokens=(32, 64))
    yield "experts", many.rate(6 * many.num_tokens * many.topk * _expert(many)) / gpu.bf16_flops
    touched = few.num_experts * (1 - (1 - few.topk / few.num_experts) ** few.num_tokens)
    yield "expert_memory", few.rate(6 * touched * _expert(few)) / gpu.memory_bandwidth


def _expert(table: Table) -> Column:
    """Parameters of one of the matrices of an expert, on one GPU."""
    found: Column = table.hidden_size * table.inter_size / table.moe_tp_size
    return found


def factors(systems: Path, data: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """GPU -> group -> factor."""
    folders = {**FITTED, **KNOWN_BY_KERNELS}
    reached = {name: dict(shares(systems / folder, named_gpu(name))) for name, folder in folders.items()}
    found = {}
    for name in KNOWN_BY_KERNELS:
        age = named_gpu(name).generation
        beside = [each for each in FITTED if named_gpu(each).generation == age] or list(FITTED)
        found[name] = {
            group: float(
                np.exp(np.mean([np.log(share / reached[each][group] * data["gpus"][each][group]) for each in beside]))
            )
            for group, share in reached[name].items()
        }
    return {name: {group: round(value, 3) for group, value in own.items()} for name, own in found.items()}


def installed() -> Path:
    """Tables of the package in this environment."""
    spec = find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("pip install aiconfigurator-core, or name the folder systems/data of a copy")
    return Path(spec.submodule_search_locations[0]) / "systems" / "data"


def main() -> None:
    """Fit and print; write with ``--write``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", type=Path, nargs="?")
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.name}")
    args = parser.parse_args()
    data = json.loads(TARGET.read_text(encoding="utf-8"))
    found = factors(args.systems or installed(), data)
    for name, own in found.items():
        print(name, ", ".join(f"{group} {value:.2f}" for group, value in own.items()))
    if args.write:
        TARGET.write_text(written({**data, "kernels": found}))


if __name__ == "__main__":
    main()

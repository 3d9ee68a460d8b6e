"""Says what kernels of experts reach of a GPU's memory bandwidth, from timings: where priors of the fit come from.

    PYTHONPATH=src python lab/kernel_shares.py FOLDER

FOLDER holds ``aic_<gpu>_sxm_vllm<version>_moe.csv.gz`` (ai-dynamo/aiconfigurator, Apache-2.0: timings of vLLM 0.24's
kernels on H100 and H200). Of every shape, times with up to 64 tokens are a floor and bytes of the distinct experts over
a bandwidth; printed are quartiles of both over the shapes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenyard.models.gpus import named_gpu

BYTES = {"bfloat16": 2.0, "fp8_block": 1.0, "fp8": 1.0, "w4a16_mxfp4": 0.53125, "int4_wo": 0.5625}
"""Per weight, scales included."""
MOST_TOKENS, FEWEST_TIMES, LEAST_SECONDS = 64, 4, 3e-5
"""Shapes whose experts are read in less than that tell nothing of bandwidth."""
SIZES = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")

Floats = npt.NDArray[np.float64]


def shapes(path: Path) -> Iterator[tuple[tuple[str, str], list[int], dict[int, float]]]:
    """Kernel and format, sizes, and seconds by tokens; experts are chosen evenly."""
    found: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            if row["distribution"] == "balanced" and row["moe_dtype"] in BYTES:
                key = row["kernel_source"], row["moe_dtype"], *(row[size] for size in SIZES)
                found[key][int(row["num_tokens"])] = float(row["latency"]) / 1e3
    for (kernel, dtype, *sizes), seconds in found.items():
        yield (kernel, dtype), [int(size) for size in sizes], seconds


def floor_and_share(dtype: str, sizes: list[int], seconds: dict[int, float], bandwidth: float) -> Floats | None:
    """Seconds of the floor and share of the bandwidth, by least squares; None if it tells nothing."""
    hidden, width, topk, experts, cut, dealt = sizes
    one = 3 * hidden * width / cut * BYTES[dtype] / bandwidth
    some = [(tokens, each) for tokens, each in seconds.items() if tokens <= MOST_TOKENS]
    if len(some) < FEWEST_TIMES:
        return None
    read = np.array([min(experts, tokens * topk) / dealt * one for tokens, _ in some])
    times = np.array([each for _, each in some])
    if read.max() < LEAST_SECONDS:
        return None
    columns = np.stack((np.ones(len(some)), read), axis=1) / times[:, None]
    floor, slope = np.linalg.lstsq(columns, np.ones(len(some)), rcond=None)[0]
    return np.array([floor, 1 / slope])


def main() -> None:
    """Print both for every GPU, kernel and format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    print("GPU   format       shapes   floor, us (quartiles)   share of bandwidth (quartiles)  kernel")
    for path in sorted(args.folder.glob("aic_*_moe.csv.gz")):
        gpu = named_gpu(path.name.split("_")[1])
        found: dict[tuple[str, str], list[Floats]] = defaultdict(list)
        for name, sizes, seconds in shapes(path):
            fitted = floor_and_share(name[1], sizes, seconds, gpu.memory_bandwidth)
            if fitted is not None:
                found[name].append(fitted)
        for (kernel, dtype), each in found.items():
            low, middle, high = np.quantile(each, (0.25, 0.5, 0.75), axis=0)
            floors = " ".join(f"{value * 1e6:6.1f}" for value in (low[0], middle[0], high[0]))
            shares = " ".join(f"{value:6.2f}" for value in (low[1], middle[1], high[1]))
            print(f"{gpu.name:5} {dtype:12} {len(each):6}   {floors}    {shares}            {kernel}")


if __name__ == "__main__":
    main()

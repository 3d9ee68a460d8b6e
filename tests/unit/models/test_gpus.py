"""GPUs by the names of drivers, clouds and slices, and from a file of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenyard.errors import ConfigError
from tokenyard.models.gpus import GPUS, INSTANCES, gpu_of_device, named_gpu
from tokenyard.steptime.formula import arithmetic_rate, gpus_together


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA-A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L40", "l40"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GB300", "gb300"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("AMD_Instinct_MI355X", "mi355x"),
        ("HL-325L", "gaudi3"),
        ("g5.xlarge", "a10g"),
        ("a3-highgpu-8g", "h100"),
        ("p5en.48xlarge", "h200"),
        ("Standard_ND96isr_MI300X_v5", "mi300x"),
        # Names that say less, or more, than those above.
        ("NVIDIA H100 80GB PCIe", "h100-pcie"),
        ("H100 SXM", "h100"),
        ("H100_NVLINK_80GB", "h100"),
        ("nvidia-h100-mega-80gb", "h100"),
        ("NVIDIA H20-3e", "h20-3e"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA GH200 144G HBM3e", "gh200-144gb"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("GB200 NVL72", "gb200"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
        ("NVIDIA A800-SXM4-80GB", "a800-80gb"),
        ("NVIDIA L20", "l20"),
        ("nvidia-tesla-a100", "a100-40gb"),
        ("nvidia-tesla-v100", "v100-16gb"),
        ("Tesla V100-SXM3-32GB-H", "v100"),
        ("AMD Instinct MI300X VF", "mi300x"),
        ("amd-instinct-mi300x-oam", "mi300x"),
        ("AMD Instinct MI325 OAM", "mi325x"),
        ("Intel Gaudi 3", "gaudi3"),
        ("HL-338", "gaudi3"),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "a100-80gb-3g.40gb"),
        ("nvidia/a100-sxm4-40gb-mig-1g.5gb", "a100-40gb-1g.5gb"),
        ("NVIDIA H200 MIG 1g.18gb", "h200-1g.18gb"),
    ],
)
def test_drivers_and_clouds_are_understood(said: str, name: str) -> None:
    assert named_gpu(said).name == name


@pytest.mark.parametrize(
    "said", ["NVIDIA A100", "GeForce RTX 4090 Laptop GPU", "NVIDIA T400", "", "NVIDIA L4 MIG 1g.5gb"]
)
def test_what_is_not_known_or_not_clear_is_none(said: str) -> None:
    assert gpu_of_device(said) is None


def test_a_machine_of_a_cloud_says_how_many_it_has() -> None:
    assert gpus_together(named_gpu("g5.xlarge")) == 1
    assert gpus_together(named_gpu("g6e.24xlarge")) == 4
    assert gpus_together(named_gpu("a4x-highgpu-4g")) == 72  # by NVLink
    assert {name for _, name, _ in INSTANCES} <= {*GPUS}


@pytest.mark.parametrize(
    ("said", "name", "count"),
    [
        ("p5.4xlarge", "h100", 1),
        ("ml.g5.12xlarge", "a10g", 4),
        ("g4dn.xlarge", "t4", 1),
        ("p6-b300.48xlarge", "b300", 8),
        ("a2-megagpu-16g", "a100-40gb", 16),
        ("g4-standard-96", "rtxpro6000", 2),
        ("a4x-maxgpu-4g-metal", "gb300", 4),
        ("ND96isr_H100_v5", "h100", 8),
        ("Standard_NC80adis_H100_v5", "h100-nvl", 2),
        ("BM.GPU.B300.8", "b300", 8),
        ("BM.GPU.GB200.4", "gb200", 4),
        ("BM.GPU.MI355X-v1.8", "mi355x", 8),
        ("gx3d-160x1792x8gaudi3", "gaudi3", 8),
        ("gx3-48x240x2l40s", "l40s", 2),
        ("gpu_1x_gh200", "gh200", 1),
        ("gpu_8x_h100_sxm5", "h100", 8),
        ("gpu-mi300x8-1536gb", "mi300x", 8),
    ],
)
def test_machines_of_clouds(said: str, name: str, count: int) -> None:
    gpu = named_gpu(said)
    assert (gpu.name, gpu.gpus_per_machine) == (name, count)


def test_a_slice_has_its_share_and_no_links() -> None:
    whole = GPUS["h100"]
    for said in ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", "h100-3g.40gb"):
        part = named_gpu(said)
        assert part.name == "h100-3g.40gb"
        assert part.memory_bytes == whole.memory_bytes // 2
        assert part.memory_bandwidth == whole.memory_bandwidth / 2
        assert part.bf16_flops == pytest.approx(whole.bf16_flops * 3 / 7)
        assert part.link_bandwidth == whole.pcie_bandwidth
        assert gpus_together(part) == 1
    assert named_gpu("a100-80gb-1g.10gb").memory_bytes == GPUS["a100-80gb"].memory_bytes // 8


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("h100-9g.90gb", "h100 has no such slice: its slices are h100-1g.10gb, h100-1g.20gb, h100-2g.20gb"),
        ("h100-8g.80gb", "h100 has no such slice"),
        ("h100-3g.20gb", "h100 has no such slice"),
        ("NVIDIA H200 MIG 3g.40gb", "its slices are h200-1g.18gb, .*, h200-7g.141gb"),
        ("A30 MIG 7g.24gb", "its slices are a30-1g.6gb, a30-2g.12gb, a30-4g.24gb"),
        ("l4-1g.5gb", "l4 has no such slice: it cannot be cut into any"),
    ],
)
def test_a_slice_that_a_gpu_does_not_have_is_refused(said: str, problem: str) -> None:
    assert gpu_of_device(said) is None
    with pytest.raises(ConfigError, match=problem):
        named_gpu(said)


@pytest.mark.parametrize(
    ("said", "arithmetic", "memory"),
    [("h100-7g.80gb", 1, 1), ("a30-4g.24gb", 1, 1), ("a30-1g.6gb", 1 / 4, 1 / 4), ("h100-1g.20gb", 1 / 7, 1 / 4)],
)
def test_the_largest_slice_is_the_whole_of_it(said: str, arithmetic: float, memory: float) -> None:
    part, whole = named_gpu(said), GPUS[said.partition("-")[0]]
    assert part.bf16_flops == pytest.approx(whole.bf16_flops * arithmetic)
    assert part.memory_bytes == int(whole.memory_bytes * memory)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        "memory = 96\nbandwidth = 3000\nbfloat16 = 500\npcie = 64\nlink = 200\nfloat8 = 900\nper_machine = 4\n"
    )
    gpu = named_gpu(str(file))
    assert (gpu.name, gpu.memory_bytes, gpu.link_bandwidth) == ("mine", 96 << 30, 200e9)
    assert (arithmetic_rate(gpu, "float8"), arithmetic_rate(gpu, "float4")) == (900e12, 0)
    assert gpus_together(gpu) == 4
    hopper = tmp_path / "hopper.toml"
    hopper.write_text('memory = 96\nbandwidth = 3000\nbfloat16 = 500\npcie = 64\ngeneration = "hopper"\n')
    assert named_gpu(str(hopper)).float8_flops == 1000e12


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ("memory = 96\nbandwidth = 3000\nbfloat16 = 500\n", "pcie"),
        ("memory = -1\n", "memory"),
        ("memory = true\n", "memory"),
        ("memory = nan\n", "memory"),
        ("memry = 96\n", "memry"),
        ("per_machine = 1.5\n", "per_machine"),
        ('capability = "nine"\n', "capability"),
        ('generation = "kepler"\n', "generation"),
        ("name = 3\n", "name"),
        ("[[[", "gpu"),
    ],
)
def test_a_file_that_does_not_work_names_its_field(tmp_path: Path, content: str, field: str) -> None:
    file = tmp_path / "gpu.toml"
    file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        named_gpu(str(file))
    assert caught.value.field.endswith(field)
    with pytest.raises(ConfigError, match=r"gpu = .*missing"):
        named_gpu(str(tmp_path / "missing.toml"))

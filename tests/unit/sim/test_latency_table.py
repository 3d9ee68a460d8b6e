"""Interpolation and the two formats of measured tables."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.decoders import uniform_decoder

from tokenyard.errors import ConfigError
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import named_model
from tokenyard.steptime.load import load_latency, load_tables
from tokenyard.steptime.model import StepShape, StepWork
from tokenyard.steptime.tables import Curve, JointAttention, SeparateAttention, ValueGrid, equivalent_prefill, through

TINY = uniform_decoder(
    name="tiny",
    num_layers=2,
    hidden_size=64,
    num_heads=4,
    num_kv_heads=2,
    head_size=64,
    intermediate_size=128,
    vocab_size=512,
    max_model_len=4096,
)


def shape(*rows: tuple[int, int], sampled: int | None = None) -> StepShape:
    new = np.array([n for n, _ in rows], np.int64)
    count = len(rows) if sampled is None else sampled
    return StepShape(new, np.array([c for _, c in rows], np.int64), count, int(new.sum()))


# ---- interpolation


@given(st.floats(0, 50), st.floats(0, 50), st.floats(-3, 3), st.floats(-3, 3), st.floats(-3, 3))
def test_a_grid_reproduces_what_is_linear_in_each_axis(x: float, y: float, a: float, b: float, c: float) -> None:
    axes = [0.0, 1.0, 7.0, 20.0], [0.0, 5.0, 30.0]
    points: dict[tuple[float, ...], float] = {
        p: a * p[0] + b * p[1] + c * p[0] * p[1] for p in itertools.product(*axes)
    }
    assert ValueGrid.from_points(points)(x, y) == pytest.approx(a * x + b * y + c * x * y, abs=1e-6)


def test_a_grid_holds_its_value_below_and_goes_on_above() -> None:
    grid = ValueGrid([[10.0, 20.0]], np.array([1.0, 2.0]))
    assert [grid(x) for x in (0, 10, 15, 20, 40)] == [1.0, 1.0, 1.5, 2.0, 4.0]
    assert ValueGrid([[10.0]], np.array([3.0]))(99) == 3.0


def test_a_grid_gives_up_axis_values_with_holes() -> None:
    points: dict[tuple[float, ...], float] = {(x, y): x + y for x in (1.0, 2.0, 4.0) for y in (1.0, 2.0, 4.0)}
    points.update({(3.0, y): 3.0 + y for y in (1.0, 3.0)})
    assert ValueGrid.from_points(points).axes == [[1.0, 2.0, 4.0], [1.0, 2.0, 4.0]]


def test_a_curve_is_tabulated_and_goes_on() -> None:
    curve = Curve(through({1: 5.0, 10: 14.0, 20: 24.0}), 100)
    assert [curve(x) for x in (0, 1, 5, 20, 50, 100, 1000)] == [0.0, 5.0, 9.0, 24.0, 54.0, 104.0, 1004.0]


def test_short_prefills_stand_for_one_with_as_many_pairs() -> None:
    chunk, before = equivalent_prefill(StepWork.of(shape((100, 50))))
    assert (chunk, before) == pytest.approx((100, 50))
    chunk, before = equivalent_prefill(StepWork.of(shape((100, 0), (100, 300))))
    assert chunk == 200
    assert chunk * before + chunk * (chunk + 1) / 2 == pytest.approx(2 * 5050 + 100 * 300)
    chunk, before = equivalent_prefill(StepWork.of(shape((100, 0), (100, 0))))
    assert before == 0
    assert chunk * (chunk + 1) / 2 == pytest.approx(2 * 5050)


def test_a_chunk_beyond_the_table_is_cut_up() -> None:
    pairs: dict[tuple[float, ...], float] = {(n, c): n * c + n * n / 2 for n in (8.0, 16.0) for c in (0.0, 64.0, 128.0)}
    mixed: dict[tuple[float, ...], float] = {
        (*p, d, k): v + d for p, v in pairs.items() for d in (1.0, 2.0) for k in (1.0, 2.0)
    }
    table = JointAttention(
        prefill=ValueGrid.from_points(pairs),
        decode=ValueGrid([[1.0], [1.0]], np.ones((1, 1))),
        mixed=ValueGrid.from_points(mixed),
    )
    assert table.seconds(64, 0, 0, 0) == pytest.approx(64 * 64 / 2)
    assert table.seconds(64, 0, 2, 1) == pytest.approx(64 * 64 / 2 + 2)


def test_separate_attention_takes_the_context_off_the_whole() -> None:
    table = SeparateAttention(
        prefill_per_token=ValueGrid([[1.0, 100.0]], np.array([0.5, 50.0])),
        decode=ValueGrid([[1.0], [1.0]], np.full((1, 1), 7.0)),
    )
    assert table.seconds(30, 40, 0, 0) == pytest.approx((70 * 70 - 40 * 40) / 2)
    assert table.seconds(30, 0, 3, 9) == pytest.approx(30 * 30 / 2 + 7)


# ---- LLMServingSim folders


def write(folder: Path, name: str, header: str, rows: list[tuple[object, ...]], *, zipped: bool = False) -> None:
    text = "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"
    if zipped:
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    else:
        (folder / f"{name}.csv").write_text(text)


@pytest.fixture
def lss(tmp_path: Path) -> Path:
    """A machine on which attention takes 1 us per pair / 1000 and per 100 tokens of decode context."""
    chunks, befores, decodes, contexts = (16, 256), (0, 512), (1, 64), (16, 1024)

    def prefill(n: int, c: int) -> float:
        return (n * c + n * n / 2) / 1000

    rows: list[tuple[object, ...]] = [(n, c, 0, 0, prefill(n, c)) for n in chunks for c in befores]
    rows += [(0, 0, d, k, d * k / 100) for d in decodes for k in contexts]
    rows += [
        (n, c, d, k, prefill(n, c) + d * k / 100)
        for n, c, d, k in itertools.product(chunks, befores, decodes, contexts)
    ]
    write(tmp_path, "tp1_attention", "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", rows, zipped=True)
    dense = [("embedding", 3), ("layernorm", 1), ("qkv_proj", 10), ("final_layernorm", 2)]
    write(tmp_path, "tp1_dense", "layer,tokens,time_us", [(k, n, us * n) for k, us in dense for n in (1, 256)])
    write(tmp_path, "tp1_per_sequence", "layer,sequences,time_us", [("lm_head", n, 100 + n) for n in (1, 64)])
    return tmp_path


def test_a_step_is_the_sum_of_its_kernels(lss: Path) -> None:
    """Two layers: norms run twice in each, projections once; embedding, last norm and head once per step."""
    model = load_tables(lss, TINY)
    per_token = 3 + 2 + 2 * (2 * 1 + 10)
    assert model.step_seconds(shape((1, 99))) == pytest.approx(0.5e-3 + (per_token + 101 + 2 * 1.0) * 1e-6)
    step = shape((128, 256), (1, 199), (1, 99), sampled=2)
    attention = (128 * 256 + 128 * 129 / 2) / 1000 + 300 / 100
    expected = 0.5e-3 + (130 * per_token + 102 + 2 * attention) * 1e-6
    assert model.step_seconds(step) == pytest.approx(expected, rel=0.01)


def test_experts_are_interpolated_at_the_number_expected(lss: Path) -> None:
    model = uniform_decoder(
        name="moe",
        num_layers=2,
        hidden_size=64,
        num_heads=4,
        num_kv_heads=2,
        head_size=64,
        intermediate_size=0,
        vocab_size=512,
        max_model_len=4096,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
    )
    with pytest.raises(ConfigError, match="holds no tp1_moe"):
        load_tables(lss, model)
    before = load_tables(lss, TINY).step_seconds(shape((1, 99)))
    write(lss, "tp1_moe", "tokens,activated_experts,time_us", [(1, 2, 50), (2, 2, 50), (2, 4, 90)])
    with_experts = load_tables(lss, model)
    assert with_experts.step_seconds(shape((1, 99))) == pytest.approx(before + 2 * 50e-6)
    two = with_experts.step_seconds(shape((1, 99), (1, 99))) - load_tables(lss, TINY).step_seconds(
        shape((1, 99), (1, 99))
    )
    assert two == pytest.approx(2 * (50 + 40 * (8 * (1 - 0.75**2) - 2) / 2) * 1e-6)


def test_a_table_by_name(lss: Path) -> None:
    assert load_latency(f"table:{lss}", model=TINY).step_seconds(shape((1, 99))) < 1e-3


def test_missing_and_damaged_tables(lss: Path) -> None:
    with pytest.raises(ConfigError, match="holds no tp2_dense"):
        load_tables(lss, TINY, tensor_parallel_size=2)
    write(lss, "tp1_dense", "layer,tokens", [("x", 1)])
    with pytest.raises(ConfigError, match="has no column 'time_us'"):
        load_tables(lss, TINY)
    write(lss, "tp1_dense", "layer,tokens,time_us", [("x", 1, 1), ("x", 2)])
    with pytest.raises(ConfigError, match=r"tp1_dense.csv:3.*has 2 columns, not 3"):
        load_tables(lss, TINY)
    write(lss, "tp1_dense", "layer,tokens,time_us", [("x", 1, "fast")])
    with pytest.raises(ConfigError, match="give numbers from 0 to"):
        load_tables(lss, TINY)
    write(lss, "tp1_dense", "layer,tokens,time_us", [])
    with pytest.raises(ConfigError, match="holds no rows"):
        load_tables(lss, TINY)
    (lss / "tp1_dense.csv").write_bytes(b"\x1f\x8b\x08broken")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tables(lss, TINY)


def test_attention_without_mixed_rows(lss: Path) -> None:
    rows: list[tuple[object, ...]] = [(16, 0, 0, 0, 1.0), (0, 0, 1, 16, 1.0)]
    (lss / "tp1_attention.csv.gz").unlink()
    write(lss, "tp1_attention", "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", rows)
    with pytest.raises(ConfigError, match="holds no mixed rows"):
        load_tables(lss, TINY)


def test_a_folder_without_tables(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds neither"):
        load_tables(tmp_path, TINY)


# ---- aiconfigurator folders


@pytest.fixture
def aic(tmp_path: Path) -> Path:
    """A machine whose products take n k m * 1e-9 ms, attention isl / 1000 ms, decode 2 ms, all-reduce 1 ms."""
    sizes, ms = (32, 64, 128, 256, 512, 1024), (1, 8, 64, 512)
    gemm: list[tuple[object, ...]] = [
        ("k", "bfloat16", m, n, k, n * k * m * 1e-9) for m in ms for n in sizes for k in sizes
    ]
    write(
        tmp_path, "aic_h100_sxm_x_gemm", "kernel_source,gemm_dtype,m,n,k,latency", [*gemm, ("k", "fp8", 1, 32, 32, 9)]
    )
    columns = "batch_size,isl,num_heads,num_key_value_heads,head_dim,attn_dtype,kv_cache_dtype,step,window_size,latency"
    kinds = ("bfloat16", "bfloat16")
    rows = [(1, n, h, h // 2, 64, *kinds, 0, 0, n / 1000) for n in (1, 1000) for h in (2, 4)]
    write(tmp_path, "aic_h100_sxm_x_context_attention", columns, [*rows, (1, 5, 4, 2, 64, *kinds, 0, 128, 99.0)])
    rows = [(b, 1, h, h // 2, 64, *kinds, s, 0, 2.0) for b in (1, 8) for s in (1, 1023) for h in (2, 4)]
    write(tmp_path, "aic_h100_sxm_x_generation_attention", columns, list(rows))
    write(
        tmp_path,
        "aic_h100_sxm_x_custom_allreduce",
        "num_gpus,message_size,latency,backend",
        [(2, 128, 1.0, "vllm_graph"), (2, 1 << 20, 1.0, "vllm_graph"), (2, 128, 5.0, "vllm_eager")],
    )
    return tmp_path


def test_products_and_attention_of_any_shape(aic: Path) -> None:
    model = load_tables(aic, TINY, gpu=named_gpu("h100"))
    products = (512 * 64 + 64 * 256 + 256 * 64 + 64 * 128) * 1e-12
    head = 512 * 64 * 1e-12
    fixed = 1.5e-3 + 2 * 8e-6
    decode = model.step_seconds(shape((1, 500)))
    assert decode == pytest.approx(fixed + 2 * products + head + 2 * 2e-3, rel=1e-3)
    prefill = model.step_seconds(shape((300, 200)))
    assert prefill == pytest.approx(fixed + 300 * 2 * products + head + 2 * 0.3e-3, rel=1e-3)


def test_two_gpus_share_the_products_and_reduce(aic: Path) -> None:
    h100 = named_gpu("h100")
    one = load_tables(aic, TINY, gpu=h100).step_seconds(shape((1, 500)))
    two = load_tables(aic, TINY, gpu=h100, tensor_parallel_size=2).step_seconds(shape((1, 500)))
    assert two == pytest.approx(one + 2 * 2 * 1e-3, rel=1e-3)


def test_what_the_tables_do_not_cover(aic: Path) -> None:
    with pytest.raises(ConfigError, match="several GPUs"):
        load_tables(aic, TINY)
    with pytest.raises(ConfigError, match="holds no gemm table of h200"):
        load_tables(aic, TINY, gpu=named_gpu("h200"))
    with pytest.raises(ConfigError, match="no rows for 32 heads, 8 KV heads of 128"):
        load_tables(aic, named_model("llama-3.1-8b"), gpu=named_gpu("h100"))
    with pytest.raises(ConfigError, match="no all-reduce of so many GPUs"):
        load_tables(aic, TINY, gpu=named_gpu("h100"), tensor_parallel_size=4)


@pytest.mark.parametrize("cell", ["0", "\r", "", '"', "\0", "nan", "1e308"])
@pytest.mark.parametrize("table", ["attention", "dense", "per_sequence"])
def test_a_cell_of_any_content_is_no_traceback(table: str, cell: str, lss: Path) -> None:
    packed = lss / f"tp1_{table}.csv.gz"
    path = packed.with_suffix("")
    if packed.exists():
        path.write_bytes(gzip.decompress(packed.read_bytes()))
    header, *rows = path.read_text().splitlines()
    for column in range(len(header.split(","))):
        cells = rows[0].split(",")
        cells[column] = cell
        path.write_bytes("\n".join([header, ",".join(cells), *rows[1:]]).encode() + b"\n")
        try:
            latency = load_tables(lss, TINY)
        except ConfigError:
            continue
        assert 0 < latency.step_seconds(shape((100, 0), (1, 500))) < 1e12

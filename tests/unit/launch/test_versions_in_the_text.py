"""Which version of vLLM a text names, wherever it stands there."""

from __future__ import annotations

import pytest

from tokenyard.deploy.serve_line import read_serve_text


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("pip install vllm==0.22.1\nvllm serve m", "0.22.1"),
        ("uv run --with vllm==0.33.0 vllm serve m", "0.33.0"),
        ('pip install -U "vllm~=0.22.0" hf_transfer\nvllm serve m', "0.22"),
        ('pip install "vllm>=0.22,<0.23"\nvllm serve m', "0.22"),
        ('pip install "vllm<=0.22.1"\nvllm serve m', "0.22.1"),
        ('pip install "vllm==0.22.*"\nvllm serve m', "0.22"),
        ('pip install "vllm>=0.22"\nvllm serve m', "none"),
        ("V=0.22.1\npip install vllm==$V\nvllm serve m", "0.22.1"),
        ("pip install vllm==${V:-0.22.1}\nvllm serve m", "0.22.1"),
        ("pip install vllm==$V\nvllm serve m", "none"),
        ("pip install vllm==0.22.1\npip install vllm==0.33.0\nvllm serve m", "several"),
        ("pip install git+https://github.com/vllm-project/vllm.git@v0.22.1\nvllm serve m", "0.22.1"),
        ("module load vllm/0.22.1\nvllm serve m", "0.22.1"),
        ("/opt/vllm-0.22.1/bin/vllm serve m", "0.22.1"),
        ("pip install my-vllm==0.22.1\nvllm serve m > vllm.log", None),
        ("docker run rocm/vllm:rocm6.4.1_vllm_0.9.1_20250715 vllm serve m", "0.9.1"),
        ("apptainer exec --nv --bind $S docker://vllm/vllm-openai:v0.22.1 \\\n vllm serve m", "0.22.1"),
        ("apptainer run --nv docker://vllm/vllm-openai:v0.22.1 m", "0.22.1"),
        ("srun singularity run --nv /images/vllm-openai_v0.22.1.sif --model m", "0.22.1"),
        ("singularity exec --nv vllm-openai_v0.22.1.sif vllm serve m", "0.22.1"),
        ("srun --container-image=vllm/vllm-openai:v0.22.1 vllm serve m", "0.22.1"),
        ("kubectl run v --image=vllm/vllm-openai:v0.22.1 -- vllm serve m", "0.22.1"),
    ],
)
def test_the_version_of_an_installation(text: str, version: str | None) -> None:
    line = read_serve_text(text)
    assert (line.version and line.version.value) == version
    assert [each.value for each in line.given] == ["m"]


def test_variables_that_are_passed_into_a_container_of_a_cluster() -> None:
    line = read_serve_text("export APPTAINERENV_VLLM_USE_FLASHINFER_SAMPLER=1\napptainer run vllm.sif m")
    assert line.environment["VLLM_USE_FLASHINFER_SAMPLER"] == "1"


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.0.0", "other"),
        ("my-registry.io/vllm-runtime:0.9.1", "other"),
        ("lmcache/vllm-openai:v0.3.9post2", "other"),
        ("lmcache/vllm-openai:nightly-vllm_0.30.1", "0.30.1"),
        ("vllm/vllm-openai:v0.30.0-cu129", "0.30.0"),
    ],
)
def test_tags_of_projects_around_vllm_count_their_own_versions(image: str, version: str) -> None:
    line = read_serve_text(f"docker run --gpus all {image} vllm serve m")
    assert line.version is not None
    assert line.version.value == version

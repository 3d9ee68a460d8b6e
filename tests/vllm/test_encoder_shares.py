"""Items are shared out among the GPUs of an encoder as vLLM does: ``--mm-encoder-tp-mode data``."""

from __future__ import annotations

from random import Random

import pytest

from tokenyard.models.spec import EncoderSpec
from tokenyard.steptime.encoders import shared_out

vision = pytest.importorskip("vllm.model_executor.models.vision")
TOWER = EncoderSpec(kind="vision", num_parameters=1, patches_per_embedding=4)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_every_gpu_computes_as_many_patches(ranks: int) -> None:
    random = Random(ranks)
    for _ in range(1000):
        embeds = [random.choice((64, 256, random.randrange(1, 16_385))) for _ in range(random.randrange(1, 20))]
        _, _, loads = vision.get_load_balance_assignment([4 * each for each in embeds], ranks)
        ours = [sum(each.patches for each in share) for share in shared_out(TOWER, embeds, ranks)]
        assert sorted(ours) == sorted(each for each in loads if each)

"""What scenarios say that a thing takes, against the thing itself in torch: bytes of an element at its peak, counted storage by storage."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from memcalc.whatif.storages import Storages
from memcalc.whatif.stress.scenarios.logging_gradients import HISTOGRAM
from memcalc.whatif.stress.scenarios.loss_on_logits import TENSORS
from memcalc.whatif.stress.scenarios.loss_pairwise import SAMPLES, TOKENS

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
CONFIG = {
    "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000,
    "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def torch() -> Any:
    """The library, where it is installed."""
    return pytest.importorskip("torch")


def peak(run: Callable[[], Any], *there: Any) -> int:
    """Bytes at the peak beyond what is there before."""
    storages = Storages()
    for tensor in there:
        storages.see(tensor)
    gc.collect()
    with storages.counting():
        storages.mark()
        before = storages.now
        kept = run()
    del kept
    return storages.peak - before


def test_a_norm_in_fp64_and_a_histogram_of_a_tensor(torch: Any) -> None:
    gradient = torch.randn(1000, 256).bfloat16()

    def histogram() -> None:
        copy = gradient.float()
        torch.isfinite(copy).all()
        torch.histc(copy, 64)

    assert peak(lambda: torch.linalg.vector_norm(gradient.double()), gradient) / gradient.numel() == pytest.approx(8, abs=0.01)
    assert peak(histogram, gradient) / gradient.numel() == pytest.approx(sum(HISTOGRAM.values()), abs=0.01)


def test_losses_on_full_logits(torch: Any) -> None:
    F = torch.nn.functional  # noqa: N806 (as everyone knows it)
    logits, labels = torch.randn(256, 1000).bfloat16(), torch.randint(0, 1000, (256,))

    def loss(kind: str) -> None:
        x = logits.detach().requires_grad_().float()
        found = F.cross_entropy(x, labels)
        if kind == "entropy":
            logs = torch.log_softmax(x, -1)
            found = found + (logs.exp() * logs).sum(-1).mean()
            del logs
        else:
            found = found + F.kl_div(torch.log_softmax(x, -1), torch.softmax(logits.float(), -1), reduction="batchmean")
        del x
        found.backward()

    for kind, count in TENSORS.items():
        assert peak(lambda kind=kind: loss(kind), logits, labels) / (4 * logits.numel()) == pytest.approx(count, abs=0.01)  # type: ignore[misc]


def test_losses_on_pairs(torch: Any) -> None:
    left, right = torch.randn(256, 64), torch.randn(256, 64)

    def similar() -> Any:
        return left.detach().requires_grad_() @ right.detach().requires_grad_().T

    contrastive = peak(lambda: torch.nn.functional.cross_entropy(similar() / 0.05, torch.arange(256)).backward(), left, right)
    late = peak(lambda: similar().max(dim=1).values.sum().backward(), left, right)
    assert contrastive / (4 * 256**2) == pytest.approx(SAMPLES, abs=0.05)
    assert late / (4 * 256**2) == pytest.approx(TOKENS, abs=0.05)


@pytest.mark.parametrize(("safe", "width"), [(False, 2 * 4), (True, 2 * 4 + 2 + 1)])
def test_adapters_that_are_merged(torch: Any, safe: bool, width: int) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG)).bfloat16()
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear"))
    assert peak(lambda: model.merge_and_unload(safe_merge=safe), *model.parameters()) == width * 256 * 704


def test_attention_matrices_that_are_returned(torch: Any) -> None:
    """With recomputation they are kept beside; without, backward saves them anyway."""
    transformers = pytest.importorskip("transformers")
    ids = torch.randint(0, 1000, (2, 128))

    def forward(*, again: bool, returned: bool) -> int:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG, attn_implementation="eager")).bfloat16().train()
        if again:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return peak(lambda: model(input_ids=ids, labels=ids, output_attentions=returned, use_cache=False), *model.parameters())

    assert forward(again=True, returned=True) - forward(again=True, returned=False) == 3 * 2 * 4 * 128**2 * 2
    assert forward(again=False, returned=True) == forward(again=False, returned=False)

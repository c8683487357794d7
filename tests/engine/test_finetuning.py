"""What of fine-tuning goes together, and what engines do with weights that take no gradient."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.run import Run
from memcalc.units import MiB

ENGINES: dict[str, dict[str, Any]] = {
    "ddp": {"engine": "ddp", "dp": 4},
    "zero1": {"engine": "deepspeed", "zero": 1, "dp": 4},
    "zero2": {"engine": "deepspeed", "zero": 2, "dp": 4},
    "zero3": {"engine": "deepspeed", "zero": 3, "dp": 4},
    "fsdp1": {"engine": "fsdp1", "dp": 4},
    "fsdp2": {"engine": "fsdp2", "dp": 4},
}
every_engine = pytest.mark.parametrize("engine", ENGINES)


def run(**keys: Any) -> Estimate:
    """An answer for Llama 7B, checkpointed, with adapters unless told otherwise."""
    keys = {"model": "llama-7b", "seq_len": 512, "recompute": "full", "lora": {"r": 16}, **keys}
    return estimate(Run.model_validate(keys))


def of_kind(answer: Estimate, instant: str, kind: str) -> int:
    """Bytes of all terms of a kind at an instant."""
    return sum(t.bytes for t in answer.instant(instant).terms if t.path.startswith(f"{kind}/"))


@every_engine
def test_frozen_weights_have_neither_states_nor_gradients(engine: str) -> None:
    """Moments, masters and gradients are those of the adapters, whole or in parts."""
    answer = run(sharding=ENGINES[engine])
    trained = answer.model.trainable_params
    assert trained < 0.01 * answer.model.total_params
    assert of_kind(answer, "start", "optimizer") <= 12 * trained + 64 * 1024
    assert of_kind(answer, "backward_peak", "gradients") <= 8 * trained
    assert of_kind(answer, "start", "optimizer") > 0


@every_engine
def test_no_term_is_negative(engine: str) -> None:
    """Whatever is taken away was there."""
    for keys in ({}, {"lora": {"r": 8, "use_dora": True}}, {"lora": {"r": 8, "modules_to_save": ["embed_tokens", "lm_head"]}}, {"quantization": "nf4"}):
        if engine == "zero3" and "quantization" in keys:
            continue
        answer = run(sharding=ENGINES[engine], **keys)
        assert min(t.bytes for i in answer.ranks[0].instants for t in i.terms) >= -8


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "zero3"])
def test_packed_weights_are_whole_on_every_rank(engine: str) -> None:
    """The 4-bit base is not sharded: uint8 tensors are left alone."""
    answer = run(sharding=ENGINES[engine], quantization="nf4")
    packed = sum(t.bytes for t in answer.instant("start").terms if t.path == "weights/layers (packed)")
    assert packed == pytest.approx(0.5625 * 32 * (4 * 4096**2 + 3 * 4096 * 11008), rel=1e-3)


def test_upcasting_doubles_what_is_not_quantised() -> None:
    """Table and head in fp32, unless told otherwise; and it is said."""
    upcast, plain = run(quantization="nf4"), run(quantization="nf4", kbit_upcast=False)
    more = of_kind(upcast, "start", "weights") - of_kind(plain, "start", "weights")
    assert more == 2 * (2 * 32000 * 4096 + 65 * 4096)
    assert any(text.startswith("kbit_upcast") for text in upcast.assumptions)


def test_a_frozen_layer_saves_no_input() -> None:
    """Adapters on one projection keep their own copy of its input; seven keep seven."""
    one, all_of_them = (run(recompute="none", lora={"r": 16, "target_modules": t}) for t in (["q_proj"], "all-linear"))
    assert of_kind(all_of_them, "forward_end", "activations") - of_kind(one, "forward_end", "activations") > 32 * 512 * 4 * (5 * 4096 + 11008)


def test_dropout_keeps_a_mask_of_a_byte() -> None:
    """And its output, in the place of the input; the first layer's input takes no gradient, so that its mask goes."""
    without, with_it = (run(recompute="none", lora={"r": 16, "target_modules": ["q_proj"], "dropout": p}) for p in (0.0, 0.05))
    more = of_kind(with_it, "forward_end", "activations") - of_kind(without, "forward_end", "activations")
    assert more == pytest.approx(31 * 512 * 4096, abs=MiB)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"quantization": "nf4", "lora": None}, "quantization: weights in nf4 take no gradient"),
        ({"quantization": "mxfp4"}, "quantization: transformers brings mxfp4 weights back"),
        ({"quantization": "nf4", "sharding": {"tp": 2}}, "quantization: packed weights are not cut"),
        ({"quantization": "int8", "sharding": ENGINES["zero3"]}, "quantization: what stage 3 makes of"),
        ({"quantization": "nf5"}, "quantization: unknown quantization 'nf5'"),
        ({"kbit_upcast": True}, "kbit_upcast: it says what becomes of the rest of a quantised base"),
    ],
)
def test_what_does_not_go_together_is_refused(keys: dict[str, Any], message: str) -> None:
    """Rather than an answer in which it was left out."""
    with pytest.raises(InputError) as raised:
        run(**keys)
    assert str(raised.value).startswith(message)


def test_a_padded_batch_costs_a_mask_and_repeated_keys_in_each_layer() -> None:
    """The fused kernel saves the mask as numbers, and no longer shares keys and values among heads."""
    plain, padded = (run(model="llama-3.1-8b", recompute="none", lora=None, attention_mask=on) for on in (False, True))
    more = of_kind(padded, "forward_end", "activations") - of_kind(plain, "forward_end", "activations")
    repeated = 2 * 2 * (4096 - 1024) * 512
    assert more == pytest.approx(32 * (2 * 512**2 + repeated) + 512**2, rel=0.03)


def test_flash_attention_takes_padded_batches_apart() -> None:
    """Each layer keeps its output twice, with padding and without, and where tokens stand."""
    plain, padded = (run(attention="flash_attention_2", recompute="none", lora=None, attention_mask=on) for on in (False, True))
    more = of_kind(padded, "forward_end", "activations") - of_kind(plain, "forward_end", "activations")
    assert more == 32 * 512 * (2 * 4096 + 8)


def test_packed_samples_need_a_mask_unless_attention_is_flash() -> None:
    """Under sdpa it costs what a padded batch costs; positions are each sequence's own."""
    keys: dict[str, Any] = {"model": "llama-3.1-8b", "recompute": "none", "lora": None, "micro_batch": 2}
    found = {(a, p): run(attention=a, packing=p, **keys) for a in ("sdpa", "flash_attention_2") for p in (False, True)}
    more = {a: of_kind(found[a, True], "forward_end", "activations") - of_kind(found[a, False], "forward_end", "activations") for a, _ in found}
    assert more["flash_attention_2"] == 2 * 512 * 128 * 2
    assert more["sdpa"] > 32 * 2 * (2 * 512**2 + 2 * 2 * 3072 * 512)
    assert found["sdpa", True].instant("start") == found["sdpa", False].instant("start")


def test_keys_that_wait_for_training_are_listed_in_inference() -> None:
    """And the cast of a base that no preparation touches."""
    answer = run(task="inference", lora=None, recompute="full", optimizer="lomo")
    assert {text.partition(":")[0] for text in answer.ignored} >= {"recompute", "optimizer"}
    assert any(text.startswith("kbit_upcast: a base in gptq") for text in run(quantization="gptq", kbit_upcast=True).ignored)

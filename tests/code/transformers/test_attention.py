"""Eager and fused attention: what is saved, by hand."""

from __future__ import annotations

from dataclasses import replace

from memcalc.code.context import Context, Settings
from memcalc.code.transformers.mask import make_masks, mask_name
from memcalc.components import Attention, Linear
from memcalc.specs.model import Axis
from memcalc.tape.tape import Tape
from tests.code.transformers.recorded import BATCH, SEQ, TOKENS, record

HEADS, DIM = 4, 6
H = Axis("hidden_size", HEADS * DIM)
SCORES = BATCH * HEADS * SEQ * SEQ


def attention(kv_heads: int = HEADS, dim: int = DIM, **more: object) -> Attention:
    """Attention without positions or biases."""
    q, kv = Axis("q", HEADS * dim), Axis("kv", kv_heads * dim)
    found = Attention(HEADS, kv_heads, dim, Linear("q_proj", H, q), Linear("k_proj", H, kv), Linear("v_proj", H, kv), Linear("o_proj", q, H))
    return replace(found, **more)  # type: ignore[arg-type]


def test_the_fused_kernel_saves_no_scores() -> None:
    """Queries, keys, values, output, the fp32 log-sum-exp of each row (Dao et al. 2022), and the layer's own output."""
    assert record(attention(), H.size).saved_bytes == TOKENS * (4 * 2 * H.size + 4 * HEADS + 2 * H.size)


def test_eager_attention_saves_scores_by_the_precision_of_its_softmax() -> None:
    """Probabilities in fp32 and in bf16; in bf16 alone; and where scores are fp32, queries and keys are, too."""
    qkv, outputs = TOKENS * 3 * 2 * H.size, TOKENS * 2 * 2 * H.size
    assert record(attention(), H.size, attention="eager").saved_bytes == qkv + outputs + SCORES * (4 + 2)
    assert record(attention(softmax="model"), H.size, attention="eager").saved_bytes == qkv + outputs + SCORES * 2
    assert record(attention(softmax="scores"), H.size, attention="eager").saved_bytes == qkv + outputs + SCORES * (4 + 2) + TOKENS * 2 * 2 * H.size


def test_a_soft_cap_saves_one_more_tensor_of_scores() -> None:
    """The result of tanh (Gemma 2)."""
    with_cap, without = (record(attention(softcap=c), H.size, attention="eager").saved_bytes for c in (50.0, None))
    assert with_cap - without == SCORES * 2


def test_dropout_of_probabilities_keeps_a_byte_each_in_eager_code_only() -> None:
    """Beside a second tensor of probabilities; the fused kernel draws its mask anew in backward."""
    dropped, plain = attention(dropout=0.1), attention()
    assert record(dropped, H.size, attention="eager").saved_bytes - record(plain, H.size, attention="eager").saved_bytes == SCORES
    assert record(dropped, H.size).saved_bytes == record(plain, H.size).saved_bytes


def test_shared_keys_are_saved_once_by_the_fused_kernel_and_copied_by_eager_code() -> None:
    """Two KV heads for four heads; a lone one is copied by the batched product itself."""
    fused = record(attention(kv_heads=2), H.size).saved_bytes
    assert record(attention(), H.size).saved_bytes - fused == TOKENS * 2 * 2 * 2 * DIM
    for kv_heads in (1, 2):
        assert record(attention(kv_heads=kv_heads), H.size, attention="eager").saved_bytes == record(attention(), H.size, attention="eager").saved_bytes


def test_heads_wider_than_256_take_copies_of_shared_keys() -> None:
    """No fused kernel shares KV heads there (use_gqa_in_sdpa)."""
    wide = record(attention(kv_heads=2, dim=260), H.size).saved_bytes
    assert wide == record(attention(dim=260), H.size).saved_bytes


def test_masks_are_made_where_attention_needs_them() -> None:
    """Numbers for each sequence in eager code; bools for a window that is reached; none for the whole sequence."""

    def masks(attention: str, *, two_sided: tuple[int, ...] = ()) -> dict[str, tuple[str, int]]:
        settings = Settings(code="transformers", attention=attention, batch=BATCH, seq=SEQ, dtype="bfloat16", windows=(None, 3, 9), two_sided_windows=two_sided)
        ctx = Context(Tape(), settings)
        make_masks(ctx, "bfloat16")
        return {name: (t.dtype, t.storage.record.num_bytes) for name, t in ctx.shared.items() if t.storage is not None}

    whole, reached, beyond = (mask_name(window) for window in (None, 3, 9))
    numbers = ("bfloat16", BATCH * SEQ * SEQ * 2)
    assert masks("eager") == {whole: numbers, reached: numbers, beyond: numbers}
    assert masks("sdpa") == {reached: ("bool", SEQ * SEQ)}
    assert masks("flash_attention_2") == {}
    assert set(masks("sdpa", two_sided=(3, 9))) == {reached, mask_name(3, causal=False)}

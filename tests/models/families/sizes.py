"""Random small decoders that transformers would accept, for laws; models of files, and what a step with one takes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from memcalc.engine.estimate import estimate_job
from memcalc.engine.result import Estimate
from memcalc.models import families
from memcalc.models.config import Config
from memcalc.specs.job import Job, Mesh
from memcalc.specs.model import ModelSpec
from memcalc.specs.run import Run
from memcalc.tape.tensor import numel

COMMON: dict[str, Any] = {
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "sliding_window": None,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
    "max_position_embeddings": 128,
}


@st.composite
def decoders(draw: st.DrawFn, model_type: str, **fixed: Any) -> dict[str, Any]:
    """A config.json of a small decoder whose sizes go together."""
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    head_dim = 2 * draw(st.integers(1, 8))
    return {
        **COMMON,
        "model_type": model_type,
        "num_key_value_heads": kv_heads,
        "num_attention_heads": kv_heads * group,
        "head_dim": head_dim,
        "hidden_size": kv_heads * group * draw(st.integers(1, 16)),
        "intermediate_size": draw(st.integers(1, 64)),
        "num_hidden_layers": draw(st.integers(1, 5)),
        "vocab_size": draw(st.integers(1, 100)),
        "tie_word_embeddings": draw(st.booleans()),
        **fixed,
    }


def build(data: dict[str, Any], **changed: Any) -> ModelSpec:
    """What a family makes of a file, some keys changed."""
    config = Config({**data, **changed}, where="config.json", name="small")
    return families.family(config.model_type).spec(config)


def check_shapes(spec: ModelSpec) -> None:
    """The count is the sum over the shapes, and no path stands for two weights of a block."""
    assert spec.num_params == sum(numel(weight.shape) * copies for _, weight, copies in spec.weights())
    for block in spec.blocks:
        inside = [path for path, _ in block.module.weights(f"{block.path}/")]
        assert len(inside) == len(set(inside)), inside


def answers(spec: ModelSpec, *, seq_len: int, attention: str = "sdpa", micro_batch: int = 2, **more: Any) -> Estimate:
    """The estimate of one card."""
    run = Run.model_validate({"model": "small", "attention": attention, "seq_len": seq_len, "micro_batch": micro_batch, **more})
    return estimate_job(Job(run=run, model=spec, mesh=Mesh(), engine="ddp", zero=0, micro_batch=micro_batch, seq_len=seq_len))


def instants(spec: ModelSpec, **more: Any) -> dict[str, int]:
    """Bytes at each instant."""
    return {instant.name: instant.allocated_bytes for instant in answers(spec, **more).most_loaded.instants}


def closed_form(c: dict[str, Any], *, qkv_bias: bool = False, o_bias: bool = False, mlp_bias: bool = False, qk_norm: bool = False) -> int:
    """Parameters of a Llama-like decoder, by hand."""
    h, i, d = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    attention = h * (q + 2 * kv) + q * h + qkv_bias * (q + 2 * kv) + o_bias * h + qk_norm * 2 * d
    layer = attention + 3 * h * i + mlp_bias * (2 * i + h) + 2 * h
    return c["vocab_size"] * h * (1 if c["tie_word_embeddings"] else 2) + c["num_hidden_layers"] * layer + h


def counted(data: dict[str, Any]) -> int:
    """What summing ``numel`` over transformers' own model gives."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[data["model_type"]].from_dict(dict(data)))
    model.tie_weights()
    return sum(parameter.numel() for parameter in model.parameters())

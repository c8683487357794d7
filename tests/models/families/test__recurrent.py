"""Laws of the recurrent families and of T5, over random small configurations of each."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memcalc.engine.estimate import estimate_job
from memcalc.errors import ModelError
from memcalc.models.config import Config
from memcalc.models.families import _recurrent as recurrent
from memcalc.specs.job import Job, Mesh
from memcalc.specs.model import ModelSpec
from memcalc.specs.run import Run
from memcalc.tape.tensor import numel
from memcalc.whatif.sweep import sweep
from tests.models.families.recurrent import ATTENTION_FREE, EXPERTS, FAMILIES, TWO_STACKS, configs
from tests.models.families.sizes import answers, build, check_shapes, instants

each_family = pytest.mark.parametrize("model_type", FAMILIES)
few = settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])

CHUNK = {"qwen3_next": 64, "qwen3_5_text": 64, "qwen3_5_moe_text": 64}
"""Tokens of a chunk, where the file does not say."""


def cache_bytes(spec: ModelSpec, seq_len: int) -> int:
    """What stays of a prefill."""
    terms = answers(spec, seq_len=seq_len, task="inference").instant("decode").terms
    return sum(term.bytes for term in terms if term.path.startswith("kv_cache"))


@each_family
@given(data=st.data())
@few
def test_the_count_is_the_sum_over_the_shapes(model_type: str, data: st.DataObject) -> None:
    """And no path stands for two weights of a block."""
    check_shapes(build(data.draw(configs(model_type))))


@each_family
@given(data=st.data())
@few
def test_more_tokens_never_take_less(model_type: str, data: st.DataObject) -> None:
    """At every instant; of models that work in chunks, whole chunks more."""
    config = data.draw(configs(model_type))
    spec, step = build(config), CHUNK.get(model_type, config.get("chunk_size", config.get("mamba_chunk_size", 1)))
    attention, shorter = data.draw(st.sampled_from(spec.attentions[:2])), data.draw(st.integers(1, 3 * step + 6))
    before, after = (instants(spec, seq_len=n, attention=attention) for n in (shorter, shorter + step * data.draw(st.integers(1, 3))))
    assert {name: (before[name], after[name]) for name in before if after[name] < before[name]} == {}


@pytest.mark.parametrize("model_type", [name for name in FAMILIES if name not in TWO_STACKS[2:]])
@given(data=st.data())
@few
def test_a_head_of_its_own_is_vocabulary_times_width(model_type: str, data: st.DataObject) -> None:
    """The only difference that tying makes to the count, where the model's class can tie."""
    config = data.draw(configs(model_type))
    tied, untied = (build(config, tie_word_embeddings=tie) for tie in (True, False))
    assert untied.num_params - tied.num_params == (config["vocab_size"] * tied.hidden_size if model_type != "nemotron_h" else 0)


@each_family
@given(data=st.data())
@few
def test_checkpointing_never_holds_more_after_forward(model_type: str, data: st.DataObject) -> None:
    """Each layer saves its input and what all layers share, at most."""
    spec, seq_len = build(data.draw(configs(model_type))), data.draw(st.integers(2, 100))
    whole, again = (instants(spec, seq_len=seq_len, recompute=kind)["forward_end"] for kind in ("none", "full"))
    layers = spec.num_layers * 2 * seq_len * spec.hidden_size * 4
    assert again <= whole + layers


@pytest.mark.parametrize("model_type", ATTENTION_FREE)
@given(data=st.data())
@few
def test_states_do_not_grow_with_the_sequence(model_type: str, data: st.DataObject) -> None:
    """A recurrent layer keeps the last tokens of its convolution and one state, in fp32."""
    config = data.draw(configs(model_type))
    spec = build(config)
    assert cache_bytes(spec, 20) == cache_bytes(spec, 50)
    channels = 2 * config["hidden_size"] if model_type == "mamba2" else config["expand"] * config["hidden_size"]
    mixed = channels + (2 * config["n_groups"] * config["state_size"] if model_type == "mamba2" else 0)
    assert cache_bytes(spec, 20) == 2 * spec.num_layers * (mixed * config["conv_kernel"] * 2 + channels * config["state_size"] * 4)


@pytest.mark.parametrize("model_type", EXPERTS)
@given(data=st.data())
@few
def test_active_parameters_are_fewer_by_the_experts_not_visited(model_type: str, data: st.DataObject) -> None:
    config = data.draw(configs(model_type))
    spec = build(config)
    routed = sum(numel(w.shape) * copies for _, w, copies in spec.weights() if w.is_expert)
    count = next(config[key] for key in ("num_experts", "n_routed_experts", "num_local_experts") if key in config)
    chosen = config["num_experts_per_tok"]
    assert spec.active_params is not None
    assert spec.num_params - spec.active_params == (routed // count * (count - chosen) if count else 0)


@each_family
@given(data=st.data())
@settings(max_examples=2, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_arrays_equal_single_runs(model_type: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bit for bit, across the lengths at which their code makes other tensors."""
    folder, config = tmp_path_factory.mktemp("model"), data.draw(configs(model_type))
    (folder / "config.json").write_text(json.dumps(config))
    lengths = data.draw(st.lists(st.integers(1, 400), min_size=3, max_size=6, unique=True))
    fixed = {"model": str(folder), "recompute": data.draw(st.sampled_from(("none", "full")))}
    (points,) = sweep(lambda values: Run.model_validate({**fixed, **values}), {"micro_batch": [1, 2, 5], "seq_len": lengths})
    assert points.reason is None
    for i in range(len(points)):
        spec = build(config)
        batch, seq_len = int(points.micro_batch[i]), int(points.seq_len[i])
        run = Run.model_validate({**fixed, "micro_batch": batch, "seq_len": seq_len})
        job = Job(run=run, model=spec, mesh=Mesh(), engine="ddp", zero=0, micro_batch=batch, seq_len=seq_len)
        assert int(points.peak_bytes[i]) == estimate_job(job).peak.allocated_bytes, (batch, seq_len)


@pytest.mark.torch
@each_family
@given(data=st.data())
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_transformers_counts_the_same(model_type: str, data: st.DataObject) -> None:
    """Of T5 with the head tied, which is what transformers makes of every file; checkpoints know better."""
    import torch
    import transformers

    config = data.draw(configs(model_type)) | ({"tie_word_embeddings": True} if model_type in TWO_STACKS else {})
    auto = transformers.AutoModelForSeq2SeqLM if model_type in TWO_STACKS else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(transformers.CONFIG_MAPPING[model_type].from_dict(dict(config)))
    model.tie_weights()
    assert build(config).num_params == sum(parameter.numel() for parameter in model.parameters())


def test_the_rank_of_time_steps_is_a_sixteenth_of_the_hidden_size() -> None:
    """Rounded up, where the file says ``auto`` or nothing; otherwise as it says."""
    for data, rank in (({}, 13), ({"time_step_rank": "auto"}, 13), ({"time_step_rank": 7}, 7)):
        config = Config({"model_type": "mamba", **data}, where="config.json")
        assert recurrent.time_step_rank(config, "time_step_rank", 200).size == rank


def test_groups_must_divide_the_heads() -> None:
    config = Config({"model_type": "mamba2", "n_groups": 3}, where="config.json")
    with pytest.raises(ModelError, match="n_groups 3 does not divide the 8 heads"):
        recurrent.groups(config, "n_groups", 8)


def test_the_residual_stream_widens_once() -> None:
    """In the first layer of a model that holds it in fp32: two recordings stand for all layers."""
    config = {"model_type": "mamba", "hidden_size": 16, "num_hidden_layers": 6, "vocab_size": 9, "state_size": 4, "tie_word_embeddings": False}
    spec = build(config, expand=2, conv_kernel=4, time_step_rank=2, use_bias=False, use_conv_bias=True, hidden_act="silu", residual_in_fp32=True)
    narrow = replace(spec, blocks=tuple(replace(b, module=replace(b.module, residual_in_fp32=False)) if b.path == "layers" else b for b in spec.blocks))  # type: ignore[call-arg]
    assert instants(spec, seq_len=30)["forward_end"] > instants(narrow, seq_len=30)["forward_end"]

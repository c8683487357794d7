"""Guessing ahead in a server: a draft model, a head on the hidden states (EAGLE), or the model's own module for further tokens (MTP), with a cache beside.

The last stage holds it, cut as the model is; token table and output head are the model's own, but for a draft model's.

Source: vLLM 0.33, v1/spec_decode/llm_base_proposer.py, config/speculative.py; Li et al. 2024 (EAGLE), 2025 (EAGLE-3), the sizes of their heads;
DeepSeek-AI 2024 (V3), section 2.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from memcalc.engine.cache import LayerCache, layer_caches
from memcalc.engine.result import Term
from memcalc.engine.serving.rank import Rank, weights_of
from memcalc.errors import InputError
from memcalc.models.read import read_model
from memcalc.specs.job import Job
from memcalc.specs.model import Block
from memcalc.units import DTYPE_BYTES, ceil_div

DRAFT_VOCAB = 32_000
"""Rows of the output head that EAGLE-3's heads bring along (``draft_vocab_size``)."""
JOINS: dict[str, int] = {"eagle": 2, "eagle3": 3, "mtp": 2}
"""Hidden states that are joined into one: the projection has so many times hidden_size inputs."""
WITH_MTP = ("deepseek_v3", "deepseek_v32", "glm4_moe", "glm4_moe_lite", "qwen3_next", "qwen3_5", "qwen3_5_moe", "ernie4_5_moe", "mimo", "longcat_flash")
"""Model types whose checkpoints have modules for further tokens."""
SOURCE = "vllm/v1/spec_decode"


class Draft(NamedTuple):
    """What it adds to the last stage.

    Attributes:
        weights: of it.
        caches: of its layers.
        said: in words.
    """

    weights: tuple[Term, ...]
    caches: tuple[LayerCache, ...]
    said: str


def draft_of(job: Job) -> Draft | None:
    """The draft of a run, if it has one that weighs anything.

    Raises:
        InputError: a method without a model, or a model that has no such module.
    """
    asked = job.run.serving
    method = asked.speculative_method or ("draft_model" if asked.speculative_model else None)
    if method in (None, "ngram"):
        return None
    if method == "draft_model":
        if asked.speculative_model is None:
            raise InputError("which model guesses? give speculative_model", where="serving.speculative_method")
        model = read_model(asked.speculative_model)
        blocks = [block for block in model.blocks if not block.sees_images]
        own = replace(job, model=model)
        return Draft(_under("draft", weights_of(own, blocks)), layer_caches(blocks), f"draft model {model.name}")
    assert method is not None
    if method == "mtp" and job.model.model_type.removesuffix("_text") not in WITH_MTP:
        raise InputError(f"{job.model.model_type} models have no module for further tokens; known: {', '.join(WITH_MTP)}", where="serving.speculative_method")
    layer = _layer(job, method)
    weights = [*_under("draft", weights_of(job, [layer])), _joined(job, method)]
    return Draft(tuple(weights), layer_caches([layer]), f"{method}: one layer of the model's last kind, {JOINS[method]} * hidden_size joined")


def with_draft(job: Job, rank: Rank) -> Rank:
    """The rank with its draft, where it is of the last stage."""
    found = draft_of(job) if rank.stage.is_last else None
    return rank if found is None else rank._replace(weights=(*rank.weights, *found.weights), caches=(*rank.caches, *found.caches))


# ---------------------------------------------------------------------- inside
def _under(name: str, terms: tuple[Term, ...]) -> tuple[Term, ...]:
    return tuple(replace(term, path=term.path.replace("weights/", f"weights/{name}/", 1)) for term in terms)


def _layer(job: Job, method: str) -> Block:
    """EAGLE's heads are dense layers; MTP's modules are as the model's last layers."""
    layers = [block for block in job.model.blocks if block.role == "layer"]
    if method == "mtp":
        return replace(layers[-1], repeat=1)
    return replace(next((block for block in layers if not _has_experts(block)), layers[-1]), repeat=1)


def _has_experts(block: Block) -> bool:
    return any(weight.is_expert for _, weight in block.module.weights())


def _joined(job: Job, method: str) -> Term:
    """The projection that joins hidden states, and EAGLE-3's further inputs of queries, keys and values and its own head."""
    model, tp, width = job.model, job.mesh.tp, DTYPE_BYTES[job.run.dtype]
    size = JOINS[method] * model.hidden_size**2
    if method == "eagle3":
        heads = ceil_div(model.num_heads, tp) + 2 * max(ceil_div(model.num_kv_heads, tp), 1)
        size += model.hidden_size * heads * model.head_dim + ceil_div(DRAFT_VOCAB, tp) * model.hidden_size
    return Term("weights/draft/joined", size * width, "hidden_size * inputs * width", {"hidden_size": model.hidden_size, "joined": JOINS[method]}, SOURCE)

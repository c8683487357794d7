"""llama.cpp: weights by tensor type, a cache that is made in full for the context, a compute buffer for one micro-batch; no budget.

Layers are spread over the cards in turn, the output after the last; the token table stays on the host, and so do layers beyond ``n_gpu_layers``.

Source: src/llama-model.cpp, ``load_tensors`` (who holds what); src/llama-context.cpp; src/llama-kv-cache.cpp and its iswa variant.
"""

from __future__ import annotations

from typing import NamedTuple

from memcalc.components.mlp import MLP, GatedMLP
from memcalc.components.moe import MoE
from memcalc.engine.cache import Policy, layer_caches, sequence_bytes
from memcalc.engine.ranks import Stage, cut, num_layers
from memcalc.engine.result import Term
from memcalc.engine.serving.budget import Budget
from memcalc.engine.serving.rank import Rank, components
from memcalc.errors import InputError
from memcalc.formulas import ggml, overheads
from memcalc.models.gguf import read_gguf
from memcalc.models.stored import weight_bytes
from memcalc.specs.gpus import find_gpu
from memcalc.specs.job import Job
from memcalc.specs.model import Block
from memcalc.tape.tensor import numel

BLOCK = 256
SOURCE = "llama.cpp, src/llama-context.cpp"
HALF = "f16"


class Held(NamedTuple):
    """A model's weights as llama.cpp holds them.

    Attributes:
        layers: bytes of each.
        table: of the token table, which stays on the host.
        output: of the projection, or of the table where it is that, too, and of the last norm.
        how: in words.
    """

    layers: tuple[int, ...]
    table: int
    output: int
    how: str


def budget(job: Job, rank: Rank) -> Budget:
    """What one card holds; where one is named, what its cache could have."""
    asked, device = job.run.serving, Term("device/context", overheads.CUDA_CONTEXT_BYTES, "read", {}, "an A100 with torch 2.1.1")
    policy = policy_of(job)
    compute = compute_of(job, rank)
    cache = int(job.micro_batch * sequence_bytes(rank.caches, job.seq_len, policy))
    held = rank.weights_bytes + compute.bytes + device.bytes
    room = None if job.run.hardware.gpu is None else find_gpu(job.run.hardware.gpu).capacity_bytes - held
    left_out = "" if asked.flash_attn else "; without flash attention values are stored transposed, in as many bytes"
    note = f"llama.cpp makes all of its cache at once: {job.micro_batch} * {job.seq_len:,} tokens, padded to {BLOCK}{left_out}"
    return Budget(held + cache, rank.weights, (compute,), (), (device,), cache, policy, notes=(note,), host=host_of(job, rank), room_bytes=room)


def policy_of(job: Job) -> Policy:
    """How it stores what layers remember: recurrent states in fp32."""
    asked = job.run.serving
    both = HALF if asked.kv_cache_dtype == "auto" else asked.kv_cache_dtype
    keys, values = asked.cache_type_k or both, asked.cache_type_v or both
    return Policy(dtype=keys, value_dtype=values, block=BLOCK, step_tokens=asked.ubatch_size, rolls=True, width=4, state_width=4)


def ranks(job: Job) -> list[Rank]:
    """The cards, each with its layers; the last has the output."""
    held, counts, spread = weights_of(job), counts_of(job), "as stored"
    pieces = cut(job.model.blocks, [*counts, 0]) if not sum(counts) else cut(job.model.blocks, counts)
    first, found = 0, []
    for i, blocks in enumerate(pieces[1:]):
        first += counts[i]
        own = held.layers[first : first + counts[i + 1]]
        terms = [Term("weights/layers", sum(own), spread, {"layers": len(own)}, held.how)] if own else []
        if i == len(pieces) - 2 and has_output(job):
            terms.append(Term("weights/output", held.output, spread, {}, held.how))
        found.append(Rank(Stage(i, (blocks,), is_first=False, is_last=i == len(pieces) - 2), tuple(terms), layer_caches(blocks)))
    return found


def counts_of(job: Job) -> list[int]:
    """Layers on the host, then on each card: the output counts as one more, and each card takes an even part of all."""
    total, cards = num_layers(job.model), job.mesh.pp
    on_cards = total + 1 if job.run.serving.n_gpu_layers is None else min(job.run.serving.n_gpu_layers, total + 1)
    if cards > max(on_cards, 1):
        raise InputError(f"{on_cards} layers on {cards} cards: give fewer cards, or a higher n_gpu_layers", where="hardware.gpus")
    host = total + 1 - on_cards
    places = [min(i * cards // max(on_cards, 1), cards - 1) for i in range(min(on_cards, total - host) if on_cards else 0)]
    return [min(host, total), *(places.count(card) for card in range(cards))]


def has_output(job: Job) -> bool:
    """Whether the output is on a card: it is the first thing there."""
    return job.run.serving.n_gpu_layers is None or job.run.serving.n_gpu_layers > 0


def weights_of(job: Job) -> Held:
    """From the file's own tensors, or by the mixture of a file type."""
    return _of_file(job) if job.run.model.endswith(".gguf") else _of_mixture(job)


def compute_of(job: Job, rank: Rank) -> Term:
    """The compute buffer of a card."""
    model, asked = job.model, job.run.serving
    inner = max((_inner(m) for m in components(rank)), default=0)
    cells = ggml.cells(job.seq_len * job.micro_batch, window=None, ubatch=asked.ubatch_size)
    scores = 0 if asked.flash_attn else (model.num_heads + 1) * cells
    vocab = model.vocab_size if rank.stage.is_last and has_output(job) else 0
    size = ggml.compute_bytes(ubatch=asked.ubatch_size, vocab_size=vocab, hidden_size=model.hidden_size, inner=inner, scores=scores)
    formula = "4 * ubatch_size * max(vocab_size + hidden_size, 2 * inner + 2 * hidden_size, scores)"
    return Term("activations/compute buffer", int(size), formula, {"ubatch_size": asked.ubatch_size, "inner": inner}, SOURCE)


def host_of(job: Job, rank: Rank) -> tuple[Term, ...]:
    """What stays on the host, told once, with the first card: the token table, layers that are on none, and their cache."""
    if rank.stage.index:
        return ()
    held, first = weights_of(job), counts_of(job)[0]
    away = cut(job.model.blocks, [first, num_layers(job.model) - first])[0] if first else ()
    cache = job.micro_batch * sequence_bytes(layer_caches(away), job.seq_len, policy_of(job))
    found = [("host/token table", held.table), ("host/layers", sum(held.layers[:first])), ("host/kv_cache", int(cache))]
    found += [] if has_output(job) else [("host/output", held.output)]
    return tuple(Term(path, size, "as stored", {}, held.how) for path, size in found if size)


# ---------------------------------------------------------------------- inside
def _of_file(job: Job) -> Held:
    header = read_gguf(job.run.model)
    layers = [0] * num_layers(job.model)
    table, output = 0, 0
    for tensor in header.tensors:
        place, _, rest = tensor.name.partition(".")
        number = rest.partition(".")[0]
        if place == "blk" and number.isdigit() and int(number) < len(layers):
            layers[int(number)] += tensor.bytes
        elif place == "token_embd":
            table += tensor.bytes
        else:
            output += tensor.bytes
    tied = not any(tensor.name == "output.weight" for tensor in header.tensors)
    return Held(tuple(layers), table, output + (table if tied else 0), "the file's header")


def _of_mixture(job: Job) -> Held:
    name = job.run.quantization or {"float16": HALF, "bfloat16": "bf16"}.get(job.run.dtype, HALF)
    types, model = ggml.mixture(name), job.model
    layers: list[int] = []
    table, output = 0, 0
    for block in model.blocks:
        if block.role == "layer":
            layers += [_block_bytes(block, _type_of(types, len(layers) + i, num_layers(model))) for i in range(block.repeat)]
        elif block.role == "embedding":
            table += _block_bytes(block, types.output if model.tied else types.most)
        elif block.role in ("norm", "head"):
            output += _block_bytes(block, types.output)
    return Held(tuple(layers), table, output + (table if model.tied else 0), f"llama.cpp's mixture {name}")


def _type_of(types: ggml.Mixture, layer: int, count: int) -> ggml.Mixture:
    return types if ggml.gets_more_bits(layer, count) else types._replace(some=types.most)


def _block_bytes(block: Block, kinds: ggml.Mixture | str) -> int:
    """Of one repetition: vectors in fp32, matrices by name."""
    total = 0
    for module, weight, _ in weight_bytes(block, 0, None, "float32"):
        name = f"{module}.{weight.name}"
        better = any(part in name for part in ("v_proj", "down_proj"))
        kind = kinds if isinstance(kinds, str) else kinds.some if better else kinds.most
        count = int(numel(weight.shape))
        columns = int(weight.shape[-1].size)
        total += 4 * count if len(weight.shape) == 1 else count // columns * ggml.row_bytes(columns, kind)
    return total


def _inner(m: object) -> int:
    if isinstance(m, MoE):
        return int(m.experts.intermediate.size) * m.gate.top_k
    if isinstance(m, GatedMLP):
        return int(m.gate.outputs.size) // (1 if m.up is not None else 2)
    return int(m.up.outputs.size) // 2 if isinstance(m, MLP) else 0

"""The instants of one training step, and of inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memcalc.code.context import TOWER
from memcalc.code.contrastive import Contrastive
from memcalc.engine.flow import LOSS_GRADIENT, PIXELS, STREAM, STREAM_GRADIENT, Flow
from memcalc.engine.plan import Arrival, Part, Plan
from memcalc.engine.strategies import Strategy
from memcalc.engine.walk import Reason, Walk
from memcalc.formulas.loss import cached_bytes, similarity_bytes
from memcalc.tape.tensor import numel
from memcalc.units import DTYPE_BYTES

IMAGES = Reason("images in fp32, as processors make them")
SAVED = Reason("the embedding's output, saved by what else the embedding makes of it")
RECEIVED = "activations/received hidden_states"
CACHED = "activations/embeddings and their gradients"


def num_bytes(flow: Flow) -> Any:
    """Bytes of a tensor that passes between blocks."""
    return numel(flow.shape) * DTYPE_BYTES[flow.dtype]


def train(walk: Walk, plan: Plan, strategy: Strategy, *, accumulated: bool, aside: Callable[[Walk], None] | None = None) -> None:
    """Walk through a step: ``start``, ``forward_peak``, ``forward_end``, ``backward_peak``, ``optimizer_step``.

    Args:
        walk: takes the readings.
        plan: this rank's blocks.
        strategy: what the sharding engine does around them.
        accumulated: gradients of earlier micro-batches are there (the step has more than one).
        aside: what happens between forward and backward, beside the model: another's forward pass, what is looked up for the log.
    """
    strategy.resident(walk)
    walk.instant("start")
    one(walk, plan, strategy, accumulated=accumulated, aside=aside)


def one(walk: Walk, plan: Plan, strategy: Strategy, *, accumulated: bool, aside: Callable[[Walk], None] | None = None) -> None:
    """A step from its first forward on, with everything resident in place."""
    contrast = plan.settings.contrastive if plan.settings.contrastive is not None and plan.settings.contrastive.mini_batch else None
    with walk.window("forward_peak"):
        if contrast is not None:
            rank_texts(walk, contrast)
        if accumulated:
            strategy.accumulated(walk)
        forward(walk, plan, strategy)
        if aside is not None:
            aside(walk)
    walk.instant("forward_end")
    with walk.window("backward_peak"):
        backward(walk, plan, strategy)
    if contrast is not None:
        walk.free(CACHED, cached_bytes(contrast.texts, hidden=contrast.hidden))
    with walk.window("optimizer_step"):
        strategy.step(walk)
    for part in plan.parts:
        walk.repeat(part.block.repeat, lambda i, part=part: walk.apply(part.profile.after))  # type: ignore[misc]


def rank_texts(walk: Walk, asked: Contrastive) -> None:
    """GradCache before its graphs: all texts are embedded without one, and the loss gives gradients of embeddings, some rows of its matrix at a time.

    Source: sentence_transformers/losses/CachedMultipleNegativesRankingLoss.py, ``calculate_loss``.
    """
    inputs = {"texts": asked.texts, "hidden_size": asked.hidden, "mini_batch": asked.mini_batch, "candidates": asked.candidates}
    walk.alloc(CACHED, cached_bytes(asked.texts, hidden=asked.hidden), Reason("2 * texts * hidden_size * 4", inputs, "memcalc/formulas/loss.py"))
    rows = similarity_bytes(asked.mini_batch, asked.candidates, copies=4)
    walk.touch("activations/similarities", rows, Reason("4 * mini_batch * candidates * 4", inputs, "memcalc/formulas/loss.py"))


def initialize(walk: Walk, strategy: Strategy) -> None:
    """The instant ``initialize``: the most that is alive while the engine is constructed, on an empty walk."""
    with walk.window("initialize"):
        strategy.initialize(walk)


def save(walk: Walk, strategy: Strategy) -> None:
    """The instant ``checkpoint_save``, on an empty walk: what saving the whole model takes beside what is there between steps."""
    strategy.resident(walk)
    with walk.window("checkpoint_save"):
        strategy.save(walk)


def infer(walk: Walk, plan: Plan, strategy: Strategy) -> None:
    """Prefill of one batch: ``load`` (the weights), ``prefill`` (its peak), ``decode`` (between tokens: weights, cache, last logits)."""
    strategy.resident(walk)
    walk.instant("load")
    with walk.window("prefill"):
        forward(walk, plan, strategy)
    let_go(walk, plan)
    walk.instant("decode")


def let_go(walk: Walk, plan: Plan) -> None:
    """What the prefill read is no longer held."""
    if plan.arrival is None:
        walk.free(plan.ids_path, num_bytes(plan.ids))
        if plan.pixels is not None:
            walk.free(PIXELS, num_bytes(plan.pixels))
        if plan.settings.padded:
            walk.free(plan.beside_ids, num_bytes(plan.ids))
        for path, flow in plan.beside:
            walk.free(path, num_bytes(flow))


def forward(walk: Walk, plan: Plan, strategy: Strategy) -> None:
    """All blocks forward; the model's own local variables live until its last norm, autocast's casts and the logits until the loss."""
    parts, stream = plan.parts, _Stream(walk, plan, drops_sent=strategy.drops_sent)
    stream.begin()
    strategy.begin_forward(walk)
    for part in parts:

        def body(i: int, part: Part = part) -> None:
            strategy.forward(walk, part, i)
            stream.after(part, i)

        times(walk, strategy, part, body)
    for part in parts:
        walk.repeat(part.block.repeat, lambda i, part=part: walk.apply(part.profile.release))  # type: ignore[misc]
    stream.end()
    strategy.end_forward(walk)


def times(walk: Walk, strategy: Strategy, part: Part, body: Callable[[int], None]) -> None:
    """A body for each repetition of a block: the ends only where the engine treats those between alike."""
    if strategy.uniform:
        walk.repeat(part.block.repeat, body)
        return
    for i in range(part.block.repeat):
        body(i)


def backward(walk: Walk, plan: Plan, strategy: Strategy) -> None:
    """All blocks back."""
    if plan.sends:
        walk.alloc(STREAM_GRADIENT, num_bytes(plan.parts[-1].profile.out), Reason("gradient of the hidden states, from the next pipeline stage"))
    elif plan.parts[-1].block.role == "head" and plan.parts[-1].profile.out.requires_grad:
        walk.alloc(LOSS_GRADIENT, num_bytes(plan.parts[-1].profile.out), Reason("a one for the loss", {}, "torch/autograd/__init__.py, _make_grads"))
    strategy.begin_backward(walk)
    left = set(plan.kept)
    for k, part in reversed(list(enumerate(plan.parts))):
        for name in left - {name for before in plan.parts[: k + 1] for name in before.profile.keeps}:
            _drop(walk, plan, name)
            left.discard(name)
        if part.block.role == "embedding" and part.profile.saves_output and not _taker(plan, k).profile.frees_input:
            walk.alloc(STREAM, num_bytes(part.profile.out), SAVED)  # the part that took it let go of it in its own backward
        times(walk, strategy, part, lambda i, part=part: strategy.backward(walk, part, i))  # type: ignore[misc]
    for part in plan.parts:
        walk.repeat(part.block.repeat, lambda i, part=part: walk.apply(part.profile.end))  # type: ignore[misc]
    if plan.leaf is not None and not plan.holds_leaf:
        walk.alloc("activations/inputs_embeds", num_bytes(plan.leaf), Reason("the embedding's output, made a leaf by enable_input_require_grads"))
    if plan.sends and not strategy.drops_sent:
        walk.free(STREAM, num_bytes(plan.parts[-1].profile.out))
    if plan.arrival is not None:
        _depart(walk, plan, plan.arrival, left)
    strategy.end_backward(walk)


def _taker(plan: Plan, k: int) -> Part:
    """The part that takes what the k-th gives."""
    return next(part for part in plan.parts[k + 1 :] if part.profile.runs and not part.block.sees_images)


def _depart(walk: Walk, plan: Plan, arrival: Arrival, left: set[str]) -> None:
    """The end of a stage's backward pass: the gradient of what it received is sent, and what it received is let go."""
    for name in left:
        _drop(walk, plan, name)
    walk.free(STREAM_GRADIENT, num_bytes(arrival.hidden))
    if plan.parts[0].profile.frees_input:
        walk.free(RECEIVED, num_bytes(arrival.hidden))


class _Stream:
    """Locals of the model's own forward: the embedding's output and the shared tensors nobody saves, until the last part before the head is through.

    A second embedding begins another forward (an encoder's decoder), before which the locals of the first go. What the model returns beside its
    logits stays until its forward is through.
    A pipeline stage makes the shared tensors for itself, and holds the hidden states that it received until it has sent their gradient.
    """

    def __init__(self, walk: Walk, plan: Plan, *, drops_sent: bool) -> None:
        self.walk, self.plan, self.drops_sent = walk, plan, drops_sent
        self.held: Flow | None = None
        self.saved = False
        self.embeds: Flow | None = None
        self.made: set[str] = set(plan.arrival.shared) if plan.arrival is not None else set()
        self.outer = any(getattr(part.block.module, "outer", False) for part in plan.parts)
        self.returned = frozenset(name for part in plan.parts for name in getattr(part.block.module, "returns", ()))
        self.last = next((part for part in reversed(plan.parts) if part.block.role != "head"), None)

    def begin(self) -> None:
        arrival = self.plan.arrival
        if arrival is None:
            self.walk.alloc(self.plan.ids_path, num_bytes(self.plan.ids), IMAGES if self.plan.ids_path == PIXELS else Reason("micro_batch * seq_len * 8"))
            if self.plan.pixels is not None:
                self.walk.alloc(PIXELS, num_bytes(self.plan.pixels), IMAGES)
            if self.plan.settings.padded:
                self.walk.alloc(self.plan.beside_ids, num_bytes(self.plan.ids), Reason("micro_batch * seq_len * 8"))
            for path, flow in self.plan.beside:
                self.walk.alloc(path, num_bytes(flow), Reason("integers of 64 bits, as processors make them"))
            return
        self.walk.alloc(STREAM, num_bytes(arrival.hidden), Reason("hidden states, from the pipeline stage before"))
        for name, flow in arrival.shared.items():
            self.walk.alloc(f"activations/{name}", num_bytes(flow), Reason("made by each pipeline stage for itself"))
        self.held = arrival.hidden

    def end(self) -> None:
        self._drop_embeds()
        self._drop_shared(self.returned & self.made)
        if self.plan.sends and self.drops_sent:
            self.walk.free(STREAM, num_bytes(self.plan.parts[-1].profile.out))

    def after(self, part: Part, i: int) -> None:
        role = part.block.role
        self.made |= part.profile.shared.keys()
        if part.block.sees_images or not part.profile.runs:
            return
        if role == "embedding":
            self._let_go(keeping=part.profile.shared)
        if role == "join":
            self._leave_tower()
        if role in ("embedding", "join"):
            self.held, self.saved = part.profile.out if part.profile.holds_output else None, part.profile.saves_output
        elif self.held is not None:
            if part.profile.frees_input:
                self._hold(self.held)
            self.held = None
        if part is self.last and i == part.block.repeat - 1:
            self._let_go()

    def _leave_tower(self) -> None:
        self._drop_shared({name for name in self.made if name.startswith(TOWER)})

    def _hold(self, held: Flow) -> None:
        if self.saved:
            self.walk.alloc(STREAM, num_bytes(held), SAVED)
            return
        if self.plan.arrival is not None:
            self.walk.alloc(RECEIVED, num_bytes(held), Reason("what the stage before sent, held by the schedule"))
            return
        self.walk.alloc("activations/inputs_embeds", num_bytes(held), Reason("the embedding's output, held by the model's forward"))
        self.embeds = held

    def _let_go(self, keeping: dict[str, Flow] | None = None) -> None:
        if not self.outer:
            self._drop_embeds()
        self._drop_shared(self.made - self.returned - (keeping or {}).keys())

    def _drop_shared(self, names: frozenset[str] | set[str]) -> None:
        self.made -= names
        for name in sorted(names - self.plan.kept):
            _drop(self.walk, self.plan, name)

    def _drop_embeds(self) -> None:
        if self.embeds is not None and not self.plan.holds_leaf:
            self.walk.free("activations/inputs_embeds", num_bytes(self.embeds))
            self.embeds = None


def _shared(plan: Plan) -> dict[str, Flow]:
    """What is made once for all layers, by the embedding or by the stage itself."""
    made = {name: flow for part in plan.parts for name, flow in part.profile.shared.items()}
    return made if plan.arrival is None else {**plan.arrival.shared, **made}


def _drop(walk: Walk, plan: Plan, name: str) -> None:
    walk.free(f"activations/{name}", num_bytes(_shared(plan)[name]))


__all__ = ["STREAM", "backward", "forward", "num_bytes", "train"]

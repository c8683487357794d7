"""What a program may depend on besides its component."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from memcalc.code.fp8 import Kind
from memcalc.code.keeping import Keeping
from memcalc.code.liger import NO_KERNELS, Liger
from memcalc.dataclass import dataclass
from memcalc.specs.model import Degrees


@dataclass(frozen=True)
class Settings:
    """What a program may depend on besides its component. Sizes may be integer arrays; everything else is one value.

    Attributes:
        code: whose modules.
        attention: eager, sdpa or flash_attention_2.
        batch: sequences in the forward pass.
        seq: tokens of each.
        dtype: of the weights.
        autocast: compute dtype of ``torch.autocast``, or None.
        training: forward to a loss, for a backward; otherwise inference with a cache.
        virtual: tokens among those of `seq` that are not the batch's (prompt tuning).
        offloads: what is saved for backward waits on the host.
        submodules: the norms, the mixer and the network of each layer are checkpointed, each by itself.
        fp8: whose products in fp8 linear layers have: te (Transformer Engine), torchao, or nobody's.
        leaf_inputs: what the token table gives is made a leaf of the graph, though it takes no gradient, before anything is joined to it.
        prefix: keys that every layer has before those of `seq` (prefix tuning).
        evaluating: to a loss, and no backward follows: nothing is recorded, and there is no dropout.
        loss: cross_entropy, chunked, chunked_output, fused_linear, cut_cross_entropy or in_place.
        upcast_logits: the loss is taken of logits in fp32.
        logits_to_keep: of how many tokens at the end of each sequence there are logits; 0: of all; None: of all in training, of the last in inference.
        holds_logits: the caller of the model holds its logits until backward is over.
        degrees: into how many parts each kind of cut divides a weight.
        tp: tensor-parallel degree (int or array), with `sp` for sequence parallelism beside it.
        ep, etp: expert-parallel degrees.
        cp: context-parallel degree; `seq` is what one rank holds.
        windows: the distinct attention windows of the model (None: the whole sequence), for the masks that are made once.
        two_sided_windows: likewise of layers that see keys on both sides (None, the whole sequence, is among them where batches are padded).
        trainable: says of a weight's path whether it takes a gradient; None: all do.
        sent, received: rows of tokens that a rank sends to experts, and that its experts get, over tokens * top_k, as fractions.
        options: what only the programs of one implementation know.
        marks: what to mark in the ledger, for engines that act there: the moments when gradients are complete, or also the begin
            and end of each module, both ways.
        keeps_linear_inputs: linear layers save their inputs even where their weights are frozen.
        axes: what the two axes of an activation count.
        images: pictures in the batch, for a vision tower.
        late_masks: masks are made where images join the text, not with its embeddings.
        cached: in inference, keys and values are remembered; a vision tower's are not.
        lora_kernels: which adapters run with their frozen layers as one function: mlp, qkv, o.
        liger: which of Liger's kernels are in the place of the model's own modules.
        padded: the batch has a mask of its own, so that none can be left out.
        packed: the batch numbers its tokens, sample by sample, so that positions are each sequence's own; where a mask is made, samples are kept apart.
        tied: the path of the head's weight, and that of the table that it is, under which its gradient is filed; None: it is its own.
        objective: what the head gives in the place of a loss on labels (`memcalc.code.objective.Objective`); None: the loss.
        keeping: how the cache holds keys and values.
        contrastive: the loss is that of embedders.
        casts_weights: every weight is computed with in `dtype`, whatever it is held in (FSDP's mixed-precision policies).
    """

    code: str
    attention: str
    batch: Any
    seq: Any
    dtype: str
    autocast: str | None = None
    training: bool = True
    loss: str = "cross_entropy"
    upcast_logits: bool = True
    logits_to_keep: int | None = None
    holds_logits: bool = False
    degrees: Degrees = Degrees()
    tp: Any = 1
    sp: bool = False
    ep: Any = 1
    etp: Any = 1
    cp: Any = 1
    windows: tuple[int | None, ...] = ()
    two_sided_windows: tuple[int | None, ...] = ()
    trainable: Callable[[str], bool] | None = None
    sent: tuple[int, int] = (1, 1)
    received: tuple[int, int] = (1, 1)
    options: Any = None
    marks: Literal["none", "gradients", "modules"] = "none"
    keeps_linear_inputs: bool = False
    axes: tuple[str, str] = ("micro_batch", "seq_len")
    images: Any = 0
    late_masks: bool = False
    cached: bool = True
    tied: tuple[str, str] | None = None
    casts_weights: bool = False
    liger: Liger = NO_KERNELS
    lora_kernels: tuple[str, ...] = ()
    padded: bool = False
    packed: bool = False
    evaluating: bool = False
    virtual: int = 0
    leaf_inputs: bool = False
    fp8: Kind = ""
    offloads: bool = False
    submodules: bool = False
    prefix: int = 0
    contrastive: Any = None
    keeping: Keeping = Keeping()
    objective: Any = None

    @property
    def sums_in_place(self) -> bool:
        """Gradients of a weight that is used several times are summed in place, as on a card. Other modules are counted as traces of a CPU have them."""
        return self.code == "torchtune"

    @property
    def takes_apart(self) -> bool:
        """Flash attention takes padding out of a batch and puts it back."""
        return self.attention == "flash_attention_2" and self.padded and not self.packed

    @property
    def records(self) -> bool:
        """A backward follows."""
        return self.training and not self.evaluating

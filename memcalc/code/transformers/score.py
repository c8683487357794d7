"""Scores of tokens, and of whole sequences."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components.score import ScoreHead
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(ScoreHead)
def score_head(ctx: Context, m: ScoreHead, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the score of each sequence's last token, or (objective ``values``) of every token.

    Source: transformers 5, modeling_layers.py, ``GenericForSequenceClassification.forward``; TRL 1.10, experimental/ppo, ``PolicyAndValueWrapper``.
    """
    scores = ctx.run(m.proj, x)
    if ctx.settings.objective is not None and ctx.settings.objective.name == "values":
        return scores
    ctx.shared["logits"] = scores
    return F.index(scores, (ctx.batch, Axis("labels", 1)), "score of the last token")

"""The tasks that more models than one take part in: what the actor is asked for, and who is there beside it unless a run says otherwise."""

from __future__ import annotations

from memcalc.dataclass import dataclass


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        objective: what the actor's head gives (see `Settings.objective`).
        sequences: of each unit of the micro-batch: 2 where it is a pair, chosen and rejected, that go through the model as one batch.
        has_score: the actor ends in a score, not in a vocabulary.
        roles: the models that there are beside the actor, unless a run says otherwise.
        able: those that there may be.
        is_online: answers are generated, scored and learnt from; otherwise a step is one forward and backward over given ones.
        kl: where the distance from the reference counts, unless a run says otherwise.
    """

    objective: str
    sequences: int = 1
    has_score: bool = False
    roles: tuple[str, ...] = ()
    able: tuple[str, ...] = ()
    is_online: bool = False
    kl: str = "none"


def _without_critic(kl: str) -> Task:
    return Task("policy", roles=("reference",), able=("reference", "reward"), is_online=True, kl=kl)


TASKS = {
    "dpo": Task("preference", 2, roles=("reference",), able=("reference",)),
    "kto": Task("preference", roles=("reference",), able=("reference",)),
    "simpo": Task("margin", 2),
    "orpo": Task("odds", 2),
    "reward": Task("score", 2, has_score=True),
    "distill": Task("distillation", roles=("teacher",), able=("teacher",)),
    "ppo": Task("policy", roles=("reference", "critic", "reward"), able=("reference", "critic", "reward"), is_online=True, kl="reward"),
    "grpo": _without_critic("loss"),
    "rloo": _without_critic("reward"),
    "reinforce++": _without_critic("reward"),
    "gspo": _without_critic("none"),
    "dapo": _without_critic("none"),
}
"""By name. Where the KL term stands: PPO, RLOO and REINFORCE++ in the reward (Ouyang et al. 2022; Ahmadian et al. 2024; Hu 2025), GRPO in the loss
(Shao et al. 2024, eq. 3), GSPO and DAPO nowhere (Zheng et al. 2025; Yu et al. 2025)."""

SCORED = ("critic", "reward")
"""Models that end in a score."""

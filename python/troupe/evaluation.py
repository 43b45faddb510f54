"""What `troupe evaluate` found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping


@dataclass(frozen=True)
class MeanStd:
    """Over episodes."""

    mean: float
    std: float


@dataclass(frozen=True)
class Evaluation:
    """Returns of whole episodes."""

    mean: float  # of the return, summed over agents
    std: float
    agents: Dict[str, MeanStd]  # of each agent's return
    episodes: int
    episode_length: float  # env steps, mean
    seed: int
    infos: Dict[str, MeanStd]  # of the environment's info columns, over the episodes that set them
    per_episode: List[Dict[str, Any]] = field(repr=False)  # episode, seed, length, return_sum, return_mean, agents: {id: {return, policy}}, infos

    @staticmethod
    def of(result: Mapping[str, Any]) -> "Evaluation":
        """Of the command's JSON."""
        agents, infos = ({name: MeanStd(value["mean"], value["std"]) for name, value in result[key].items()} for key in ("agents", "infos"))
        return Evaluation(result["return_sum"]["mean"], result["return_sum"]["std"], agents, result["episodes"], result["episode_length"]["mean"],
                          result["seed"], infos, result["per_episode"])

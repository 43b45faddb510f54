"""What a finished run is worth: functions of (troupe, run folder) to {name of the figure: number}."""

import functools
import math
import os

import kuhn
import networks
from learning import evaluate


def newest(run):
    return os.path.join(run, "checkpoints", "latest")


def returns(troupe, run):
    """The mean of the summed return of 500 fresh episodes."""
    latest = ["--checkpoint", "latest"]
    return {"sampled": evaluate(troupe, run, 500, latest), "deterministic": evaluate(troupe, run, 500, [*latest, "--deterministic"])}


def nash_conv(_troupe, run):
    """Of Kuhn poker's policies `first` and `second`, by all best responses: exact, no game is played."""
    tensors = networks.read_policies(newest(run))

    def strategy(seat, policy):
        return functools.cache(
            lambda card, history: math.exp(networks.log_probabilities(tensors, policy, kuhn.observation(seat, card, history))[1]))
    return {"NashConv": kuhn.nash_conv(strategy(0, "first"), strategy(1, "second"))}

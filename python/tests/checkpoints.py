"""Checkpoints of policies of every kind, with random weights: what the tests of what leaves a checkpoint read. They are
written by write_policies (lib/acting), which the variable TROUPE_WRITE_POLICIES names."""

import json
import os
import subprocess

IMAGES = "Box(0, 255, [12, 11, 3], uint8)"
PARTS = 'Dict{"camera": Box(0, 255, [10, 10, 1], uint8), "goal": Discrete(4), "joints": Tuple(Box(-inf, inf, [3]), MultiBinary(2))}'
BOARDS = 'Dict{"board": Box(0, 2, [10, 10, 4], uint8), "flags": Box(0, 1, [3], uint8), "hand": Box([0, 1], [1, 200], [2], uint8)}'
MIXED = 'Dict{"arm": Box(-1, 2, [2]), "gear": MultiDiscrete([3, 2]), "lamps": MultiBinary(2), "torso": Box(-3, 3, [3])}'
ACTIVATIONS = ("tanh", "relu", "elu", "gelu", "sigmoid", "silu", "identity")
CONVOLUTIONS = [{"channels": 4, "kernel": 3, "stride": 2}, {"channels": 5, "kernel": 2, "stride": 1}]
LEAVES = {"encoder": "leaves", "leaf_encoders": [{"leaf": 0, "conv_layers": CONVOLUTIONS, "hidden_sizes": [6]},
                                                 {"leaf": 2, "conv_layers": [], "hidden_sizes": [7, 5]}]}


def entry(policy, observation="Box(-inf, inf, [5])", action="Discrete(4)", actor=None, **more):
    """Of a policy_table, in format 2."""
    network = {"role": "actor", "inputs": ["observation", "agent_id"], "encoder": "mlp", "core": "none", "hidden_sizes": [16, 9], "activation": "tanh",
               "output_gain": 1.0, **(actor or {})}
    if network["core"] != "none":
        network.setdefault("head_hidden_sizes", [])
        more.setdefault("sequence_length", 16)
    critic = {"role": "critic", "inputs": ["observation"], "encoder": "mlp", "core": "none", "hidden_sizes": [4], "activation": "tanh", "output_gain": 1.0}
    return {"id": policy, "since": 0, "removed": 0, "replaced": False, "trains": True, "class": "trained", "observation_space": observation,
            "action_space": action, "actor": network, "learner_networks": [critic], "initial_log_std": 0.0, "joint_observation_size": 0, "state_size": 0,
            "agent_id_size": 0, "normalize_observations": False, "has_action_mask": False, "action_bound_method": "clip", "action_scaling": False, **more}


def every_kind():
    """Of each kind of network, input and distribution one at least."""
    core = {"core_size": 6, "core_layers": 2, "head_hidden_sizes": [8]}
    beta = {"action_bound_method": "none", "action_scaling": True, "continuous": "beta"}
    return [
        *(entry(f"mlp_{name}", actor={"activation": name}) for name in ACTIVATIONS),
        *(entry(f"normed_{name}", actor={"activation": name, "layer_norm": True}, normalize_observations=True) for name in ("relu", "gelu")),
        entry("wide", "Box(0, 100000, [8])", actor={"activation": "relu", "hidden_sizes": [64, 64]}, action="Discrete(18)"),
        entry("seen", agent_id_size=3, has_action_mask=True, action="MultiDiscrete([3, 2])"),
        entry("gru", actor={"core": "gru", **core}),
        entry("lstm", actor={"core": "lstm", **core}, normalize_observations=True),
        entry("gru_alone", actor={"core": "gru", "core_size": 7, "core_layers": 1, "hidden_sizes": []}, agent_id_size=3),
        entry("lstm_normed", actor={"core": "lstm", "layer_norm": True, **core}, action="Box(-1, 1, [2])"),
        entry("cnn", IMAGES, actor={"encoder": "cnn", "conv_layers": CONVOLUTIONS, "activation": "relu"}),
        entry("cnn_gru", "Box(-2, 2, [9, 8, 2])", actor={"encoder": "cnn", "conv_layers": CONVOLUTIONS, "core": "gru", **core}, normalize_observations=True),
        entry("cnn_grey", "Box(0, 1, [9, 8])", actor={"encoder": "cnn", "conv_layers": CONVOLUTIONS[:1], "hidden_sizes": []}, agent_id_size=3),
        entry("bytes", IMAGES, actor={"hidden_sizes": [5]}),
        entry("bytes_normed", "Box(0, 255, [6], uint8)", normalize_observations=True),
        entry("flags", "Box(0, 1, [6], uint8)", observation_scaling="bounds"),
        entry("flags_by_255", "Box(0, 1, [6], uint8)"),
        entry("mixed_bytes", "Box([0, 3, 9], [1, 200, 9], [3], uint8)", observation_scaling="bounds", normalize_observations=True),
        entry("board", "Box(0, 3, [12, 11, 2], uint8)", actor={"encoder": "cnn", "conv_layers": CONVOLUTIONS}, observation_scaling="bounds"),
        entry("boards", BOARDS, actor=LEAVES, observation_scaling="bounds"),
        entry("boards_by_255", BOARDS, actor=LEAVES),
        entry("leaves", PARTS, actor={**LEAVES, "layer_norm": True, "activation": "silu"}, agent_id_size=3),
        entry("leaves_normed", PARTS, actor=LEAVES, normalize_observations=True),
        entry("gaussian", action=MIXED, max_log_std=0.25, min_log_std=-0.25),
        entry("gaussian_predicted", action=MIXED, free_log_std=False, max_log_std=0.25, min_log_std=-0.25, has_action_mask=True),
        entry("squashed", action="Box(-2, 3, [3])", continuous="squashed_gaussian", action_bound_method="tanh", action_scaling=True, free_log_std=False),
        entry("beta", action='Dict{"a": Box(-2, 3, [3]), "b": Discrete(2), "c": Box(0, 1, [1])}', **beta),
    ]


def write(folder, entries, agents=("a0", "a1", "a2"), damaged=None):
    """A checkpoint of these policies. damaged: the id of one that workers refuse, which normalizes observations."""
    entries = [dict(each, slot=slot) for slot, each in enumerate(entries)]
    mapping = [{"agents": "*", "policies": [{"policy": each["id"], "weight": 1.0} for each in entries]}]
    table = os.path.join(folder, "table.json")
    with open(table, "w") as file:
        json.dump({"format": 2, "revision": 0, "agents": list(agents), "policies": entries, "mapping": mapping}, file)
    checkpoint = os.path.join(folder, "checkpoint")
    os.mkdir(checkpoint)
    done = subprocess.run([os.environ["TROUPE_WRITE_POLICIES"], table, checkpoint, *([damaged] if damaged else [])], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return checkpoint

"""A checkpoint's networks by their definition, computed from its tensors in plain Python: what tests hold the programs' answers against."""

import json
import math
import os
import struct

ACTIVATIONS = {"tanh": math.tanh, "relu": lambda value: max(value, 0.0)}


def read_safetensors(path):
    """name -> (shape, numbers)"""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack_from("<Q", data)[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        kind = {"F32": "f", "F64": "d"}[entry["dtype"]]
        raw = data[8 + size + begin:8 + size + end]
        tensors[name] = (entry["shape"], struct.unpack(f"<{len(raw) // struct.calcsize(kind)}{kind}", raw))
    return tensors


def read_policies(checkpoint):
    """The tensors of a checkpoint's policies, of its folder."""
    return read_safetensors(os.path.join(checkpoint, "policies.safetensors"))


def _linear(weight, bias, x):
    (rows, columns), numbers = weight
    assert columns == len(x), f"a layer takes {columns} numbers, got {len(x)}"
    return [bias[1][row] + sum(w * v for w, v in zip(numbers[row * columns:(row + 1) * columns], x)) for row in range(rows)]


def _log_softmax(x):
    highest = max(x)
    total = highest + math.log(sum(math.exp(v - highest) for v in x))
    return [v - total for v in x]


def _outputs(tensors, policy, role, obs, slot, agents, activation):
    """The normalized observation, and the one-hot number `slot` of `agents`, through the layers of actor or critic with `activation`."""
    x = list(obs)
    if f"{policy}/observation.mean" in tensors:
        mean, variance = (tensors[f"{policy}/observation.{what}"][1] for what in ("mean", "variance"))
        x = [min(max((o - m) / math.sqrt(max(v, 1e-8)), -10), 10) for o, m, v in zip(x, mean, variance)]
    if slot is not None:
        x += [1.0 if i == slot else 0.0 for i in range(agents)]
    layers = sum(name.startswith(f"{policy}/{role}.") and name.endswith(".weight") for name in tensors)
    for layer in range(layers):
        x = _linear(tensors[f"{policy}/{role}.{layer}.weight"], tensors[f"{policy}/{role}.{layer}.bias"], x)
        if layer + 1 < layers:
            x = [ACTIVATIONS[activation](v) for v in x]
    return x


def log_probabilities(tensors, policy, obs, slot=None, agents=0, activation="tanh"):
    """The actor of a Discrete action space by its definition."""
    return _log_softmax(_outputs(tensors, policy, "actor", obs, slot, agents, activation))


def value(tensors, policy, obs, slot=None, agents=0, activation="tanh"):
    """The critic by its definition, in the units of rewards."""
    output, = _outputs(tensors, policy, "critic", obs, slot, agents, activation)
    if f"{policy}/value.mean" not in tensors:
        return output
    (mean,), (variance,) = (tensors[f"{policy}/value.{what}"][1] for what in ("mean", "variance"))
    return mean + math.sqrt(max(variance, 1e-8)) * output


def gru(tensors, name, x, memory, layer="_l0"):
    """What a GRU of one layer, as torch.nn.GRU has it, remembers after `x`: that is its output, too. Of a torch.nn.GRUCell `layer` is empty."""
    reads, remembers = (_linear(tensors[f"{name}.weight_{what}{layer}"], tensors[f"{name}.bias_{what}{layer}"], of) for what, of in (("ih", x), ("hh", memory)))
    size = len(memory)

    def sigmoid(value):
        return 1 / (1 + math.exp(-value))
    after = []
    for i in range(size):
        reset, update = (sigmoid(reads[gate * size + i] + remembers[gate * size + i]) for gate in (0, 1))
        new = math.tanh(reads[2 * size + i] + reset * remembers[2 * size + i])
        after.append((1 - update) * new + update * memory[i])
    return after


def remembering_log_probabilities(tensors, policy, obs, memory):
    """The same of an actor of one tanh layer, a GRU, one tanh layer and the last one -> (log-probabilities, what it remembers)."""
    def layer(number, x):
        return _linear(tensors[f"{policy}/actor.{number}.weight"], tensors[f"{policy}/actor.{number}.bias"], x)
    memory = gru(tensors, f"{policy}/actor.core", [math.tanh(v) for v in layer(0, obs)], memory)
    return _log_softmax(layer(2, [math.tanh(v) for v in layer(1, memory)])), memory


def recall_module_log_probabilities(tensors, policy, obs, memory):
    """The same of the actor of examples/recall_torchscript.yaml: one tanh layer, a GRUCell and the last layer."""
    def layer(name, x):
        return _linear(tensors[f"{policy}/actor.{name}.weight"], tensors[f"{policy}/actor.{name}.bias"], x)
    memory = gru(tensors, f"{policy}/actor.core", [math.tanh(v) for v in layer("encoder.0", obs)], memory, layer="")
    return _log_softmax(layer("head", memory)), memory

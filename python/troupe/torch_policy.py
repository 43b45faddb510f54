"""A policy's actor as a torch.nn.Module: all that it does with an observation but sampling. Needs numpy and PyTorch."""

from __future__ import annotations

import hashlib
import io
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor, nn

from troupe.networks import MAX_BETA_OUTPUT, Head, Network, observation_leaves, row_scaling
from troupe.program import REFUSED, TroupeError

_ACTIVATIONS: Dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh, "relu": torch.relu, "elu": nn.functional.elu, "gelu": nn.functional.gelu, "sigmoid": torch.sigmoid,
    "silu": nn.functional.silu, "identity": lambda x: x}
# As lib/inference and lib/policy have them.
_OBSERVATION_CLIP, _MIN_VARIANCE, _LAYER_NORM_EPSILON = 10.0, 1e-8, 1e-5
_BYTE = 1.0 / 255.0
_BUFFERS = "actor.buffers."  # where a checkpoint has those of a module


class _Moments(nn.Module):
    """Normalizes observations."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(network.observation_size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(network.observation_size, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        scale = (1 / torch.sqrt(torch.clamp(self.variance, min=_MIN_VARIANCE))).to(x.dtype)
        return torch.clamp((x - self.mean.to(x.dtype)) * scale, -_OBSERVATION_CLIP, _OBSERVATION_CLIP)


class _Layers(nn.Module):
    """Convolutions over an image and numbered fully connected layers, each with an activation behind it."""

    def __init__(self, actor: Dict[str, Any]) -> None:
        super().__init__()
        self._activation = actor["activation"]  # by name, so that the module can be pickled
        self._normed = bool(actor.get("layer_norm", False))
        self._image: List[int] = []
        if self._normed:
            self.norm = nn.ModuleList()

    def add_convolutions(self, layers: List[Dict[str, int]], shape: Tuple[int, ...]) -> int:
        """Over an image of [height, width, channels] or [height, width]; returns the numbers that the last one
        makes."""
        height, width, channels = self._image = [*shape, 1][:3]
        self.conv = nn.ModuleList()
        for layer in layers:
            kernel, stride = layer["kernel"], layer["stride"]
            self.conv.append(nn.Conv2d(channels, layer["channels"], kernel, stride))
            height, width, channels = (height - kernel) // stride + 1, (width - kernel) // stride + 1, layer["channels"]
        return height * width * channels

    def add_layer(self, number: int, width: int, size: int, hidden: bool = True) -> int:
        """Returns its size."""
        self.add_module(str(number), nn.Linear(width, size))
        if hidden and self._normed:
            self.norm.append(nn.LayerNorm(size, eps=_LAYER_NORM_EPSILON))
        return size

    def convolve(self, x: Tensor) -> Tensor:
        """Rows of images -> of what the last convolution makes, channels innermost as in the input."""
        if not self._image:
            return x
        x = x.reshape(-1, *self._image).permute(0, 3, 1, 2)
        for layer in self.conv:
            x = self._activate(layer(x))
        return x.permute(0, 2, 3, 1).flatten(1)

    def dense(self, number: int, x: Tensor) -> Tensor:
        """A hidden layer."""
        x = self.get_submodule(str(number))(x)
        return self._activate(self.norm[number](x) if self._normed else x)

    def _activate(self, x: Tensor) -> Tensor:
        return _ACTIVATIONS[self._activation](x)


class _Actor(_Layers):
    """The built-in network: encoder, core, head."""

    def __init__(self, network: Network) -> None:
        actor = network.actor
        super().__init__(actor)
        width, self._parts = self._add_encoder(network)
        width += network.agent_id_size
        hidden, head = actor["hidden_sizes"], actor.get("head_hidden_sizes", [])
        for number, size in enumerate(hidden):
            width = self.add_layer(number, width, size)
        self._core_at = len(hidden) if actor["core"] != "none" else -1
        self._num_hidden = len(hidden) + len(head)
        if self._core_at >= 0:
            kinds = {"gru": (nn.GRU, 1), "lstm": (nn.LSTM, 2)}
            if actor["core"] not in kinds:
                raise TroupeError(f"policy {network.policy}: got the core {actor['core']}, expected gru or lstm")
            kind, self._state_parts = kinds[actor["core"]]
            self.core = kind(width, actor["core_size"], actor["core_layers"])
            width = actor["core_size"]
        for number, size in enumerate(head, len(hidden)):
            width = self.add_layer(number, width, size)
        self.add_layer(self._num_hidden, width, network.outputs, hidden=False)

    def _add_encoder(self, network: Network) -> Tuple[int, List[Tuple[int, int, str, int, bool]]]:
        """-> the width of what it makes of an observation; of `leaves`, of each leaf its columns, its encoder ("":
        none), layers, and whether it is of bytes that are divided."""
        actor = network.actor
        if actor["encoder"] == "mlp":
            return network.observation_size, []
        if actor["encoder"] == "cnn":
            return self.add_convolutions(actor["conv_layers"], network.observation_space.shape), []
        if actor["encoder"] != "leaves":
            raise TroupeError(f"policy {network.policy}: got the encoder {actor['encoder']}, expected mlp, cnn, leaves or torchscript")
        self.leaf = nn.ModuleDict()
        encoders = {encoder["leaf"]: encoder for encoder in actor["leaf_encoders"]}
        begin, made, parts = 0, 0, []
        for number, space in enumerate(observation_leaves(network.observation_space)):
            end, width = begin + space.flat_size, space.flat_size
            encoder = encoders.get(number)
            if encoder is None:
                parts.append((begin, end, "", 0, False))
            else:
                layers = self.leaf[str(number)] = _Layers(actor)
                if encoder["conv_layers"]:
                    width = layers.add_convolutions(encoder["conv_layers"], space.shape)
                for i, size in enumerate(encoder["hidden_sizes"]):
                    width = layers.add_layer(i, width, size)
                divided = space.flat_dtype is np.uint8 and network.mean is None and "observation_scaling" not in network.spec
                parts.append((begin, end, str(number), len(encoder["hidden_sizes"]), divided))
            begin, made = end, made + width
        return made, parts

    def _encode(self, x: Tensor) -> Tensor:
        if not self._parts:
            return self.convolve(x)
        made = []
        for begin, end, name, num_layers, divided in self._parts:
            part = x[:, begin:end] * _BYTE if divided else x[:, begin:end]
            if name:
                part = self.leaf[name].convolve(part)
                for number in range(num_layers):
                    part = self.leaf[name].dense(number, part)
            made.append(part)
        return torch.cat(made, 1)

    def _remember(self, x: Tensor, states: Tensor) -> Tuple[Tensor, Tensor]:
        """A decision; states [rows, state_size]: by layer the output, of an LSTM followed by the cell."""
        size, layers = self.core.hidden_size, self.core.num_layers
        parts = states.reshape(-1, layers, self._state_parts, size).permute(2, 1, 0, 3).contiguous()
        x, after = self.core(x.unsqueeze(0), parts[0] if self._state_parts == 1 else (parts[0], parts[1]))
        stacked = torch.stack([after] if self._state_parts == 1 else list(after))
        return x.squeeze(0), stacked.permute(2, 1, 0, 3).flatten(1)

    def forward(self, x: Tensor, agent_id: Optional[Tensor], states: Optional[Tensor]) -> Tuple[Tensor, Optional[Tensor]]:
        x = self._encode(x)
        if agent_id is not None:
            x = torch.cat([x, agent_id], 1)
        for number in range(self._num_hidden + 1):
            if number == self._core_at:
                assert states is not None
                x, states = self._remember(x, states)
            if number < self._num_hidden:
                x = self.dense(number, x)
        return self.get_submodule(str(self._num_hidden))(x), states


class PolicyModule(nn.Module):
    """The actor of a policy with the weights of a checkpoint. Made by `Policy.torch_module`.

    policy, version: whose weights; input_names, output_names: what `forward` takes and gives. Parameters and buffers
    have the names of a checkpoint's tensors (docs/checkpoints.md) without the policy's id; buffers of a user's module
    lack `buffers.`.
    """

    def __init__(self, network: Network, module: Optional[torch.jit.ScriptModule] = None) -> None:
        super().__init__()
        self.policy, self.version = network.policy, network.version
        self.input_names, self.output_names = network.input_names, network.output_names
        self._head: Head = network.head
        self._agent_id_size = network.agent_id_size
        scaling = row_scaling(network.spec)
        self._scaled = scaling is not None
        if scaling is not None:  # no buffers: TorchScript would show them among the names of a checkpoint's tensors
            self._offset, self._scale = torch.tensor(scaling[0]), torch.tensor(scaling[1])
        self.observation = _Moments(network) if network.mean is not None else None
        if not network.is_module and network.actor["activation"] not in _ACTIVATIONS:
            raise TroupeError(f"policy {network.policy}: got the activation {network.actor['activation']}, expected one of {', '.join(_ACTIVATIONS)}")
        self.actor: nn.Module = _Actor(network) if module is None else module
        self._is_module = module is not None
        if not self._head.second and self._head.first:
            size = sum(end - begin for begin, end in self._head.first)
            if module is None:
                self.actor.register_parameter("log_std", nn.Parameter(torch.zeros(size)))
            else:
                self.log_std = nn.Parameter(torch.zeros(size))

    def forward(self, observations: Tensor, agent_slots: Optional[Tensor] = None, states: Optional[Tensor] = None,
                action_masks: Optional[Tensor] = None) -> Tuple[Tensor, ...]:
        """The distribution's parameters, as `output_names` has them, before masks: logits of all discrete parts side by
        side; mean and log_std, or alpha and beta, of all continuous numbers; next_states.

        observations: [rows, obs_size] or with the observation's dimensions, as a worker has them, float32 (or uint8 of
        a uint8 Box). agent_slots: [rows], of a policy that sees which agent it plays. states: [rows, state_size] of the
        decisions before, zeros at first, of one that remembers. action_masks: [rows, mask_size], of a user's module
        that reads them."""
        x = observations.to(torch.float32).flatten(1)
        if self._scaled:
            x = (x - self._offset.to(x.device)) * self._scale.to(x.device)
        if self.observation is not None:
            x = self.observation(x)
        agent_id = None
        if self._agent_id_size:
            if agent_slots is None:
                raise ValueError(f"policy {self.policy} sees which agent it plays, got no agent_slots, expected a number a row")
            agent_id = nn.functional.one_hot(agent_slots.to(torch.int64), self._agent_id_size).to(x.dtype)
        if "states" in self.input_names and states is None:
            raise ValueError(f"policy {self.policy} remembers, got no states, expected a row each, zeros at first")
        if self._is_module:
            outputs, after = self._run_module(x, agent_id, states, action_masks)
        else:
            outputs, after = self.actor(x, agent_id, states)
        parameters = self._split(outputs)
        return (*parameters, after) if "states" in self.input_names else parameters

    def _run_module(self, x: Tensor, agent_id: Optional[Tensor], states: Optional[Tensor], masks: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
        nothing = x[:, :0]
        if "action_masks" in self.input_names and masks is None:
            raise ValueError(f"policy {self.policy} has action masks, got none, expected a row each")
        outputs, after = self.actor(x, nothing if agent_id is None else agent_id, nothing if states is None else states,
                                    nothing.to(torch.bool) if masks is None else masks.to(torch.bool))
        return outputs, after

    def _split(self, outputs: Tensor) -> Tuple[Tensor, ...]:
        head = self._head
        logits = (outputs[:, : head.logits],) if head.categories else ()
        if not head.first:
            return logits
        first = torch.cat([outputs[:, begin:end] for begin, end in head.first], 1)
        if head.second:
            second = torch.cat([outputs[:, begin:end] for begin, end in head.second], 1)
        else:
            log_std = self.log_std if self._is_module else self.actor.log_std
            second = log_std + torch.zeros_like(first)
        if head.distribution == "beta":
            # 1 + softplus, in a form that holds for large numbers.
            capped = (torch.clamp(each, max=MAX_BETA_OUTPUT) for each in (first, second))
            return (*logits, *(1 + torch.relu(each) + torch.log1p(torch.exp(-torch.abs(each))) for each in capped))
        return (*logits, first, torch.clamp(second, head.min_log_std, head.max_log_std))


def make_module(network: Network, torchscript: Optional[str]) -> PolicyModule:
    """In eval mode. As Policy.torch_module. TroupeError."""
    module = PolicyModule(network, _load_module(network, torchscript) if network.is_module else None)
    tensors = {name: torch.tensor(values) for name, values in network.all_tensors().items()}
    if network.is_module:
        # A module's buffers are its own by name, and log_std is none of the module's.
        tensors = {_name_in_module(name): values for name, values in tensors.items()}
    missing, unexpected = module.load_state_dict(tensors, strict=False)
    # What a checkpoint does not tell of a user's network is what no training changes: buffers of whole numbers.
    if network.is_module:
        given = module.state_dict()
        missing = [name for name in missing if given[name].is_floating_point()]
    if unexpected or missing:
        raise TroupeError(f"policy {network.policy}: the checkpoint has the tensors {', '.join(unexpected) or 'none'}, which are not the network's, and the "
                          f"network {', '.join(missing) or 'none'}, which are not the checkpoint's; expected the same")
    return module.eval()


def _name_in_module(name: str) -> str:
    """Of a checkpoint's tensor. No parameter of a module is called log_std or begins with buffers.
    (policy::ModuleSpec)."""
    if name == "actor.log_std":
        return "log_std"
    return f"actor.{name[len(_BUFFERS):]}" if name.startswith(_BUFFERS) else name


def _load_module(network: Network, path: Optional[str]) -> torch.jit.ScriptModule:
    """The user's file that the policy names by its SHA-256. TroupeError for another one, or none."""
    wanted = network.actor["torchscript"]["sha256"]
    if path is None:
        raise TroupeError(f"policy {network.policy} is a TorchScript module, sha256:{wanted}, which is a program, and nothing of yours permits it; expected "
                          "torchscript=FILE (--allow-torchscript FILE), as the run keeps in RUN/torchscript", REFUSED)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise TroupeError(f"{path}: cannot be read: {error.strerror}") from None
    got = hashlib.sha256(content).hexdigest()
    if got != wanted:
        raise TroupeError(f"{path}: got a file with the SHA-256 {got}, expected {wanted}, the module of policy {network.policy}", REFUSED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript itself, which ADR 36 knows
        loaded: torch.jit.ScriptModule = torch.jit.load(io.BytesIO(content), map_location="cpu")
    return loaded

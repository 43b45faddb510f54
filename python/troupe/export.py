"""Policies that leave a checkpoint: what `Policy.torch_module` and `Policy.export` do.

A checkpoint is data: nothing of it is executed but a user's TorchScript file that its caller names. Beside each file stands what a worker's actor says
of some inputs, and the file was asked the same before it was put in its place.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import struct
import sys
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, NamedTuple, Optional, Tuple

import numpy as np

from troupe.networks import Array, Network, Said
from troupe.program import TroupeError
from troupe.version import VERSION

if TYPE_CHECKING:
    from troupe.torch_policy import PolicyModule

FORMATS = ("safetensors", "torchscript", "onnx")
GOLDEN_SUFFIX = ".golden.npz"
GOLDEN_ROWS = 8
# What a file's outputs may differ by from a worker's, of a number of size 1: sums in another order, 32 bits.
TOLERANCE = 1e-4
_GOLDEN_SEED = 20
_ONNX_OPSET = 17


class Exported(NamedTuple):
    """path, golden: the files. difference: the largest between the outputs of the file and the golden ones, relative where their row has numbers above 1.
    checked_with: what ran the file; empty: nothing here runs it, its numbers are the checkpoint's."""

    path: str
    golden: str
    difference: float
    checked_with: str


def require(package: str, what: str) -> Any:
    """The package. TroupeError where this interpreter has none."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise TroupeError(f"{what} needs the Python package {package}, which {sys.executable} cannot import ({error}): pip install {package}") from None


def torch_module(network: Network, ask: Callable[..., Said], torchscript: Optional[str]) -> "PolicyModule":
    """As Policy.torch_module, of a policy whose `outputs` is `ask`: a worker's actor is asked the same before the module is given away."""
    require("torch", "torch_module")
    from troupe.torch_policy import make_module

    module = make_module(network, torchscript)
    if not network.is_module:
        inputs, outputs = _parts(_golden(network, ask, None))
        _check(network, _run(module, network, inputs), outputs)
    return module


def export(network: Network, ask: Callable[..., Said], path: str, format: str, *, overwrite: bool, torchscript: Optional[str]) -> Exported:
    """As Policy.export."""
    if format not in FORMATS:
        raise TroupeError(f"got the format {format!r}, expected one of {', '.join(FORMATS)}")
    golden_path = path + GOLDEN_SUFFIX
    for each in (path, golden_path):
        if not overwrite and os.path.lexists(each):
            raise TroupeError(f"{each} is there already, expected no file: overwrite=True (--overwrite) replaces it")
    for package in {"torchscript": ("torch",), "onnx": ("torch", "onnx")}.get(format, ()):
        require(package, f"format {format}")
    module: Any = torch_module(network, ask, torchscript) if network.is_module or format != "safetensors" else None
    golden = _golden(network, ask, module)
    inputs, outputs = _parts(golden)
    with _placed(path) as part:
        said: Dict[str, Array] = {}
        if format == "safetensors":
            write_safetensors(part, network.all_tensors(), _metadata(network))
        elif format == "torchscript":
            said = _write_torchscript(part, module, network, inputs)
        else:
            said = _write_onnx(part, module, network, inputs)
        checked_with = {"torchscript": "torch", "onnx": "onnxruntime"}[format] if said else ""
        difference = _check(network, said, outputs)
        with _placed(golden_path) as golden_part:
            _write_npz(golden_part, golden)
    return Exported(path, golden_path, difference, checked_with)


def _golden(network: Network, ask: Callable[..., Said], module: "Optional[PolicyModule]") -> Dict[str, Array]:
    """input.NAME and output.NAME by the network's names; where masks are no input of it, action_masks; actions (the deterministic ones, as the
    environment gets them) and logp of a worker's actor. Of a user's network the outputs are the module's, whose program is the worker's, too."""
    inputs = network.sample_inputs(GOLDEN_ROWS, _GOLDEN_SEED)
    golden = {f"input.{name}" if name in network.input_names else name: values for name, values in inputs.items()}
    if module is not None and network.is_module:
        return {**golden, **{f"output.{name}": values for name, values in _run(module, network, inputs).items()}}
    said = ask(**inputs)
    golden.update({f"output.{name}": values for name, values in network.head.split(said.outputs, network.tensors.get("actor.log_std")).items()})
    if network.state_size:
        golden["output.next_states"] = said.states
    return {**golden, "actions": said.actions, "logp": said.logp}


def _parts(golden: Dict[str, Array]) -> Tuple[Dict[str, Array], Dict[str, Array]]:
    """Inputs and outputs by the network's names."""
    inputs, outputs = ({name[len(kind):]: values for name, values in golden.items() if name.startswith(kind)} for kind in ("input.", "output."))
    return inputs, outputs


def _run(module: Any, network: Network, inputs: Dict[str, Array]) -> Dict[str, Array]:
    """What a torch.nn.Module or ScriptModule says, by name."""
    import torch

    with torch.no_grad():
        said = module(**{name: torch.from_numpy(inputs[name]) for name in network.input_names})
    return {name: values.numpy() for name, values in zip(network.output_names, said)}


def _traced(module: "PolicyModule", inputs: Dict[str, Array]) -> Any:
    """A ScriptModule. Traced: its operations follow from the network alone, never from numbers, and so hold for any number of rows."""
    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(module, example_kwarg_inputs={name: torch.from_numpy(values) for name, values in inputs.items()}, check_trace=False)


def _write_torchscript(path: str, module: "PolicyModule", network: Network, inputs: Dict[str, Array]) -> Dict[str, Array]:
    """-> what the file says of the inputs."""
    import torch

    metadata = {**_metadata(network), "inputs": json.dumps(network.input_names), "outputs": json.dumps(network.output_names)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(_traced(module, inputs), path, _extra_files={f"troupe.{key}": value.encode() for key, value in metadata.items()})
        return _run(torch.jit.load(path), network, inputs)


def _write_onnx(path: str, module: "PolicyModule", network: Network, inputs: Dict[str, Array]) -> Dict[str, Array]:
    """-> what onnxruntime says of the inputs; nothing where it is not installed."""
    import onnx
    import torch

    rows = {name: {0: "rows"} for name in (*network.input_names, *network.output_names)}
    examples = tuple(torch.from_numpy(inputs[name]) for name in network.input_names)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Of PyTorch's two exporters the one over TorchScript: it takes users' modules, and needs no package but onnx.
        torch.onnx.export(_traced(module, inputs), examples, path, input_names=network.input_names, output_names=network.output_names, dynamic_axes=rows,
                          opset_version=_ONNX_OPSET, dynamo=False)
    graph = onnx.load(path)
    onnx.helper.set_model_props(graph, {f"troupe.{key}": value for key, value in _metadata(network).items()})
    onnx.checker.check_model(graph)
    with open(path, "wb") as file:
        file.write(graph.SerializeToString())
    if importlib.util.find_spec("onnxruntime") is None:
        return {}
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    read = {each.name for each in session.get_inputs()}  # a user's network may ignore some, which the graph then lacks
    return dict(zip(network.output_names, session.run(network.output_names, {name: inputs[name] for name in network.input_names if name in read})))


def _check(network: Network, said: Dict[str, Array], expected: Dict[str, Array]) -> float:
    """The largest difference, by the scale of its row where that is above 1. TroupeError for one above TOLERANCE."""
    largest = 0.0
    for name, values in said.items():
        wanted = expected[name]
        if values.shape != wanted.shape:
            raise TroupeError(f"policy {network.policy}: outside of troupe it has {name} of shape {values.shape}, expected {wanted.shape}")
        # Of the row's scale: a number that is small because large ones cancel has the error of those.
        difference = float(np.max(np.abs(values - wanted) / np.maximum(1, np.max(np.abs(wanted), axis=-1, keepdims=True))))
        if not difference <= TOLERANCE:
            raise TroupeError(f"policy {network.policy}: outside of troupe it has {name} that differ by {difference:g}, expected at most {TOLERANCE:g}: nothing "
                              "was made of it; this is an error of troupe's")
        largest = max(largest, difference)
    return largest


def _metadata(network: Network) -> Dict[str, str]:
    return {"format": "pt", "troupe": VERSION, "policy": network.policy, "version": str(network.version), "network": network.text()}


def write_safetensors(path: str, tensors: Dict[str, Array], metadata: Dict[str, str]) -> None:
    """A file of Hugging Face's format: the header's length as 8 bytes, little-endian; the header as JSON; the numbers. float32 and float64 alone."""
    header: Dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, values in tensors.items():
        begin, end = end, end + values.nbytes
        header[name] = {"dtype": {4: "F32", 8: "F64"}[values.itemsize], "shape": list(values.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # numbers begin at a multiple of 8 bytes
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.astype(values.dtype.newbyteorder("<")).tobytes())


def _write_npz(path: str, arrays: Dict[str, Array]) -> None:
    with open(path, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


@contextlib.contextmanager
def _placed(path: str) -> Iterator[str]:
    """A name beside `path` to write to, which is synced and renamed at the end, and removed after an error. TroupeError where it cannot be written."""
    part = f"{path}.{os.getpid()}.part"
    try:
        yield part
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except TroupeError:
        raise
    except OSError as error:
        raise TroupeError(f"{path}: cannot be written: {error.strerror or error}") from None
    except Exception as error:  # of PyTorch, onnx and onnxruntime, which have classes of their own for a folder that is not there or a full disk
        raise TroupeError(f"{path}: cannot be written: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)

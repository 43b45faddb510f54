"""Policies that leave a checkpoint: what `Policy.torch_module` and `Policy.export` do.

A checkpoint is data: nothing of it is executed but a user's TorchScript file that its caller names. Beside each file
lie golden rows: inputs, and the outputs of a worker's actor. A file that something here can run is run on them before
it is put in its place.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import json
import os
import re
import secrets
import stat
import struct
import sys
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from troupe.networks import ActorOutputs, Array, Network
from troupe.program import REFUSED, USAGE, TroupeError
from troupe.version import VERSION

if TYPE_CHECKING:
    from troupe.torch_policy import PolicyModule

# By the ending of their files.
ENDINGS = {".safetensors": "safetensors", ".pt": "torchscript", ".onnx": "onnx"}
FORMATS = tuple(ENDINGS.values())
# The first PyTorch that has what `_traced` and `_write_onnx` ask of it.
MIN_TORCH = (2, 5)
GOLDEN_SUFFIX = ".golden.npz"
GOLDEN_ROWS = 8
# What a file's outputs may differ by from a worker's, of a row whose numbers are of size 1: sums in another order,
# 32 bits.
TOLERANCE = 1e-4
# Most bytes of tensors in an ONNX file: a message of protobuf ends at 2 GiB, and the graph's operations take some.
MAX_ONNX_BYTES = (2 << 30) - (1 << 20)
_GOLDEN_SEED = 20
_ONNX_OPSET = 17


class Exported(NamedTuple):
    """path, golden: the files. difference: the largest between the outputs of the file and the golden ones, relative
    where their row has numbers above 1. checked_with: what ran the file, torch or onnxruntime; empty: nothing did, and
    its tensors are the checkpoint's."""

    path: str
    golden: str
    difference: float
    checked_with: str


def require(package: str, what: str) -> Any:
    """The package. TroupeError where this interpreter has none."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise TroupeError(f"{what} needs the Python package {package}, which {sys.executable} cannot import ({error}): pip install {package}", REFUSED) from None


def torch_module(network: Network, actor: Callable[..., ActorOutputs], torchscript: Optional[str]) -> "PolicyModule":
    """As Policy.torch_module, of a policy whose `outputs` is `actor`: the module's are compared with them before it is
    given away."""
    require("torch", "torch_module")
    from troupe.torch_policy import make_module

    module = make_module(network, torchscript)
    if not network.is_module:
        inputs, outputs = _parts(_golden(network, actor, None))
        _check(network, _run(module, network, inputs), outputs)
    return module


def _format_of(path: str, asked: Optional[str]) -> str:
    """The format of the file: `asked`, or by its ending. TroupeError where nothing says it, or where the two disagree."""
    if asked is not None and asked not in FORMATS:
        raise TroupeError(f"got the format {asked!r}, expected one of {', '.join(FORMATS)}", USAGE)
    ending = os.path.splitext(path)[1]
    told = ENDINGS.get(ending)
    if asked is None and told is None:
        endings = ", ".join(f"{each} ({name})" for each, name in ENDINGS.items())
        raise TroupeError(f"{path}: got {f'the ending {ending}' if ending else 'no ending'}, expected one of {endings}, or a format (--format)", USAGE)
    if asked is not None and told is not None and asked != told:
        right = next(each for each, name in ENDINGS.items() if name == asked)
        raise TroupeError(f"{path}: got the format {asked} for a file of {told}, expected the ending {right}, or no format: it follows the ending", USAGE)
    return asked or str(told)


def _check_torch(format: str) -> None:
    """TroupeError where PyTorch is older than MIN_TORCH."""
    version = str(require("torch", f"format {format}").__version__)
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and tuple(map(int, found.groups())) < MIN_TORCH:
        raise TroupeError(f"format {format} needs PyTorch {'.'.join(map(str, MIN_TORCH))} or newer, got {version} of {sys.executable}: pip install --upgrade "
                          "torch", REFUSED)


def export(network: Network, actor: Callable[..., ActorOutputs], path: str, format: Optional[str], *, overwrite: bool, torchscript: Optional[str]) -> Exported:
    """As Policy.export."""
    format = _format_of(path, format)
    golden_path = path + GOLDEN_SUFFIX
    for each in (path, golden_path):
        _check_target(each, overwrite)
    if format == "onnx":
        _check_onnx_size(network)
    if format != "safetensors":
        _check_torch(format)
    if format == "onnx":
        require("onnx", f"format {format}")
    module: Any = torch_module(network, actor, torchscript) if network.is_module or format != "safetensors" else None
    golden = _golden(network, actor, module)
    inputs, outputs = _parts(golden)
    with _temporary_beside(path) as part, _temporary_beside(golden_path) as golden_part:
        with _errors_of(path):
            if format == "safetensors":
                written = _Written(network.input_names, {})
                write_safetensors(part, network.all_tensors(), _metadata(network))
            else:
                written = {"torchscript": _write_torchscript, "onnx": _write_onnx}[format](part, module, network, inputs)
            _sync(part)
        difference = _check(network, written.outputs, outputs)
        with _errors_of(golden_path):
            ignored = [f"input.{name}" for name in network.input_names if name not in written.inputs]
            _write_npz(golden_part, {name: values for name, values in golden.items() if name not in ignored})
            _sync(golden_part)
        _place(((part, path), (golden_part, golden_path)), overwrite)
    checked_with = {"torchscript": "torch", "onnx": "onnxruntime"}[format] if written.outputs else ""
    return Exported(path, golden_path, difference, checked_with)


class _Written(NamedTuple):
    """inputs: names of those that the file takes. outputs: its own, by name, of the golden inputs; empty: nothing here
    runs it."""

    inputs: Sequence[str]
    outputs: Dict[str, Array]


def _check_target(path: str, overwrite: bool) -> None:
    """TroupeError where no file can be put."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return  # what else is wrong with it is said when it is written
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a link" if stat.S_ISLNK(mode) else "no regular file"
        raise TroupeError(f"{path} is {kind}, expected a regular file or none", REFUSED)
    if not overwrite:
        raise TroupeError(f"{path} is there already, expected no file: overwrite=True (--overwrite) replaces it", REFUSED)


def _check_onnx_size(network: Network) -> None:
    size = sum(values.nbytes for values in network.all_tensors().values())
    if size > MAX_ONNX_BYTES:
        raise TroupeError(f"policy {network.policy}: got tensors of {size} bytes, expected at most {MAX_ONNX_BYTES}, which an ONNX file can hold; the formats "
                          "safetensors and torchscript have no such limit", REFUSED)


def _golden(network: Network, actor: Callable[..., ActorOutputs], module: "Optional[PolicyModule]") -> Dict[str, Array]:
    """input.NAME and output.NAME by the network's names; where masks are no input of it, action_masks; actions (the
    deterministic ones, as the environment gets them) and logp of a worker's actor. Of a user's network the outputs are
    the module's, whose program is the worker's, too."""
    inputs = network.sample_inputs(GOLDEN_ROWS, _GOLDEN_SEED)
    golden = {f"input.{name}" if name in network.input_names else name: values for name, values in inputs.items()}
    if module is not None and network.is_module:
        return {**golden, **{f"output.{name}": values for name, values in _run(module, network, inputs).items()}}
    computed = actor(**inputs)
    golden.update({f"output.{name}": values for name, values in network.head.split(computed.outputs, network.tensors.get("actor.log_std")).items()})
    if network.state_size:
        golden["output.next_states"] = computed.states
    return {**golden, "actions": computed.actions, "logp": computed.logp}


def _parts(golden: Dict[str, Array]) -> Tuple[Dict[str, Array], Dict[str, Array]]:
    """Inputs and outputs by the network's names."""
    inputs, outputs = ({name[len(kind):]: values for name, values in golden.items() if name.startswith(kind)} for kind in ("input.", "output."))
    return inputs, outputs


def _run(module: Any, network: Network, inputs: Dict[str, Array]) -> Dict[str, Array]:
    """The outputs of a torch.nn.Module or ScriptModule, by name."""
    import torch

    with torch.no_grad():
        outputs = module(**{name: torch.from_numpy(inputs[name]) for name in network.input_names})
    return {name: values.numpy() for name, values in zip(network.output_names, outputs)}


def _traced(module: "PolicyModule", inputs: Dict[str, Array]) -> Any:
    """A ScriptModule. Traced: its operations follow from the network alone, never from numbers, and so hold for any
    number of rows."""
    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(module, example_kwarg_inputs={name: torch.from_numpy(values) for name, values in inputs.items()}, check_trace=False)


def _write_torchscript(path: str, module: "PolicyModule", network: Network, inputs: Dict[str, Array]) -> _Written:
    import torch

    metadata = {**_metadata(network), "inputs": json.dumps(network.input_names), "outputs": json.dumps(network.output_names)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(_traced(module, inputs), path, _extra_files={f"troupe.{key}": value.encode() for key, value in metadata.items()})
        return _Written(network.input_names, _run(torch.jit.load(path), network, inputs))


def _write_onnx(path: str, module: "PolicyModule", network: Network, inputs: Dict[str, Array]) -> _Written:
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
    names = [each.name for each in graph.graph.input]  # without those that a user's network ignores
    if importlib.util.find_spec("onnxruntime") is None:
        return _Written(names, {})
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs = session.run(network.output_names, {name: inputs[name] for name in names})
    return _Written(names, dict(zip(network.output_names, outputs)))


def _check(network: Network, outputs: Dict[str, Array], expected: Dict[str, Array]) -> float:
    """The largest difference, by the scale of its row where that is above 1. TroupeError for one above TOLERANCE."""
    largest = 0.0
    for name, values in outputs.items():
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
    """A file of Hugging Face's format: the header's length as 8 bytes, little-endian; the header as JSON; the numbers,
    wider types first, so that each tensor begins at a multiple of its type's size. float32 and float64 alone."""
    tensors = dict(sorted(tensors.items(), key=lambda item: -item[1].itemsize))
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


def _sync(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def _errors_of(path: str) -> Iterator[None]:
    """An error while `path` is written is a TroupeError that names it."""
    try:
        yield
    except TroupeError:
        raise
    except OSError as error:
        raise TroupeError(f"{path}: cannot be written: {error.strerror or error}") from None
    except Exception as error:  # of PyTorch, onnx and onnxruntime, which have classes of their own for a full disk
        raise TroupeError(f"{path}: cannot be written: {error}") from error


@contextlib.contextmanager
def _temporary_beside(path: str) -> Iterator[str]:
    """A new empty file in the folder of `path`, with the permissions that the umask leaves and a name that nobody can
    guess, removed at the end."""
    part = os.path.join(os.path.dirname(path), f".{secrets.token_hex(16)}.part")
    with _errors_of(path):
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))  # O_EXCL follows no link
    try:
        yield part
    finally:
        _remove(part)


def _place(files: Sequence[Tuple[str, str]], overwrite: bool) -> None:
    """Gives each (temporary, path) its name: all of them or, after an error, none; what was overwritten until then is back."""
    with contextlib.ExitStack() as done, contextlib.ExitStack() as undo:
        for part, path in files:
            old = f"{part}.old"
            with _errors_of(path):
                if overwrite:
                    with contextlib.suppress(OSError):  # nothing was there, or there are no hard links: then nothing comes back
                        os.link(path, old)
                        done.callback(_remove, old)
                    os.replace(part, path)
                else:
                    _link(part, path)
            undo.callback(_put_back, old, path)
        undo.pop_all()


def _put_back(old: str, path: str) -> None:
    """Undoes that `path` got its name: what was there before, or nothing."""
    try:
        os.replace(old, path)
    except OSError:
        _remove(path)


def _link(part: str, path: str) -> None:
    """Unlike a rename it replaces nothing. TroupeError where something has got the name since it was looked for."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise TroupeError(f"{path} has appeared meanwhile, expected no file: overwrite=True (--overwrite) replaces it", REFUSED) from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP):
            raise
        raise TroupeError(f"{path}: cannot be written: its file system has no hard links ({error.strerror}), expected some, or overwrite=True (--overwrite), "
                          "which needs none", REFUSED) from None


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)

"""The part that says what the machine is, and the questions to nvidia-smi."""

import glob
import importlib.util
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

QUERY = ("name", "driver_version", "memory.total", "compute_cap", "pcie.link.gen.current", "pcie.link.width.current",
         "clocks.max.sm")
SMI_PLACES = ("/usr/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")


def nvidia_smi():
    """The path of nvidia-smi, or None."""
    return shutil.which("nvidia-smi") or next((path for path in SMI_PLACES if os.access(path, os.X_OK)), None)


def ask_smi(fields, index=None, timeout_s=5.0):
    """A list of the fields' values for each GPU (or the one of that index); [] when nvidia-smi does not answer."""
    program = nvidia_smi()
    if not program:
        return []
    command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    if index is not None:
        command.append(f"--id={index}")
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=timeout_s, text=True)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode != 0:
        return []
    return [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def pick_device(asked):
    """(device, index, why): `asked` is None, cuda, cuda:N or cpu; the device is "cuda" or "cpu"."""
    if asked == "cpu":
        return "cpu", 0, "--device cpu was given"
    if asked:
        return "cuda", int(asked.partition(":")[2] or 0), f"--device {asked} was given"
    if ask_smi(["name"]):
        return "cuda", 0, "nvidia-smi shows a GPU"
    if os.path.exists("/dev/nvidia0") or glob.glob("/proc/driver/nvidia/gpus/*"):
        return "cuda", 0, "the driver shows a GPU, though nvidia-smi does not"
    return "cpu", 0, "neither nvidia-smi nor the driver shows a GPU"


def cpu_facts():
    """{model, threads, cores, avx2, avx512f} of /proc/cpuinfo."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = set((re.search(r"^flags\s*:\s*(.+)$", text, re.MULTILINE) or [None, ""])[1].split())
    cores = set(re.findall(r"physical id\s*:\s*(\d+)(?:.*\n)*?core id\s*:\s*(\d+)", text))
    return {
        "model": model[1].strip() if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "physical_cores": len(cores) or None,
        "avx2": "avx2" in flags,
        "avx512f": "avx512f" in flags,
    }


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def torch_facts():
    """{version, folder, cuda} of this Python's torch, which is not imported; None without one."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = pathlib.Path(list(spec.submodule_search_locations)[0])
    version = None
    if (folder / "version.py").exists():
        found = re.search(r"__version__\s*(?::[^=]*)?=\s*['\"]([^'\"]+)", (folder / "version.py").read_text())
        version = found[1] if found else None
    return {"version": version, "folder": str(folder), "cuda": (folder / "lib" / "libtorch_cuda.so").exists()}


def run(context, outcome):
    facts = outcome.figures
    facts["cpu"] = cpu = cpu_facts()
    facts["memory_bytes"] = memory_bytes()
    facts["load"] = os.getloadavg()[0]
    facts["kernel"] = platform.release()
    facts["glibc"] = " ".join(platform.libc_ver())
    facts["python"] = platform.python_version()
    facts["torch"] = torch = torch_facts()
    facts["gpus"] = [dict(zip(QUERY, row)) for row in ask_smi(QUERY)]
    rows = outcome.table("This machine", ["", ""])
    for gpu in facts["gpus"]:
        rows.append(["GPU", f"{gpu['name']}, {gpu['memory.total']} MiB, compute capability {gpu['compute_cap']}, PCIe "
                            f"generation {gpu['pcie.link.gen.current']} x{gpu['pcie.link.width.current']} (now), at most "
                            f"{gpu['clocks.max.sm']} MHz, driver {gpu['driver_version']}"])
    if not facts["gpus"]:
        rows.append(["GPU", "none that nvidia-smi shows"])
    units = ", ".join(name for name, there in (("AVX2", cpu["avx2"]), ("AVX-512", cpu["avx512f"])) if there)
    physical = f" on {cpu['physical_cores']} physical cores" if cpu["physical_cores"] else ""
    rows.append(["CPU", f"{cpu['model']}: {cpu['cores']} CPUs{physical}, {units or 'neither AVX2 nor AVX-512'}"])
    rows.append(["memory", f"{facts['memory_bytes'] / 2**30:.0f} GiB"])
    rows.append(["system", f"Linux {facts['kernel']}, {facts['glibc']}, Python {facts['python']}"])
    where = f"{torch['version']} in `{torch['folder']}`, {'with' if torch['cuda'] else 'without'} libtorch_cuda.so" if torch else "none"
    rows.append(["torch of " + os.path.basename(sys.executable), where])
    rows.append(["load before the check", f"{facts['load']:.1f} processes"])
    if facts["load"] > 0.25 * cpu["cores"]:
        outcome.notes.append(f"Others use this machine (load {facts['load']:.1f} on {cpu['cores']} CPUs): times are too long.")
    answer = context.run([context.program("bin", "troupe"), "version"], limit_s=5)
    if answer.problem():
        outcome.failed_with(answer)
    outcome.check(not answer.problem(), f"`troupe version` runs ({answer.problem() or answer.last_line()})")
    if not context.stand_in:
        outcome.check(len(facts["gpus"]) > context.gpu_index, f"GPU {context.gpu_index} is one of the {len(facts['gpus'])} that nvidia-smi shows")
    gpu = facts["gpus"][context.gpu_index]["name"] if context.gpu_index < len(facts["gpus"]) else "no GPU"
    outcome.line = f"{gpu}; {cpu['cores']} CPUs of {cpu['model']}; {answer.last_line()}; torch {torch['version'] if torch else 'none'}"

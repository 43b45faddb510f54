"""Virtual environments of the peers: one for each requirements/NAME.txt, pinned in full, made once.

`uv` is installed beside them because it links one copy of PyTorch into all of them (pip would write four).
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
UV_REQUIREMENT = "uv==0.13.8"
PYTHON_VERSION = (3, 11)


def default_folder() -> pathlib.Path:
    cache = os.environ.get("TROUPE_CACHE")
    return pathlib.Path(cache) / "peers" if cache else HERE.parents[1] / ".work" / "peers"


def find_python(given: str | None) -> str:
    """A Python of the version that the pins are for. SystemExit names what is missing."""
    wanted = ".".join(map(str, PYTHON_VERSION))
    for candidate in [given] if given else [f"python{wanted}", "python3", sys.executable]:
        path = shutil.which(candidate)
        if not path:
            continue
        probe = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([path, "-c", probe], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip() == wanted:
            return path
    raise SystemExit(
        f"run.py: no Python {wanted} with the venv module found"
        f" (Debian: apt-get install python{wanted}-venv; or name one with --python)"
    )


def ensure(name: str, folder: pathlib.Path, python: str | None) -> pathlib.Path:
    """Makes the environment if its requirements changed since it was made; returns its Python."""
    requirements = HERE / "requirements" / f"{name}.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    venv = folder / name
    stamp = venv / "requirements.sha256"
    if stamp.exists() and stamp.read_text() == digest:
        return venv / "bin" / "python"
    base = find_python(python)
    uv = folder / "uv" / "bin" / "uv"
    if not uv.exists():
        print(f"setting up {folder / 'uv'}", flush=True)
        subprocess.run([base, "-m", "venv", folder / "uv"], check=True)
        subprocess.run(
            [folder / "uv" / "bin" / "python", "-m", "pip", "install", "-q", UV_REQUIREMENT], check=True
        )
    print(f"setting up {venv} (PyTorch comes with its CUDA libraries: 6 GB once, for all)", flush=True)
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([base, "-m", "venv", venv], check=True)
    env = dict(os.environ, UV_CACHE_DIR=str(folder / "uv-cache"))
    subprocess.run(
        [uv, "pip", "install", "-q", "--python", venv / "bin" / "python", "-r", requirements],
        check=True,
        env=env,
    )
    stamp.write_text(digest)
    return venv / "bin" / "python"

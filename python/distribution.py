"""What pip is told of the distributions: setup.py and make_wheels.py read it."""

import os
import runpy

_FACTS = runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "troupe", "version.py"))
NAME, VERSION, LIBTORCH_VERSION = _FACTS["DISTRIBUTION"], _FACTS["VERSION"], _FACTS["LIBTORCH_VERSION"]
# The three libraries of LibTorch that training on a CPU loads.
LIBTORCH_NAME = "troupe-libtorch-cpu"
LIBTORCH_SUMMARY = f"LibTorch's libraries for the CPU, for {NAME}"

SUMMARY = "Troupe: many agents, many policies: a distributed actor-learner service for multi-agent reinforcement learning"
REQUIRES_PYTHON = ">=3.9"
LICENSE = "Apache-2.0"
COMMAND = "troupe = troupe.__main__:main"

EXTRAS = {
    "python": ["numpy"],
    "client": ["numpy", "grpcio", "protobuf>=3.20.3"],
    "envs": ["numpy", "gymnasium>=0.29", "pettingzoo>=1.24"],
    "notebook": ["numpy", "cloudpickle"],
    "plot": ["matplotlib"],
    "wandb": ["wandb>=0.16"],
    # LibTorch's C++ interface changes with every version.
    "cpu": [f"{LIBTORCH_NAME}=={LIBTORCH_VERSION}"],
    "cuda": [f"torch=={LIBTORCH_VERSION}"],
}

"""From a checkout that is built, the shared libraries come with the package."""

import os
import shutil
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
import distribution  # noqa: E402  (of this folder)

BUILD = os.path.join(os.path.dirname(FOLDER), "build", "release")
# In the package: where the build has it. What is not built is left out; what needs it says so.
BUILT = {
    os.path.join("troupe", "envs", "libtroupe_envs.so"): os.path.join(BUILD, "lib", "envs", "c_api", "libtroupe_envs.so"),
    os.path.join("troupe", "libtroupe_acting.so"): os.path.join(BUILD, "lib", "acting", "libtroupe_acting.so"),
    os.path.join("troupe", "_usual_step.abi3.so"): os.path.join(BUILD, "python", "_usual_step.abi3.so"),
}


class BuildWithLibraries(build_py):
    def run(self):
        super().run()
        for name, path in BUILT.items():
            if os.path.isfile(path):
                self.copy_file(path, os.path.join(self.build_lib, name))


# What an earlier build left of the package would be installed, too.
shutil.rmtree(os.path.join(FOLDER, "build"), ignore_errors=True)
setup(
    name=distribution.NAME,
    version=distribution.VERSION,
    description=distribution.SUMMARY,
    license=distribution.LICENSE,
    python_requires=distribution.REQUIRES_PYTHON,
    extras_require=distribution.EXTRAS,
    entry_points={"console_scripts": [distribution.COMMAND]},
    packages=["troupe", "troupe.env_adapters", "troupe.envs", "troupe.v1"],
    package_data={"troupe": ["py.typed", "_usual_step.abi3.so", "libtroupe_acting.so"], "troupe.envs": ["libtroupe_envs.so"]},
    cmdclass={"build_py": BuildWithLibraries},
)

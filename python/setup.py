"""What pyproject.toml cannot say: from a checkout that is built, the shared libraries come with the package."""

import os
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(CHECKOUT, "build", "release")
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
shutil.rmtree(os.path.join(os.path.dirname(os.path.abspath(__file__)), "build"), ignore_errors=True)
setup(cmdclass={"build_py": BuildWithLibraries})

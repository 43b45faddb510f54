"""An environment whose module opens a file when it is imported, and writes to it afterwards."""

import os

import host_test_envs

LOG = open(os.environ.get("HOST_TEST_LOG", os.devnull), "a", encoding="utf-8")  # pylint: disable=consider-using-with


def counter():
    """Writes that it was made."""
    LOG.write("made\n")
    LOG.flush()
    return host_test_envs.Counter()

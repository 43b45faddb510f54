"""python/troupe/v1 against proto/troupe/v1: what protoc makes of the .proto is what the package has, whatever protoc's version."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, PACKAGE)

HAVE_PROTOBUF = importlib.util.find_spec("google") is not None and importlib.util.find_spec("google.protobuf") is not None


def without_json_names(message):
    """Nobody says them in the .proto; protoc fills them in, and its generated code leaves them out."""
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        without_json_names(nested)


@unittest.skipUnless(HAVE_PROTOBUF and shutil.which("protoc"), "protobuf or protoc is not installed")
class StubsTest(unittest.TestCase):
    def test_are_of_the_proto(self):
        from google.protobuf import descriptor_pb2
        from troupe.v1 import common_pb2, episodes_pb2, query_pb2
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "set")
            subprocess.run(["protoc", "-I", os.path.join(PACKAGE, "..", "proto"), f"--descriptor_set_out={path}",
                            *(f"troupe/v1/{name}.proto" for name in ("common", "episodes", "query"))], check=True)
            with open(path, "rb") as file:
                expected = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
        self.assertEqual(len(expected), 3)
        for file, stub in zip(expected, (common_pb2, episodes_pb2, query_pb2)):
            for message in file.message_type:
                without_json_names(message)
            self.assertEqual(descriptor_pb2.FileDescriptorProto.FromString(stub.DESCRIPTOR.serialized_pb), file,
                             f"{stub.__name__} is not of {file.name}: python/generate_stubs.py")


if __name__ == "__main__":
    unittest.main()

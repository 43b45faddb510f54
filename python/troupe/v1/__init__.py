"""The messages of proto/troupe/v1, generated: python/generate_stubs.py. They need protobuf, 3.20.3 or newer."""

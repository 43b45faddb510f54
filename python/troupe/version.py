"""What the package is called, which version it is, and which LibTorch its programs are made for."""

# What pip calls it: the name `troupe` there is somebody else's.
DISTRIBUTION = "troupe-rl"
VERSION = "0.1.0"
# As cmake/libtorch.pin.
LIBTORCH_VERSION = "2.11.0"

# find_package(TroupeClient) -> the target troupe::client, for #include <troupe/policy_client.h>.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(absl CONFIG)
find_dependency(Protobuf)
find_dependency(gRPC CONFIG)
include(${CMAKE_CURRENT_LIST_DIR}/TroupeClientTargets.cmake)

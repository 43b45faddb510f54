# Everything foreign, found once. Imported targets are SYSTEM, so their headers do not meet our warnings.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(absl REQUIRED CONFIG)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(spdlog REQUIRED CONFIG)
find_package(nlohmann_json REQUIRED CONFIG)
find_package(yaml-cpp REQUIRED CONFIG)
find_package(CLI11 REQUIRED CONFIG)
find_package(Protobuf REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)  # comes with gRPC

find_package(GIF 5.2 REQUIRED)
find_package(ZLIB REQUIRED)
# Anti-Grain Geometry says where it is by pkg-config alone.
find_path(AGG_INCLUDE_DIR agg2/agg_basics.h REQUIRED)
find_library(AGG_LIBRARY agg_pic REQUIRED)
add_library(troupe::agg STATIC IMPORTED)
set_target_properties(troupe::agg PROPERTIES IMPORTED_LOCATION ${AGG_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${AGG_INCLUDE_DIR})

# Debian's yaml-cpp 0.7 exports a bare target without its include folder; ours carries the namespace newer versions have.
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp INTERFACE IMPORTED)
  target_link_libraries(yaml-cpp::yaml-cpp INTERFACE yaml-cpp)
endif()

if(TROUPE_WITH_GRPC)
  find_package(gRPC REQUIRED CONFIG)
endif()

if(TROUPE_BUILD_TESTS)
  find_package(GTest REQUIRED CONFIG)
endif()
if(TROUPE_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED CONFIG)
endif()

# What pip calls us.
file(STRINGS ${CMAKE_SOURCE_DIR}/python/troupe/version.py TROUPE_DISTRIBUTION REGEX "^DISTRIBUTION = ")
string(REGEX REPLACE "^DISTRIBUTION = \"([^\"]+)\"$" "\\1" TROUPE_DISTRIBUTION "${TROUPE_DISTRIBUTION}")

# The LibTorch that ./troupe fetches, and the only one that a bundle takes: its C++ interface changes with every version.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/libtorch.pin TROUPE_LIBTORCH_VERSION REGEX "^torch==")
string(REGEX REPLACE "^torch==([^ ]+).*" "\\1" TROUPE_LIBTORCH_VERSION "${TROUPE_LIBTORCH_VERSION}")
if(TROUPE_WITH_TORCH)
  find_package(LibTorch 2.11 REQUIRED)
endif()

if(TROUPE_PORTABLE)
  include(TroupePortable)
endif()

configure_file(${CMAKE_CURRENT_LIST_DIR}/troupe_version.h.in ${CMAKE_BINARY_DIR}/generated/troupe_version.h @ONLY)

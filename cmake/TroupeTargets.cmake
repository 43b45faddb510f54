# One function for each kind of target. They keep names, options, labels and warnings the same everywhere, so that a folder's
# CMakeLists.txt says only what the folder holds.

include(GNUInstallDirs)

# All binaries of services/, for people who want the product and not the tests.
add_custom_target(troupe_services)
# All of bench/, with the program that 'troupe bench' is.
add_custom_target(troupe_benchmarks)
add_dependencies(troupe_benchmarks troupe_services)
# Only the generated sources: what clang-tidy needs before it can read the rest.
add_custom_target(troupe_generated)

# DEPS may name a library of ours by its folder (base) or by its alias (troupe::base); anything else is passed on.
function(_troupe_resolve_deps out)
  set(resolved)
  foreach(dep IN LISTS ARGN)
    if(TARGET troupe_${dep})
      list(APPEND resolved troupe::${dep})
    else()
      list(APPEND resolved ${dep})
    endif()
  endforeach()
  set(${out} ${resolved} PARENT_SCOPE)
endfunction()

function(_troupe_no_unparsed function)
  if(ARGN)
    message(FATAL_ERROR "${function}: unknown arguments: ${ARGN}")
  endif()
endfunction()

# troupe_cold_folder(): nothing in this folder and below runs for each step, row or update. With -O1 it compiles in two thirds of the time.
macro(troupe_cold_folder)
  add_compile_options($<$<CONFIG:Release>:-O1>)
endmacro()

# troupe_library(NAME base SRCS a.cc HDRS a.h DEPS absl::status [TORCH])
# -> target troupe_base, alias troupe::base. Without SRCS it is header-only. TORCH adds LibTorch and the precompiled torch.h.
function(troupe_library)
  cmake_parse_arguments(PARSE_ARGV 0 arg "TORCH" "NAME" "SRCS;HDRS;DEPS")
  _troupe_no_unparsed("troupe_library(${arg_NAME})" ${arg_UNPARSED_ARGUMENTS})
  _troupe_resolve_deps(deps ${arg_DEPS})
  if(arg_SRCS)
    add_library(troupe_${arg_NAME} STATIC ${arg_SRCS} ${arg_HDRS})
    target_link_libraries(troupe_${arg_NAME} PUBLIC ${deps} troupe::options Threads::Threads)
    if(NOT arg_TORCH) # whose files want more memory, and share most of their headers precompiled
      set_target_properties(troupe_${arg_NAME} PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
    endif()
    if(arg_TORCH)
      target_link_libraries(troupe_${arg_NAME} PUBLIC troupe::libtorch)
      _troupe_use_torch_pch(troupe_${arg_NAME})
    endif()
  else()
    add_library(troupe_${arg_NAME} INTERFACE ${arg_HDRS})
    target_link_libraries(troupe_${arg_NAME} INTERFACE ${deps} troupe::options Threads::Threads)
    if(arg_TORCH)
      target_link_libraries(troupe_${arg_NAME} INTERFACE troupe::libtorch)
    endif()
  endif()
  add_library(troupe::${arg_NAME} ALIAS troupe_${arg_NAME})
endfunction()

# troupe_position_independent(troupe_envs): it, and all of ours that it depends on, may become part of a shared library.
function(troupe_position_independent target)
  if(NOT TARGET ${target})
    return()
  endif()
  get_target_property(aliased ${target} ALIASED_TARGET)
  if(aliased)
    set(target ${aliased})
  endif()
  get_target_property(type ${target} TYPE)
  get_target_property(imported ${target} IMPORTED)
  get_target_property(done ${target} POSITION_INDEPENDENT_CODE)
  if(imported OR done OR NOT type STREQUAL "STATIC_LIBRARY")
    return()
  endif()
  # Calls inside a file stay direct, as they are without -fPIC.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE -fno-semantic-interposition)
  get_target_property(deps ${target} LINK_LIBRARIES)
  foreach(dep IN LISTS deps)
    troupe_position_independent(${dep})
  endforeach()
endfunction()

# torch/torch.h takes 30 s to parse. It is precompiled once, in a target of its own, and every Torch target reuses that.
function(_troupe_use_torch_pch target)
  if(NOT TARGET troupe_torch_pch)
    file(WRITE ${CMAKE_BINARY_DIR}/generated/torch_pch.cc.in "// Exists so that the precompiled header has a target.\n")
    configure_file(${CMAKE_BINARY_DIR}/generated/torch_pch.cc.in ${CMAKE_BINARY_DIR}/generated/torch_pch.cc COPYONLY)
    add_library(troupe_torch_pch OBJECT ${CMAKE_BINARY_DIR}/generated/torch_pch.cc)
    target_link_libraries(troupe_torch_pch PRIVATE troupe::options troupe::libtorch Threads::Threads)
    target_precompile_headers(troupe_torch_pch PRIVATE <torch/torch.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM troupe_torch_pch)
endfunction()

# troupe_kernel_sources(troupe_inference x86-64-v3 gemm_avx2.cc)
# Adds files compiled with -march=<march>, and defines TROUPE_KERNEL_X86_64_V3=1 in the target so that its dispatcher knows they exist; on
# another architecture it does neither. Such a file may include no header with inline functions or templates that other files
# use too (Eigen, most of std): the linker keeps one copy of those, perhaps the one that an older CPU cannot run.
function(troupe_kernel_sources target march)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    return()
  endif()
  target_sources(${target} PRIVATE ${ARGN})
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "-march=${march}" SKIP_PRECOMPILE_HEADERS ON)
  string(TOUPPER "TROUPE_KERNEL_${march}" macro)
  string(MAKE_C_IDENTIFIER ${macro} macro)
  target_compile_definitions(${target} PRIVATE ${macro}=1)
endfunction()

# troupe_label_needs(unit planted_bugs): what './troupe test unit' builds, which is no test of another label. A label for which nobody says so has
# everything built.
function(troupe_label_needs label)
  if(NOT TARGET tests_labelled_${label})
    add_custom_target(tests_labelled_${label})
  endif()
  add_dependencies(tests_labelled_${label} ${ARGN})
endfunction()

# troupe_time_limit(120 status_test…): the seconds that these tests may take. A build with a sanitizer, or a machine that is slow today
# (TROUPE_TEST_SLOWNESS), gives more. The environment variable TROUPE_TEST_SLOWDOWN tells the tests, which wait longer, too (tests/e2e/harness.py).
function(troupe_time_limit seconds)
  math(EXPR timeout "${seconds} * ${TROUPE_TEST_SLOWDOWN}")
  set_tests_properties(${ARGN} PROPERTIES TIMEOUT ${timeout} ENVIRONMENT_MODIFICATION TROUPE_TEST_SLOWDOWN=set:${TROUPE_TEST_SLOWDOWN})
endfunction()

# troupe_test(NAME status_test SRCS status_test.cc DEPS base LABELS unit [ARGS --x] [TIMEOUT 120] [SHARDS 4] [NO_MAIN] [RUN_SERIAL] [TORCH] [BUNDLE])
# A GoogleTest binary and one ctest entry; with SHARDS so many entries, each with a part of a program that takes long. NO_MAIN: the sources bring their own main. The labels are what './troupe test LABEL' selects: a unit
# test of code that runs threads has the label threads, too, which the thread sanitizer's tests are.
# BUNDLE: the bundle has it in tests/.
function(troupe_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "NO_MAIN;RUN_SERIAL;TORCH;BUNDLE" "NAME;TIMEOUT;SHARDS" "SRCS;DEPS;LABELS;ARGS")
  _troupe_no_unparsed("troupe_test(${arg_NAME})" ${arg_UNPARSED_ARGUMENTS})
  if(NOT TROUPE_BUILD_TESTS OR TROUPE_FUZZ)
    return()
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  _troupe_resolve_deps(deps ${arg_DEPS})
  add_executable(${arg_NAME} ${arg_SRCS})
  target_link_libraries(${arg_NAME} PRIVATE ${deps} troupe::options GTest::gmock GTest::gtest Threads::Threads)
  if(NOT arg_NO_MAIN)
    target_link_libraries(${arg_NAME} PRIVATE GTest::gtest_main)
  endif()
  if(TROUPE_SANITIZE)
    # Optimizing the tests themselves, instrumented, takes longer than running them does.
    target_compile_options(${arg_NAME} PRIVATE -O0)
  elseif(NOT arg_TORCH) # whose precompiled header has the flags of the libraries
    target_compile_options(${arg_NAME} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  # Where a test finds recorded data; relative paths would depend on where ctest was started. A test in the bundle is started in its folder.
  if(TROUPE_PORTABLE AND arg_BUNDLE)
    target_compile_definitions(${arg_NAME} PRIVATE TROUPE_SOURCE_DIR="." TROUPE_BINARY_DIR=".")
  else()
    target_compile_definitions(${arg_NAME} PRIVATE TROUPE_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TROUPE_BINARY_DIR="${CMAKE_BINARY_DIR}")
  endif()
  if(arg_TORCH)
    target_link_libraries(${arg_NAME} PRIVATE troupe::libtorch)
    _troupe_use_torch_pch(${arg_NAME})
  endif()
  foreach(label IN ITEMS unit threads)
    if(label IN_LIST arg_LABELS)
      troupe_label_needs(${label} ${arg_NAME})
    endif()
  endforeach()
  foreach(shard RANGE 1 ${arg_SHARDS})
    set(name ${arg_NAME})
    # ctest runs as many programs as there are cores: OpenMP in each of them would be threads that wait for each other.
    set(environment ${TROUPE_TEST_ENVIRONMENT} OMP_NUM_THREADS=1)
    if(arg_SHARDS GREATER 1)
      set(name ${arg_NAME}_${shard})
      math(EXPR index "${shard} - 1")
      list(APPEND environment GTEST_TOTAL_SHARDS=${arg_SHARDS} GTEST_SHARD_INDEX=${index})
    endif()
    add_test(NAME ${name} COMMAND ${arg_NAME} ${arg_ARGS})
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" ENVIRONMENT "${environment}")
    troupe_time_limit(${arg_TIMEOUT} ${name})
    if(arg_RUN_SERIAL)
      set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
    endif()
  endforeach()
  if(TROUPE_PORTABLE AND arg_BUNDLE)
    troupe_bundle_program(${arg_NAME} tests)
  endif()
endfunction()

# troupe_fuzzer(NAME fuzz_fragment SRCS fuzz_fragment.cc DEPS rpc_codec [CORPUS corpus/fragment])
# The sources define LLVMFuzzerTestOneInput. In the preset fuzz that is a libFuzzer binary; everywhere else a driver gives it each file
# of the corpus folder, and mutations of them by a fixed seed, as a test: what was found once stays found.
function(troupe_fuzzer)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;CORPUS" "SRCS;DEPS")
  _troupe_no_unparsed("troupe_fuzzer(${arg_NAME})" ${arg_UNPARSED_ARGUMENTS})
  _troupe_resolve_deps(deps ${arg_DEPS})
  add_executable(${arg_NAME} ${arg_SRCS})
  target_link_libraries(${arg_NAME} PRIVATE ${deps} troupe::options Threads::Threads)
  if(TROUPE_FUZZ)
    target_link_options(${arg_NAME} PRIVATE -fsanitize=fuzzer)
    return()
  endif()
  target_sources(${arg_NAME} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/fuzz_driver.cc)
  set(corpus)
  if(arg_CORPUS)
    set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/${arg_CORPUS})
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${arg_NAME} ${corpus})
  troupe_label_needs(unit ${arg_NAME})
  set_tests_properties(${arg_NAME} PROPERTIES LABELS "unit;fuzz" ENVIRONMENT "${TROUPE_TEST_ENVIRONMENT}")
  troupe_time_limit(120 ${arg_NAME})
endfunction()

# troupe_benchmark(NAME env_bench SRCS env_bench.cc DEPS envs_mpe [MAIN] [TORCH] [BUNDLE])
# MAIN: use Google Benchmark's main; without it the sources bring theirs (BENCHMARK_MAIN() or a plain one). BUNDLE: the bundle has it in bench/.
function(troupe_benchmark)
  cmake_parse_arguments(PARSE_ARGV 0 arg "MAIN;TORCH;BUNDLE" "NAME" "SRCS;DEPS")
  _troupe_no_unparsed("troupe_benchmark(${arg_NAME})" ${arg_UNPARSED_ARGUMENTS})
  if(NOT TROUPE_BUILD_BENCHMARKS)
    return()
  endif()
  _troupe_resolve_deps(deps ${arg_DEPS})
  add_executable(${arg_NAME} ${arg_SRCS})
  target_link_libraries(${arg_NAME} PRIVATE ${deps} troupe::options benchmark::benchmark Threads::Threads)
  if(arg_MAIN)
    target_link_libraries(${arg_NAME} PRIVATE benchmark::benchmark_main)
  endif()
  if(arg_TORCH)
    target_link_libraries(${arg_NAME} PRIVATE troupe::libtorch)
    _troupe_use_torch_pch(${arg_NAME})
  endif()
  add_dependencies(troupe_benchmarks ${arg_NAME})
  if(TROUPE_PORTABLE AND arg_BUNDLE)
    troupe_bundle_program(${arg_NAME} bench)
  endif()
endfunction()

# troupe_executable(NAME troupe-learner SRCS main.cc DEPS rpc_learner training [TORCH] [BUNDLE])
# Those below services/ are installed and belong to the target troupe_services. BUNDLE: the bundle has it in bin/.
function(troupe_executable)
  cmake_parse_arguments(PARSE_ARGV 0 arg "TORCH;BUNDLE" "NAME" "SRCS;DEPS")
  _troupe_no_unparsed("troupe_executable(${arg_NAME})" ${arg_UNPARSED_ARGUMENTS})
  _troupe_resolve_deps(deps ${arg_DEPS})
  add_executable(${arg_NAME} ${arg_SRCS})
  target_link_libraries(${arg_NAME} PRIVATE ${deps} troupe::options Threads::Threads)
  if(arg_TORCH)
    target_link_libraries(${arg_NAME} PRIVATE troupe::libtorch)
    _troupe_use_torch_pch(${arg_NAME})
  endif()
  file(RELATIVE_PATH relative ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(relative MATCHES "^services(/|$)")
    add_dependencies(troupe_services ${arg_NAME})
    install(TARGETS ${arg_NAME} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
  if(TROUPE_PORTABLE AND arg_BUNDLE)
    troupe_bundle_program(${arg_NAME} bin)
  endif()
endfunction()

# troupe_proto(NAME proto SRCS troupe/v1/config.proto …)
# Called in proto/; imports are rooted there (import "troupe/v1/config.proto"). Makes troupe::proto (messages) and, with gRPC and
# where a file declares a service, troupe::proto_grpc (stubs), apart so that lib/config never sees gRPC. Include as
# "proto/troupe/v1/config.pb.h".
function(troupe_proto)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SRCS;DEPS")
  _troupe_no_unparsed("troupe_proto(${arg_NAME})" ${arg_UNPARSED_ARGUMENTS})
  set(root ${CMAKE_CURRENT_SOURCE_DIR})
  # proto/ stays in the path of an include, so that a reader sees that the code is generated.
  set(include_dir ${CMAKE_BINARY_DIR}/generated)
  set(out_dir ${include_dir}/proto)
  file(MAKE_DIRECTORY ${out_dir})

  set(pb_srcs)
  set(grpc_srcs)
  set(protos)
  foreach(src IN LISTS arg_SRCS)
    list(APPEND protos ${root}/${src})
  endforeach()
  foreach(src IN LISTS arg_SRCS)
    string(REGEX REPLACE "\\.proto$" "" stem ${src})
    set(outputs ${out_dir}/${stem}.pb.cc ${out_dir}/${stem}.pb.h)
    list(APPEND pb_srcs ${outputs})
    # Every .proto is a dependency of every output: a changed import changes the code of those that import it.
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND protobuf::protoc --cpp_out=${out_dir} -I ${root} ${root}/${src}
      DEPENDS ${protos} protobuf::protoc
      COMMENT "Generating proto/${stem}.pb.h"
      VERBATIM)
    file(STRINGS ${root}/${src} services REGEX "^service ")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${root}/${src})
    if(services AND TROUPE_WITH_GRPC)
      set(outputs ${out_dir}/${stem}.grpc.pb.cc ${out_dir}/${stem}.grpc.pb.h)
      list(APPEND grpc_srcs ${outputs})
      add_custom_command(
        OUTPUT ${outputs}
        COMMAND protobuf::protoc --grpc_out=${out_dir} --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin> -I ${root}
                ${root}/${src}
        DEPENDS ${protos} protobuf::protoc
        COMMENT "Generating proto/${stem}.grpc.pb.h"
        VERBATIM)
    endif()
  endforeach()

  add_custom_target(troupe_${arg_NAME}_generated DEPENDS ${pb_srcs} ${grpc_srcs})
  add_dependencies(troupe_generated troupe_${arg_NAME}_generated)
  add_library(troupe_${arg_NAME} STATIC ${pb_srcs})
  add_library(troupe::${arg_NAME} ALIAS troupe_${arg_NAME})
  # Each generated file defines the same static names.
  set_target_properties(troupe_${arg_NAME} PROPERTIES UNITY_BUILD OFF)
  target_compile_options(troupe_${arg_NAME} PRIVATE -w)
  target_include_directories(troupe_${arg_NAME} SYSTEM PUBLIC ${include_dir} ${out_dir})
  target_link_libraries(troupe_${arg_NAME} PUBLIC protobuf::libprotobuf Threads::Threads)

  if(grpc_srcs)
    add_library(troupe_${arg_NAME}_grpc STATIC ${grpc_srcs})
    add_library(troupe::${arg_NAME}_grpc ALIAS troupe_${arg_NAME}_grpc)
    target_compile_options(troupe_${arg_NAME}_grpc PRIVATE -w)
    target_link_libraries(troupe_${arg_NAME}_grpc PUBLIC troupe::${arg_NAME} gRPC::grpc++)
  endif()
endfunction()

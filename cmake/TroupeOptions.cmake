# What every target of ours is compiled with. Nothing here is global except the standard and the tools (ccache, mold):
# options hang on troupe::options, so generated and foreign code does not inherit our warnings.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Installed binaries must still find LibTorch where it lies; the build tree's own folders are dropped.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

find_program(TROUPE_CCACHE ccache)
if(TROUPE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache's manual asks for with precompiled headers; without it lib/training never hits. Paths below the base
  # folder reach the compiler as relative ones, so that one preset's objects serve another with the same flags.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${TROUPE_CCACHE})
endif()

find_program(TROUPE_MOLD mold)
if(TROUPE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

file(RELATIVE_PATH troupe_root_from_build ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR})
add_library(troupe_options INTERFACE)
add_library(troupe::options ALIAS troupe_options)
target_include_directories(troupe_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
target_compile_features(troupe_options INTERFACE cxx_std_20)
target_compile_options(
  troupe_options
  INTERFACE
    -Wall
    -Wextra
    -Werror
    # A designated initializer that leaves the rest at its default is how options structs are written here.
    -Wno-missing-field-initializers
    # Log lines and CHECK failures name lib/base/x.cc, not the folder of whoever built the binary.
    -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=
    -fmacro-prefix-map=${troupe_root_from_build}=
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> # g++ 12 reports std::string's own operator+ (GCC bug 105651)
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety-beta>
    $<$<CXX_COMPILER_ID:Clang>:-Werror=thread-safety>)
target_compile_definitions(troupe_options INTERFACE $<$<NOT:$<CONFIG:Release>>:_GLIBCXX_ASSERTIONS>)

# Sanitizers are for everything we compile, generated code included: TSan must see every access of a field. Reports need lines and names, -g1;
# all of -g costs a third more compile time.
if(TROUPE_SANITIZE STREQUAL "address")
  set(TROUPE_SANITIZE_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  set(TROUPE_TEST_ENVIRONMENT
      "ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1:check_initialization_order=1"
      "UBSAN_OPTIONS=print_stacktrace=1"
      "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/cmake/sanitizers/lsan.supp:print_suppressions=0")
  set(TROUPE_TEST_SLOWDOWN 4)
elseif(TROUPE_SANITIZE STREQUAL "thread")
  set(TROUPE_SANITIZE_FLAGS -fsanitize=thread -fno-omit-frame-pointer -g1)
  set(troupe_tsan "suppressions=${CMAKE_SOURCE_DIR}/cmake/sanitizers/tsan.supp:print_suppressions=0:second_deadlock_stack=1:history_size=4")
  # Measured over Debian's uninstrumented gRPC: without suppressions 109 false reports on a correct reactor, with race:libgrpc real
  # races are hidden, with ignore_noninstrumented_modules=1 neither. But that option also makes libtsan (g++ 12) drop races inside
  # memcpy and its kind and every lock-order inversion, even when our own code calls: so it is on only where gRPC is.
  # tests/sanitizers plants one of each, so that this stays true. What gRPC's headers inline into our programs is left, and
  # tests/sanitizers/own_races.py tells such reports from those of ours.
  set(troupe_judge)
  if(TROUPE_WITH_GRPC)
    find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
    set(troupe_judge ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tests/sanitizers/own_races.py)
    string(PREPEND troupe_tsan "exitcode=0:ignore_noninstrumented_modules=1:")
  endif()
  set(TROUPE_TEST_ENVIRONMENT "TSAN_OPTIONS=${troupe_tsan}")
  set(TROUPE_TEST_SLOWDOWN 8)
  # TSan's shadow memory does not survive the wide address randomization of newer kernels (vm.mmap_rnd_bits > 28).
  find_program(TROUPE_SETARCH setarch)
  if(TROUPE_SETARCH)
    execute_process(
      COMMAND ${TROUPE_SETARCH} -R true
      RESULT_VARIABLE troupe_setarch_failed
      OUTPUT_QUIET ERROR_QUIET)
    if(NOT troupe_setarch_failed)
      set(CMAKE_CROSSCOMPILING_EMULATOR ${troupe_judge} ${TROUPE_SETARCH} -R)
    endif()
  endif()
elseif(TROUPE_SANITIZE STREQUAL "")
  set(TROUPE_SANITIZE_FLAGS)
  set(TROUPE_TEST_ENVIRONMENT)
  set(TROUPE_TEST_SLOWDOWN 1)
else()
  message(FATAL_ERROR "TROUPE_SANITIZE is '${TROUPE_SANITIZE}', expected empty, address or thread")
endif()
# './troupe test' measures it before it runs them.
set(TROUPE_TEST_SLOWNESS 1 CACHE STRING "How many times longer than usual tests may take on this machine")
math(EXPR TROUPE_TEST_SLOWDOWN "${TROUPE_TEST_SLOWDOWN} * ${TROUPE_TEST_SLOWNESS}")
if(TROUPE_SANITIZE_FLAGS)
  add_compile_options(${TROUPE_SANITIZE_FLAGS})
  add_link_options(${TROUPE_SANITIZE_FLAGS})
  # g++ loses track of initialization through the sanitizers' instrumentation and reports correct code.
  target_compile_options(troupe_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()

# Every object, library and program is an empty file: the compiler parses and reports, which is all that the preset clang is for.
if(TROUPE_CHECK_ONLY)
  set(CMAKE_CXX_COMPILE_OBJECT "<CMAKE_CXX_COMPILER> <DEFINES> <INCLUDES> <FLAGS> -fsyntax-only <SOURCE>" "${CMAKE_COMMAND} -E touch <OBJECT>")
  foreach(rule IN ITEMS ARCHIVE_CREATE CREATE_SHARED_LIBRARY CREATE_SHARED_MODULE LINK_EXECUTABLE)
    set(CMAKE_CXX_${rule} "${CMAKE_COMMAND} -E touch <TARGET>")
  endforeach()
  set(CMAKE_CXX_ARCHIVE_FINISH "")
endif()

if(TROUPE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TROUPE_FUZZ needs clang (libFuzzer), got ${CMAKE_CXX_COMPILER_ID}: use the preset 'fuzz'")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

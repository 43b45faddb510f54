# Programs that run on another Linux: foreign libraries are linked as their archives, so that what remains is glibc, libstdc++ and LibTorch,
# which services/torch_launcher finds at run time. docs/adr/0018-bundle.md says why and what it costs.
#
# Compiled is all as in the preset release, with the same flags, so that ccache serves the objects. What ships says so itself: BUNDLE in
# troupe_test, troupe_benchmark and troupe_executable. './troupe wheel' installs the component "product", './troupe bundle' that and "bundle".

# Debian has no archive of these: Google Benchmark, which no program of the bundle uses, stays shared; spdlog and fmt are made below.
set(_portable_shared libbenchmark)
set(_portable_compiled libspdlog libfmt)
# gRPC without TLS and xDS, which nothing here calls: a fifth of a program.
set(_portable_plain libgrpc libgrpc++)

# No program may remember a folder of this machine.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH OFF)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)

# Each is one file that instantiates the headers' templates; it must also fit into a shared library (lib/envs/c_api).
add_library(troupe_portable_logging STATIC ${CMAKE_CURRENT_LIST_DIR}/portable/fmt.cc ${CMAKE_CURRENT_LIST_DIR}/portable/spdlog.cc)
# A program takes these where it would otherwise ask for a newer libstdc++ or glibc.
add_library(troupe_portable_symbols STATIC ${CMAKE_CURRENT_LIST_DIR}/portable/arc4random.cc
                                           ${CMAKE_CURRENT_LIST_DIR}/portable/condition_variable.cc)
set_target_properties(troupe_portable_logging troupe_portable_symbols PROPERTIES POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF)

# _portable_archive(out /usr/lib/libx.so.1.2) -> /usr/lib/libx.a, "" where Debian has none on purpose.
function(_portable_archive out file)
  set(${out} "" PARENT_SCOPE)
  if(NOT file MATCHES "^(.*)/(lib[^/]+)\\.so[.0-9a-z]*$")
    return()
  endif()
  if(CMAKE_MATCH_2 IN_LIST _portable_shared OR CMAKE_MATCH_2 IN_LIST _portable_compiled)
    return()
  endif()
  set(archive ${CMAKE_MATCH_1}/${CMAKE_MATCH_2}.a)
  if(CMAKE_MATCH_2 IN_LIST _portable_plain)
    set(archive ${CMAKE_MATCH_1}/${CMAKE_MATCH_2}_unsecure.a)
  endif()
  if(NOT EXISTS ${archive})
    message(FATAL_ERROR "TROUPE_PORTABLE links ${file} as an archive, but there is no ${archive}; expected the package's .a beside its .so")
  endif()
  set(${out} ${archive} PARENT_SCOPE)
endfunction()

# Debian's Abseil archives cannot be part of a shared library (not position independent), so libtroupe_envs.so keeps the shared ones.
set(TROUPE_PORTABLE_ABSEIL)
set(_portable_archives)
get_property(_portable_targets DIRECTORY ${CMAKE_SOURCE_DIR} PROPERTY IMPORTED_TARGETS)
foreach(target IN LISTS _portable_targets)
  get_target_property(type ${target} TYPE)
  if(NOT type MATCHES "^(SHARED|UNKNOWN)_LIBRARY$")
    continue()
  endif()
  foreach(property IN ITEMS IMPORTED_LOCATION IMPORTED_LOCATION_NONE IMPORTED_LOCATION_NOCONFIG IMPORTED_LOCATION_RELEASE)
    get_target_property(location ${target} ${property})
    if(location)
      _portable_archive(archive ${location})
      if(archive)
        set_target_properties(${target} PROPERTIES ${property} ${archive})
        list(APPEND _portable_archives ${archive})
        if(target MATCHES "^absl::")
          list(APPEND TROUPE_PORTABLE_ABSEIL ${location})
        endif()
      endif()
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES TROUPE_PORTABLE_ABSEIL)

# gRPC's module describes re2 by linker flags instead of a file.
if(TARGET re2::re2)
  find_library(TROUPE_PORTABLE_RE2 NAMES libre2.a REQUIRED)
  mark_as_advanced(TROUPE_PORTABLE_RE2)
  set_target_properties(re2::re2 PROPERTIES INTERFACE_LINK_LIBRARIES ${TROUPE_PORTABLE_RE2})
  list(APPEND _portable_archives ${TROUPE_PORTABLE_RE2})
endif()

# The imported targets stay, for their definitions and include folders; the file behind them is ours.
foreach(target IN ITEMS fmt::fmt spdlog::spdlog)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_NONE ${CMAKE_CURRENT_BINARY_DIR}/libtroupe_portable_logging.a)
  add_dependencies(${target} troupe_portable_logging)
endforeach()
# First among all libraries, so that libstdc++ is not asked.
link_libraries(troupe_portable_symbols)

# A symbol that the program and LibTorch both have (both bring a protobuf) must not be LibTorch's one day and ours the next.
# An option for each name: mold 1.10 does not come to the end of a list of them.
list(REMOVE_DUPLICATES _portable_archives)
foreach(archive IN LISTS _portable_archives)
  get_filename_component(name ${archive} NAME)
  add_link_options(LINKER:--exclude-libs,${name})
endforeach()
add_link_options(LINKER:--exclude-libs,libtroupe_portable_logging.a LINKER:--exclude-libs,libtroupe_portable_symbols.a)
add_link_options(LINKER:--gc-sections LINKER:--as-needed)

# --- the bundle ------------------------------------------------------------------------------------------------------------------

# What a compiler makes of the product: all that wheels hold. Its files are the component "product".
add_custom_target(troupe_product)
# What a compiler makes of the bundle: the product, and tests and benches, whose files are the component "bundle".
add_custom_target(troupe_bundled)
add_dependencies(troupe_bundled troupe_product)

# Whether the target is linked with LibTorch, by itself or through a library. A target is asked once: without this memory the same libraries are
# walked again on every path that leads to them, minutes in all.
function(_troupe_needs_libtorch out target)
  get_property(known GLOBAL PROPERTY _troupe_needs_libtorch_${target})
  if(NOT "${known}" STREQUAL "") # quoted: an unset variable is a word of its own here
    set(${out} ${known} PARENT_SCOPE)
    return()
  endif()
  set(needs FALSE)
  set(imported FALSE)
  if(TARGET ${target})
    get_target_property(imported ${target} IMPORTED)
  endif()
  if(target STREQUAL "troupe::libtorch")
    set(needs TRUE)
  elseif(TARGET ${target} AND NOT imported)
    foreach(property IN ITEMS LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(deps ${target} ${property})
      foreach(dep IN LISTS deps)
        if(NOT needs)
          _troupe_needs_libtorch(needs ${dep})
        endif()
      endforeach()
    endforeach()
  endif()
  set_property(GLOBAL PROPERTY _troupe_needs_libtorch_${target} ${needs})
  set(${out} ${needs} PARENT_SCOPE)
endfunction()

# Sets `component`: what a file for that folder of the bundle belongs to.
macro(_troupe_component folder)
  if("${folder}" MATCHES "^(tests|bench)$")
    set(component bundle)
  else()
    set(component product)
  endif()
endmacro()

# troupe_bundle_target(troupe-torch product libexec/troupe): the component's build makes it, and it is installed into that folder.
function(troupe_bundle_target target component folder)
  if(component STREQUAL "product")
    add_dependencies(troupe_product ${target})
  else()
    add_dependencies(troupe_bundled ${target})
  endif()
  install(TARGETS ${target} RUNTIME DESTINATION ${folder} COMPONENT ${component} LIBRARY DESTINATION ${folder} COMPONENT ${component})
endfunction()

# troupe_bundle_program(training_test tests): into tests/, or, where it needs LibTorch, into libexec/troupe/ with a link to the launcher in
# tests/ that bears its name.
function(troupe_bundle_program target folder)
  _troupe_component(${folder})
  _troupe_needs_libtorch(needs_libtorch ${target})
  if(NOT needs_libtorch)
    troupe_bundle_target(${target} ${component} ${folder})
    return()
  endif()
  troupe_bundle_target(${target} ${component} libexec/troupe)
  install(
    CODE "file(MAKE_DIRECTORY \"\${CMAKE_INSTALL_PREFIX}/${folder}\")
          file(CREATE_LINK ../libexec/troupe/troupe-torch \"\${CMAKE_INSTALL_PREFIX}/${folder}/${target}\" SYMBOLIC)"
    COMPONENT ${component})
endfunction()

# troupe_bundle_library(troupe_envs_c python/troupe/envs): into that folder, and the shared Abseil that it needs into _lib/ beside it.
function(troupe_bundle_library target folder)
  _troupe_component(${folder})
  troupe_bundle_target(${target} ${component} ${folder})
  install(
    CODE "file(GET_RUNTIME_DEPENDENCIES LIBRARIES \"$<TARGET_FILE:${target}>\" RESOLVED_DEPENDENCIES_VAR needed PRE_INCLUDE_REGEXES ^libabsl_ PRE_EXCLUDE_REGEXES .)
          foreach(file IN LISTS needed)
            get_filename_component(name \"\${file}\" NAME)
            file(REAL_PATH \"\${file}\" real)
            file(INSTALL \"\${real}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${folder}/_lib\" RENAME \"\${name}\")
          endforeach()"
    COMPONENT ${component})
endfunction()

# What is copied as it is.
configure_file(${CMAKE_CURRENT_LIST_DIR}/portable/README.md.in ${CMAKE_BINARY_DIR}/generated/bundle/README.md @ONLY)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION . COMPONENT product)
install(FILES ${CMAKE_BINARY_DIR}/generated/bundle/README.md DESTINATION . COMPONENT bundle)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/examples DESTINATION . COMPONENT bundle PATTERN __pycache__ EXCLUDE)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/troupe DESTINATION python COMPONENT product PATTERN __pycache__ EXCLUDE)
install(FILES ${CMAKE_SOURCE_DIR}/lib/env/plugin_abi.h ${CMAKE_SOURCE_DIR}/lib/env/plugin_sdk.h DESTINATION include/troupe/lib/env COMPONENT bundle)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/tests/parity DESTINATION tests COMPONENT bundle FILES_MATCHING PATTERN "*_reference.json" PATTERN __pycache__ EXCLUDE)
install(FILES ${CMAKE_SOURCE_DIR}/bench/learning.py DESTINATION bench COMPONENT bundle)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/bench/gpu DESTINATION bench USE_SOURCE_PERMISSIONS COMPONENT bundle
        PATTERN __pycache__ EXCLUDE PATTERN CMakeLists.txt EXCLUDE PATTERN *.cc EXCLUDE PATTERN test_*.py EXCLUDE PATTERN fake_*.py EXCLUDE)

# The licences of what is linked in: Debian's copyright file of each package, the header-only ones, what is an archive anyway, and libstdc++ (in _usual_step) by name.
string(REGEX MATCH "^[0-9]+" _portable_gcc ${CMAKE_CXX_COMPILER_VERSION})
set(_portable_packages libagg-dev libspdlog-dev libfmt-dev libeigen3-dev libcli11-dev nlohmann-json3-dev gcc-${_portable_gcc}-base)
execute_process(
  COMMAND dpkg-query -S ${_portable_archives}
  OUTPUT_VARIABLE _portable_owners
  COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(^|\n)[^:\n]+" _portable_owners "${_portable_owners}")
list(TRANSFORM _portable_owners STRIP)
list(APPEND _portable_packages ${_portable_owners})
list(REMOVE_DUPLICATES _portable_packages)
foreach(package IN LISTS _portable_packages)
  file(REAL_PATH /usr/share/doc/${package}/copyright copyright)
  install(FILES ${copyright} DESTINATION licenses RENAME ${package} COMPONENT product)
endforeach()

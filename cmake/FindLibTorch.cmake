# LibTorch out of PyPI's wheel (or a LibTorch zip), as the imported target troupe::libtorch.
#
# TROUPE_LIBTORCH (cache variable or environment): the folder that holds torch/ (a site-packages, or where the wheel was unpacked),
# or a folder that itself holds include/ and lib/ (LibTorch's zip). Without it ./troupe's cache folder is tried.
#
# Only torch_cpu and c10 are linked; libtorch_cuda.so is opened at run time when a CUDA device is asked for. The include
# folders hold an old google/protobuf and fmt, so they come after the system's (-idirafter).

if(NOT TROUPE_LIBTORCH)
  set(_libtorch_hint "$ENV{TROUPE_LIBTORCH}")
  if(NOT _libtorch_hint)
    if(DEFINED ENV{TROUPE_CACHE})
      set(_libtorch_hint "$ENV{TROUPE_CACHE}")
    elseif(DEFINED ENV{XDG_CACHE_HOME})
      set(_libtorch_hint "$ENV{XDG_CACHE_HOME}/troupe")
    else()
      set(_libtorch_hint "$ENV{HOME}/.cache/troupe")
    endif()
    string(APPEND _libtorch_hint "/libtorch-${TROUPE_LIBTORCH_VERSION}")
  endif()
endif()
set(TROUPE_LIBTORCH "${_libtorch_hint}" CACHE PATH "Folder that holds torch/ (site-packages style)")

# find_path and find_library keep what they found; another folder must be searched afresh.
if(NOT "${TROUPE_LIBTORCH}" STREQUAL "${LibTorch_SEARCHED}")
  unset(LibTorch_INCLUDE_DIR CACHE)
  unset(LibTorch_CPU_LIBRARY CACHE)
  unset(LibTorch_C10_LIBRARY CACHE)
  set(LibTorch_SEARCHED "${TROUPE_LIBTORCH}" CACHE INTERNAL "The folder that the results are from")
endif()
find_path(LibTorch_INCLUDE_DIR torch/script.h HINTS ${TROUPE_LIBTORCH}/torch ${TROUPE_LIBTORCH} PATH_SUFFIXES include NO_DEFAULT_PATH)
if(LibTorch_INCLUDE_DIR)
  get_filename_component(_libtorch_root ${LibTorch_INCLUDE_DIR} DIRECTORY)
endif()
find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS ${_libtorch_root}/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 HINTS ${_libtorch_root}/lib NO_DEFAULT_PATH)
if(LibTorch_INCLUDE_DIR AND EXISTS ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h)
  file(STRINGS ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h _libtorch_numbers
       REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
  list(TRANSFORM _libtorch_numbers REPLACE "^.* " "")
  list(JOIN _libtorch_numbers "." LibTorch_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE
    "no LibTorch in TROUPE_LIBTORCH='${TROUPE_LIBTORCH}'. './troupe build' fetches it. Or give -DTROUPE_LIBTORCH=/path/to/site-packages, or configure with -DTROUPE_WITH_TORCH=OFF."
)
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY)

if(LibTorch_FOUND AND NOT TARGET troupe::libtorch)
  add_library(troupe::libtorch INTERFACE IMPORTED GLOBAL)
  target_compile_definitions(troupe::libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
  # Its headers' error messages name torch/include/…, not the folder of whoever built the binary.
  target_compile_options(
    troupe::libtorch INTERFACE "SHELL:-idirafter ${LibTorch_INCLUDE_DIR}"
                               "SHELL:-idirafter ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
                               -fmacro-prefix-map=${_libtorch_root}/=torch/)
  # By full path: a -L to torch/lib would also offer its libgomp and friends to the rest of the link.
  target_link_libraries(troupe::libtorch INTERFACE ${LibTorch_CPU_LIBRARY} ${LibTorch_C10_LIBRARY})

  # A portable program is told at its start where LibTorch lies (services/torch_launcher); what LibTorch needs is no matter of the link.
  if(TROUPE_PORTABLE)
    target_link_options(troupe::libtorch INTERFACE LINKER:--allow-shlib-undefined)
    return()
  endif()

  # libtorch_cpu.so of the CUDA wheel needs libcudart and libcupti even on a machine without a GPU. DT_RPATH instead of DT_RUNPATH,
  # because only the former is also used for what a library needs in its turn.
  set(_libtorch_rpath ${_libtorch_root}/lib)
  file(GLOB _libtorch_nvidia ${_libtorch_root}/../nvidia/*/lib)
  foreach(folder IN LISTS _libtorch_nvidia)
    get_filename_component(folder ${folder} REALPATH)
    list(APPEND _libtorch_rpath ${folder})
  endforeach()
  foreach(folder IN LISTS _libtorch_rpath)
    target_link_options(troupe::libtorch INTERFACE "LINKER:-rpath,${folder}" "LINKER:-rpath-link,${folder}")
  endforeach()
  target_link_options(troupe::libtorch INTERFACE "LINKER:--disable-new-dtags")
endif()

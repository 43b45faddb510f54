# TROUPE_TEST_PYTHON: the interpreter of tests and benches in Python, and of the Python environments that tests play. './troupe test' makes one
# with what cmake/test-python.pin names; who builds by hand has any that has numpy, or the one that -DTROUPE_TEST_PYTHON names.
find_package(Python3 3.9 COMPONENTS Interpreter) # tests/lint requires it
if(NOT TROUPE_TEST_PYTHON)
  foreach(candidate IN ITEMS ${Python3_EXECUTABLE} /usr/bin/python3)
    execute_process(COMMAND ${candidate} -c "import numpy" RESULT_VARIABLE lacks_numpy OUTPUT_QUIET ERROR_QUIET)
    if(lacks_numpy EQUAL 0)
      set(TROUPE_TEST_PYTHON ${candidate} CACHE FILEPATH "The Python interpreter of tests and benches" FORCE)
      break()
    endif()
  endforeach()
endif()
if(NOT TROUPE_TEST_PYTHON)
  message(STATUS "No Python interpreter with numpy: the tests of Python environments will fail ('./troupe test' sets one up)")
  set(TROUPE_TEST_PYTHON ${Python3_EXECUTABLE})
endif()

# TROUPE_TORCH_PYTHON: an interpreter with numpy, torch, onnx, onnxruntime, grpcio and protobuf, for the tests of policies in PyTorch. It has 5 GB that
# nothing else needs, so './troupe test' makes one only where TROUPE_TORCH_PYTHON=auto asks for it (.ci/run does). Elsewhere those tests are not registered.
set(TROUPE_TORCH_PYTHON "" CACHE FILEPATH "The Python interpreter of tests that need PyTorch, onnx and onnxruntime")
if(NOT TROUPE_TORCH_PYTHON)
  message(STATUS "No TROUPE_TORCH_PYTHON: no tests of policies in PyTorch and ONNX")
endif()

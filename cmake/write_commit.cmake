# cmake -DSOURCE=folder -DOUT=troupe_commit.h -P write_commit.cmake: writes which commit the sources are of, and nothing when the file says so already.
execute_process(
  COMMAND git -C ${SOURCE} describe --always "--dirty= with changes" --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
  RESULT_VARIABLE failed)
if(failed) # no repository, or no git: an archive, an image
  set(commit "")
endif()
set(text "#pragma once\n\n// Written by cmake/write_commit.cmake.\n#define TROUPE_COMMIT \"${commit}\"\n")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${OUT} "${text}")
endif()

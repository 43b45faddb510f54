# Writes the two files of the table of columns with one more column, as CONTRIBUTING.md ("Add a column") says: a member and a row.
#   cmake -DSOURCE=ROOT -DOUT=FOLDER -P add_column.cmake
function(insert_before file mark text)
  file(READ ${SOURCE}/${file} content)
  string(FIND "${content}" "${mark}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${file} has no \"${mark}\", before which a column is added")
  endif()
  string(REPLACE "${mark}" "${text}${mark}" content "${content}")
  file(WRITE ${OUT}/${file} "${content}")
endfunction()

insert_before(lib/sample/column_sets.h "  T env_row;" "  T added;  ///< [rows, 1] float32\n")
insert_before(
  lib/sample/columns.h "    {\"env_row\","
  "    {\"added\", &PolicyColumnSet<T>::added, Extent::kRow, column_form::Float, Contents::kFinite, Gathering::kAsItIs},\n")

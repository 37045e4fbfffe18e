# Writes the counts of traces/data/reference_loads.csv as a table of C. -DIN=FILE.csv -DOUT=FILE.c
file(STRINGS "${IN}" lines REGEX "^[0-9]")
set(rows "")
foreach(line ${lines})
    string(FIND "${line}" "," comma) # behind the layer
    math(EXPR first "${comma} + 1")
    string(SUBSTRING "${line}" ${first} -1 counts)
    string(APPEND rows "    {${counts}},\n")
endforeach()
file(WRITE "${OUT}" "/* Written by traces/reference_loads.cmake from traces/data/reference_loads.csv. */
#include \"traces/generate/reference_loads.h\"

const double spw_reference_count[SPW_REFERENCE_LAYERS][SPW_REFERENCE_EXPERTS] = {
${rows}};
")

# kerascnn_compile_together(<target> <count> <sources>...): up to <count> of the sources, which lie in one folder, are
# compiled by one call of the compiler, which then reads their headers once.

function(kerascnn_compile_together target count)
  set(number 0)
  foreach(source IN LISTS ARGN)
    math(EXPR group "${number} / ${count}")
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET folder FILENAME folder)
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${folder}_${group}")
    math(EXPR number "${number} + 1")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

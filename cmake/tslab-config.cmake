# find_package(tslab): tslab::tslab (shared), tslab::tslab_static, tslab::tslab_prefixed (replaces no name of libc's),
# and tslab::headers alone.
include("${CMAKE_CURRENT_LIST_DIR}/tslab-targets.cmake")

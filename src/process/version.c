/* version: the name and version of the library.                                                     floor: process */
#include "base/attr.h"
#include "tslab/tslab.h"

#define TEXT(x)  #x
#define VALUE(x) TEXT(x)
#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif
#ifndef TSLAB_BUILD
#define TSLAB_BUILD "unknown build"
#endif

const char *tslab_version(void) {
  return "temporal-slab " VALUE(TSLAB_VERSION_MAJOR) "." VALUE(TSLAB_VERSION_MINOR) "." VALUE(
      TSLAB_VERSION_PATCH) " (" TSLAB_BUILD ", " COMPILER ")";
}

// epoch.hpp after optional.h: the other half of optional.c's program.
#include <tslab/optional.h>

#include <tslab/epoch.hpp>

#include "../check.h"

#include <vector>

extern "C" tslab_epoch check_cxx(bool with);

extern "C" tslab_epoch check_cxx(bool with) {
  tslab::epoch e("from C++", TSLAB_EPOCH_DESTROYABLE);
  CHECK(tslab_available() == with);
  {
    tslab::scope inside(e);
    const std::vector<int> ambient(100);
    CHECK_COUNT(tslab_epoch_of(ambient.data()), ==, (with ? e.id() : 0));
  }
  tslab::memory_resource memory(e);
  {
    const std::pmr::vector<int> numbers(100, 1, &memory);
    const std::vector<int, tslab::allocator<int>> others(100, 1, e);
    CHECK_COUNT(tslab_epoch_of(numbers.data()), ==, (with ? e.id() : 0));
    CHECK_COUNT(tslab_epoch_of(others.data()), ==, (with ? e.id() : 0));
  }
  int error = 0;
  try {
    e.reset();
  } catch (const std::system_error &thrown) {
    error = thrown.code().value();
  }
  CHECK_COUNT(error, ==, (with ? 0 : ENOSYS)); // no call released those blocks
  return e.id();
}

// The C++ header of an installed copy.
#include <cstdio>
#include <vector>

#include <tslab/epoch.hpp>

int main() {
  tslab::epoch frame("frame");
  tslab::scope inside(frame);
  const std::vector<int> numbers(100);
  std::printf("routed=%d\n", tslab_epoch_of(numbers.data()) == frame.id());
}

// pmr: std::pmr containers over an epoch against the same over std::pmr::monotonic_buffer_resource.
//
//   no-frees   a request fills containers and winks them out: their destructors never run. The monotonic
//              resource is made for this.
//   frees      a request replaces each entry of a map again and again, and destroys its containers.
//   scope      the same inside the epoch's scope: free is then the instructions of plain malloc's.
//
// Both resources take turns, request by request, in one process; each request begins with an empty resource. A row has
// the median of the rounds' ratios of processor time with its quartiles, and the memory that one request takes at most.
#include <tslab/epoch.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <list>
#include <map>
#include <memory_resource>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

using resource = std::pmr::memory_resource;

constexpr int entries = 1000, replacements = 20, requests_a_round = 10;

// Never destroyed: its memory ends with the resource.
template <typename Container> Container &immortal(resource *memory) {
  return *new (memory->allocate(sizeof(Container), alignof(Container))) Container(memory);
}

std::string text(int number) { return std::string(std::size_t(16 + number % 50), 'x'); }

std::size_t request_without_frees(resource *memory) {
  auto &numbers = immortal<std::pmr::vector<int>>(memory);
  auto &names = immortal<std::pmr::unordered_map<int, std::pmr::string>>(memory);
  auto &sorted = immortal<std::pmr::map<int, int>>(memory);
  auto &queue = immortal<std::pmr::list<long>>(memory);
  for (int i = 0; i < entries; i++) {
    numbers.push_back(i);
    names.emplace(i, text(i));
    sorted.emplace(i * 7919 % entries, i);
    queue.push_back(i);
  }
  return numbers.size() + names.size() + sorted.size() + queue.size();
}

std::size_t request_with_frees(resource *memory) {
  std::pmr::unordered_map<int, std::pmr::string> names(memory);
  std::pmr::list<long> queue(memory);
  for (int i = 0; i < entries * replacements; i++) {
    names.erase(i % entries);
    names.emplace(i % entries, text(i));
    queue.push_back(i);
    if (queue.size() > entries) queue.pop_front();
  }
  return names.size() + queue.size();
}

// Counts the most bytes that the monotonic resource takes from malloc.
class counting final : public resource {
public:
  std::size_t now = 0, most = 0;

private:
  void *do_allocate(std::size_t bytes, std::size_t alignment) override {
    most = std::max(most, now += bytes);
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void *block, std::size_t bytes, std::size_t alignment) override {
    now -= bytes;
    std::pmr::new_delete_resource()->deallocate(block, bytes, alignment);
  }
  bool do_is_equal(const resource &other) const noexcept override { return this == &other; }
};

using request = std::size_t (*)(resource *);
std::size_t sink; // so that nothing is left out

// The processor time of this thread: others that share the core do not count.
double seconds() {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

double over_monotonic(request serve, counting &upstream) {
  const double begin = seconds();
  for (int i = 0; i < requests_a_round; i++) {
    std::pmr::monotonic_buffer_resource memory(&upstream);
    sink += serve(&memory);
  }
  return seconds() - begin;
}

double over_epoch(request serve, tslab::epoch &epoch, bool in_scope) {
  tslab::memory_resource memory(epoch);
  const double begin = seconds();
  for (int i = 0; i < requests_a_round; i++) {
    {
      tslab::scope inside(in_scope ? epoch.id() : TSLAB_EPOCH_DEFAULT);
      sink += serve(&memory);
    }
    epoch.reset();
  }
  return seconds() - begin;
}

std::size_t held_by_epoch(request serve, tslab::epoch &epoch) {
  tslab::memory_resource memory(epoch);
  sink += serve(&memory);
  const std::size_t bytes = epoch.info().committed_bytes;
  epoch.reset();
  return bytes;
}

void compare(const char *name, request serve, bool in_scope, int rounds) {
  tslab::epoch epoch(name, TSLAB_EPOCH_DESTROYABLE);
  counting upstream;
  std::vector<double> ratios;
  over_monotonic(serve, upstream), over_epoch(serve, epoch, in_scope); // warm
  for (int round = 0; round < rounds; round++) {
    const double monotonic = over_monotonic(serve, upstream), ours = over_epoch(serve, epoch, in_scope);
    ratios.push_back(ours / monotonic);
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("%-8s  time %.2f [%.2f ... %.2f] times monotonic's; memory %zu KiB, monotonic %zu KiB\n", name,
              ratios[ratios.size() / 2], ratios[ratios.size() / 4], ratios[ratios.size() * 3 / 4],
              held_by_epoch(serve, epoch) >> 10, upstream.most >> 10);
}

} // namespace

int main(int argc, char **argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 101;
  compare("no-frees", request_without_frees, false, rounds);
  compare("frees", request_with_frees, false, rounds);
  compare("scope", request_with_frees, true, rounds);
  return sink == 0;
}

// epoch.hpp compiled with -fno-exceptions: the words that an exception would carry go to standard error, and the
// process aborts.
#include "../check.h"

#include <csignal>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>

#include <tslab/epoch.hpp>

namespace {

template <typename Call> void check_aborts(Call call, const std::string &words) {
  int out[2];
  CHECK(pipe(out) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dup2(out[1], 2);
    call();
    _exit(0);
  }
  close(out[1]);
  char text[500] = "";
  size_t length = 0;
  for (ssize_t got; (got = read(out[0], text + length, sizeof text - 1 - length)) > 0;) length += size_t(got);
  close(out[0]);
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  if (!strstr(text, words.c_str())) dprintf(2, "expected '%s' in: %s\n", words.c_str(), text);
  CHECK(strstr(text, words.c_str()) != nullptr);
}

} // namespace

int main() {
  const struct rlimit none = {0, 0};
  CHECK(setrlimit(RLIMIT_CORE, &none) == 0);
  tslab::epoch e("e"), closed("closed");
  const tslab_epoch ended = closed.id();
  closed.close();
  {
    tslab::scope inside(e);
    CHECK_COUNT(tslab_epoch_current(), ==, e.id());
  }
  check_aborts([&] { tslab::scope inside(closed); }, "temporal-slab: entering a tslab::epoch that owns no epoch");
  check_aborts([&] { tslab::scope inside(ended); },
               "temporal-slab: entering epoch " + std::to_string(ended) + ": it has ended");
  check_aborts([&] { (void)tslab::allocator<char>(e).allocate(size_t(PTRDIFF_MAX)); }, "temporal-slab: no memory");
  return 0;
}

// A server of coroutines: one thread, an epoch a connection. A scope belongs to a thread, and a coroutine that waits
// does not have it; so whoever resumes a coroutine switches to its epoch, and switches back when it waits or ends.
//
// Each client sends lines and gets them back turned round. The clients are threads of this program.
#include <algorithm>
#include <coroutine>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tslab/epoch.hpp>

namespace {

constexpr int clients = 64, lines = 50;

// One connection's coroutine. Its frame lies in its epoch, as do all strings that it makes.
struct task {
  struct promise_type {
    task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

task serve(int socket) {
  std::string pending;
  for (char buffer[256];;) {
    co_await std::suspend_always{}; // until the loop sees something to read
    const ssize_t got = read(socket, buffer, sizeof buffer);
    if (got <= 0) break;
    pending.append(buffer, std::size_t(got));
    for (std::size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
      std::string answer(pending.rbegin() + std::ptrdiff_t(pending.size() - end), pending.rend());
      answer += '\n';
      if (write(socket, answer.data(), answer.size()) < 0) break;
    }
  }
}

class connection {
public:
  explicit connection(int socket) : socket_(socket), epoch_("connection") { run([&] { task_ = serve(socket_); }); }

  // Returns false when the client is gone. The last block of the coroutine is freed in its epoch, then that is closed.
  bool resume(tslab_epoch_report &report) {
    run([&] { task_.handle.resume(); });
    if (!task_.handle.done()) return true;
    run([&] { task_.handle.destroy(); });
    epoch_.close(&report);
    close(socket_);
    return false;
  }

  int socket() const { return socket_; }

private:
  template <typename Work> void run(Work work) {
    const tslab_epoch before = tslab_epoch_switch(epoch_.id());
    work();
    tslab_epoch_switch(before);
  }

  int socket_;
  tslab::epoch epoch_;
  task task_{};
};

// Returns how many bytes outlived the connections that they were allocated for.
std::uint64_t event_loop(std::vector<connection> open) {
  std::uint64_t outlived = 0;
  for (connection &each : open) {
    tslab_epoch_report unused;
    each.resume(unused); // to its first wait
  }
  while (!open.empty()) {
    std::vector<pollfd> wanted;
    for (const connection &each : open) wanted.push_back({each.socket(), POLLIN, 0});
    if (poll(wanted.data(), nfds_t(wanted.size()), -1) < 0) std::terminate();
    for (std::size_t i = wanted.size(); i-- > 0;) {
      tslab_epoch_report report{};
      if (wanted[i].revents == 0 || open[i].resume(report)) continue;
      outlived += report.live_bytes;
      open.erase(open.begin() + std::ptrdiff_t(i));
    }
  }
  return outlived;
}

int wrong_answers(int socket) {
  int wrong = 0;
  for (int i = 0; i < lines; i++) {
    const std::string asked = "line " + std::to_string(i) + std::string(100, '.');
    const std::string expected = std::string(asked.rbegin(), asked.rend()) + "\n", sent = asked + "\n";
    std::string got(expected.size(), ' ');
    const bool done = write(socket, sent.data(), sent.size()) == ssize_t(sent.size()) &&
                      recv(socket, got.data(), got.size(), MSG_WAITALL) == ssize_t(got.size());
    wrong += !done || got != expected;
  }
  close(socket);
  return wrong;
}

} // namespace

int main() {
  std::vector<connection> open;
  std::vector<std::thread> threads;
  std::vector<int> wrong(clients);
  for (int i = 0; i < clients; i++) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return 1;
    open.emplace_back(pair[0]);
    threads.emplace_back([&wrong, i, socket = pair[1]] { wrong[std::size_t(i)] = wrong_answers(socket); });
  }
  const std::uint64_t outlived = event_loop(std::move(open));
  for (std::thread &thread : threads) thread.join();
  const auto failed = std::count_if(wrong.begin(), wrong.end(), [](int count) { return count != 0; });
  std::printf("%d connections of %d lines, %d of them with a wrong answer, %llu bytes outlived theirs\n", clients, lines,
              int(failed), static_cast<unsigned long long>(outlived));
  return failed == 0 && outlived == 0 ? 0 : 1;
}

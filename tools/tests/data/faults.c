/* One fault each, or a program that looks like one and is healthy: `tslab doctor` must name the faults alone.
 * Started as `faults NAME`, it goes on until it is killed. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <tslab/tslab.h>
#include <unistd.h>

enum { KiB = 1024, MiB = 1024 * KiB };

static void *volatile keep; /* so that no allocation is left out */

static void *take(size_t size) {
  char *block = malloc(size);
  if (block) memset(block, 1, size);
  keep = block;
  return block;
}

static void rest(unsigned ms) { usleep(ms * 1000); }

/* Makes threads and sleeps for ever. */
static void start(void *(*body)(void *), unsigned threads) {
  pthread_t thread;
  for (unsigned i = 0; i < threads; i++) pthread_create(&thread, NULL, body, (void *)(size_t)i);
}

static void a_few_calls(void) {
  void *blocks[64];
  for (unsigned i = 0; i < 64; i++) blocks[i] = take(16 + 24 * (i % 40));
  for (unsigned i = 0; i < 64; i++) free(blocks[i]);
}

static tslab_epoch enter_new(const char *label, size_t budget, uint32_t flags) {
  tslab_epoch_options options = {
      .struct_size = sizeof options, .label = label, .budget_bytes = budget, .flags = flags};
  tslab_epoch epoch = tslab_epoch_open_with(&options);
  tslab_epoch_enter(epoch);
  return epoch;
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static void leak_in_epoch(void) {
  tslab_epoch_enter(tslab_epoch_open("sessions"));
  for (;; rest(10)) take(4000);
}

static void never_leaves(void) {
  tslab_epoch epoch = tslab_epoch_open("job");
  tslab_epoch_enter(epoch);
  take(3 * MiB);
  tslab_epoch_close(epoch, NULL);
  for (;; rest(10)) a_few_calls();
}

static void never_drains(void) {
  for (unsigned i = 0; i < 20; i++) {
    tslab_epoch epoch = tslab_epoch_open("session");
    keep = tslab_epoch_malloc(epoch, 100);
    tslab_epoch_close(epoch, NULL);
  }
  for (;; rest(10)) a_few_calls();
}

static void forgotten_close(void) {
  for (;; rest(20)) {
    tslab_epoch epoch = tslab_epoch_open("request");
    tslab_epoch_enter(epoch);
    a_few_calls();
    tslab_epoch_leave(epoch);
  }
}

static void deep_scopes(void) {
  for (;; rest(10)) {
    tslab_epoch_enter(tslab_epoch_open("call"));
    a_few_calls();
  }
}

static void scattered(size_t size, size_t total, unsigned one_in) {
  size_t count = total / size;
  void **blocks = malloc(count * sizeof *blocks);
  for (size_t i = 0; i < count; i++) blocks[i] = take(size);
  for (size_t i = 0; i < count; i++)
    if (i % one_in) free(blocks[i]);
}

static void wasted_class(void) {
  scattered(256, 16 * MiB, 4);
  for (;; rest(10)) a_few_calls();
}

static void burst(void) {
  for (size_t size = 128; size <= 1024; size += 128) scattered(size, 8 * MiB, 5);
  for (;; rest(10)) a_few_calls();
}

static void *hog(void *) {
  for (;;) {
    void *blocks[8];
    for (unsigned i = 0; i < 8; i++) keep = blocks[i] = malloc(40 * KiB + i * 64 * KiB);
    for (unsigned i = 0; i < 8; i++) free(blocks[i]);
  }
  return NULL;
}

static void lock_hog(void) {
  start(hog, 8);
  pause();
}

static void *trim(void *) {
  for (;;) tslab_purge();
  return NULL;
}

/* Each purge walks over these slabs under the lock of their heap, which every slow call of this thread wants. The thread
 * rests after each call, so that it meets the lock at any moment of a walk, whether or not both have a processor. */
static void trim_hog(void) {
  for (size_t size = 64; size <= 1024; size *= 2) scattered(size, 16 * MiB, 2);
  start(trim, 1);
  for (;;) {
    void *blocks[64];
    for (unsigned i = 0; i < 64; i++, usleep(20)) keep = blocks[i] = malloc(32 * KiB);
    for (unsigned i = 0; i < 64; i++, usleep(20)) free(blocks[i]);
  }
}

/* Every two milliseconds the process stops for fifty, as under a freezer or with a small share of the processor. */
static void frozen(void) {
  pid_t process = getpid();
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;; rest(50)) {
      kill(process, SIGCONT);
      rest(2);
      kill(process, SIGSTOP);
    }
  }
  trim_hog(); /* its slow calls wait, so that most stops meet one */
}

static void *spin(void *) {
  for (;;) a_few_calls();
  return NULL;
}

static void starved(void) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  sched_setaffinity(0, sizeof one, &one);
  setpriority(PRIO_PROCESS, 0, 19);
  start(spin, 6);
  pause();
}

static void failing_madvise(void) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_DONTNEED, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 24 /* MADV_DONTNEED_LOCKED */, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) return;
  for (;; rest(1500)) {
    void *blocks[32];
    for (unsigned i = 0; i < 32; i++) blocks[i] = take(MiB / 2);
    for (unsigned i = 0; i < 32; i++) free(blocks[i]);
  }
}

static void *volatile ring[4096];

static void *consume(void *) {
  for (;;)
    for (unsigned i = 0; i < 4096; i++) free(__atomic_exchange_n(&ring[i], NULL, __ATOMIC_ACQ_REL));
  return NULL;
}

static void remote_storm(void) {
  start(consume, 1);
  for (;;)
    for (unsigned i = 0; i < 4096; i++)
      if (ring[i] == NULL) __atomic_store_n(&ring[i], malloc(100), __ATOMIC_RELEASE);
}

static void unbounded_epoch(void) {
  struct rlimit limit = {256 * (rlim_t)MiB, 256 * (rlim_t)MiB};
  setrlimit(RLIMIT_DATA, &limit);
  tslab_epoch_enter(tslab_epoch_open("tenant"));
  for (unsigned i = 0; i < 20000; i++) take(4000);
  for (;; rest(10)) a_few_calls();
}

static void limit_near(void) {
  enter_new("tenant", 8 * MiB, 0);
  for (unsigned i = 0; i < 1900; i++) take(4000);
  for (;; rest(10)) free(take(100));
}

static void refused(void) {
  enter_new("tenant", 1 * MiB, 0);
  for (;; rest(1)) take(4000);
}

static void slow_leak(unsigned bytes, unsigned ms) {
  for (;; rest(ms)) {
    a_few_calls();
    take(bytes);
  }
}
static void leak(void) { slow_leak(2000, 10); }
static void leak_of_1_mib_a_minute(void) { slow_leak(1700, 100); }

/* ---- healthy ----------------------------------------------------------------------------------------------------- */

static void one_request(const char *label) {
  tslab_epoch epoch = enter_new(label, 0, TSLAB_EPOCH_DESTROYABLE);
  for (unsigned i = 0; i < 200; i++) take(16 + i);
  tslab_epoch_leave(epoch);
  tslab_epoch_destroy(epoch, NULL);
}

static void *serve(void *) {
  for (;; rest(1)) one_request("request");
  return NULL;
}
static void requests(void) {
  start(serve, 3);
  pause();
}

static void *session(void *) {
  void *slots[2000] = {0};
  tslab_epoch_enter(tslab_epoch_open("session"));
  for (unsigned i = 0;; i++) {
    void **slot = &slots[rand() % 2000];
    free(*slot);
    *slot = take(100 + rand() % 400);
    if (i > 20000 && i % 64 == 0) rest(2);
  }
  return NULL;
}
static void sessions(void) {
  start(session, 3);
  pause();
}

static void idle(void) {
  take(5 * MiB);
  pause();
}

static void *worker(void *) {
  for (;; rest(2))
    for (unsigned i = 0; i < 20; i++) a_few_calls();
  return NULL;
}
static void workers(void) {
  start(worker, 4);
  pause();
}

static void burst_in_epoch(void) {
  for (;; rest(300)) {
    tslab_epoch epoch = enter_new("burst", 0, TSLAB_EPOCH_DESTROYABLE);
    for (unsigned i = 0; i < 20000; i++) take(300);
    tslab_epoch_leave(epoch);
    tslab_epoch_destroy(epoch, NULL);
  }
}

static void within_budget(void) {
  enter_new("tenant", 16 * MiB, 0);
  for (unsigned i = 0; i < 2000; i++) take(4000);
  for (;; rest(10)) a_few_calls();
}

static void *pass_back(void *) {
  for (;; rest(1))
    for (unsigned i = 0; i < 64; i++) free(__atomic_exchange_n(&ring[i], NULL, __ATOMIC_ACQ_REL));
  return NULL;
}
static void pipeline(void) {
  start(pass_back, 1);
  for (;; rest(1)) {
    a_few_calls();
    for (unsigned i = 0; i < 16; i++)
      if (ring[i] == NULL) __atomic_store_n(&ring[i], take(100), __ATOMIC_RELEASE);
  }
}

static void cache(void) { /* full, and turned over */
  enum { ENTRIES = 20000 };
  void **entries = calloc(ENTRIES, sizeof *entries);
  for (unsigned i = 0; i < ENTRIES; i++) entries[i] = take(64 + i % 512);
  for (;; rest(5))
    for (unsigned n = 0; n < 200; n++) {
      unsigned i = (unsigned)rand() % ENTRIES;
      free(entries[i]);
      entries[i] = take(64 + i % 512);
    }
}

static const struct {
  const char *name;
  void (*run)(void);
} programs[] = {
    {"leak-in-epoch", leak_in_epoch},   {"never-leaves", never_leaves},     {"forgotten-close", forgotten_close},
    {"deep-scopes", deep_scopes},       {"wasted-class", wasted_class},     {"burst", burst},
    {"lock-hog", lock_hog},             {"starved", starved},               {"failing-madvise", failing_madvise},
    {"trim-hog", trim_hog},             {"frozen", frozen},                 {"never-drains", never_drains},
    {"remote-storm", remote_storm},
    {"unbounded-epoch", unbounded_epoch}, {"limit-near", limit_near},       {"refused", refused},
    {"leak", leak},                     {"slow-leak", leak_of_1_mib_a_minute}, {"requests", requests},
    {"sessions", sessions},             {"idle", idle},                     {"workers", workers},
    {"burst-in-epoch", burst_in_epoch}, {"within-budget", within_budget},   {"pipeline", pipeline},
    {"cache", cache},
};

int main(int count, char **words) {
  for (size_t i = 0; count == 2 && i < sizeof programs / sizeof *programs; i++)
    if (strcmp(words[1], programs[i].name) == 0) programs[i].run();
  fprintf(stderr, "faults: no program of that name\n");
  return 2;
}

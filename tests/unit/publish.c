/* publish: the segment describes itself, survives its process's death but not its exit, is each process's own after
   every kind of fork, and where it cannot be made nothing else changes. publish [SCENARIO [ARGUMENT]] without: all of
   them, each in a process of its own */
#include "unit.h"

#include "../segment.h"
#include "../threads.h"
#include "base/options.h"
#include "stats/publish.h"
#include "stats/tables.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

enum { SKIPPED = 77, EPOCHS = 30, CHILDREN = 1000, AT_ONCE = 80 / TEST_SCALE };

static void pause_shortly(void) { nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); }

/* ---- what programs do -------------------------------------------------------------------------------------------- */

/* Allocates enough to start a scavenger, which publishes at its first tick. */
static void burst(void) {
  void *blocks[8];
  for (int i = 0; i < 8; i++) CHECK((blocks[i] = tslab_malloc(2 * MiB)) != NULL);
  for (int i = 0; i < 8; i++) tslab_free(memset(blocks[i], 1, 2 * MiB));
}

static void work_in(size_t size) {
  static void *blocks[500];
  for (int i = 0; i < 500; i++) CHECK((blocks[i] = tslab_malloc(size)) != NULL);
  for (int i = 0; i < 500; i++) tslab_free(blocks[i]);
}

/* Small enough that memory is not free for long, and more than a list takes, so that the thread visits slow paths. */
static void work(void) { work_in(512); }

/* The machine decides how long that takes; the test's own time limit ends a wait without end. */
static void work_until_published(void) {
  struct published p;
  for (; !read_published(getpid(), &p); pause_shortly()) work();
  CHECK_COUNT(p.header->pid, ==, getpid());
  forget_published(&p);
}

static uint64_t number_of(pid_t process) {
  struct published p;
  CHECK(read_published(process, &p));
  const uint64_t number = p.header->latest;
  forget_published(&p);
  return number;
}

static bool descriptors_stay_closed(void) {
  DIR *const all = opendir("/proc/self/fd");
  CHECK(all != NULL);
  for (const struct dirent *entry; (entry = readdir(all)) != NULL;) {
    char name[300], target[300] = "";
    snprintf(name, sizeof name, "/proc/self/fd/%s", entry->d_name);
    if (readlink(name, target, sizeof target - 1) > 0 && strncmp(target, "/dev/shm", 8) == 0) return false;
  }
  closedir(all);
  return true;
}

/* ---- the format -------------------------------------------------------------------------------------------------- */

static void check_description(const struct published *p) {
  const struct segment_header *h = p->header;
  struct stat status;
  CHECK(stat(published_path(getpid()), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600 && status.st_nlink == 1 && status.st_uid == geteuid());
  CHECK_COUNT(h->version, ==, SEGMENT_VERSION);
  CHECK_COUNT(h->header_bytes, ==, sizeof *h);
  CHECK_COUNT(h->total_bytes, ==, p->bytes);
  CHECK_COUNT(h->tables, ==, TABLES);
  CHECK(strcmp(h->library, tslab_version()) == 0);
  char text[64], expected[64];
  CHECK(readlink("/proc/self/ns/pid", text, sizeof text) > 0);
  snprintf(expected, sizeof expected, "pid:[%llu]", (unsigned long long)h->pid_namespace);
  CHECK(strncmp(text, expected, strlen(expected)) == 0);
  for (unsigned i = 0; i < h->bounds; i++) {
    uint64_t bound;
    memcpy(&bound, p->file + h->bounds_offset + i * sizeof bound, sizeof bound);
    CHECK_COUNT(bound, ==, tslab_bucket_ns(i));
  }
}

static void check_tables(const struct published *p) {
  uint64_t end = p->header->snapshot_head_bytes;
  for (unsigned i = 0; i < TABLES; i++) {
    const struct segment_table *const t = published_table(p, i);
    CHECK(strcmp(published_string(p, t->name), tables[i].name) == 0);
    CHECK(strcmp(published_string(p, t->help), tables[i].help) == 0);
    CHECK_COUNT(t->fields, ==, tables[i].count);
    CHECK_COUNT(t->row_bytes, ==, tables[i].row_bytes);
    CHECK_COUNT(t->rows_most, ==, tables[i].most);
    CHECK_COUNT(p->snapshot->rows[i], <=, tables[i].most);
    CHECK_COUNT(t->offset, >=, end);
    end = t->offset + (uint64_t)t->row_bytes * t->rows_most;
    for (unsigned j = 0; j < t->fields; j++) {
      const struct segment_field *const f = published_field(p, t, j);
      const struct statistic *const from = &tables[i].fields[j];
      CHECK(strcmp(published_string(p, f->name), from->name) == 0);
      CHECK(strcmp(published_string(p, f->help), from->help) == 0);
      CHECK(f->offset == from->offset && f->count == from->count && f->kind == from->kind && f->unit == from->unit);
      CHECK_COUNT(f->offset + f->count * (f->kind == TEXT ? 1 : 8), <=, t->row_bytes);
    }
  }
  CHECK_COUNT(end, <=, p->header->snapshot_bytes);
}

static void check_figures(const struct published *p) {
  uint64_t live = published_value(p, "process", 0, "large_live_blocks");
  bool found = false;
  for (uint64_t row = 0; row < published_rows(p, "class"); row++) {
    const uint64_t blocks = published_value(p, "class", row, "live_blocks");
    live += blocks;
    const uint64_t frees = published_value(p, "class", row, "frees");
    CHECK_COUNT(blocks, ==, published_value(p, "class", row, "allocations") - frees);
    if (published_value(p, "class", row, "object_size") == 48) found = blocks >= 1000;
  }
  CHECK(found);
  CHECK_COUNT(live, ==, published_value(p, "process", 0, "live_blocks"));
  CHECK_COUNT(live, ==, published_value(p, "process", 0, "allocations") - published_value(p, "process", 0, "frees"));
  CHECK_COUNT(published_value(p, "process", 0, "committed_bytes"), ==,
              published_value(p, "process", 0, "in_use_bytes") + published_value(p, "process", 0, "free_dirty_bytes") +
                  published_value(p, "process", 0, "free_clean_bytes"));
  CHECK_COUNT(published_rows(p, "epoch"), ==, EPOCHS);
  for (int i = 0; i < EPOCHS; i++) {
    char label[64];
    snprintf(label, sizeof label, "epoch %d", i);
    bool there = false;
    for (uint64_t row = 0; row < EPOCHS; row++)
      there |= strcmp(published_row(p, "epoch", row) + offsetof(tslab_epoch_status, label), label) == 0;
    CHECK(there);
  }
}

/* Without a scavenger no number changes between the publication and the look. */
static void figures(void) {
  struct published p;
  struct stat before, after;
  void *blocks[1000];
  CHECK(publish_now() && descriptors_stay_closed());
  CHECK(stat(published_path(getpid()), &before) == 0);
  /* Tables that are mostly empty cost no memory. */
  CHECK_COUNT(before.st_blocks * 512, <=, max_size(160 * KiB, 5 * os_page_size));
  for (int i = 0; i < 1000; i++) CHECK((blocks[i] = tslab_malloc(48)) != NULL);
  for (int i = 0; i < EPOCHS; i++) {
    char label[64];
    snprintf(label, sizeof label, "epoch %d", i);
    CHECK(tslab_epoch_open(label) != 0);
  }
  for (uint64_t number = 2; number < 6; number++) {
    CHECK(publish_now() && read_published(getpid(), &p));
    CHECK_COUNT(p.header->latest, ==, number);
    check_description(&p);
    check_tables(&p);
    check_figures(&p);
    forget_published(&p);
  }
  CHECK(stat(published_path(getpid()), &after) == 0 && after.st_ino == before.st_ino);
  for (int i = 0; i < 1000; i++) tslab_free(blocks[i]);
  publish_rest();
  CHECK(publish_now());
  CHECK_COUNT(number_of(getpid()), ==, 6);
}

/* ---- a request from outside -------------------------------------------------------------------------------------- */

static void request(uint64_t word) {
  const int file = open(published_path(getpid()), O_RDWR | O_CLOEXEC);
  const off_t at = offsetof(struct segment_header, profile_request);
  CHECK(file >= 0 && pwrite(file, &word, sizeof word, at) == sizeof word && close(file) == 0);
  CHECK(publish_now());
}

static size_t interval_now(void) { /* which this leaves as it is */
  size_t interval, same;
  CHECK(tslab_profile_interval(0, &interval) == 0 && tslab_profile_interval(interval, &same) == 0);
  return interval;
}

static void requests(void) {
  const uint64_t one = UINT64_C(1) << 32;
  CHECK(publish_now() && interval_now() == 0);
  request(one | 512 * KiB);
  CHECK_COUNT(interval_now(), ==, 512 * KiB);
  request(2 * one | 1); /* counts as the least */
  CHECK_COUNT(interval_now(), ==, 4 * KiB);
  CHECK(tslab_profile_interval(1 * MiB, NULL) == 0 && publish_now()); /* each request is followed once */
  CHECK_COUNT(interval_now(), ==, 1 * MiB);
  request(3 * one | 1);
  CHECK_COUNT(interval_now(), ==, 4 * KiB);
  request(UINT64_MAX); /* no interval */
  CHECK_COUNT(interval_now(), ==, 4 * KiB);
  request(4 * one); /* a pause */
  CHECK_COUNT(interval_now(), ==, 0);
  struct published p;
  CHECK(read_published(getpid(), &p));
  CHECK_COUNT(published_value(&p, "profile", 0, "interval_bytes"), ==, 0);
  forget_published(&p);
  CHECK(unlink(published_path(getpid())) == 0 && publish_now()); /* a new file has no request */
  CHECK_COUNT(interval_now(), ==, 0);
}

/* ---- in the way of the file -------------------------------------------------------------------------------------- */

static void put_file(const char *path, const void *bytes, size_t length) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK(file >= 0 && write(file, bytes, length) == (ssize_t)length && close(file) == 0);
}

static void obstacles(void) {
  const char *const path = published_path(getpid());
  char kept[] = "/tmp/tslab.publish.XXXXXX", text[5] = "";
  const int file = mkstemp(kept);
  CHECK(file >= 0 && write(file, "text", 4) == 4);
  const char *const argument = getenv("OBSTACLE");
  if (strcmp(argument, "link") == 0) CHECK(symlink(kept, path) == 0);
  else if (strcmp(argument, "directory") == 0) CHECK(mkdir(path, 0700) == 0);
  else if (strcmp(argument, "fifo") == 0) CHECK(mkfifo(path, 0600) == 0);
  else if (strcmp(argument, "file") == 0) put_file(path, "somebody's", 10); /* perhaps just being made */
  else if (strcmp(argument, "namespace") == 0) { /* a process of another container */
    struct segment_header header = {.version = SEGMENT_VERSION, .pid = (uint64_t)getpid(), .pid_namespace = 1};
    memcpy(header.magic, SEGMENT_MAGIC, sizeof header.magic);
    put_file(path, &header, sizeof header);
  }
  struct stat before, after;
  CHECK(lstat(path, &before) == 0);
  CHECK(!publish_now() && !publish_now());
  work();
  publish_at_exit();
  CHECK(lstat(path, &after) == 0 && after.st_ino == before.st_ino && after.st_size == before.st_size);
  CHECK(pread(file, text, 4, 0) == 4 && strcmp(text, "text") == 0);
  CHECK(remove(path) == 0 && remove(kept) == 0);
}

/* Another process removed or cut the file: the library makes it anew. */
static void spoiled(void) {
  CHECK(publish_now());
  CHECK(unlink(published_path(getpid())) == 0);
  CHECK(publish_now());
  CHECK_COUNT(number_of(getpid()), ==, 1);
  CHECK(truncate(published_path(getpid()), 0) == 0);
  CHECK(!publish_now()); /* the file is ours, but no mark says so */
  CHECK(unlink(published_path(getpid())) == 0);
}

/* ---- directories that are in the way ----------------------------------------------------------------------------- */

static bool own_mounts(void) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static void keep_working(void) {
  tslab_epoch_open("one");
  burst();
  for (int i = 0; i < 50; i++, pause_shortly()) {
    for (int j = 0; j < 3; j++) tslab_epoch_open("more");
    work();
  }
}

/* A new /dev/shm of a mebibyte, all but the last kilobytes of which are the program's own. */
enum { SMALL_KIB = 1024 };
static void mount_nearly_full(int kilobytes_left) {
  char options_text[32];
  snprintf(options_text, sizeof options_text, "size=%dk", SMALL_KIB);
  if (!own_mounts() || mount("tmpfs", "/dev/shm", "tmpfs", 0, options_text) != 0) exit(SKIPPED);
  const int file = open("/dev/shm/own", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  CHECK(file >= 0 && posix_fallocate(file, 0, (off_t)(SMALL_KIB - kilobytes_left) * 1024) == 0 && close(file) == 0);
}

/* The files of all processes take a quarter at most, here those of two. Processes 1 and our parent live. */
static void shared(void) {
  mount_nearly_full(SMALL_KIB / 2);
  const int others = atoi(getenv("OTHERS"));
  const pid_t living[] = {1, getppid()};
  for (int i = 0; i < others; i++)
    CHECK(close(open(published_path(living[i]), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
  keep_working();
  CHECK(is_published(getpid()) == (others < 2));
}

static void full(void) {
  struct published p;
  mount_nearly_full(atoi(getenv("LEFT")));
  keep_working();
  if (!is_published(getpid())) return;
  /* A file that has room is whole. */
  if (!read_published(getpid(), &p)) return;
  check_tables(&p);
  CHECK_COUNT(published_rows(&p, "process"), ==, 1);
  forget_published(&p);
}

static void read_only(void) {
  if (!own_mounts() || mount("tmpfs", "/dev/shm", "tmpfs", MS_RDONLY, NULL) != 0) exit(SKIPPED);
  keep_working();
  CHECK(!is_published(getpid()));
}

static void missing(void) {
  if (!own_mounts() || mount("tmpfs", "/dev", "tmpfs", 0, NULL) != 0) exit(SKIPPED);
  keep_working();
  CHECK(!is_published(getpid()));
}

static void short_files(void) {
  CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096}) == 0);
  keep_working(); /* SIGXFSZ would end it */
  CHECK(!is_published(getpid()));
}

static void no_descriptors(void) {
  CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, 0}) == 0);
  keep_working();
}

static void filter(const long *numbers, size_t count) {
  struct sock_filter rules[16] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  unsigned short length = 1;
  for (size_t i = 0; i < count; i++) {
    rules[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)numbers[i], 0, 1);
    rules[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  }
  rules[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const struct sock_fprog program = {length, rules};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) exit(SKIPPED);
}

static void filtered(void) {
  const long calls[] = {SYS_openat, SYS_truncate, SYS_ftruncate, SYS_unlinkat, SYS_newfstatat};
  const int which = atoi(getenv("CALL"));
  filter(which < 0 ? calls : &calls[which], which < 0 ? 5 : 1);
  keep_working();
}

/* ---- lives and deaths -------------------------------------------------------------------------------------------- */

/* An earlier process of the new one's number may have been killed and have left its file, which the new one removes. */
static pid_t forked(pid_t child) {
  CHECK(child >= 0);
  if (child == 0) unlink(published_path(getpid()));
  return child;
}

static pid_t start(const char *scenario) {
  const pid_t child = forked(fork());
  if (child == 0) {
    unsetenv("TSLAB_SCAVENGER");
    execl("/proc/self/exe", "publish", scenario, NULL);
    _exit(127);
  }
  return child;
}

static int end_of(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}

/* Publishes, and stays until it is killed, or its standard input ends. */
static void linger(void) {
  char end;
  burst();
  work_until_published();
  CHECK(descriptors_stay_closed());
  CHECK(read(0, &end, 1) == 0);
}

/* The process lives on, with little work. */
static void live_long(void) {
  work();
  CHECK(!is_published(getpid()));
  work_until_published();
  const uint64_t before = number_of(getpid());
  for (; number_of(getpid()) < before + 3; pause_shortly()) work();
}

/* Mallocs that its lists serve; their samples appear. */
static void live_fast(void) {
  for (; !is_published(getpid()); pause_shortly()) work_in(64);
}

static void *work_as_thread(void *unused) {
  burst();
  work_until_published();
  return unused;
}

static void leave_main(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, work_as_thread, NULL) == 0);
  pthread_exit(NULL);
}

static void unwanted(void) {
  keep_working();
  CHECK(!is_published(getpid()));
}

/* ---- heaps whose process waits ----------------------------------------------------------------------------------- */

enum { HELD = 5000, HELD_SIZE = 1000, THREADS = 5 };

/* Keeps blocks, 5 MB, within a few milliseconds. */
static void take_blocks(int count) {
  for (int i = 0; i < count; i++) {
    char *const block = tslab_malloc(HELD_SIZE);
    CHECK(block != NULL);
    memset(block, 1, HELD_SIZE);
  }
}

/* Waits as an inspected process does: without a call of the library. */
static void wait_for_blocks(uint64_t count) {
  for (uint64_t seen = 0; seen < count; pause_shortly()) {
    struct published p;
    if (!read_published(getpid(), &p)) continue;
    seen = published_value(&p, "process", 0, "live_blocks");
    forget_published(&p);
  }
}

static void *take_and_wait(void *all_have) {
  take_blocks(HELD / THREADS);
  pthread_barrier_wait(all_have);
  pause();
  return NULL;
}

static void hold_in_threads(void) {
  static pthread_barrier_t all_have;
  pthread_t thread;
  CHECK(pthread_barrier_init(&all_have, NULL, THREADS + 1) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread, NULL, take_and_wait, &all_have) == 0);
  pthread_barrier_wait(&all_have);
  wait_for_blocks(HELD);
}

static void hold_in_child(void) {
  take_blocks(HELD);
  const pid_t child = forked(fork());
  if (child == 0) {
    take_blocks(HELD);
    wait_for_blocks(2 * HELD);
    exit(0);
  }
  CHECK(end_of(child) == 0);
}

static void hold(void) {
  const char *const how = getenv("HOLD");
  if (strcmp(how, "threads") == 0) hold_in_threads();
  else if (strcmp(how, "child") == 0) hold_in_child();
  else take_blocks(HELD);
  if (strcmp(how, "asleep") == 0) { /* the thread sleeps after a second without work, and must be woken at once */
    wait_for_blocks(HELD);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
    take_blocks(HELD);
  }
  wait_for_blocks(strcmp(how, "asleep") == 0 ? 2 * HELD : HELD);
}

/* Allocates one block of each of many sizes: 20 slabs and more, most pages untouched. */
static void hold_little(void) {
  if (TSLAB_HARDENED) return; /* guards count as held */
  if (os_page_size > 16 * KiB) return; /* there each size has a large page, and all together are a mebibyte */
  const unsigned before = threads();
  for (size_t size = 16; size <= 8 * KiB; size += size / 4) CHECK(tslab_malloc(size) != NULL);
  CHECK_COUNT(pages_totals().committed, >=, 1 * MiB);
  CHECK_COUNT(threads(), ==, before);
}

static void hold_unwanted(void) {
  const unsigned before = threads();
  take_blocks(HELD);
  CHECK_COUNT(threads(), ==, before);
  CHECK(!is_published(getpid()));
}

/* Runs another program under the same process id: the first one's file is replaced. */
static void execute(void) {
  struct stat before, after;
  if (!getenv("AGAIN")) {
    burst();
    work_until_published();
    setenv("AGAIN", "1", 1);
    execl("/proc/self/exe", "publish", "execute", NULL);
    _exit(127);
  }
  CHECK(stat(published_path(getpid()), &before) == 0);
  burst();
  do {
    work_until_published();
    CHECK(stat(published_path(getpid()), &after) == 0);
  } while (after.st_ino == before.st_ino && (pause_shortly(), true));
}

static void wait_until_published(pid_t process) {
  struct published p;
  while (!read_published(process, &p)) pause_shortly();
  forget_published(&p);
}

/* As if its process ended a minute ago. */
static void age(pid_t process) {
  struct published p;
  const uint64_t long_ago = 1;
  CHECK(read_published(process, &p));
  const int file = open(published_path(process), O_WRONLY);
  CHECK(file >= 0);
  for (int i = 0; i < 2; i++) {
    const uint64_t offset = p.header->snapshot_offset[i] + offsetof(struct segment_snapshot, realtime_ns);
    CHECK(pwrite(file, &long_ago, sizeof long_ago, (off_t)offset) == sizeof long_ago);
  }
  close(file);
  forget_published(&p);
}

static void killed(void) {
  struct published p;
  int keep_open[2];
  CHECK(pipe(keep_open) == 0 && dup2(keep_open[0], 0) == 0);
  const pid_t child = start("linger");
  wait_until_published(child);
  kill(child, SIGKILL);
  CHECK(WIFSIGNALED(end_of(child)));
  CHECK(read_published(child, &p));
  check_tables(&p);
  forget_published(&p);
  CHECK(end_of(start("live_long")) == 0); /* looks at the file, and leaves it for readers */
  CHECK(is_published(child));
  age(child);
  const pid_t alive = start("linger");
  wait_until_published(alive);
  CHECK(!is_published(child));
  age(alive); /* long asleep */
  CHECK(end_of(start("live_long")) == 0);
  CHECK(is_published(alive));
  kill(alive, SIGKILL);
  end_of(alive);
  CHECK(unlink(published_path(alive)) == 0);
}

/* Ends as soon as its file exists, which is before the file is whole. */
static void hurry(void) {
  burst();
  while (!is_published(getpid())) sched_yield();
}

static void hurried(void) {
  static pid_t all[AT_ONCE];
  for (int i = 0; i < AT_ONCE; i++) all[i] = start("hurry");
  for (int i = 0; i < AT_ONCE; i++) {
    CHECK(end_of(all[i]) == 0);
    CHECK(!is_published(all[i]));
  }
}

static void many(void) {
  static pid_t all[AT_ONCE];
  int keep_open[2];
  CHECK(pipe2(keep_open, O_CLOEXEC) == 0 && dup2(keep_open[0], 0) == 0);
  for (int i = 0; i < AT_ONCE; i++) all[i] = start("linger");
  for (int i = 0; i < AT_ONCE; i++) wait_until_published(all[i]);
  for (int i = 0; i < AT_ONCE; i++) {
    struct published p;
    CHECK(read_published(all[i], &p));
    CHECK_COUNT(p.header->pid, ==, all[i]);
    check_tables(&p);
    forget_published(&p);
  }
  close(keep_open[1]);
  for (int i = 0; i < AT_ONCE; i++) CHECK(end_of(all[i]) == 0);
  for (int i = 0; i < AT_ONCE; i++) CHECK(!is_published(all[i]));
}

static void children(void) {
  burst();
  work_until_published();
  for (int i = 0; i < CHILDREN; i++) {
    const pid_t child = forked(fork());
    if (child == 0) {
      CHECK(descriptors_stay_closed());
      work(); /* on a machine that stalled long enough for publication */
      if (i % 2) exit(0); /* the child must keep its parent's file */
      _exit(0);
    }
    CHECK(end_of(child) == 0);
    CHECK(is_published(getpid()));
    if (i % 2) CHECK(!is_published(child));
    else unlink(published_path(child));
    if (i % 100 == 0) burst();
  }
  const uint64_t before = number_of(getpid());
  for (; number_of(getpid()) == before; pause_shortly()) work();
}

static void live_as_child(void) {
  work_until_published();
  const uint64_t before = number_of(getpid());
  for (; number_of(getpid()) == before; pause_shortly()) work();
  exit(0);
}

/* libc's locks may be held there, as far as libtslab.a knows, so the child makes no thread and publishes nothing. */
enum { BARE_ROUNDS = 20 };
static void live_bare(void) {
  burst();
  for (int i = 0; i < BARE_ROUNDS; i++, pause_shortly()) work();
  CHECK(!is_published(getpid()));
  exit(0);
}

static pid_t bare_fork(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL); }

/* A child whose fork ran no handlers has no scavenger, and locks without holders; the fork must not come while the
   scavenger holds a lock. */
static void wait_for_quiet(bool asleep) {
  uint64_t number = number_of(getpid()), now;
  for (int same = 0; asleep ? same < 60 : same < 3; pause_shortly()) {
    if (!asleep && same == 0) work();
    now = number_of(getpid());
    same = now == number ? same + 1 : 0;
    number = now;
  }
}

static void lives_of_children(void) {
  burst();
  work_until_published();
  for (int i = 0; i < 3; i++) {
    if (i > 0) wait_for_quiet(i == 2);
    const uint64_t before = number_of(getpid());
    const pid_t child = forked(i == 0 ? fork() : bare_fork());
    if (child == 0 && i == 0) live_as_child();
    if (child == 0) live_bare();
    CHECK(end_of(child) == 0);
    CHECK(!is_published(child) && is_published(getpid()));
    for (; number_of(getpid()) <= before; pause_shortly()) work();
  }
}

/* A copy of this program that runs as another user, whoever starts it. */
static void trusted_with_more(void) {
  char name[] = "/tmp/tslab.publish.XXXXXX";
  char command[200];
  const int file = mkstemp(name);
  CHECK(file >= 0 && close(file) == 0);
  snprintf(command, sizeof command, "cat /proc/%d/exe > %s", (int)getpid(), name);
  CHECK(system(command) == 0);
  if (chown(name, 65534, 65534) != 0 || chmod(name, 04755) != 0) {
    unlink(name);
    exit(SKIPPED);
  }
  const pid_t child = forked(fork());
  if (child == 0) {
    execl(name, "publish", "secure", NULL);
    _exit(127);
  }
  const int status = end_of(child);
  unlink(name);
  if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) exit(SKIPPED);
  CHECK(status == 0);
}

static void secure(void) {
  if (!os_secure_mode()) exit(SKIPPED); /* a file system that does not honour the bit */
  keep_working();
  CHECK(!is_published(getpid()));
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

enum { DIRECT = 1, BARE = 2, HELPER = 4 }; /* calls publish_now itself; not under a sanitizer; for other scenarios */

static const struct scenario {
  const char *name;
  void (*run)(void);
  int kind;
  const char *setting, *values[7];
} scenarios[] = {
    {"figures", figures, DIRECT, NULL, {""}},
    {"requests", requests, DIRECT, NULL, {""}},
    {"obstacles", obstacles, DIRECT, "OBSTACLE", {"link", "directory", "fifo", "file", "namespace"}},
    {"spoiled", spoiled, DIRECT, NULL, {""}},
    {"full", full, 0, "LEFT", {"4", "48", "80", "112", "128", "144"}},
    {"shared", shared, 0, "OTHERS", {"1", "2"}},
    {"read_only", read_only, 0, NULL, {""}},
    {"missing", missing, 0, NULL, {""}},
    {"short_files", short_files, 0, NULL, {""}},
    {"no_descriptors", no_descriptors, BARE, NULL, {""}},
    {"filtered", filtered, BARE, "CALL", {"-1", "0", "1", "2", "3", "4"}},
    {"linger", linger, HELPER, NULL, {""}},
    {"hurry", hurry, HELPER, NULL, {""}},
    {"live_long", live_long, 0, NULL, {""}},
    {"live_fast", live_fast, 0, NULL, {""}},
    {"hold", hold, 0, "HOLD", {"alone", "asleep"}},
    {"hold", hold, BARE, "HOLD", {"threads", "child"}},
    {"hold_little", hold_little, 0, NULL, {""}},
    {"hold_unwanted", hold_unwanted, 0, "TSLAB_PUBLISH", {"0"}},
    {"leave_main", leave_main, BARE, NULL, {""}},
    {"unwanted", unwanted, 0, "TSLAB_PUBLISH", {"0"}},
    {"without_scavenger", unwanted, 0, "TSLAB_SCAVENGER", {"0"}},
    {"execute", execute, 0, NULL, {""}},
    {"killed", killed, 0, NULL, {""}},
    {"hurried", hurried, 0, NULL, {""}},
    {"many", many, 0, NULL, {""}},
    {"children", children, BARE, NULL, {""}},
    {"lives_of_children", lives_of_children, BARE, NULL, {""}},
    {"trusted_with_more", trusted_with_more, BARE, NULL, {""}},
    {"secure", secure, HELPER, NULL, {""}},
};

static bool passes(const struct scenario *s, const char *value) {
  if (s->setting) setenv(s->setting, value, 1);
  if (s->kind & DIRECT) setenv("TSLAB_SCAVENGER", "0", 1);
  const pid_t child = forked(fork());
  if (child == 0) {
    execl("/proc/self/exe", "publish", s->name, NULL);
    _exit(127);
  }
  const int status = end_of(child);
  if (s->setting) unsetenv(s->setting);
  unsetenv("TSLAB_SCAVENGER");
  const bool skipped = WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED;
  printf("%s %s: %s\n", s->name, value, skipped ? "skipped" : status == 0 ? "ok" : "failed");
  const bool left = is_published(child) && strcmp(s->name, "no_descriptors") != 0 && strcmp(s->name, "filtered") != 0;
  unlink(published_path(child));
  if (left) printf("%s %s: left its segment behind\n", s->name, value);
  return (skipped || status == 0) && !left;
}

int main(int argc, char **argv) {
  const size_t count = sizeof scenarios / sizeof *scenarios;
  bool all = true;
  setvbuf(stdout, NULL, _IONBF, 0);
  for (size_t i = 0; i < count; i++) {
    const struct scenario *const s = &scenarios[i];
    if (argc > 1) {
      if (strcmp(argv[1], s->name) != 0) continue;
      s->run();
      return 0;
    }
    /* A sanitizer's runtime cannot start threads in the child of a threaded process, and opens files at the end. */
    if (s->kind & HELPER || (SANITIZED && s->kind & BARE)) continue;
    for (int v = 0; s->values[v]; v++) all = passes(s, s->values[v]) && all;
  }
  return !all;
}

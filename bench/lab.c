/* lab: see lab.h. This file must not call malloc between lab_start and lab_finish. */
#include "lab.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_WRONG_ALLOCATOR = 4 };
enum { MAX_ROWS = 64, MAX_METRICS = 96, MAX_SERIES = 12, MAX_THREADS = 256 };

uint64_t lab_seed = 42;
uint64_t lab_calls;

static const lab_about *about;
static const char *expected;
static long litter;
static bool as_csv;

/* A row keeps pointers to nothing but literals and lab_map memory. */
typedef struct row {
  char extra[96];
  unsigned metrics, series;
  struct { char name[48]; double value; } metric[MAX_METRICS];
  struct { const char *name; const double *values; size_t count; } serie[MAX_SERIES];
} row;
static row rows[MAX_ROWS];
static unsigned row_count;

void lab_fail(const char *format, ...) {
  va_list arguments;
  fprintf(stderr, "%s: ", about ? about->name : "bench");
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(EXIT_USAGE);
}

/* ---- who serves malloc ---- */

static struct {
  char path[512];             /* the object that malloc comes from */
  bool glibc;
  uint64_t base;              /* glibc's live bytes before the workload */
  uint64_t checks;
  double worst_served_pct;
  struct mallinfo2 (*mallinfo2)(void);
} proof = { .worst_served_pct = 100 };

static const char *const family[] = { "malloc", "free", "calloc", "realloc" };

static const char *object_of(const char *symbol, Dl_info *info) {
  void *address = dlsym(RTLD_DEFAULT, symbol);
  if (!address || !dladdr(address, info) || !info->dli_fname)
    lab_fail("cannot tell where %s comes from: %s", symbol, dlerror());
  return info->dli_fname;
}

static bool same_file(const char *a, const char *b) {
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

_Noreturn static void wrong_allocator(const char *format, ...) {
  va_list arguments;
  fprintf(stderr, "%s: no row: ", about->name);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  const char *preload = getenv("LD_PRELOAD");
  fprintf(stderr, " (LD_PRELOAD=%s)\n", preload ? preload : "");
  _exit(EXIT_WRONG_ALLOCATOR);
}

static void check_expected(void) {
  if (!expected)
    return;
  if (strcmp(expected, "glibc") == 0) {
    if (!proof.glibc)
      wrong_allocator("glibc was expected, but malloc comes from %s", proof.path);
  } else if (strchr(expected, '/')) {
    if (access(expected, R_OK) != 0)
      wrong_allocator("--expect=%s: %s", expected, strerror(errno));
    if (!same_file(expected, proof.path))
      wrong_allocator("%s was expected, but malloc comes from %s", expected, proof.path);
  } else {
    const char *slash = strrchr(proof.path, '/');
    if (!strstr(slash ? slash + 1 : proof.path, expected))
      wrong_allocator("a library named like '%s' was expected, but malloc comes from %s", expected, proof.path);
  }
}

/* glibc's own malloc is asked through a handle of libc itself, so that no preloaded mallinfo2 answers in its place. */
static void proof_start(void) {
  Dl_info info, libc_info;
  snprintf(proof.path, sizeof proof.path, "%s", object_of("malloc", &info));
  for (unsigned i = 1; i < sizeof family / sizeof *family; i++) {
    Dl_info other;
    object_of(family[i], &other);
    if (other.dli_fbase != info.dli_fbase)
      wrong_allocator("malloc comes from %s but %s from %s", proof.path, family[i], other.dli_fname);
  }
  object_of("gnu_get_libc_version", &libc_info);
  proof.glibc = libc_info.dli_fbase == info.dli_fbase;
  void *libc = dlopen(libc_info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void *symbol = libc ? dlsym(libc, "mallinfo2") : NULL;
  if (!symbol)
    lab_fail("this C library has no mallinfo2 (glibc 2.33 or newer is needed to prove who served the calls)");
  memcpy(&proof.mallinfo2, &symbol, sizeof symbol);
  check_expected();
  struct mallinfo2 held = proof.mallinfo2();
  proof.base = held.uordblks + held.hblkhd;
}

void lab_proof_live(uint64_t bytes) {
  proof.checks++;
  if (proof.glibc || bytes == 0)
    return;
  struct mallinfo2 held = proof.mallinfo2();
  uint64_t now = held.uordblks + held.hblkhd;
  double passed_on = now > proof.base ? (double)(now - proof.base) : 0;
  double served = 100 * (1 - passed_on / (double)bytes);
  if (served < proof.worst_served_pct)
    proof.worst_served_pct = served < 0 ? 0 : served;
}

/* A function of that name elsewhere would serve blocks of another allocator. */
bool lab_find(const lab_binding *binding) {
  Dl_info info;
  void *address = dlsym(RTLD_DEFAULT, binding->name);
  if (!address || !dladdr(address, &info) || !info.dli_fname || !same_file(info.dli_fname, proof.path))
    return false;
  memcpy(binding->pointer, &address, sizeof address);
  return true;
}

void lab_bind(const char *what, const lab_binding *list) {
  for (const lab_binding *b = list; b->name; b++)
    if (!lab_find(b))
      lab_fail("%s needs %s, which %s does not have: put a library that has it in LD_PRELOAD (libtslab.so for epochs, "
               "mimalloc's for its heaps)", what, b->name, proof.path);
}

/* ---- options ---- */

static void usage(void) {
  printf("%s: %s\n\nusage: %s [--option=value ...]\n\n", about->name, about->operation, about->name);
  for (const lab_option *o = about->options; o->name; o++) {
    char value[64];
    if (o->number)
      snprintf(value, sizeof value, "%ld", *o->number);
    else if (o->real)
      snprintf(value, sizeof value, "%g", *o->real);
    else
      snprintf(value, sizeof value, "%s", *o->text);
    printf("  --%-14s %s%s%s (%s)\n", o->name, o->help, o->choices ? ": " : "", o->choices ? o->choices : "", value);
  }
  printf("  --%-14s %s (%llu)\n", "seed", "of every random number", (unsigned long long)lab_seed);
  printf("  --%-14s %s (0)\n", "litter", "blocks that each thread allocates and mostly frees before the start");
  printf("  --%-14s %s\n", "expect", "the allocator that must serve the run: 'glibc', a path, or part of a file name;\n"
         "                   another one: exit 4 and no row");
  printf("  --%-14s %s\n", "csv", "rows as CSV (workload,variant,seed,metric,value,malloc_from), not as JSON lines");
  exit(0);
}

static long parse_number(const char *name, const char *value, long least) {
  char *end;
  errno = 0;
  long n = strtol(value, &end, 10);
  if (errno || *value == 0 || *end || n < least)
    lab_fail("--%s=%s: a whole number of at least %ld is needed", name, value, least);
  return n;
}

static bool is_choice(const char *choices, const char *value) {
  size_t length = strlen(value);
  for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
    if (length && strncmp(at, value, length) == 0 && (at[length] == '|' || at[length] == 0))
      return true;
  return false;
}

static void set_option(const lab_option *o, const char *value) {
  if (o->number) {
    *o->number = parse_number(o->name, value, o->least);
  } else if (o->real) {
    char *end;
    *o->real = strtod(value, &end);
    if (*value == 0 || *end || !(*o->real >= 0))
      lab_fail("--%s=%s: a number of at least 0 is needed", o->name, value);
  } else {
    if (o->choices && !is_choice(o->choices, value))
      lab_fail("--%s=%s: must be one of %s", o->name, value, o->choices);
    *o->text = value;
  }
}

static void parse(const char *argument) {
  if (strcmp(argument, "--help") == 0)
    usage();
  if (strcmp(argument, "--csv") == 0) {
    as_csv = true;
    return;
  }
  const char *equals = strchr(argument, '=');
  if (strncmp(argument, "--", 2) != 0 || !equals)
    lab_fail("'%s' is not --option=value; --help lists the options", argument);
  const char *name = argument + 2, *value = equals + 1;
  size_t length = (size_t)(equals - name);
  if (length == 4 && strncmp(name, "seed", length) == 0) {
    lab_seed = (uint64_t)parse_number("seed", value, 0);
  } else if (length == 6 && strncmp(name, "litter", length) == 0) {
    litter = parse_number("litter", value, 0);
  } else if (length == 6 && strncmp(name, "expect", length) == 0) {
    expected = value;
  } else {
    for (const lab_option *o = about->options; o->name; o++)
      if (strlen(o->name) == length && strncmp(name, o->name, length) == 0) {
        set_option(o, value);
        return;
      }
    lab_fail("unknown option '%s'; --help lists the options", argument);
  }
}

/* ---- clocks ---- */

static double tick_ns;
static uint64_t timer_cost;

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void calibrate_sampler(void);
static void calibrate(void) {
  enum { SAMPLES = 10001, WINDOW_NS = 50000000 };
  uint64_t ns = lab_now_ns(CLOCK_MONOTONIC_RAW), ticks = lab_ticks_begin(), now;
  while ((now = lab_now_ns(CLOCK_MONOTONIC_RAW)) - ns < WINDOW_NS)
    ;
  tick_ns = (double)(now - ns) / (double)(lab_ticks_end() - ticks);
  uint64_t *samples = lab_map(SAMPLES * sizeof *samples);
  for (unsigned i = 0; i < SAMPLES; i++) {
    uint64_t begin = lab_ticks_begin();
    samples[i] = lab_ticks_end() - begin;
  }
  qsort(samples, SAMPLES, sizeof *samples, by_value);
  timer_cost = samples[SAMPLES / 2];
  munmap(samples, SAMPLES * sizeof *samples);
  calibrate_sampler();
}

double lab_tick_ns(void) { return tick_ns; }
uint64_t lab_timer_cost(void) { return timer_cost; }

/* ---- start ---- */

void lab_start(int argc, char **argv, const lab_about *workload) {
  about = workload;
  for (int i = 1; i < argc; i++)
    parse(argv[i]);
  proof_start();
  calibrate();
}

uint32_t lab_seed32(uint64_t salt) {
  uint64_t state = lab_seed + salt * 0xD1342543DE82EF95u;
  uint32_t seed = (uint32_t)(lab_random(&state) >> 32);
  return seed ? seed : 1;
}

/* ---- memory ---- */

void *lab_map(size_t bytes) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
  void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED)
    lab_fail("%zu bytes for the workload's own tables: %s", bytes, strerror(errno));
  return memory;
}

/* The value in bytes of a "Name:   123 kB" line of a /proc file, 0 when it is not there. */
static uint64_t proc_field(const char *text, const char *name) {
  const char *at = strstr(text, name);
  return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

static void proc_read(const char *path, char *buffer, size_t capacity) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? 0 : read(fd, buffer, capacity - 1);
  if (fd >= 0)
    close(fd);
  buffer[length > 0 ? length : 0] = 0;
}

/* smaps_rollup walks the page tables; VmRSS may lag behind by some hundred KiB on recent kernels. */
static void read_exact(lab_memory *m) {
  char text[4096];
  proc_read("/proc/self/smaps_rollup", text, sizeof text);
  m->rss = proc_field(text, "\nRss:");
  m->huge = proc_field(text, "\nAnonHugePages:");
}

/* VmHWM belongs to this program image; ru_maxrss would inherit the launcher's peak. */
lab_memory lab_memory_now(void) {
  char text[4096];
  lab_memory m = { 0 };
  proc_read("/proc/self/status", text, sizeof text);
  m.peak_rss = proc_field(text, "VmHWM:");
  m.committed = proc_field(text, "VmData:");
  read_exact(&m);
  if (m.rss == 0)
    m.rss = proc_field(text, "VmRSS:");
  if (m.peak_rss < m.rss)
    m.peak_rss = m.rss;
  return m;
}

uint64_t lab_rss_now(void) {
  lab_memory m = { 0 };
  read_exact(&m);
  return m.rss ? m.rss : lab_memory_now().rss;
}

void lab_litter(size_t least, size_t most) {
  if (litter == 0)
    return;
  size_t count = (size_t)litter;
  void **blocks = lab_map(count * sizeof *blocks);
  uint64_t state = lab_seed ^ 0x11773A;
  for (size_t i = 0; i < count; i++) {
    blocks[i] = malloc(least + lab_below(&state, (uint32_t)(most - least + 1)));
    if (!blocks[i])
      lab_fail("--litter=%zu: out of memory at block %zu", count, i);
    *(char *)blocks[i] = 1;
  }
  for (size_t i = 0; i < count; i++) {
    size_t j = i + lab_below(&state, (uint32_t)(count - i));
    void *chosen = blocks[j];
    blocks[j] = blocks[i];
    if (i % 10 != 0)
      free(chosen);
  }
  munmap(blocks, count * sizeof *blocks);
}

/* ---- histogram ---- */

static uint64_t value_of_slot(uint32_t slot) {
  if (slot < 2 * LAB_HISTOGRAM_SUB)
    return slot;
  unsigned shift = slot / LAB_HISTOGRAM_SUB - 1;
  return ((uint64_t)(slot - shift * LAB_HISTOGRAM_SUB) << shift) + ((1ull << shift) >> 1);
}

uint64_t lab_percentile(const lab_histogram *h, double percent) {
  uint64_t wanted = (uint64_t)ceil((double)h->total * percent / 100), seen = 0;
  for (uint32_t slot = 0; slot < LAB_HISTOGRAM_SLOTS; slot++) {
    seen += h->counts[slot];
    if (seen >= wanted && seen > 0)
      return value_of_slot(slot) < h->max ? value_of_slot(slot) : h->max;
  }
  return h->max;
}

lab_part lab_from(const lab_histogram *h, uint64_t least) {
  lab_part part = { 0, 0 };
  for (uint32_t slot = lab_histogram_slot(least); slot < LAB_HISTOGRAM_SLOTS; slot++) {
    part.count += (double)h->counts[slot];
    part.sum += (double)h->counts[slot] * (double)value_of_slot(slot);
  }
  return part;
}

void lab_merge(lab_histogram *into, const lab_histogram *from) {
  for (uint32_t slot = 0; slot < LAB_HISTOGRAM_SLOTS; slot++)
    into->counts[slot] += from->counts[slot];
  into->total += from->total;
  into->sum += from->sum;
  if (from->max > into->max)
    into->max = from->max;
}

/* ---- threads ---- */

static struct {
  unsigned threads;
  void (*work)(unsigned);
  pthread_barrier_t barrier;
  struct { uint64_t wall_begin, wall_end, cpu_begin, cpu_end; } member[MAX_THREADS];
} team;
static _Thread_local unsigned own_index;

void lab_team_begin(void) {
  if (team.threads > 1)
    pthread_barrier_wait(&team.barrier);
  team.member[own_index].cpu_begin = lab_now_ns(CLOCK_THREAD_CPUTIME_ID);
  team.member[own_index].wall_begin = lab_now_ns(CLOCK_MONOTONIC);
}

void lab_team_end(void) {
  team.member[own_index].wall_end = lab_now_ns(CLOCK_MONOTONIC);
  team.member[own_index].cpu_end = lab_now_ns(CLOCK_THREAD_CPUTIME_ID);
  if (team.threads > 1)
    pthread_barrier_wait(&team.barrier);
}

uint64_t lab_team_own_ns(unsigned index) { return team.member[index].wall_end - team.member[index].wall_begin; }

static void *team_main(void *index) {
  own_index = (unsigned)(uintptr_t)index;
  team.work(own_index);
  return NULL;
}

lab_team_result lab_team(unsigned threads, void (*work)(unsigned)) {
  pthread_t ids[MAX_THREADS];
  if (threads == 0 || threads > MAX_THREADS)
    lab_fail("%u threads: from 1 to %d can run", threads, MAX_THREADS);
  team.threads = threads;
  team.work = work;
  if (threads == 1) {
    own_index = 0;
    work(0);
  } else {
    pthread_barrier_init(&team.barrier, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
      int error = pthread_create(&ids[i], NULL, team_main, (void *)(uintptr_t)i);
      if (error)
        lab_fail("thread %u of %u: %s", i + 1, threads, strerror(error));
    }
    for (unsigned i = 0; i < threads; i++)
      pthread_join(ids[i], NULL);
    pthread_barrier_destroy(&team.barrier);
  }
  lab_team_result r = { 0 };
  uint64_t first = UINT64_MAX, last = 0;
  for (unsigned i = 0; i < threads; i++) {
    double own = (double)lab_team_own_ns(i);
    first = team.member[i].wall_begin < first ? team.member[i].wall_begin : first;
    last = team.member[i].wall_end > last ? team.member[i].wall_end : last;
    r.cpu_ns += (double)(team.member[i].cpu_end - team.member[i].cpu_begin);
    r.slowest_ns = own > r.slowest_ns ? own : r.slowest_ns;
    r.fastest_ns = i == 0 || own < r.fastest_ns ? own : r.fastest_ns;
  }
  r.wall_ns = (double)(last - first);
  return r;
}

void lab_pin(unsigned core) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return;
  int wanted = (int)core % CPU_COUNT(&allowed), cpu = 0;
  for (; wanted > 0 || !CPU_ISSET(cpu, &allowed); cpu++)
    wanted -= CPU_ISSET(cpu, &allowed) ? 1 : 0;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

unsigned lab_cores(void) {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? (unsigned)CPU_COUNT(&allowed) : 1;
}

/* ---- the observer ---- */

enum { MAX_LOOKS = 4096 };
static struct {
  pthread_t thread;
  unsigned period_ms;
  _Atomic bool stop;
  size_t count;
  double rss[MAX_LOOKS];
} observer;

static void *observer_main(void *unused) {
  (void)unused;
  char text[128];
  double page = (double)sysconf(_SC_PAGESIZE);
  while (!observer.stop && observer.count < MAX_LOOKS) {
    proc_read("/proc/self/statm", text, sizeof text);
    const char *second = strchr(text, ' ');
    observer.rss[observer.count++] = second ? strtod(second, NULL) * page : 0;
    nanosleep(&(struct timespec){ observer.period_ms / 1000, observer.period_ms % 1000 * 1000000l }, NULL);
  }
  return NULL;
}

void lab_observe(unsigned period_ms) {
  observer.period_ms = period_ms;
  observer.stop = false;
  observer.count = 0;
  int error = pthread_create(&observer.thread, NULL, observer_main, NULL);
  if (error)
    lab_fail("the observing thread: %s", strerror(error));
}

size_t lab_observe_end(const double **rss_bytes) {
  observer.stop = true;
  pthread_join(observer.thread, NULL);
  if (observer.count == 0) /* the run was over before the thread had its first look */
    observer.rss[observer.count++] = (double)lab_rss_now();
  *rss_bytes = observer.rss;
  return observer.count;
}

/* ---- sampled calls ---- */

enum { SAMPLE_EVERY = 1024 };
static double wall_clock_cost, cpu_clock_cost;      /* the time of an empty sample; medians */

static void sample(lab_sampler *s, double wall, double cpu) {
  wall = wall > wall_clock_cost ? wall - wall_clock_cost : 0;
  cpu = cpu > cpu_clock_cost ? cpu - cpu_clock_cost : 0;
  double wait = wall > cpu ? wall - cpu : 0;
  s->samples++;
  s->wall_sum += wall;
  s->cpu_sum += cpu;
  s->wait_sum += wait;
  s->wall_max = wall > s->wall_max ? wall : s->wall_max;
  s->cpu_max = cpu > s->cpu_max ? cpu : s->cpu_max;
  s->wait_max = wait > s->wait_max ? wait : s->wait_max;
}

void *lab_sampled_malloc(lab_sampler *s, size_t size) {
  void *block;
  if (++s->calls % SAMPLE_EVERY != 0) {
    block = malloc(size);
  } else {
    uint64_t wall = lab_now_ns(CLOCK_MONOTONIC), cpu = lab_now_ns(CLOCK_THREAD_CPUTIME_ID);
    block = malloc(size);
    cpu = lab_now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    sample(s, (double)(lab_now_ns(CLOCK_MONOTONIC) - wall), (double)cpu);
  }
  if (!block)
    lab_fail("out of memory");
  return block;
}

void lab_sampler_merge(lab_sampler *into, const lab_sampler *from) {
  into->calls += from->calls;
  into->samples += from->samples;
  into->wall_sum += from->wall_sum;
  into->cpu_sum += from->cpu_sum;
  into->wait_sum += from->wait_sum;
  into->wall_max = fmax(into->wall_max, from->wall_max);
  into->cpu_max = fmax(into->cpu_max, from->cpu_max);
  into->wait_max = fmax(into->wait_max, from->wait_max);
}

static void calibrate_sampler(void) {
  enum { SAMPLES = 1001 };
  static double wall[SAMPLES], cpu[SAMPLES];
  for (unsigned i = 0; i < SAMPLES; i++) {
    uint64_t w = lab_now_ns(CLOCK_MONOTONIC), c = lab_now_ns(CLOCK_THREAD_CPUTIME_ID);
    cpu[i] = (double)(lab_now_ns(CLOCK_THREAD_CPUTIME_ID) - c);
    wall[i] = (double)(lab_now_ns(CLOCK_MONOTONIC) - w);
  }
  wall_clock_cost = lab_median(wall, SAMPLES);
  cpu_clock_cost = lab_median(cpu, SAMPLES);
}

/* ---- figures from series ---- */

static int by_real(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double lab_median(double *values, size_t n) {
  qsort(values, n, sizeof *values, by_real);
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Resident memory moves in steps that last, so neighbouring points are not independent: the line is fitted to the means
 * of ten stretches, whose scatter gives the interval (2.306 is Student's t for 8 degrees of freedom). */
lab_line lab_fit(const double *y, size_t n, double step) {
  enum { STRETCHES = 10 };
  double mean[STRETCHES], centre[STRETCHES], mx = 0, my = 0, sxx = 0, sxy = 0, rest = 0;
  if (n < STRETCHES)
    return (lab_line){ NAN, NAN };
  for (size_t s = 0; s < STRETCHES; s++) {
    size_t from = n * s / STRETCHES, to = n * (s + 1) / STRETCHES;
    mean[s] = 0;
    for (size_t i = from; i < to; i++)
      mean[s] += y[i] / (double)(to - from);
    centre[s] = step * (double)(from + to - 1) / 2;
    mx += centre[s] / STRETCHES;
    my += mean[s] / STRETCHES;
  }
  for (size_t s = 0; s < STRETCHES; s++) {
    sxx += (centre[s] - mx) * (centre[s] - mx);
    sxy += (centre[s] - mx) * (mean[s] - my);
  }
  double slope = sxy / sxx;
  for (size_t s = 0; s < STRETCHES; s++)
    rest += pow(mean[s] - my - slope * (centre[s] - mx), 2);
  return (lab_line){ slope, 2.306 * sqrt(rest / (STRETCHES - 2) / sxx) };
}

/* ---- rows ---- */

void lab_row(const char *extra) {
  if (row_count == MAX_ROWS)
    lab_fail("more than %d rows", MAX_ROWS);
  snprintf(rows[row_count++].extra, sizeof rows[0].extra, "%s", extra ? extra : "");
  lab_memory m = lab_memory_now();
  lab_metric("peak_rss_bytes", (double)m.peak_rss);
  lab_metric("end_rss_bytes", (double)m.rss);
}

void lab_metric(const char *name, double value) {
  row *r = &rows[row_count - 1];
  if (r->metrics == MAX_METRICS)
    lab_fail("more than %d metrics in a row", MAX_METRICS);
  snprintf(r->metric[r->metrics].name, sizeof r->metric[0].name, "%s", name);
  r->metric[r->metrics++].value = value;
}

void lab_series(const char *name, const double *values, size_t count) {
  row *r = &rows[row_count - 1];
  if (r->series == MAX_SERIES)
    lab_fail("more than %d series in a row", MAX_SERIES);
  r->serie[r->series].name = name;
  r->serie[r->series].values = values;
  r->serie[r->series++].count = count;
}

void lab_metric_latency(const char *prefix, const lab_histogram *ticks) {
  static const struct { const char *name; double percent; } points[] = {
    { "p50", 50 }, { "p90", 90 }, { "p95", 95 }, { "p99", 99 }, { "p99.9", 99.9 }, { "p99.99", 99.99 },
  };
  char name[48];
  for (unsigned i = 0; i < sizeof points / sizeof *points; i++) {
    snprintf(name, sizeof name, "%s_%s_ns", prefix, points[i].name);
    lab_metric(name, (double)lab_percentile(ticks, points[i].percent) * tick_ns);
  }
  snprintf(name, sizeof name, "%s_max_ns", prefix);
  lab_metric(name, (double)ticks->max * tick_ns);
  snprintf(name, sizeof name, "%s_mean_ns", prefix);
  lab_metric(name, ticks->total ? ticks->sum / (double)ticks->total * tick_ns : 0);
}

void lab_metric_sampler(const lab_sampler *s) {
  double n = s->samples ? (double)s->samples : 1;
  lab_metric("samples_count", (double)s->samples);
  lab_metric("wall_mean_ns", s->wall_sum / n);
  lab_metric("cpu_mean_ns", s->cpu_sum / n);
  lab_metric("wait_mean_ns", s->wait_sum / n);
  lab_metric("wall_max_ns", s->wall_max);
  lab_metric("cpu_max_ns", s->cpu_max);
  lab_metric("wait_max_ns", s->wait_max);
}

static void print_variant(const row *r) {
  const char *comma = "";
  for (const lab_option *o = about->options; o->name; o++, comma = ",") {
    printf("%s%s=", comma, o->name);
    if (o->number)
      printf("%ld", *o->number);
    else if (o->real)
      printf("%g", *o->real);
    else
      printf("%s", *o->text);
  }
  if (litter)
    printf("%slitter=%ld", comma, litter), comma = ",";
  if (r->extra[0])
    printf("%s%s", comma, r->extra);
}

static void print_string(const char *text) {
  putchar('"');
  for (; *text; text++)
    if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ')
      printf("\\u%04x", (unsigned char)*text);
    else
      putchar(*text);
  putchar('"');
}

static void print_number(double value) {
  if (isfinite(value))
    printf("%.10g", value);
  else
    printf("null");
}

static void print_json(const row *r) {
  printf("{\"workload\":\"%s\",\"variant\":\"", about->name);
  print_variant(r);
  printf("\",\"seed\":%llu,\"metrics\":{", (unsigned long long)lab_seed);
  for (unsigned i = 0; i < r->metrics; i++) {
    printf("%s\"%s\":", i ? "," : "", r->metric[i].name);
    print_number(r->metric[i].value);
  }
  printf("}");
  for (unsigned i = 0; i < r->series; i++) {
    printf("%s\"%s\":[", i ? "," : ",\"series\":{", r->serie[i].name);
    for (size_t k = 0; k < r->serie[i].count; k++) {
      printf("%s", k ? "," : "");
      print_number(r->serie[i].values[k]);
    }
    printf("]");
  }
  printf("%s,\"proof\":{\"malloc_from\":", r->series ? "}" : "");
  print_string(proof.path);
  printf(",\"glibc\":%s,\"calls\":%llu,\"checks\":%llu,\"served_pct\":%.4g}}\n", proof.glibc ? "true" : "false",
         (unsigned long long)lab_calls, (unsigned long long)proof.checks, proof.worst_served_pct);
}

static void print_csv(const row *r) {
  for (unsigned i = 0; i < r->metrics; i++) {
    printf("%s,\"", about->name);
    print_variant(r);
    printf("\",%llu,%s,", (unsigned long long)lab_seed, r->metric[i].name);
    print_number(r->metric[i].value);
    printf(",\"%s\"\n", proof.path);
  }
}

int lab_finish(void) {
  if (proof.checks == 0)
    lab_fail("a defect of this workload: it never called lab_proof_live");
  if (proof.worst_served_pct < 99)
    wrong_allocator("%s served only %.1f %% of the bytes; the rest was glibc's", proof.path, proof.worst_served_pct);
  if (as_csv)
    printf("workload,variant,seed,metric,value,malloc_from\n");
  for (unsigned i = 0; i < row_count; i++)
    (as_csv ? print_csv : print_json)(&rows[i]);
  if (fflush(stdout) != 0 || ferror(stdout))
    lab_fail("writing the rows: %s", strerror(errno));
  return 0;
}

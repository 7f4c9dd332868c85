/* tide.c: a server's memory at high tide and at low, under whatever malloc the process has.
 *
 *   tide malloc|epochs [--requests N] [--scale PERCENT] [--low SECONDS] [--ask]
 *
 * Up to N requests are in flight. A turn gives one of them 10 blocks of 96 to 480 bytes, which it fills; after 20 turns
 * the request ends. Half of all requests leave a session of 256 bytes, which lives until 4,000 more were left. The
 * number in flight rises, stays, falls to a hundredth and stays there. Then a trickle of requests goes on for as many
 * seconds as --low says.
 *
 *   malloc   every block is freed by hand, and sessions lie wherever malloc puts them
 *   epochs   a request is an epoch that is destroyed, and sessions have an epoch of their own; needs the library
 *
 * It prints a line for each moment, resident and live in bytes above what the process had before its first request:
 *   tick LOAD RESIDENT LIVE        40 of them, the same amount of work between any two of the same load
 *   high RESIDENT LIVE             after the last turn at high tide; with --ask it then waits for a line of input
 *   done TURNS_PER_S P50 P99 P999  a turn's nanoseconds, the waiting and reading of /proc left out
 *   low SECONDS RESIDENT LIVE      twice a second
 *   served PATH COUNT              the file that malloc lies in, and the allocations that the library counted, or -1
 * All runs with the same options make the same allocations in the same order. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tslab/optional.h>

enum { BLOCKS = 200, STEP = 10, SESSIONS = 4000, SESSION_BYTES = 256, TICKS = 40, TURNS_EACH = 20 };
enum { RISES = 12, FALLS = 24, LOW = 30 }; /* ticks: the tide rises before RISES, and falls from FALLS to LOW */

typedef struct request {
  void *blocks[BLOCKS];
  unsigned bytes[BLOCKS];
  int count;
  tslab_epoch epoch;
} request;

static struct {
  int in_flight, scale, low_seconds;
  int epochs, ask;
} options = {2800, 100, 0, 0, 0};

static request *requests;
static void *sessions[SESSIONS];
static unsigned next_session;
static tslab_epoch session_epoch;
static long live;
static long resident_before;
static uint32_t random_state = 42;

/* Latencies: eight buckets for each power of two. */
static unsigned histogram[64 * 8];
static uint64_t turns, turn_ns;

static void fail(const char *why) {
  fprintf(stderr, "tide: %s\n", why);
  exit(1);
}

static uint32_t draw(uint32_t below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state % below;
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Reads by system calls: stdio would allocate. */
static long resident(void) {
  char text[128];
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  const ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  if (length <= 0) fail("/proc/self/statm cannot be read");
  text[length] = 0;
  const char *second = strchr(text, ' ');
  return second == NULL ? 0 : atol(second) * sysconf(_SC_PAGESIZE);
}

static void *filled(size_t size) {
  void *block = malloc(size);
  if (block == NULL) fail("malloc failed");
  memset(block, 1, size);
  live += (long)size;
  return block;
}

static void must(int error, const char *what) {
  if (error == 0) return;
  fprintf(stderr, "tide: %s: %s\n", what, strerror(error));
  exit(1);
}

static void request_end(request *r) {
  if (r->count == 0) return;
  for (int i = 0; i < r->count; i++) live -= r->bytes[i];
  if (options.epochs) must(tslab_epoch_destroy(r->epoch, NULL), "tslab_epoch_destroy");
  else
    for (int i = 0; i < r->count; i++) free(r->blocks[i]);
  r->count = 0;
  r->epoch = 0;
}

static tslab_epoch request_epoch(void) {
  const tslab_epoch_options how = {.struct_size = sizeof how, .label = "request", .flags = TSLAB_EPOCH_DESTROYABLE};
  return tslab_epoch_open_with(&how);
}

static void leave_session(void) {
  if (options.epochs) must(tslab_epoch_enter(session_epoch), "tslab_epoch_enter");
  void **place = &sessions[next_session++ % SESSIONS];
  if (*place != NULL) {
    free(*place);
    live -= SESSION_BYTES;
  }
  *place = filled(SESSION_BYTES);
  if (options.epochs) must(tslab_epoch_leave(session_epoch), "tslab_epoch_leave");
}

static void request_turn(request *r) {
  if (r->count == BLOCKS) {
    request_end(r);
    return;
  }
  if (options.epochs) {
    if (r->epoch == 0) r->epoch = request_epoch();
    must(tslab_epoch_enter(r->epoch), "tslab_epoch_enter");
  }
  for (int i = 0; i < STEP; i++) {
    const unsigned size = 96 + draw(385);
    r->bytes[r->count] = size;
    r->blocks[r->count++] = filled(size);
  }
  if (options.epochs) must(tslab_epoch_leave(r->epoch), "tslab_epoch_leave");
  if (r->count == BLOCKS / 2 && draw(2) == 0) leave_session();
}

/* ---- the load ---- */

static unsigned bucket_of(uint64_t ns) {
  if (ns < 8) return (unsigned)ns;
  const unsigned power = 63 - (unsigned)__builtin_clzll(ns);
  return (power - 2) * 8 + (unsigned)((ns >> (power - 3)) & 7);
}

static uint64_t bucket_ns(unsigned bucket) {
  return bucket < 8 ? bucket : (uint64_t)(8 + bucket % 8) << (bucket / 8 - 1);
}

static void timed_turn(int in_flight) {
  request *r = &requests[draw((uint32_t)in_flight)];
  const uint64_t before = now_ns();
  request_turn(r);
  const uint64_t took = now_ns() - before;
  histogram[bucket_of(took)]++;
  turn_ns += took;
  turns++;
}

static uint64_t percentile(double share) {
  uint64_t wanted = (uint64_t)((double)turns * share), seen = 0;
  for (unsigned bucket = 0; bucket < sizeof histogram / sizeof *histogram; bucket++)
    if ((seen += histogram[bucket]) > wanted) return bucket_ns(bucket);
  return 0;
}

/* Returns how many requests are in flight at a tick. */
static int load_at(int tick) {
  const int most = options.in_flight, least = most / 100 > 0 ? most / 100 : 1;
  if (tick < RISES) return least + (most - least) * (tick + 1) / RISES;
  if (tick < FALLS) return most;
  if (tick < LOW) return most - (most - least) * (tick + 1 - FALLS) / (LOW - FALLS);
  return least;
}

static void say(const char *what, double number) {
  printf("%s %g %ld %ld\n", what, number, resident() - resident_before, live);
  fflush(stdout);
}

static void run_load(void) {
  for (int tick = 0, before = 0; tick < TICKS; tick++) {
    const int in_flight = load_at(tick);
    for (int i = in_flight; i < before; i++) request_end(&requests[i]);
    before = in_flight;
    const long count = (long)in_flight * TURNS_EACH * options.scale / 100;
    for (long i = 0; i < count; i++) timed_turn(in_flight);
    say("tick", in_flight);
    if (tick != FALLS - 1) continue;
    say("high", in_flight);
    if (options.ask && getchar() == EOF) fail("nobody answers");
  }
  printf("done %.0f %llu %llu %llu\n", (double)turns * 1e9 / (double)turn_ns, (unsigned long long)percentile(0.5),
         (unsigned long long)percentile(0.99), (unsigned long long)percentile(0.999));
  fflush(stdout);
}

/* A thousand turns a second, for a server is seldom quite still, and some allocators return memory only when called. */
static void run_low(void) {
  const struct timespec pause = {0, 20000000};
  for (int half = 0; half <= 2 * options.low_seconds; half++) {
    say("low", half / 2.0);
    for (int i = 0; half < 2 * options.low_seconds && i < 25; i++) {
      for (int turn = 0; turn < 20; turn++) request_turn(&requests[draw((uint32_t)load_at(TICKS))]);
      nanosleep(&pause, NULL);
    }
  }
}

/* ---- the command line ---- */

static int number(const char *text, int least, int most) {
  char *end;
  const long value = text == NULL ? -1 : strtol(text, &end, 10);
  if (text == NULL || end == text || *end != 0 || value < least || value > most) {
    fprintf(stderr, "tide: a number from %d to %d is needed, not '%s'\n", least, most, text == NULL ? "" : text);
    exit(2);
  }
  return (int)value;
}

static void parse(char **words) {
  const char *mode = *words == NULL ? "" : *words++;
  options.epochs = strcmp(mode, "epochs") == 0;
  if (!options.epochs && strcmp(mode, "malloc") != 0) mode = NULL;
  for (; mode != NULL && *words != NULL; words++) {
    if (strcmp(*words, "--ask") == 0) options.ask = 1;
    else if (strcmp(*words, "--requests") == 0) options.in_flight = number(*++words, 100, 100000);
    else if (strcmp(*words, "--scale") == 0) options.scale = number(*++words, 1, 10000);
    else if (strcmp(*words, "--low") == 0) options.low_seconds = number(*++words, 0, 3600);
    else mode = NULL;
  }
  if (mode != NULL) return;
  fputs("usage: tide malloc|epochs [--requests N] [--scale PERCENT] [--low SECONDS] [--ask]\n", stderr);
  exit(2);
}

static void say_who_served(void) {
  Dl_info place = {0};
  tslab_stats_global all = {0};
  dladdr(dlsym(RTLD_DEFAULT, "malloc"), &place);
  const int known = tslab_stats(&all, sizeof all) == 0;
  printf("served %s %lld\n", place.dli_fname == NULL ? "?" : place.dli_fname, known ? (long long)all.allocations : -1);
}

int main(int count, char **words) {
  (void)count;
  parse(words + 1);
  if (options.epochs && !tslab_available()) fail("epochs need the library: LD_PRELOAD=libtslab.so tide epochs");
  if (options.epochs && (session_epoch = tslab_epoch_open("session")) == 0) fail("no epoch can be opened");
  requests = calloc((size_t)options.in_flight, sizeof *requests);
  if (requests == NULL) fail("no memory");
  memset(requests, 0, (size_t)options.in_flight * sizeof *requests); /* resident from the start */
  setvbuf(stdout, NULL, _IOLBF, 4096);
  puts("tide 1");
  resident_before = resident();
  run_load();
  run_low();
  say_who_served();
  return 0;
}

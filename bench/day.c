/* day: memory of a service over a day of 24 hours that last `seconds` in all.
 *
 * Each thread keeps objects that live on and serves requests. A request takes 20 blocks, writes to them, replaces
 * `replaced` of the thread's objects, brings these nearer to what the hour wants, and frees its blocks. The load is
 * least at 4 o'clock (`night_pct` of the most) and greatest at 16, and with it both the requests and the bytes that
 * live on; at most `mib` mebibytes live. A deploy at 6, 12 and 18 o'clock frees half of the objects at once and changes
 * the sizes. A thread wakes each millisecond for what is due, `rate` requests a second at the greatest load, so the
 * allocator has the pauses that a service leaves it. A malloc that fails ends its request and is counted.
 *
 * Once a twentieth of an hour the main thread reads resident memory, less what was resident before, and the bytes that
 * live. A request is timed. The first quarter warms up: figures of memory are of the other three.
 * `drift_pct` compares 18 to 24 o'clock with 8 to 14, when the load is the same. */
#include "lab.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long seconds = 24, mib = 64, threads = 4, night_pct = 30, rate = 4000, replaced = 4;

static const lab_option options[] = {
  { .name = "seconds", .help = "length of the day", .number = &seconds, .least = 1 },
  { .name = "mib", .help = "mebibytes that live at the greatest load", .number = &mib, .least = 1 },
  { .name = "threads", .help = "threads that serve", .number = &threads, .least = 1 },
  { .name = "night_pct", .help = "load at 4 o'clock, of the greatest", .number = &night_pct, .least = 1 },
  { .name = "rate", .help = "requests a second of each thread at the greatest load", .number = &rate, .least = 1 },
  { .name = "replaced", .help = "objects that a request replaces", .number = &replaced, .least = 0 },
  { .name = NULL },
};
static const lab_about workload = { "day", "serves requests whose load and sizes change as in a day", options };

enum { HOURS = 24, A_HOUR = 20, LOOKS = HOURS * A_HOUR, BLOCKS = 20, STEPS = 400, MEAN = 192, MOST_THREADS = 64 };

typedef struct object { char *at; uint32_t size; } object;
typedef struct server {
  object *objects;
  size_t count, room, live;
  uint64_t state;
  unsigned phase;
  lab_histogram *hour;          /* of the hour that runs */
} server;

static server servers[MOST_THREADS];
static _Atomic size_t live_of[MOST_THREADS];
static _Atomic uint64_t refused_count;
static lab_histogram hours[HOURS];
static pthread_mutex_t hours_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t day_start;
static double looks[LOOKS], lives[LOOKS];
static const double pi = 3.14159265358979323846;

static double hour_now(void) {
  return (double)(lab_now_ns(CLOCK_MONOTONIC) - day_start) / 1e9 / (double)seconds * HOURS;
}

/* 0 to 1. */
static double load_at(double hour) {
  double least = (double)night_pct / 100;
  return least + (1 - least) * (1 - cos((hour - 4) / HOURS * 2 * pi)) / 2;
}

static unsigned phase_at(double hour) { return hour < 6 ? 0 : hour < 12 ? 1 : hour < 18 ? 2 : 3; }

/* Nine of ten small, each doubling as likely as the others; each phase has sizes of its own. */
static size_t draw_size(server *s) {
  static const unsigned shift[] = { 8, 11, 9, 6 };
  uint64_t drawn = lab_random(&s->state);
  unsigned doubling = drawn % 10 < 9 ? (unsigned)(drawn >> 8) % 6 : 6 + (unsigned)(drawn >> 8) % 5;
  size_t base = (size_t)16 << doubling;
  return (base + (drawn >> 32) % base) * shift[s->phase] / 8;
}

static bool take(server *s, object *into) {
  into->size = (uint32_t)draw_size(s);
  into->at = malloc(into->size);
  if (!into->at) {
    atomic_fetch_add(&refused_count, 1);
    return false;
  }
  memset(into->at, 1, into->size);
  return true;
}

static void add_object(server *s) {
  if (s->count == s->room || !take(s, &s->objects[s->count]))
    return;
  s->live += s->objects[s->count++].size;
}

static void drop_object(server *s) {
  if (s->count == 0)
    return;
  size_t which = lab_below(&s->state, (uint32_t)s->count);
  free(s->objects[which].at);
  s->live -= s->objects[which].size;
  s->objects[which] = s->objects[--s->count];
}

/* At most STEPS at a time, as a cache fills while requests come. */
static void approach(server *s, size_t wanted) {
  for (int i = 0; i < STEPS && s->live > wanted; i++)
    drop_object(s);
  for (int i = 0; i < STEPS && s->live + 8192 < wanted && s->count < s->room; i++)
    add_object(s);
}

static void deploy(server *s, unsigned phase) {
  s->phase = phase;
  for (size_t half = s->count / 2; s->count > half;)
    drop_object(s);
}

static void request(server *s, size_t wanted) {
  object blocks[BLOCKS];
  int count = 0;
  while (count < BLOCKS && take(s, &blocks[count]))
    count++;
  for (long i = 0; i < replaced; i++) {
    drop_object(s);
    add_object(s);
  }
  approach(s, wanted);
  while (count > 0)
    free(blocks[--count].at);
}

static void end_hour(server *s, int hour) {
  pthread_mutex_lock(&hours_mutex);
  lab_merge(&hours[hour], s->hour);
  pthread_mutex_unlock(&hours_mutex);
  memset(s->hour, 0, sizeof *s->hour);
}

static void serve(unsigned index) {
  server *s = &servers[index];
  lab_team_begin();
  uint64_t before = lab_now_ns(CLOCK_MONOTONIC), cost = lab_timer_cost();
  double owed = 0;
  int running = 0;
  for (double hour = hour_now(); hour < HOURS; hour = hour_now()) {
    double load = load_at(hour);
    if (phase_at(hour) != s->phase)
      deploy(s, phase_at(hour));
    for (; running < (int)hour; running++)
      end_hour(s, running);
    uint64_t now = lab_now_ns(CLOCK_MONOTONIC);
    owed = fmin(owed + (double)(now - before) / 1e9 * (double)rate * load, (double)rate / 20);
    before = now;
    size_t wanted = (size_t)((double)(mib << 20) * load) / (size_t)threads;
    for (; owed >= 1; owed--) {
      uint64_t begin = lab_ticks_begin();
      request(s, wanted);
      lab_record(s->hour, lab_ticks_between(begin, lab_ticks_end(), cost));
    }
    atomic_store(&live_of[index], s->live);
    usleep(1000);
  }
  end_hour(s, HOURS - 1);
  lab_team_end();
}

static size_t live_now(void) {
  size_t sum = 0;
  for (long i = 0; i < threads; i++)
    sum += atomic_load(&live_of[i]);
  return sum;
}

static uint64_t base;
static long look_count;

static void *look(void *unused) {
  for (; look_count < LOOKS; look_count++) {
    while (hour_now() < (double)(look_count + 1) * HOURS / LOOKS)
      usleep(1000);
    lives[look_count] = (double)live_now();
    looks[look_count] = (double)lab_rss_now() - (double)base;
    if (look_count == LOOKS * 2 / 3) /* 16 o'clock */
      lab_proof_live((uint64_t)lives[look_count]);
  }
  return unused;
}

/* Resident over live, averaged over looks [from, to). */
static double ratio(long from, long to) {
  double sum = 0;
  for (long i = from; i < to; i++)
    sum += looks[i] / lives[i];
  return sum / (double)(to - from);
}

static void report(void) {
  static double tails[HOURS];
  static lab_histogram all;
  double most = 0;
  for (int h = 0; h < HOURS; h++) {
    lab_merge(&all, &hours[h]);
    tails[h] = (double)lab_percentile(&hours[h], 99.9) * lab_tick_ns();
    most = fmax(most, tails[h]);
  }
  lab_calls = all.total * (BLOCKS + (uint64_t)replaced);
  lab_row(NULL);
  lab_metric("resident_over_live_ratio", ratio(LOOKS / 4, LOOKS));
  lab_metric("drift_pct", 100 * (ratio(18 * A_HOUR, 24 * A_HOUR) / ratio(8 * A_HOUR, 14 * A_HOUR) - 1));
  lab_metric("refused_count", (double)atomic_load(&refused_count));
  lab_metric("requests_count", (double)all.total);
  lab_metric_latency("request", &all);
  lab_metric("worst_hour_p999_ns", most);
  lab_series("rss_bytes", looks, LOOKS);
  lab_series("live_bytes", lives, LOOKS);
  lab_series("request_p999_ns", tails, HOURS);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  if (threads > MOST_THREADS)
    lab_fail("at most %d threads", MOST_THREADS);
  for (long i = 0; i < threads; i++) {
    server *s = &servers[i];
    s->room = ((size_t)mib << 20) / (size_t)threads / MEAN + 1;
    s->objects = lab_map(s->room * sizeof *s->objects);
    s->hour = lab_map(sizeof *s->hour);
    s->state = lab_seed + (uint64_t)i * 0x9E3779B97F4A7C15u;
  }
  lab_litter(16, 1024);
  pthread_t looking;
  base = lab_rss_now();
  day_start = lab_now_ns(CLOCK_MONOTONIC);
  if (pthread_create(&looking, NULL, look, NULL) != 0)
    lab_fail("cannot make a thread");
  lab_team((unsigned)threads, serve);
  pthread_join(looking, NULL);
  report();
  return lab_finish();
}

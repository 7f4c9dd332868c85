/* lifetimes: short requests beside long sessions - does memory of the short ones come free when they are done?
 *
 * `sessions` blocks of 256 bytes live on; each request allocates `objects` blocks of 96 to 480 bytes and frees them at
 * its end, or `lag` requests later. After every `batch` requests, `churn` percent of the sessions are replaced, spread
 * over the next batch; with probability `pinned` a batch also leaves one block of 256 bytes behind, which is freed
 * `life` batches later (0: never). Live objects and bytes are counted by the workload: that is the truth to compare
 * with.
 *
 * A batch is looked at again `close_lag` batches later. The granules (--granule bytes) that its request objects lay in
 * are known from their addresses. One is drained when no live block is left in it; the batch, when all are. Recycled
 * are granules that an earlier batch had used too. Retention is resident bytes over live bytes, both counted from
 * before the first session; the slope is that of resident bytes over the requests after the first fifth, with its 95 %
 * interval. `since_tenth_ratio` is what the process held in the last tenth of the run, the workload's tables left out,
 * over what it held in the second: means, for what is kept for the next batch comes and goes.
 *
 * Routing decides which blocks share slabs. `none`: all are plain malloc's. `isolated`: each batch's requests have an
 * epoch of their own, and the sessions and the blocks left behind one that is never closed. `mixed`: those go to the
 * epoch of the batch in which they are allocated. A batch's epoch is closed `close_lag` batches later, and each close
 * is recorded beside what the workload knows to be live in it; one is drained when nothing is, and a mismatch is a
 * close whose report says otherwise. */
#include "epoch_calls.h"

#include <stdio.h>
#include <stdlib.h>

enum { SESSION = 256, LEAST = 96, MOST = 480, MOST_OBJECTS = 1000, CLOSE_LAG = 4 };

static long requests = 20000, sessions = 4000, objects = 200, batch = 1000, lag = 0, life = 0, granule = 4096;
static double churn = 2, pinned = 0;
static const char *routing = "none";
static bool routed, isolated;

static const lab_option options[] = {
  { .name = "routing", .help = "which blocks share an epoch", .text = &routing, .choices = "none|mixed|isolated" },
  { .name = "requests", .help = "requests", .number = &requests, .least = 1 },
  { .name = "batch", .help = "requests of a batch", .number = &batch, .least = 1 },
  { .name = "objects", .help = "blocks of a request", .number = &objects, .least = 1 },
  { .name = "sessions", .help = "sessions", .number = &sessions, .least = 1 },
  { .name = "churn", .help = "percent of the sessions replaced in a batch", .real = &churn },
  { .name = "lag", .help = "requests after which a request's blocks are freed", .number = &lag, .least = 0 },
  { .name = "pinned", .help = "probability that a batch leaves one block behind", .real = &pinned },
  { .name = "life", .help = "batches that such a block lives; 0 for ever", .number = &life, .least = 0 },
  { .name = "granule", .help = "bytes of a granule", .number = &granule, .least = 64 },
  { .name = NULL },
};
static const lab_about workload = { "lifetimes", "runs short requests beside long-lived sessions", options };

/* ---- sets of granules: open addressing in memory of our own ---- */

typedef struct set { uintptr_t *slots; size_t mask, count; } set;

static set set_of(size_t capacity) {
  size_t slots = 1024;
  while (slots < 2 * capacity)
    slots *= 2;
  return (set){ lab_map(slots * sizeof(uintptr_t)), slots - 1, 0 };
}

static bool set_find(const set *s, uintptr_t value, size_t *at) {
  for (*at = (value * 0x9E3779B97F4A7C15u >> 20) & s->mask; s->slots[*at]; *at = (*at + 1) & s->mask)
    if (s->slots[*at] == value)
      return true;
  return false;
}

static bool set_add(set *s, uintptr_t value) {
  size_t at;
  if (set_find(s, value, &at))
    return false;
  if (2 * s->count > s->mask)
    lab_fail("a batch lies in more granules than were reckoned with; choose larger ones with --granule");
  s->slots[at] = value;
  s->count++;
  return true;
}

static void set_clear(set *s) {
  memset(s->slots, 0, (s->mask + 1) * sizeof *s->slots);
  s->count = 0;
}

/* ---- what is live ---- */

typedef struct block { char *address; size_t size; long born; } block;   /* in which batch's epoch; NOWHERE: in none */
typedef struct left_behind { block it; long dies; } left_behind;
typedef struct batch_truth { tslab_epoch epoch; uint64_t live_count, live_bytes; } batch_truth;
enum { NOWHERE = -1 };

static block *session, *flight;                     /* flight: lag + 1 requests of `objects` blocks, in turn */
static left_behind *behind;
static long behind_count, leaked_count;
static uint64_t live_bytes, live_count;
static batch_truth *truth;
static tslab_epoch long_lived;

static void count(const block *b, int sign) {
  live_bytes += (uint64_t)sign * b->size;
  live_count += (uint64_t)sign;
  if (b->born != NOWHERE) {
    truth[b->born].live_bytes += (uint64_t)sign * b->size;
    truth[b->born].live_count += (uint64_t)sign;
  }
}

static void take(block *b, size_t size, long born) {
  *b = (block){ malloc(size), size, born };
  if (!b->address)
    lab_fail("out of memory");
  memset(b->address, 1, size);
  count(b, 1);
}

static void give(block *b) {
  if (!b->address)
    return;
  free(b->address);
  count(b, -1);
  b->address = NULL;
}

static void take_long_lived(block *b, long batch_number) {
  if (isolated)
    must(epochs.enter(long_lived), "enter");
  take(b, SESSION, isolated ? NOWHERE : batch_number);
  if (isolated)
    must(epochs.leave(long_lived), "leave");
}

static void add_granules(set *s, const char *p, size_t size) {
  for (uintptr_t g = (uintptr_t)p / (uintptr_t)granule; g <= ((uintptr_t)p + size - 1) / (uintptr_t)granule; g++)
    set_add(s, g);
}

static void serve(long request, uint64_t *state, set *touched) {
  block *mine = flight + request % (lag + 1) * objects;
  for (long i = 0; i < objects; i++)
    give(&mine[i]);
  for (long i = 0; i < objects; i++) {
    take(&mine[i], LEAST + lab_below(state, MOST - LEAST + 1), request / batch);
    add_granules(touched, mine[i].address, mine[i].size);
  }
  for (long i = 0; lag == 0 && i < objects; i++)
    give(&mine[i]);
}

static void replace_session(long number, uint64_t *state) {
  block *s = &session[lab_below(state, (uint32_t)sessions)];
  give(s);
  take_long_lived(s, number);
}

static void leave_behind(long number) {
  behind[behind_count].dies = life ? number + life : -1;
  take_long_lived(&behind[behind_count++].it, number);
  leaked_count += life == 0;
}

static void expire(long now) {
  for (long i = 0; i < behind_count;)
    if (behind[i].dies == now) {
      give(&behind[i].it);
      behind[i] = behind[--behind_count];
    } else {
      i++;
    }
}

static void collect_live(set *live) {
  set_clear(live);
  for (long i = 0; i < sessions; i++)
    add_granules(live, session[i].address, SESSION);
  for (long i = 0; i < behind_count; i++)
    add_granules(live, behind[i].it.address, SESSION);
  for (long i = 0; i < (lag + 1) * objects; i++)
    if (flight[i].address)
      add_granules(live, flight[i].address, flight[i].size);
}

/* ---- batches ---- */

static struct { double closes, drained_closes, granules, drained, recycled, seen_sum; } sum;

static void look_again(const set *of_batch, const set *live) {
  size_t pinned_granules = 0, at;
  for (size_t i = 0; i <= of_batch->mask; i++)
    if (of_batch->slots[i] && set_find(live, of_batch->slots[i], &at))
      pinned_granules++;
  sum.closes++;
  sum.drained_closes += pinned_granules == 0;
  sum.granules += (double)of_batch->count;
  sum.drained += (double)(of_batch->count - pinned_granules);
}

static void count_recycled(const set *of_batch, set *seen) {
  for (size_t i = 0; i <= of_batch->mask; i++)
    if (of_batch->slots[i]) {
      sum.recycled += !set_add(seen, of_batch->slots[i]);
      sum.seen_sum++;
    }
}

static void open_epoch_of(long number) {
  if (!routed)
    return;
  if (!truth[number].epoch)
    truth[number].epoch = opened(epochs.open("batch"));
  must(epochs.enter(truth[number].epoch), "enter");
}

static void leave_epoch_of(long number) {
  if (routed)
    must(epochs.leave(truth[number].epoch), "leave");
}

static void run_batch(long number, uint64_t *state, set *touched) {
  long replaced = (long)((double)sessions * churn / 100), leaves = -1;
  set_clear(touched);
  open_epoch_of(number);
  expire(number);
  if ((double)lab_below(state, 1000000) < pinned * 1e6)
    leaves = lab_below(state, (uint32_t)batch);
  for (long i = 0; i < batch; i++) {
    for (long k = replaced * i / batch; k < replaced * (i + 1) / batch; k++)
      replace_session(number, state);
    if (i == leaves)
      leave_behind(number);
    serve(number * batch + i, state, touched);
  }
  leave_epoch_of(number);
}

/* ---- closes: the findings and work of each, in order of time ---- */

enum { LIVE_COUNT, LIVE_BYTES, PINNED, RECYCLED, RETURNED, RETAINED_SLABS, RETAINED_BYTES, TIME, RECORDED };
static const char *const recorded[RECORDED] = {
  "close_live_count", "close_live_bytes", "close_pinned_count", "close_recycled_bytes", "close_returned_bytes",
  "retained_slabs_count", "retained_bytes", "close_ns",
};
static double *closes[RECORDED];
static long close_count, drained_count, mismatch_count;

/* Adds the memory that a closed epoch still holds. An open one retains nothing: its memory is in use. */
static int add_retained(const tslab_epoch_status *status, void *unused) {
  (void)unused;
  if (status->state == TSLAB_EPOCH_CLOSING) {
    closes[RETAINED_SLABS][close_count] += (double)status->slabs;
    closes[RETAINED_BYTES][close_count] += (double)status->committed_bytes;
  }
  return 0;
}

static void close_epoch_of(const batch_truth *t) {
  tslab_epoch_report report;
  uint64_t begin = lab_now_ns(CLOCK_MONOTONIC);
  must(epochs.close(t->epoch, &report), "close");
  closes[TIME][close_count] = (double)(lab_now_ns(CLOCK_MONOTONIC) - begin);
  closes[LIVE_COUNT][close_count] = (double)t->live_count;
  closes[LIVE_BYTES][close_count] = (double)t->live_bytes;
  closes[PINNED][close_count] = (double)report.slabs_pinned;
  closes[RECYCLED][close_count] = (double)report.bytes_recycled;
  closes[RETURNED][close_count] = (double)report.bytes_returned;
  epochs.each(add_retained, NULL);
  drained_count += t->live_count == 0 && report.slabs_pinned == 0;
  mismatch_count += report.live_blocks != t->live_count || report.live_bytes < t->live_bytes;
  close_count++;
}

static void metrics_of_closes(void) {
  double recycled = 0, returned = 0, longest = 0, *times = lab_map((size_t)close_count * sizeof *times);
  for (long i = 0; i < close_count; i++) {
    recycled += closes[RECYCLED][i];
    returned += closes[RETURNED][i];
    times[i] = closes[TIME][i];
    longest = times[i] > longest ? times[i] : longest;
  }
  lab_metric("closes_count", (double)close_count);
  lab_metric("drained_closes_pct", 100 * (double)drained_count / (double)close_count);
  lab_metric("mismatched_closes_count", (double)mismatch_count);
  lab_metric("close_p50_ns", lab_median(times, (size_t)close_count));
  lab_metric("close_max_ns", longest);
  lab_metric("close_recycled_bytes", recycled);
  lab_metric("close_returned_bytes", returned);
  lab_metric("retained_slabs_count", closes[RETAINED_SLABS][close_count - 1]);
  lab_metric("retained_slabs_bytes", closes[RETAINED_BYTES][close_count - 1]);
  for (unsigned i = 0; i < RECORDED; i++)
    lab_series(recorded[i], closes[i], (size_t)close_count);
}

static void prepare_routing(long batches) {
  char wanted[32];
  routed = strcmp(routing, "none") != 0;
  isolated = strcmp(routing, "isolated") == 0;
  truth = lab_map((size_t)batches * sizeof *truth);
  if (!routed)
    return;
  snprintf(wanted, sizeof wanted, "--routing=%s", routing);
  bind_epochs(wanted);
  for (unsigned i = 0; i < RECORDED; i++)
    closes[i] = lab_map((size_t)batches * sizeof *closes[i]);
}

static void make_sessions(void) {
  if (isolated)
    long_lived = opened(epochs.open("sessions"));
  open_epoch_of(0);
  for (long i = 0; i < sessions; i++)
    take_long_lived(&session[i], 0);
  leave_epoch_of(0);
}

static double mean(const double *values, long count) {
  double total = 0;
  for (long i = 0; i < count; i++)
    total += values[i];
  return total / (double)count;
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  long batches = requests / batch;
  if (batches <= CLOSE_LAG || objects > MOST_OBJECTS || pinned > 1)
    lab_fail("at least %d batches, at most %d objects and a probability are needed", CLOSE_LAG + 1, MOST_OBJECTS);
  uint64_t state = lab_seed, start = lab_rss_now();
  session = lab_map((size_t)sessions * sizeof *session);
  flight = lab_map((size_t)((lag + 1) * objects) * sizeof *flight);
  behind = lab_map((size_t)batches * sizeof *behind);
  double *rss = lab_map((size_t)batches * sizeof *rss), *live_series = lab_map((size_t)batches * sizeof *live_series);
  double *committed = lab_map((size_t)batches * sizeof *committed);
  prepare_routing(batches);
  /* The most granules that a batch can touch if none is used twice; capped, since allocators do reuse them. */
  size_t reckoned = (size_t)(batch * objects < 200000 ? batch * objects : 200000);
  set touched[CLOSE_LAG + 1], seen = set_of(1u << 20);
  set live = set_of(2 * (size_t)(sessions + batches + (lag + 1) * objects));
  for (unsigned i = 0; i <= CLOSE_LAG; i++)
    touched[i] = set_of(reckoned);
  lab_litter(LEAST, MOST);
  uint64_t base = lab_rss_now();
  make_sessions();
  for (long b = 0; b < batches; b++) {
    set *mine = &touched[b % (CLOSE_LAG + 1)];
    run_batch(b, &state, mine);
    count_recycled(mine, &seen);
    if (b >= CLOSE_LAG) {
      collect_live(&live);
      look_again(&touched[(b - CLOSE_LAG) % (CLOSE_LAG + 1)], &live);
      if (routed)
        close_epoch_of(&truth[b - CLOSE_LAG]);
    }
    lab_memory memory = lab_memory_now();
    rss[b] = (double)memory.rss - (double)base;
    committed[b] = (double)memory.committed;
    live_series[b] = (double)live_bytes;
  }
  lab_proof_live(live_bytes);
  size_t warm = (size_t)batches / 5;
  lab_line slope = lab_fit(rss + warm, (size_t)batches - warm, (double)batch);
  lab_calls = (uint64_t)(batches * batch) * (uint64_t)objects;
  lab_row(NULL);
  lab_metric("live_count", (double)live_count);
  lab_metric("live_bytes", (double)live_bytes);
  lab_metric("retained_rss_bytes", rss[batches - 1]);
  lab_metric("retention_ratio", rss[batches - 1] / (double)live_bytes);
  lab_metric("growth_per_request_bytes", slope.slope);
  lab_metric("growth_per_request_half_width_bytes", slope.half_width);
  if (leaked_count)
    lab_metric("growth_per_leaked_block_bytes", slope.slope * (double)(batches * batch) / (double)leaked_count);
  long tenth = (batches + 9) / 10;
  double last = mean(rss + batches - tenth, tenth), second = mean(rss + tenth, tenth);
  lab_metric("since_tenth_ratio", (last + (double)start) / (second + (double)start));
  lab_metric("granules_of_a_batch_count", sum.granules / sum.closes);
  lab_metric("drained_granules_pct", 100 * sum.drained / sum.granules);
  lab_metric("drained_batches_pct", 100 * sum.drained_closes / sum.closes);
  lab_metric("recycled_granules_pct", 100 * sum.recycled / sum.seen_sum);
  lab_series("rss_bytes", rss, (size_t)batches);
  lab_series("live_bytes", live_series, (size_t)batches);
  lab_series("committed_bytes", committed, (size_t)batches);
  if (routed)
    metrics_of_closes();
  return lab_finish();
}

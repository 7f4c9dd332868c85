/* profile: see profile.h.                                                                           floor: heap */
#include "heap/profile.h"

#include "base/log.h"
#include "base/probe.h"
#include "heap/arena.h"
#include "heap/draw.h"
#include "os/os.h"
#include <string.h>

#define FRAMES       (PROFILE_SITES * 20)
#define BUCKETS_LOG  14
#define TABLE_ROWS   (1u << BUCKETS_LOG)
#define UNKNOWN_SITE 1
#define LIFESPANS_FOUND 2048
#define DEAD_KEPT    256 /* dead samples that no new one replaces, so that messages about freed blocks find them */

struct tables {
  struct profile_site sites[PROFILE_SITES + 1];
  struct profile_sample samples[PROFILE_SAMPLES + 1];
  struct profile_lifespan lifespans[PROFILE_LIFESPANS + 1];
  uint32_t site_of[TABLE_ROWS], sample_of[TABLE_ROWS]; /* the first row of each bucket */
  uint32_t lifespan_found[LIFESPANS_FOUND];
  uintptr_t frames[FRAMES];
};
_Static_assert(sizeof(struct tables) < 8 * MiB, "docs/profile.md says so");

_Atomic uint32_t profile_interval, profile_chunk_interval;
struct lock profile_lock;

static struct {
  struct tables *tables;
  uint32_t sites, frames, used; /* `used`: samples ever used */
  uint32_t dead, last_dead;     /* samples: the one that died first, and the one that died last; 0: none */
  uint32_t lifespans, births[CLASSES]; /* births: samples of plain malloc, by class */
  uint64_t taken, frees, lost, stackless, live;
  uint64_t began_ns;
  bool frozen;
} state;

/* ---- draws and weights ------------------------------------------------------------------------------------------- */

#define LN_2      0.69314718055994530942
#define ROOT_HALF 0.70710678118654752440

/* Returns -ln of a number between 0 and 1, which has an exponential distribution with the mean 1. The terms of the
 * series of ln((1 + s) / (1 - s)) up to s^9 are right to one part in 10^8 for s up to 0.172. */
static double exponential(uint32_t random) {
  double x = ((double)random + 0.5) / 4294967296.0;
  unsigned halvings = 31 - log2_floor(random | 1);
  x *= (double)((uint64_t)1 << halvings); /* between 1/2 and 1; less for the smallest number */
  double ln = -LN_2 * halvings;
  if (x < ROOT_HALF) {
    x *= 2;
    ln -= LN_2;
  }
  double s = (x - 1) / (x + 1), square = s * s;
  double terms = 1 + square * (1 / 3.0 + square * (1 / 5.0 + square * (1 / 7.0 + square * (1 / 9.0))));
  return -(ln + 2 * s * terms);
}

/* Returns 1 / (1 - e^-x): for small x by its series, else by e^-x = (e^(-x/2))^2. */
static double weight_of(double x) {
  if (x > 40) return 1;
  unsigned halvings = 0;
  for (; x > 0.5; halvings++) x /= 2;
  if (halvings == 0) return 1 / x + 0.5 + x / 12 - x * x * x / 720;
  double power = 1 - x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6 * (1 - x / 7))))));
  for (; halvings > 0; halvings--) power *= power;
  return 1 / (1 - power);
}

uint64_t profile_weight(size_t bytes, uint32_t interval) {
  return (uint64_t)(weight_of((double)bytes / interval) * PROFILE_WEIGHT_ONE + 0.5);
}

#define DRAWN_MOST (1u << 30)

uint32_t profile_draw(unsigned class, uint32_t interval) {
  if (interval == PROFILE_PAUSED) return DRAWN_MOST;
  double calls = exponential(draw_below(UINT32_MAX)) * interval / class_size(class);
  return calls < DRAWN_MOST ? (uint32_t)calls : DRAWN_MOST;
}

size_t profile_draw_bytes(size_t most, uint32_t interval) {
  if (interval == PROFILE_PAUSED) return most;
  uint32_t random = draw_below(UINT32_MAX);
  /* -ln x is at least 1 - x, so nearly all draws far beyond `most` need no logarithm. */
  if (LIKELY((uint64_t)(UINT32_MAX - random) * interval >> 32 >= most)) return most;
  double bytes = exponential(random) * interval;
  return bytes < (double)most ? (size_t)bytes : most;
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

/* Other threads may run: they take the lock after they see the interval. */
static bool begin(void) {
  struct tables *tables = pages_keep(sizeof(struct tables));
  if (!tables) return false;
  /* They may have been cleared by hand, and most of them stays unused. */
  os_purge(tables, round_up(sizeof *tables, os_page_size));
  os_is_readable(tables, os_page_size); /* it learns what the kernel knows; a thread that walks may have a filter */
  lock_take(&profile_lock);
  state.tables = tables;
  state.sites = UNKNOWN_SITE;
  state.began_ns = os_now_coarse_ns();
  lock_release(&profile_lock);
  return true;
}

bool profile_start(uint32_t interval, bool in_chunks) {
  if (!profile_is_on() && !begin()) return false;
  atomic_store_explicit(&profile_interval, interval, memory_order_relaxed);
  if (in_chunks || profile_is_on_in_chunks())
    atomic_store_explicit(&profile_chunk_interval, in_chunks ? interval : PROFILE_PAUSED, memory_order_relaxed);
  return true;
}

static uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= UINT64_C(0x9e3779b97f4a7c15);
  return x ^ x >> 29;
}

static uint64_t hash_of(const uintptr_t *frames, unsigned depth) {
  uint64_t hash = depth;
  for (unsigned i = 0; i < depth; i++) hash = mix(hash ^ frames[i]);
  return hash;
}

static uint32_t *bucket_of(uint32_t *table, uint64_t hash) { return &table[hash >> (64 - BUCKETS_LOG)]; }
static uint32_t *bucket_of_granule(size_t granule) {
  return bucket_of(state.tables->sample_of, granule * UINT64_C(0x9e3779b97f4a7c15));
}

static uint32_t find_site(const uintptr_t *frames, unsigned depth, uint64_t hash) {
  for (uint32_t i = *bucket_of(state.tables->site_of, hash); i; i = state.tables->sites[i].next) {
    const struct profile_site *site = &state.tables->sites[i];
    if (site->hash == hash && site->depth == depth &&
        memcmp(profile_frames(site), frames, depth * sizeof *frames) == 0)
      return i;
  }
  return 0;
}

static uint32_t site_of(const uintptr_t *frames, unsigned depth, uint64_t hash) {
  uint32_t found = depth ? find_site(frames, depth, hash) : UNKNOWN_SITE;
  if (found) return found;
  if (state.sites == PROFILE_SITES || state.frames + depth > FRAMES) return UNKNOWN_SITE;
  uint32_t index = ++state.sites, *first = bucket_of(state.tables->site_of, hash);
  state.tables->sites[index] =
      (struct profile_site){.hash = hash, .next = *first, .frames = state.frames, .depth = depth};
  memcpy(&state.tables->frames[state.frames], frames, depth * sizeof *frames);
  state.frames += depth;
  *first = index;
  return index;
}

/* ---- lifespans --------------------------------------------------------------------------------------------------- */

/* Fewer samples would count chance as an ebb. */
#define EBB_LEAST_SAMPLES 8

/* Returns the place of the lifespan that was found last among those that share it: a site may have one a class. */
static uint32_t *found_last(uint32_t site, unsigned class) {
  return &state.tables->lifespan_found[(site * CLASSES + class) % LIFESPANS_FOUND];
}

static struct profile_lifespan *find_lifespan(uint32_t site, unsigned class) {
  struct profile_lifespan *rows = state.tables->lifespans;
  uint32_t *found = found_last(site, class), i = *found;
  if (i && rows[i].site == site && rows[i].class == class) return &rows[i];
  for (i = state.tables->sites[site].lifespans; i && rows[i].class != class;) i = rows[i].next;
  if (i) *found = i;
  return i ? &rows[i] : NULL;
}

static struct profile_lifespan *take_lifespan(uint32_t index, unsigned class) {
  struct profile_site *site = &state.tables->sites[index];
  if (state.lifespans == PROFILE_LIFESPANS) return NULL;
  struct profile_lifespan *row = &state.tables->lifespans[++state.lifespans];
  *row = (struct profile_lifespan){.site = index, .next = site->lifespans, .class = (uint8_t)class};
  site->lifespans = state.lifespans;
  return row;
}

static bool shares_a_slab(const struct profile_sample *sample) { return sample->epoch == 0 && sample->usable != 0; }

/* Fewer births than deaths, by this factor, are few. A fall takes long if a block lives so many times meanwhile. */
#define EBB_DEATHS 2
#define EBB_LIVES  4

/* Looks if the site's blocks in the class have died together. `age_ns` is the age of the last one that died. */
static void look_for_ebb(struct profile_lifespan *row, uint64_t now, uint64_t age_ns) {
  if (2 * row->live_samples >= row->peak_samples) {
    row->high = true;
    row->high_ns = now;
    row->high_births = state.births[row->class];
    return;
  }
  if (!row->high || row->peak_samples < EBB_LEAST_SAMPLES || 8 * row->live_samples > row->peak_samples) return;
  row->high = false;
  uint32_t deaths = row->peak_samples / 2 - row->live_samples, births = state.births[row->class] - row->high_births;
  if (EBB_DEATHS * births <= deaths || EBB_LIVES * age_ns < now - row->high_ns) row->ebbs++;
}

static void count_birth(struct profile_sample *sample) {
  if (!shares_a_slab(sample)) return;
  unsigned class = class_of(sample->usable);
  struct profile_lifespan *row = find_lifespan(sample->site, class);
  if (!row) row = take_lifespan(sample->site, class);
  state.births[class]++;
  if (!row) return;
  sample->lifespan = (uint32_t)(row - state.tables->lifespans);
  row->live += sample->weight * sample->usable;
  row->live_samples++;
  if (row->live > row->peak) {
    row->peak = row->live;
    row->peak_samples = row->live_samples;
  }
  look_for_ebb(row, sample->born_ns, 0);
}

static unsigned bucket_of_age(uint64_t age_ns) {
  uint64_t units = age_ns / LIFESPAN_FIRST_NS;
  return units ? (unsigned)min_size(log2_floor(units) + 1, LIFESPAN_AGES - 1) : 0;
}

static void count_death(const struct profile_sample *sample) {
  if (sample->lifespan == 0) return;
  struct profile_lifespan *row = &state.tables->lifespans[sample->lifespan];
  uint64_t now = max_size(os_now_coarse_ns(), sample->born_ns);
  row->live -= sample->weight * sample->usable;
  row->live_samples--;
  row->freed += sample->weight * sample->usable;
  row->freed_samples++;
  row->ages[bucket_of_age(now - sample->born_ns)]++;
  look_for_ebb(row, now, now - sample->born_ns);
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

static struct profile_sample *take_row(void) {
  struct profile_sample *rows = state.tables->samples;
  if (state.used < PROFILE_SAMPLES && state.used - state.live < DEAD_KEPT) return &rows[++state.used];
  uint32_t index = state.dead;
  if (index) state.dead = rows[index].next;
  return index ? &rows[index] : NULL;
}

static void add(const struct profile_sample *sample, const uintptr_t *frames, unsigned depth) {
  uint64_t hash = hash_of(frames, depth);
  lock_take(&profile_lock);
  uint32_t index = site_of(frames, depth, hash);
  struct profile_site *site = &state.tables->sites[index];
  site->allocated_samples++;
  site->allocated_blocks += sample->weight;
  site->allocated_bytes += sample->weight * sample->size;
  site->allocated_squares += profile_square(sample);
  state.taken++;
  state.stackless += index == UNKNOWN_SITE && depth > 0;
  struct profile_sample *row = take_row();
  if (row) {
    uint32_t *first = bucket_of_granule(granule_of(sample->block));
    *row = *sample;
    row->site = index;
    row->next = *first;
    *first = (uint32_t)(row - state.tables->samples);
    state.live++;
    count_birth(row);
  } else {
    state.lost++;
  }
  lock_release(&profile_lock);
}

/* The noted frame belongs to this call if it lies not far above on this stack. */
#define CALLER_FAR (4 * KiB)
static const void *frame_of_caller(const struct heap *heap, const void *here) {
  const void *caller = heap->counters->caller;
  uintptr_t distance = (uintptr_t)caller - (uintptr_t)here;
  return distance < CALLER_FAR ? caller : here;
}

NOINLINE unsigned profile_stack(const struct heap *heap, uintptr_t *out) {
  return stack_walk(out, STACK_MOST, frame_of_caller(heap, __builtin_frame_address(0)));
}

NOINLINE void profile_record(const struct heap *heap, void *block, size_t size, size_t usable, uint64_t weight) {
  uintptr_t frames[STACK_MOST];
  unsigned depth = profile_stack(heap, frames);
  struct profile_sample sample = {
      .block = block,
      .size = size,
      .usable = usable <= UINT32_MAX ? (uint32_t)usable : 0,
      .weight = weight,
      .born_ns = os_now_coarse_ns(),
      .epoch = heap->arena ? heap->arena->index : 0,
      .label = heap->arena ? heap->arena->label : 0,
      .thread_id = (uint32_t)heap->counters->thread_totals.thread_id,
  };
  add(&sample, frames, depth);
  const void *frame = frame_of_caller(heap, __builtin_frame_address(0));
  PROBE3_IN_FRAME("otel_memory", "alloc", frame, (uintptr_t)block, size, weight * size / PROFILE_WEIGHT_ONE);
}

/* Takes the row at *link off its bucket. It serves a new sample after all that died before. */
static void drop(uint32_t *link) {
  uint32_t index = *link;
  struct profile_sample *row = &state.tables->samples[index];
  *link = row->next;
  PROBE1("otel_memory", "free", (uintptr_t)row->block);
  count_death(row);
  row->weight = row->next = 0;
  if (state.dead) state.tables->samples[state.last_dead].next = index;
  else state.dead = index;
  state.last_dead = index;
  state.live--;
  state.frees++;
}

void profile_forget(const void *block) {
  if (state.frozen) return;
  lock_take(&profile_lock);
  uint32_t *link = bucket_of_granule(granule_of(block));
  while (*link && state.tables->samples[*link].block != block) link = &state.tables->samples[*link].next;
  if (*link) drop(link);
  lock_release(&profile_lock);
}

#define PLACES_MOST 12 /* so that they fit into a line */

static const struct profile_sample *find_live(const void *block) {
  uint32_t index = *bucket_of_granule(granule_of(block));
  while (index && state.tables->samples[index].block != block) index = state.tables->samples[index].next;
  return index ? &state.tables->samples[index] : NULL;
}

static unsigned copy_places(const struct profile_sample *row, uintptr_t *frames) {
  const struct profile_site *site = &state.tables->sites[row->site];
  unsigned depth = (unsigned)min_size(site->depth, PLACES_MOST);
  memcpy(frames, profile_frames(site), depth * sizeof *frames);
  return depth;
}

bool profile_places_of(const void *block, char *out, size_t capacity) {
  uintptr_t frames[PLACES_MOST];
  unsigned depth = 0;
  if (!profile_is_on() || state.frozen) return false;
  lock_take(&profile_lock);
  const struct profile_sample *row = find_live(block);
  if (row) depth = copy_places(row, frames);
  lock_release(&profile_lock);
  stack_text(out, capacity, frames, depth);
  return depth != 0;
}

/* Returns the last sample that had the block's address and died. */
static const struct profile_sample *find_dead(const void *block) {
  const struct profile_sample *rows = state.tables->samples, *found = NULL;
  for (uint32_t i = state.dead; i; i = rows[i].next)
    if (rows[i].block == block) found = &rows[i];
  return found;
}

/* Returns true if each block of the run is a sample, so that a dead sample is the last block at its address. */
static bool has_only_samples(const struct run *run) {
  return run && run->kind == RUN_SLAB && atomic_load_explicit(&run->heap, memory_order_relaxed) == &sampled_heap;
}

bool profile_origin(const void *block, char *out, size_t capacity) {
  uintptr_t frames[PLACES_MOST];
  unsigned depth = 0, thread_id = 0;
  if (!profile_is_on() || state.frozen) return false;
  bool is_sure = has_only_samples(pages_run_of(block)) && state.lost == 0;
  lock_take(&profile_lock);
  const struct profile_sample *row = find_live(block);
  if (row) is_sure = true;
  else row = find_dead(block);
  if (row) {
    depth = copy_places(row, frames);
    thread_id = row->thread_id;
  }
  lock_release(&profile_lock);
  if (depth == 0) return false;
  size_t length = is_sure ? 0 : log_format(out, capacity, "the last sample at %p was ", block);
  length += log_format(out + length, capacity - length, "allocated by thread %u at ", thread_id);
  stack_text(out + length, capacity - length, frames, depth);
  return true;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

uint32_t profile_large(const struct heap *heap, void *block, size_t size) {
  uint32_t interval = profile_interval_now();
  if (state.frozen || profile_draw_bytes(size, interval) == size) return 0;
  pages.runs[granule_of(block)].capacity = 1;
  profile_record(heap, block, size, 0, profile_weight(size, interval));
  return interval;
}

void profile_chunk(const struct heap *heap, void *block, size_t size, uint32_t interval) {
  if (state.frozen) return;
  size_t usable = round_up(max_size(size, 1), CHUNK_UNIT);
  STORE_RACING(heap->bump.chunk->moved, true);
  profile_record(heap, block, size, usable, profile_weight(usable, interval));
}

void profile_freed(struct run *run, const void *block) {
  if (has_only_samples(run)) {
    profile_forget(block);
  } else if (run->kind == RUN_LARGE && run->capacity) {
    run->capacity = 0;
    profile_forget(block);
  }
}

void profile_chunk_ends(struct run *chunk) {
  STORE_RACING(chunk->moved, false);
  if (state.frozen) return;
  const char *start = chunk_start(chunk);
  lock_take(&profile_lock);
  for (uint32_t *link = bucket_of_granule(granule_of(start)); *link;) {
    struct profile_sample *row = &state.tables->samples[*link];
    if ((size_t)((const char *)row->block - start) < run_bytes(chunk)) drop(link);
    else link = &row->next;
  }
  lock_release(&profile_lock);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

uint32_t profile_sites(void) { return state.sites; }
const struct profile_site *profile_site_at(uint32_t index) { return &state.tables->sites[index]; }
const uintptr_t *profile_frames(const struct profile_site *site) { return &state.tables->frames[site->frames]; }
uint32_t profile_samples_most(void) { return state.used; }
uint32_t profile_lifespans(void) { return state.lifespans; }
const struct profile_lifespan *profile_lifespan_at(uint32_t index) { return &state.tables->lifespans[index]; }

/* Returns true if a thread freed the sample in its current chunk. */
static bool has_died(const struct profile_sample *row) {
  const struct run *run = &pages.runs[granule_of(row->block)];
  if (LOAD_RACING(run->kind) == RUN_SPLIT) run = quarter_of(row->block);
  return LOAD_RACING(run->kind) == RUN_CHUNK && chunk_place_of(run, row->block) == CHUNK_FREED;
}

const struct profile_sample *profile_sample_at(uint32_t index) {
  const struct profile_sample *row = &state.tables->samples[index];
  if (row->weight == 0) return NULL;
  if (!has_died(row)) return row;
  uint32_t *link = bucket_of_granule(granule_of(row->block));
  while (*link && *link != index) link = &state.tables->samples[*link].next;
  if (*link) drop(link); /* otherwise a thread that does not exist in this frozen child was dropping it */
  return NULL;
}

bool profile_is_first_in_run(uint32_t index) {
  const struct profile_sample *rows = state.tables->samples, *row = &rows[index];
  size_t granule = granule_of(row->block);
  for (uint32_t i = *bucket_of_granule(granule); i; i = rows[i].next)
    if (i < index && rows[i].site == row->site && rows[i].epoch == row->epoch && granule_of(rows[i].block) == granule)
      return false;
  return true;
}

struct profile_totals profile_totals(void) {
  return (struct profile_totals){
      .samples = state.taken,
      .frees = state.frees,
      .lost = state.lost,
      .stackless = state.stackless,
      .live = state.live,
      .sites = state.sites,
      .bytes = state.sites * sizeof(struct profile_site) + state.used * sizeof(struct profile_sample) +
               state.lifespans * sizeof(struct profile_lifespan) + state.frames * sizeof(uintptr_t) +
               sizeof state.tables->site_of + sizeof state.tables->sample_of +
               sizeof state.tables->lifespan_found,
      .began_ns = state.began_ns,
  };
}

/* The tables may be half written, and the samples lead to memory that is never reused. */
void profile_freeze(void) { state.frozen = true; }
bool profile_is_frozen(void) { return state.frozen; }

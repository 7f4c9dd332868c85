/* fleet: one operation is a malloc or a free of a service of a large fleet, by one of ten published tables.
 *
 * A table (fleet_tables.h) says how often a service asks for each size and how many blocks of it live at a time. The
 * heap is scaled to `mib` of live bytes, over all threads. The births of each size come at random, at its rate, and a
 * block lives for an exponential time whose mean keeps the number of its size's live blocks where it is. So the heap
 * is in its steady state from the first operation on, and the sizes, their shares and their lifetimes are those of the
 * table.
 *
 * The sequence of operations is drawn before anything is timed. A malloc writes one byte of each page of its block. The
 * timed part starts with the heap full and ends before the rest is freed. Each thread has its own blocks. */
#include "lab.h"

#include "fleet_tables.h"

#include <math.h>
#include <stdlib.h>

enum { BIRTH = 0x80000000u, PAGE = 4096, MILLION = 1000000 };

static long table = 5, births = 2000000, mib = 64, threads = 1;
static _Atomic uint64_t allocations, live_bytes;
static uint64_t resident_bytes;   /* of the blocks that live at the end, with one thread */

static const lab_option options[] = {
  { .name = "table", .help = "the service, 0 to 9", .number = &table, .least = 0 },
  { .name = "births", .help = "timed mallocs per thread", .number = &births, .least = 100 },
  { .name = "mib", .help = "live MiB, over all threads", .number = &mib, .least = 1 },
  { .name = "threads", .help = "threads", .number = &threads, .least = 1 },
  { .name = NULL },
};
static const lab_about workload = { "fleet", "allocates or frees by the sizes and lifetimes of a service", options };

/* ---- the sequence of births and deaths ---- */

/* An operation is the slot whose block it frees, or BIRTH and the slot that gets a block. */
typedef struct sequence {
  uint32_t *operations;
  unsigned char *group_of;    /* by birth: the size's group; the blocks of the start come first */
  uint32_t *dying, *next;     /* the slots that die at a birth, linked; slots are counted from 1 */
  uint32_t free_slot, slots, most_slots;
  long count, at_start;
  uint64_t random;
  const fleet_group *groups;
  double life[FLEET_GROUPS];  /* mean, in births */
} sequence;

static unsigned groups_of(const fleet_group *group) {
  unsigned n = 0;
  while (n < FLEET_GROUPS && group[n].size != 0)
    n++;
  return n;
}

/* Uniform in (0, 1]. */
static double fraction(uint64_t *random) { return (double)((lab_random(random) >> 11) + 1) * 0x1p-53; }

/* A block of that group, born at `now`, takes a slot. It dies after an exponential time, rounded up to whole births. */
static uint32_t bear(sequence *s, unsigned group, long now) {
  uint32_t slot = s->free_slot;
  if (slot)
    s->free_slot = s->next[slot];
  else
    slot = ++s->slots;
  if (slot >= s->most_slots)
    lab_fail("more blocks live at a time than were reckoned with");
  double dies = (double)now + ceil(-log(fraction(&s->random)) * s->life[group]);
  if (dies <= (double)births) {
    s->next[slot] = s->dying[(long)dies];
    s->dying[(long)dies] = slot;
  }
  return slot;
}

static void bury(sequence *s, long now) {
  for (uint32_t slot = s->dying[now], next; slot; slot = next) {
    next = s->next[slot];
    s->operations[s->count++] = slot;
    s->next[slot] = s->free_slot;
    s->free_slot = slot;
  }
}

/* Writes the groups' shares, in a million, as a table of a million entries, so that a draw is one look. */
static const unsigned char *draw_table(const fleet_group *groups) {
  unsigned char *of = lab_map(MILLION);
  uint64_t sum = 0, before = 0, at = 0;
  for (unsigned g = 0; g < groups_of(groups); g++)
    sum += groups[g].births;
  for (unsigned g = 0; g < groups_of(groups); g++) {
    before += groups[g].births;
    while (at < before * MILLION / sum)
      of[at++] = (unsigned char)g;
  }
  return of;
}

/* Returns how many blocks of each group live at a time when all of this thread's are `bytes` long together. */
static long scale_live(sequence *s, double bytes, double live[FLEET_GROUPS]) {
  double sum = 0, of_births = 0;
  long count = 0;
  for (unsigned g = 0; g < groups_of(s->groups); g++) {
    sum += (double)s->groups[g].live * s->groups[g].size;
    of_births += s->groups[g].births;
  }
  for (unsigned g = 0; g < groups_of(s->groups); g++) {
    live[g] = s->groups[g].live * bytes / sum;
    s->life[g] = live[g] * of_births / s->groups[g].births;
    count += (long)live[g];
  }
  return count;
}

/* A group whose share of live blocks is a fraction gets one more with that probability. */
static void populate(sequence *s, const double live[FLEET_GROUPS]) {
  for (unsigned g = 0; g < groups_of(s->groups); g++) {
    long blocks = (long)(live[g] + fraction(&s->random));
    for (long i = 0; i < blocks; i++) {
      s->group_of[s->at_start++] = (unsigned char)g;
      s->operations[s->count++] = BIRTH | bear(s, g, 0);
    }
  }
}

/* Shuffles the births of the start, so that neighbours are of different sizes. Slots go with their groups. */
static void shuffle(sequence *s) {
  for (long i = s->at_start - 1; i > 0; i--) {
    uint32_t j = lab_below(&s->random, (uint32_t)i + 1), operation = s->operations[i];
    unsigned char group = s->group_of[i];
    s->operations[i] = s->operations[j];
    s->group_of[i] = s->group_of[j];
    s->operations[j] = operation;
    s->group_of[j] = group;
  }
}

static sequence draw(unsigned index) {
  sequence s = { .groups = fleet_tables[table], .random = lab_seed + index };
  double live[FLEET_GROUPS];
  long start = scale_live(&s, (double)(mib << 20) / (double)threads, live) + FLEET_GROUPS;
  s.most_slots = (uint32_t)(2 * start + 10000);
  s.operations = lab_map((size_t)(2 * (births + start)) * sizeof(uint32_t));
  s.group_of = lab_map((size_t)(births + start));
  s.dying = lab_map((size_t)(births + 1) * sizeof(uint32_t));
  s.next = lab_map((size_t)s.most_slots * sizeof(uint32_t));
  const unsigned char *group = draw_table(s.groups);
  populate(&s, live);
  shuffle(&s);
  for (long now = 1; now <= births; now++) {
    bury(&s, now);
    unsigned char g = group[lab_below(&s.random, MILLION)];
    s.group_of[s.at_start + now - 1] = g;
    s.operations[s.count++] = BIRTH | bear(&s, g, now);
  }
  return s;
}

/* ---- playing it ---- */

static char *take(size_t size) {
  char *block = malloc(size);
  if (!block)
    lab_fail("out of memory");
  for (size_t at = 0; at < size; at += PAGE)
    block[at] = 1;
  return block;
}

/* Plays operations [from, to), the first birth among which has the number `born`. */
static __attribute__((noinline)) void play(const sequence *s, char **blocks, long from, long to, long born) {
  for (long i = from; i < to; i++) {
    uint32_t slot = s->operations[i] & ~BIRTH;
    if (s->operations[i] & BIRTH)
      blocks[slot] = take(s->groups[s->group_of[born++]].size);
    else {
      free(blocks[slot]);
      blocks[slot] = NULL;
    }
  }
}

/* Returns the bytes that live after all operations. */
static uint64_t live_at_end(const sequence *s) {
  uint32_t *size = lab_map((size_t)s->most_slots * sizeof *size);
  uint64_t bytes = 0;
  for (long i = 0, born = 0; i < s->count; i++) {
    uint32_t slot = s->operations[i] & ~BIRTH;
    bytes -= size[slot];
    size[slot] = s->operations[i] & BIRTH ? s->groups[s->group_of[born++]].size : 0;
    bytes += size[slot];
  }
  return bytes;
}

static void work(unsigned index) {
  sequence s = draw(index);
  char **blocks = lab_map((size_t)s.most_slots * sizeof *blocks);
  uint64_t live = live_at_end(&s);
  lab_litter(16, 1024);
  uint64_t before = threads == 1 ? lab_rss_now() : 0;
  play(&s, blocks, 0, s.at_start, 0);
  lab_team_begin();
  play(&s, blocks, s.at_start, s.count, s.at_start);
  lab_team_end();
  if (threads == 1) {
    lab_proof_live(live);
    resident_bytes = lab_rss_now() - before;
  }
  live_bytes += live;
  allocations += (uint64_t)(s.at_start + births);
  for (uint32_t i = 0; i < s.most_slots; i++)
    free(blocks[i]);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  if (table >= FLEET_TABLES)
    lab_fail("--table is 0 to %d", FLEET_TABLES - 1);
  lab_team_result r = lab_team((unsigned)threads, work);
  double operations = 2 * (double)births * (double)threads;
  lab_row(NULL);
  lab_metric("op_ns", r.wall_ns * (double)threads / operations);
  lab_metric("cpu_per_op_ns", r.cpu_ns / operations);
  lab_metric("live_bytes", (double)live_bytes);
  if (threads == 1) /* several threads do not end at the same time */
    lab_metric("resident_bytes", (double)resident_bytes);
  lab_calls = allocations;
  return lab_finish();
}

/* fragmentation: the memory that a block takes beyond its bytes, for single sizes and for a realistic mix.
 *
 * Each size is measured in a child process of its own, whose heap holds nothing else: `mib` mebibytes are allocated and
 * written, and the growth of resident memory is set against the bytes asked for. "rounding" is what malloc_usable_size
 * admits to; "waste" is everything, headers, rounding and ends of slabs included, in percent of the resident bytes. The
 * mix follows servers: half of the blocks up to 64 bytes, three tenths to 256, fifteen hundredths to 1,024, the rest to
 * 8,192, uniform inside each range. */
#include "lab.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static long mib = 32;

static const lab_option options[] = {
  { .name = "mib", .help = "mebibytes asked for of each size", .number = &mib, .least = 1 },
  { .name = NULL },
};
static const lab_about workload = { "fragmentation", "compares resident bytes with bytes asked for", options };

/* Sizes just at and just above what allocators like to have classes for. */
static const size_t sizes[] = {
  16, 17, 24, 33, 48, 65, 96, 100, 129, 200, 257, 385, 513, 640, 769, 1025, 1536, 2049, 3000, 4097, 8193, 16385, 32769,
};
enum { SIZES = sizeof sizes / sizeof *sizes };

typedef struct outcome { uint64_t asked, usable, resident; bool done; } outcome;

static size_t mixed(uint64_t *state) {
  static const struct { unsigned upto_pct; size_t least, most; } ranges[] = {
    { 50, 8, 64 }, { 80, 65, 256 }, { 95, 257, 1024 }, { 100, 1025, 8192 },
  };
  unsigned draw = lab_below(state, 100), r = 0;
  while (draw >= ranges[r].upto_pct)
    r++;
  return ranges[r].least + lab_below(state, (uint32_t)(ranges[r].most - ranges[r].least + 1));
}

static void measure(size_t fixed, outcome *o) {
  uint64_t state = lab_seed, wanted = (uint64_t)mib << 20, base = lab_rss_now();
  while (o->asked < wanted) {
    size_t size = fixed ? fixed : mixed(&state);
    char *block = malloc(size);
    if (!block)
      lab_fail("out of memory");
    memset(block, 1, size);
    o->asked += size;
    o->usable += malloc_usable_size(block);
  }
  o->resident = lab_rss_now() - base;
  o->done = true;
}

/* lab_map's memory is shared with nobody; this one lets a child report. */
static void measure_in_child(size_t size, int fds[2], outcome *o) {
  fflush(NULL);
  pid_t child = fork();
  if (child < 0)
    lab_fail("cannot fork");
  if (child == 0) {
    outcome mine = { 0 };
    measure(size, &mine);
    _exit(write(fds[1], &mine, sizeof mine) == sizeof mine ? 0 : 1);
  }
  int status;
  waitpid(child, &status, 0);
  if (status != 0 || read(fds[0], o, sizeof *o) != sizeof *o)
    lab_fail("the child that allocates %zu-byte blocks ended with status %#x", size, (unsigned)status);
}

static void report(const char *name, const outcome *o) {
  char metric[48];
  snprintf(metric, sizeof metric, "%s_waste_pct", name);
  lab_metric(metric, 100 * (1 - (double)o->asked / (double)o->resident));
  snprintf(metric, sizeof metric, "%s_rounding_pct", name);
  lab_metric(metric, 100 * (1 - (double)o->asked / (double)o->usable));
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  int fds[2];
  if (pipe(fds) != 0)
    lab_fail("cannot make a pipe");
  outcome of_size[SIZES] = { 0 }, mix = { 0 };
  for (unsigned i = 0; i < SIZES; i++)
    measure_in_child(sizes[i], fds, &of_size[i]);
  lab_litter(8, 8192);
  measure(0, &mix);
  lab_proof_live(mix.asked);
  double mean = 0;
  for (unsigned i = 0; i < SIZES; i++) {
    lab_calls += of_size[i].asked / sizes[i];
    mean += 100 * (1 - (double)of_size[i].asked / (double)of_size[i].resident) / SIZES;
  }
  lab_row(NULL);
  report("mix", &mix);
  lab_metric("mean_of_sizes_waste_pct", mean);
  for (unsigned i = 0; i < SIZES; i++) {
    char name[24];
    snprintf(name, sizeof name, "size_%zu", sizes[i]);
    report(name, &of_size[i]);
  }
  return lab_finish();
}

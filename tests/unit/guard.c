/* guard: a guarded block is of the size and alignment that was asked for, between pages without access; the pool is
   bounded by call site, number and bytes, and the block that was freed first serves first; the ordinary block behind it
   counts for the epoch, and its end ends the guarded one; a program that goes on gets one report; a fork child keeps
   the pool that it inherits. */
#include "unit.h"

#include "base/options.h"
#include "heap/guard.h"
#include "heap/misuse.h"
#include "heap/profile.h"
#include "heap/sampled.h"

enum { INTERVAL = 4096, ODD = 93 };

/* ---- the pool alone: the call is ours, and no block behind is needed --------------------------------------------- */

static uintptr_t site = 4711;
static int behind[2 * GUARD_SLOTS];

static void *place(int number, size_t size, size_t alignment) {
  const struct guard_call call = {&site, 1, 0};
  void *const block = guard_place(&behind[number], size, alignment, &call);
  return block == &behind[number] ? NULL : block;
}

static void end(void *block) { CHECK(guard_free(block, __builtin_frame_address(0)) != NULL); }

static void one_block(void) {
  int starts = 0;
  for (int i = 0; i < 64; i++) {
    for (size_t size = 1; size <= 3 * os_page_size / 2; size += 211) {
      const size_t alignment = (size_t)16 << (i % 8);
      char *const block = place(i, size, alignment);
      const uintptr_t last = (uintptr_t)block + size - 1;
      CHECK(block && (uintptr_t)block % alignment == 0 && guard_starts_live(block) && guard_size(block) == size);
      CHECK(guard_behind(block + size - 1) == &behind[i] && guard_in_front(&behind[i]) == block);
      CHECK(guard_behind(&behind[i]) == &behind[i] && guard_behind(block - 1) == NULL);
      for (size_t at = 0; at < size; at++) CHECK(block[at] == 0);
      memset(block, 1, size);
      const uintptr_t page = (uintptr_t)block / os_page_size * os_page_size;
      CHECK(os_is_unreadable((void *)(page - os_page_size)));
      CHECK(os_is_unreadable((void *)(last / os_page_size * os_page_size + os_page_size)));
      starts += (uintptr_t)block % os_page_size == 0;
      end(block);
      CHECK(!guard_starts_live(block) && guard_behind(block) == NULL && os_is_unreadable((void *)page));
    }
  }
  CHECK_COUNT(starts, >, 0);
}

static int mappings(void) {
  int lines = 0, ch;
  FILE *const maps = fopen("/proc/self/maps", "r");
  CHECK(maps != NULL);
  while ((ch = fgetc(maps)) != EOF) lines += ch == '\n';
  fclose(maps);
  return lines;
}

static void slots_are_bounded(void) {
  if (GUARD_SLOTS * os_page_size > GUARD_BYTES_MOST) return; /* on large pages the other bound comes first */
  static void *blocks[GUARD_SLOTS];
  const int mapped = mappings();
  const struct guard_totals before = guard_totals();
  CHECK(before.live == 0 && before.bytes == 0);
  CHECK(place(0, GRANULE + 3 * os_page_size, 16) == NULL && place(0, 1, 2 * os_page_size) == NULL);
  CHECK_COUNT(guard_totals().refused, ==, before.refused + 2);
  for (int i = 0; i < GUARD_SLOTS; i++) {
    if (i % GUARD_SITE_MOST == 0 && i > 0) CHECK(place(i, ODD, 16) == NULL);
    site = (uintptr_t)(4711 + i / GUARD_SITE_MOST);
    blocks[i] = place(i, ODD, 16);
    CHECK(blocks[i] != NULL);
  }
  CHECK(place(0, ODD, 16) == NULL);
  site = 1;
  CHECK(place(0, ODD, 16) == NULL);
  CHECK_COUNT(guard_totals().live, ==, GUARD_SLOTS);
  CHECK_COUNT(guard_totals().bytes, ==, GUARD_SLOTS * os_page_size);
  CHECK_COUNT(mappings(), <=, mapped + 2 * GUARD_SLOTS + 1);
  for (int i = 0; i < GUARD_SLOTS; i++) end(blocks[(i + 100) % GUARD_SLOTS]);
  CHECK_COUNT(guard_totals().live, ==, 0);
  CHECK_COUNT(guard_totals().bytes, ==, 0);
  CHECK_COUNT(guard_totals().placed, ==, before.placed + GUARD_SLOTS);
  for (int i = 0; i < GUARD_SLOTS; i++) { /* in the order of their frees */
    char *const block = place(i, ODD, 16);
    CHECK_COUNT((uintptr_t)block / GRANULE, ==, (uintptr_t)blocks[(i + 100) % GUARD_SLOTS] / GRANULE);
    end(block);
  }
}

static void bytes_are_bounded(void) {
  static void *blocks[GUARD_SLOTS];
  const size_t size = 2 * os_page_size;
  size_t count = 0;
  for (; count < GUARD_SLOTS; count++) {
    site = 5000 + count;
    blocks[count] = place((int)count, size, 16);
    if (!blocks[count]) break;
  }
  CHECK(count == GUARD_SLOTS || (count + 1) * size > GUARD_BYTES_MOST);
  CHECK_COUNT(guard_totals().bytes, ==, count * size);
  while (count-- > 0) end(blocks[count]);
}

static void use_each_slot(size_t size) {
  for (int i = 0; i < GUARD_SLOTS; i++) {
    char *const block = place(0, size, 16);
    CHECK(block != NULL);
    memset(block, 1, size);
    end(block);
  }
}

/* The kernel guards no pages of locked memory, so blocks that end there are forbidden by mappings. */
static void locked_for_a_while(void) {
  if (mlockall(MCL_CURRENT) != 0) return;
  use_each_slot(2 * os_page_size);
  CHECK(munlockall() == 0);
  use_each_slot(ODD);
  use_each_slot(2 * os_page_size);
}

/* ---- what malloc hands out --------------------------------------------------------------------------------------- */

/* Allocates until a block is guarded, which its usable size shows. */
static char *guarded_in(tslab_epoch e) {
  for (;;) {
    char *const block = tslab_epoch_malloc(e, ODD);
    CHECK(block != NULL);
    if (tslab_malloc_usable_size(block) == ODD) return block;
    tslab_free(block);
  }
}

static void families(void) {
  for (size_t alignment = 16; alignment <= os_page_size; alignment *= 2) {
    for (bool guarded = false; !guarded;) {
      char *const block = tslab_aligned_alloc(alignment, ODD);
      CHECK((uintptr_t)block % alignment == 0);
      guarded = tslab_malloc_usable_size(block) == ODD;
      tslab_free(block);
    }
  }
  for (size_t size = 40001; size < 300000; size += 50000) { /* large blocks, some of them too large */
    char *block = tslab_calloc(1, size);
    for (size_t i = 0; i < size; i++) CHECK(block[i] == 0);
    memset(block, 7, size);
    block = tslab_realloc(block, size + 100000);
    for (size_t i = 0; i < size; i++) CHECK(block[i] == 7);
    CHECK(tslab_owns(block) && tslab_epoch_of(block) == 0);
    tslab_free(block);
  }
  char *block = guarded_in(0);
  memset(block, 7, ODD);
  CHECK(tslab_realloc(block, ODD - 1) == block);
  block = tslab_realloc(block, 1000);
  for (int i = 0; i < ODD; i++) CHECK(block[i] == 7);
  tslab_free(block);
}

static tslab_epoch_status status_of(tslab_epoch e) {
  tslab_epoch_status status;
  CHECK(tslab_epoch_info(e, &status) == 0);
  return status;
}

static void epochs(void) {
  tslab_epoch_report report;
  const tslab_epoch_options options_of = {.struct_size = sizeof options_of, .label = "a request",
                                          .flags = TSLAB_EPOCH_DESTROYABLE};
  tslab_epoch e = tslab_epoch_open_with(&options_of);
  char *block = guarded_in(e);
  tslab_slab_use use;
  CHECK(tslab_epoch_of(block) == e && tslab_epoch_of(block + ODD - 1) == e && tslab_owns(block));
  CHECK(tslab_occupancy((void *const *)&block, 1, &use) == 0 && use.epoch == e && use.kind == TSLAB_USE_CHUNK);
  CHECK_COUNT(status_of(e).live_blocks, ==, 1);
  CHECK_COUNT(status_of(e).live_bytes, ==, 96);
  CHECK(tslab_epoch_close(e, &report) == 0 && report.live_blocks == 1);
  CHECK_COUNT(status_of(e).live_blocks, ==, 1);
  tslab_free(block);
  tslab_epoch_status status;
  CHECK(tslab_epoch_info(e, &status) == ESTALE);
  const uint64_t live = guard_totals().live;
  for (int i = 0; i < 20; i++) {
    e = tslab_epoch_open_with(&options_of);
    for (int n = 0; n < 3; n++) block = guarded_in(e);
    char *const moved = tslab_epoch_move(guarded_in(e), 0);
    CHECK(moved && tslab_epoch_of(moved) == 0);
    tslab_free(moved);
    CHECK_COUNT(guard_totals().live, >=, live + 3);
    CHECK((i % 2 ? tslab_epoch_destroy(e, NULL) : tslab_epoch_reset(e, NULL)) == 0);
    CHECK(guard_totals().live == live && tslab_epoch_of(block) == 0 && os_is_unreadable(block));
    if (i % 2 == 0) CHECK(tslab_epoch_close(e, NULL) == 0);
  }
  void *made;
  e = tslab_epoch_open_with(&options_of);
  for (int i = 0; i < 2000; i++) {
    const tslab_handle handle = tslab_handle_alloc(e, ODD, &made);
    CHECK(handle && tslab_handle_get(handle) == made && tslab_handle_free(handle));
  }
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  CHECK_COUNT(guard_totals().live, ==, live);
}

/* ---- a program that goes on -------------------------------------------------------------------------------------- */

static char *volatile misused;
static void write_beyond(void) { misused[os_page_size] = 1; }

static void told_once(void) {
  static char text[2000];
  const uint64_t counted = misuse_count();
  misused = guarded_in(0);
  CHECK_COUNT(hear(write_beyond, text, sizeof text), ==, 2);
  CHECK(strstr(text, "tslab: overflow: ") == text && strstr(text, "\ntslab:   allocated by thread ") != NULL);
  CHECK(strstr(text, " test_guard") != NULL && misused[os_page_size] == 1);
  CHECK_COUNT(hear(write_beyond, text, sizeof text), ==, 0);
  CHECK_COUNT(misuse_count(), ==, counted + 1);
  tslab_free(misused);
  misused[os_page_size] = 2;
}

static void in_a_child(void) {
  tslab_free(misused);
  for (int i = 0; i < 100; i++) tslab_free(guarded_in(0));
  tslab_free(misused);
  _exit(misuse_count() == 1 ? 7 : 1);
}

int main(void) {
  tslab_free(tslab_malloc(1));
  CHECK(sampled_start(PROFILE_PAUSED, true) && guard_start(INTERVAL));
  one_block();
  slots_are_bounded();
  locked_for_a_while();
  bytes_are_bounded();
  CHECK(sampled_start(INTERVAL, true));
  families();
  epochs();
  options.on_misuse = MISUSE_REPORT;
  misused = guarded_in(0);
  CHECK_COUNT(in_child(in_a_child), ==, 7 << 8);
  tslab_free(misused);
  told_once();
  return 0;
}

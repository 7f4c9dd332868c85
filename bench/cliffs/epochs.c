/* Kinds that count epochs, and what epochs have: labels, children, handles.
 *
 *   turns     one thread goes round `count` open epochs, each with a block: enter, malloc, free, leave; enter, leave
 *   tenants   one thread goes round `count` open epochs, each with `objects` blocks of 16 to 199 bytes: enter, replace
 *             five of them, leave; and what each epoch holds after that
 *   calls     one thread takes and frees a block by id in each of `count` epochs in turn
 *   idle      `count` epochs open that nobody entered
 *   used      `count` epochs open, each entered once and with one block
 *   labels    epochs under `count` labels in turn: open, enter, malloc, free, leave, close
 *   children  `count` children of one epoch, closed with their parent
 *   handles   `count` handles of one epoch: alloc, get, free
 *
 * Times of opening and closing are means over all of them; the others are medians of slices. */
#include "kinds.h"

#include <stdio.h>

enum { SMALL = 64, MIDDLE = 100, LABEL = 32 };

static tslab_epoch *open_epochs;
static long at;                                     /* index of the next epoch */

static inline tslab_epoch next_epoch(void) {
  tslab_epoch e = open_epochs[at];
  at = at + 1 == count ? 0 : at + 1;
  return e;
}

static void keep_one(tslab_epoch e, size_t size) {
  scope_enter(e);
  take(size);
  scope_leave(e);
}

static void close_all(void) {
  for (long i = 0; i < count; i++)
    scope_close(open_epochs[i]);
}

/* ---- turns ---- */

static void enter_leave(long n) {
  for (long i = 0; i < n; i++) {
    tslab_epoch e = next_epoch();
    scope_enter(e);
    scope_leave(e);
  }
}

static void enter_take_leave(long n) {
  for (long i = 0; i < n; i++) {
    tslab_epoch e = next_epoch();
    scope_enter(e);
    free(take(MIDDLE));
    scope_leave(e);
  }
}

void run_turns(void) {
  use_form();
  open_epochs = lab_map((size_t)count * sizeof *open_epochs);
  uint64_t before = lab_rss_now();
  for (long i = 0; i < count; i++) {
    open_epochs[i] = scope_open("request");
    keep_one(open_epochs[i], MIDDLE);
  }
  cliffs_figure("turn_rss_bytes", bytes_each(before, count));
  cliffs_figure("turn_ns", cliffs_ns(enter_take_leave, operations / 2));
  if (form == IN_EPOCHS)
    cliffs_figure("enter_leave_ns", cliffs_ns(enter_leave, operations / 2));
}

/* ---- tenants ---- */

enum { REPLACED = 5, TENANT_LEAST = 16, TENANT_SPREAD = 184 };

static char **tenant_blocks; /* `objects` of each epoch */
static uint64_t seed = 1;

static char *take_some(void) { return take(TENANT_LEAST + lab_below(&seed, TENANT_SPREAD)); }

static void fill_tenant(long tenant) {
  for (long i = 0; i < objects; i++)
    tenant_blocks[tenant * objects + i] = take_some();
}

static void replace_some(long n) {
  for (long i = 0; i < n; i++) {
    char **blocks = tenant_blocks + at * objects;
    tslab_epoch e = next_epoch();
    scope_enter(e);
    for (int k = 0; k < REPLACED; k++) {
      char **block = &blocks[lab_below(&seed, (uint32_t)objects)];
      free(*block);
      *block = take_some();
    }
    scope_leave(e);
  }
}

/* Each epoch replaces each of its blocks ten times before its memory is measured. */
void run_tenants(void) {
  use_form();
  open_epochs = lab_map((size_t)count * sizeof *open_epochs);
  tenant_blocks = lab_map((size_t)(count * objects) * sizeof *tenant_blocks);
  uint64_t before = lab_rss_now();
  for (long i = 0; i < count; i++) {
    open_epochs[i] = scope_open("tenant");
    scope_enter(open_epochs[i]);
    fill_tenant(i);
    scope_leave(open_epochs[i]);
  }
  replace_some(count * objects * 10 / REPLACED);
  cliffs_figure("tenant_rss_bytes", bytes_each(before, count));
  cliffs_figure("replace_ns", cliffs_ns(replace_some, operations / REPLACED / 2) / REPLACED);
}

/* ---- calls ---- */

static void plain_pairs(long n) {
  for (long i = 0; i < n; i++)
    free(take(SMALL));
}

static void pairs_by_id(long n) {
  for (long i = 0; i < n; i++)
    free(written(epochs.malloc(next_epoch(), SMALL)));
}

static void pairs_in_heaps(long n) {
  for (long i = 0; i < n; i++)
    free(written(heaps.malloc((void *)(uintptr_t)next_epoch(), SMALL)));
}

void run_calls(void) {
  use_form();
  open_epochs = lab_map((size_t)count * sizeof *open_epochs);
  for (long i = 0; form != PLAIN && i < count; i++)
    open_epochs[i] = form == IN_HEAPS ? opened((tslab_epoch)(uintptr_t)heaps.create()) : scope_open("request");
  void (*pairs)(long) = form == IN_HEAPS ? pairs_in_heaps : form == IN_EPOCHS ? pairs_by_id : plain_pairs;
  cliffs_figure("call_pair_ns", cliffs_ns(pairs, operations));
}

/* ---- epochs that stay open ---- */

static void open_and_close(void (*fill)(tslab_epoch)) {
  use_form();
  open_epochs = lab_map((size_t)count * sizeof *open_epochs);
  uint64_t before = lab_rss_now(), start = cliffs_clock();
  for (long i = 0; i < count; i++) {
    open_epochs[i] = scope_open("session");
    if (fill)
      fill(open_epochs[i]);
  }
  cliffs_figure("open_ns", ns_each(start, count));
  cliffs_figure("epoch_rss_bytes", bytes_each(before, count));
  start = cliffs_clock();
  close_all();
  cliffs_figure("close_ns", ns_each(start, count));
}

static void one_block(tslab_epoch e) { keep_one(e, SMALL); }

void run_idle(void) { open_and_close(NULL); }
void run_used(void) { open_and_close(one_block); }

/* ---- labels ---- */

static char (*labels)[LABEL];

static void epochs_of_labels(long n) {
  for (long i = 0; i < n; i++) {
    tslab_epoch e = scope_open(labels[at]);
    at = at + 1 == count ? 0 : at + 1;
    scope_enter(e);
    free(take(MIDDLE));
    scope_leave(e);
    scope_close(e);
  }
}

void run_labels(void) {
  use_form();
  labels = lab_map((size_t)count * sizeof *labels);
  for (long i = 0; i < count; i++)
    snprintf(labels[i], sizeof *labels, "label-%ld", i);
  uint64_t before = lab_rss_now();
  epochs_of_labels(count);
  cliffs_figure("label_rss_bytes", bytes_each(before, count));
  cliffs_figure("epoch_ns", cliffs_ns(epochs_of_labels, operations / 10));
}

/* ---- children ---- */

void run_children(void) {
  use_form();
  tslab_epoch parent = scope_open("parent");
  tslab_epoch_options child = { .struct_size = sizeof child, .label = "child", .parent = parent };
  uint64_t before = lab_rss_now(), start = cliffs_clock();
  for (long i = 0; i < count; i++)
    opened(epochs.open_with(&child));
  cliffs_figure("open_ns", ns_each(start, count));
  cliffs_figure("child_rss_bytes", bytes_each(before, count));
  start = cliffs_clock();
  scope_close(parent);
  cliffs_figure("close_ns", ns_each(start, count));
}

/* ---- handles ---- */

static struct {
  __typeof__(&tslab_handle_alloc) alloc;
  __typeof__(&tslab_handle_get) get;
  __typeof__(&tslab_handle_free) free;
} handle_calls;

void run_handles(void) {
  use_form();
  lab_bind("--kind=handles", (const lab_binding[]){ { "tslab_handle_alloc", &handle_calls.alloc },
                                                    { "tslab_handle_get", &handle_calls.get },
                                                    { "tslab_handle_free", &handle_calls.free },
                                                    { NULL, NULL } });
  tslab_epoch e = scope_open("handles");
  tslab_handle *handles = lab_map((size_t)count * sizeof *handles);
  void *block;
  uint64_t before = lab_rss_now(), start = cliffs_clock();
  for (long i = 0; i < count; i++) {
    handles[i] = handle_calls.alloc(e, SMALL, &block);
    written(block);
  }
  cliffs_figure("alloc_ns", ns_each(start, count));
  cliffs_figure("handle_rss_bytes", bytes_each(before, count));
  start = cliffs_clock();
  for (long i = 0; i < count; i++)
    written(handle_calls.get(handles[i]));
  cliffs_figure("get_ns", ns_each(start, count));
  start = cliffs_clock();
  for (long i = 0; i < count; i++)
    must(handle_calls.free(handles[i]) ? 0 : EINVAL, "handle_free");
  cliffs_figure("free_ns", ns_each(start, count));
  scope_close(e);
}

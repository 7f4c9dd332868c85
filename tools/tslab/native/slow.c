/* slow: another allocator's malloc made slower by a known amount, to see whether the laboratory notices.
 *
 * Preloaded before the allocator that does the work. Every SLOW_EVERY-th malloc of a thread turns an empty loop
 * SLOW_TURNS times (two instructions a turn), which is read from the environment once.                              */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { SLOW_EVERY = 64, EARLY_BYTES = 4096 };
static unsigned long turns;
static _Thread_local unsigned countdown __attribute__((tls_model("initial-exec")));

static void *(*next_malloc)(size_t);
static void (*next_free)(void *);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);

/* dlsym itself may allocate while it looks for malloc: that little comes from here and is never freed. */
static _Alignas(16) char early[EARLY_BYTES];
static size_t early_used;

static void *early_block(size_t size) {
  char *block = early + early_used;
  early_used += (size + 15) / 16 * 16;
  if (early_used > EARLY_BYTES) abort();
  return block;
}

static int is_early(const void *block) { return (const char *)block >= early && (const char *)block < early + EARLY_BYTES; }

static void find(const char *name, void *function) {
  void *found = dlsym(RTLD_NEXT, name);
  if (!found) abort();
  memcpy(function, &found, sizeof found);
}

/* The four are looked up by the first caller, which is the loader, long before a second thread can exist. */
static __attribute__((noinline)) void start(void) {
  static int started;
  if (started) return;
  started = 1;
  const char *text = getenv("SLOW_TURNS");
  turns = text ? strtoul(text, NULL, 10) : 0;
  find("free", &next_free);
  find("calloc", &next_calloc);
  find("realloc", &next_realloc);
  find("malloc", &next_malloc);
}

void *malloc(size_t size) {
  if (!next_malloc) start();
  if (!next_malloc) return early_block(size);
  if (++countdown % SLOW_EVERY == 0) {
    unsigned long left = turns;
    if (left) __asm__ volatile("1: decq %0\n jnz 1b" : "+r"(left) : : "cc");
  }
  return next_malloc(size);
}

void free(void *block) {
  if (!next_free) start();
  if (block && !is_early(block)) next_free(block);
}

void *calloc(size_t count, size_t size) {
  if (!next_malloc) start();
  return next_malloc ? next_calloc(count, size) : early_block(count * size);
}

void *realloc(void *block, size_t size) {
  if (!next_malloc) start();
  return next_realloc(block, size);
}

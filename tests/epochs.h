/* epochs.h: functions that the tests of epochs share. */
#ifndef TSLAB_TESTS_EPOCHS_H
#define TSLAB_TESTS_EPOCHS_H

#include "check.h"

#include <pthread.h>

/* No id is ever this large: at a million epochs a second it would take half a million years. */
#define NEVER_ISSUED UINT64_C(0xFFFFFFFFFFFFFFF0)

enum { GRANULE = 64 << 10 };

/* A sanitizer's shadow is resident too. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static inline tslab_epoch open_options(tslab_epoch_options options) {
  options.struct_size = sizeof options;
  return tslab_epoch_open_with(&options);
}

static inline tslab_epoch open_epoch(const char *label, uint32_t flags) {
  const tslab_epoch e = open_options((tslab_epoch_options){.label = label, .flags = flags});
  CHECK(e != TSLAB_EPOCH_DEFAULT);
  return e;
}

static inline tslab_epoch_status status_of(tslab_epoch e) {
  tslab_epoch_status status;
  CHECK_COUNT(tslab_epoch_info(e, &status), ==, 0);
  CHECK_COUNT(status.epoch, ==, e);
  return status;
}

static inline void *block_in(tslab_epoch e, size_t size) {
  void *block = tslab_epoch_malloc(e, size);
  CHECK(block != NULL);
  CHECK_COUNT(tslab_epoch_of(block), ==, e);
  memset(block, 0x5C, size);
  return block;
}

/* Returns a block of malloc's: of the current epoch inside a scope, of epoch 0 elsewhere. */
static inline void *block_here(size_t size) {
  void *block = tslab_malloc(size);
  CHECK(block != NULL);
  memset(block, 0x3A, size);
  return block;
}

/* Every call that takes an id answers `error`. A closing epoch may still be asked about; a stale one may not. */
static inline void check_refused(tslab_epoch e, int error) {
  tslab_epoch_status status;
  const tslab_epoch current = tslab_epoch_current();
  const int depth = tslab_scope_depth();
  CHECK_COUNT(tslab_epoch_enter(e), ==, error);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, error);
  CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, error);
  CHECK_COUNT(tslab_epoch_reset(e, NULL), ==, error);
  CHECK_COUNT(tslab_epoch_info(e, &status), ==, (error == ESTALE ? ESTALE : 0));
  errno = 0;
  CHECK_COUNT(tslab_epoch_switch(e), ==, current);
  CHECK_COUNT(errno, ==, error);
  errno = 0;
  CHECK(tslab_epoch_malloc(e, 10) == NULL);
  CHECK_COUNT(errno, ==, error);
  errno = 0;
  CHECK(tslab_epoch_calloc(e, 10, 10) == NULL);
  CHECK_COUNT(errno, ==, error);
  errno = 0;
  CHECK(tslab_epoch_aligned_alloc(e, 64, 10) == NULL);
  CHECK_COUNT(errno, ==, error);
  errno = 0;
  CHECK(open_options((tslab_epoch_options){.parent = e}) == 0);
  CHECK_COUNT(errno, ==, error);
  CHECK_COUNT(tslab_epoch_current(), ==, current);
  CHECK_COUNT(tslab_scope_depth(), ==, depth);
}

static inline void check_stale(tslab_epoch e) {
  check_refused(e, ESTALE);
  CHECK_COUNT(tslab_epoch_close_step(e, 1000, NULL), ==, ESTALE);
}

/* Runs on another thread, which is gone when this returns. */
static inline void elsewhere(void *(*run)(void *), void *argument) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run, argument) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

/* A thread that stays inside an epoch from guest_start to guest_end; `body` may be NULL and runs inside. */
struct guest {
  tslab_epoch epoch;
  void (*body)(void);
  pthread_t thread;
  pthread_barrier_t barrier;
};

static inline void *guest_run(void *argument) {
  struct guest *const guest = argument;
  CHECK_COUNT(tslab_epoch_enter(guest->epoch), ==, 0);
  if (guest->body) guest->body();
  pthread_barrier_wait(&guest->barrier);
  pthread_barrier_wait(&guest->barrier);
  CHECK_COUNT(tslab_epoch_leave(guest->epoch), ==, 0);
  return NULL;
}

static inline void guest_start(struct guest *guest, tslab_epoch e, void (*body)(void)) {
  guest->epoch = e;
  guest->body = body;
  CHECK(pthread_barrier_init(&guest->barrier, NULL, 2) == 0);
  CHECK(pthread_create(&guest->thread, NULL, guest_run, guest) == 0);
  pthread_barrier_wait(&guest->barrier);
}

static inline void guest_end(struct guest *guest) {
  pthread_barrier_wait(&guest->barrier);
  CHECK(pthread_join(guest->thread, NULL) == 0);
  CHECK(pthread_barrier_destroy(&guest->barrier) == 0);
}

#endif

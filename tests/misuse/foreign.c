/* Pointers that this allocator never handed out: static data, mapped memory, stacks, small, huge and random numbers. */
#include "misuse.h"

#include <sys/mman.h>

static char data[4096];

static void *mapped(void) {
  void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return culprit(memory);
}

static void free_data(void) { tslab_free(culprit(data + 64)); }
static void free_mapped(void) { tslab_free(mapped()); }
static void free_16(void) { tslab_free(culprit((void *)(uintptr_t)16)); }
static void free_minus_16(void) { tslab_free(culprit((void *)(uintptr_t)-16)); }
static void free_letters(void) { tslab_free(culprit((void *)(uintptr_t)0x4141414141414141)); }
static void free_data_elsewhere(void) { free_elsewhere(culprit(data + 64)); }
static void free_sized_data(void) { tslab_free_sized(culprit(data + 64), 10); }
static void realloc_data(void) { CHECK(tslab_realloc(culprit(data + 64), 100) == NULL); }
static void realloc_mapped(void) { CHECK(tslab_realloc(mapped(), 100) == NULL); }
static void realloc_letters(void) { CHECK(tslab_realloc(culprit((void *)(uintptr_t)0x4141414141414141), 9) == NULL); }
static void measure_data(void) { CHECK(tslab_malloc_usable_size(culprit(data + 64)) == 0); }
static void measure_16(void) { CHECK(tslab_malloc_usable_size(culprit((void *)(uintptr_t)16)) == 0); }

static void free_stack(void) {
  char local[64];
  tslab_free(culprit(local + 16));
}

static void *free_own_stack(void *unused) {
  (void)unused;
  free_stack();
  return NULL;
}

static void free_stack_of_a_thread(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, free_own_stack, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

static void realloc_stack(void) {
  char local[64];
  CHECK(tslab_realloc(culprit(local + 16), 100) == NULL);
}

static void measure_stack(void) {
  char local[64];
  CHECK(tslab_malloc_usable_size(culprit(local + 16)) == 0);
}

#define FOREIGN(call) "tslab: " call " foreign pointer 0xADDR (not from this allocator)\n"
#define STACK(call) "tslab: " call " stack pointer 0xADDR\n"

const struct misuse_case misuse_cases[] = {
    {"free_data", free_data, FOREIGN("free of"), NULL, 0},
    {"free_mapped", free_mapped, FOREIGN("free of"), NULL, 0},
    {"free_16", free_16, FOREIGN("free of"), NULL, 0},
    {"free_minus_16", free_minus_16, FOREIGN("free of"), NULL, 0},
    {"free_letters", free_letters, FOREIGN("free of"), NULL, 0},
    {"free_data_elsewhere", free_data_elsewhere, FOREIGN("free of"), NULL, 0},
    {"free_sized_data", free_sized_data, FOREIGN("free_sized of"), NULL, 0},
    {"realloc_data", realloc_data, FOREIGN("realloc of"), NULL, 0},
    {"realloc_mapped", realloc_mapped, FOREIGN("realloc of"), NULL, 0},
    {"realloc_letters", realloc_letters, FOREIGN("realloc of"), NULL, 0},
    {"measure_data", measure_data, FOREIGN("malloc_usable_size of"), NULL, 0},
    {"measure_16", measure_16, FOREIGN("malloc_usable_size of"), NULL, 0},
    {"free_stack", free_stack, STACK("free of"), NULL, 0},
    {"free_stack_of_a_thread", free_stack_of_a_thread, STACK("free of"), NULL, 0},
    {"realloc_stack", realloc_stack, STACK("realloc of"), NULL, 0},
    {"measure_stack", measure_stack, STACK("malloc_usable_size of"), NULL, 0},
    {0},
};

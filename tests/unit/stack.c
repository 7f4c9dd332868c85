/* stack: a walk finds the callers of code that keeps frame pointers, and ends where the chain breaks: at an unreadable
 * address, below or far above the last frame, at an unaligned one, or in a circle. */
#include "unit.h"

#include "heap/stack.h"

enum { FRAMES = 8 };

struct frame {
  uintptr_t next, address;
} __attribute__((aligned(16)));

static uintptr_t found[STACK_MOST];

/* A chain of frames that lie one after the other, each with an address of its own. */
static void make_chain(struct frame *frames, unsigned count) {
  for (unsigned i = 0; i < count; i++) frames[i] = (struct frame){(uintptr_t)&frames[i + 1], 0x10000 + i};
  frames[count - 1].next = 0;
}

static void expect(const struct frame *from, unsigned depth) {
  CHECK_COUNT(stack_walk(found, STACK_MOST, from), ==, depth);
  for (unsigned i = 0; i < depth; i++) CHECK_COUNT(found[i], ==, 0x10000 + i);
}

static void chains(void) {
  struct frame frames[FRAMES];
  make_chain(frames, FRAMES);
  expect(frames, FRAMES);
  CHECK_COUNT(stack_walk(found, 3, frames), ==, 3);
  const uintptr_t bad[] = {1, (uintptr_t)&frames[2], (uintptr_t)&frames[3], (uintptr_t)&frames[4] + 8,
                           (uintptr_t)&frames[4] + MiB, UINTPTR_MAX - 15, UINTPTR_MAX / 2};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    make_chain(frames, FRAMES);
    frames[3].next = bad[i]; /* &frames[3] leads to itself */
    expect(frames, 4);
  }
  make_chain(frames, FRAMES);
  frames[5].address = 0; /* as a thread's first function has it */
  expect(frames, 5);
  frames[5].address = 0x3ff0000000000000; /* the number 1.0, where there is no frame */
  expect(frames, 5);
  frames[5].address = 0x0012000000010005; /* signed, as arm64 has them */
  expect(frames, FRAMES);
}

/* Frames at the end of a page, before a page without access. */
static void borders(void) {
  const size_t page = os_page_size;
  char *const at = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  struct frame *const first = (struct frame *)(void *)(at + page) - 2;
  make_chain(first, 4); /* across the border of two pages that can be read */
  expect(first, 4);
  CHECK(mprotect(at + page, page, PROT_NONE) == 0);
  expect(first, 2);
  CHECK(munmap(at + page, page) == 0);
  expect(first, 2);
  CHECK(os_is_readable(at) && !os_is_readable(at + page));
  CHECK(munmap(at, page) == 0 && munmap(at + 2 * page, page) == 0);
}

static unsigned depth;

__attribute__((noinline)) static void descend(unsigned levels) {
  if (levels > 0) descend(levels - 1);
  else depth = stack_walk(found, STACK_MOST, __builtin_frame_address(0));
  __asm__ volatile("" ::: "memory"); /* a call and no jump */
}

/* The test is compiled without frame pointers in a release build: only the first address is certain then. */
static void real_stacks(void) {
  descend(5);
  CHECK(depth >= 1);
  CHECK(found[0] - (uintptr_t)descend < 4096 || (uintptr_t)descend - found[0] < 4096);
  descend(3 * STACK_MOST);
  CHECK(depth >= 1 && depth <= STACK_MOST);
}

int main(void) {
  os_start();
  chains();
  borders();
  real_stacks();
  return 0;
}

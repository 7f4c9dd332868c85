/* stack: a walk finds the callers of code that keeps frame pointers, and ends where the chain breaks: at an unreadable
 * address, below or far above the last frame, at an unaligned one, or in a circle. It stays on the stack of its thread,
 * and on the page where it begins if nobody knows the stack. */
#include "unit.h"

#include "heap/stack.h"
#include <pthread.h>

enum { FRAMES = 8, STACK_BYTES = 2 << 20 /* as ThreadSanitizer wants */ };

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

/* On a fiber's stack, at the end of a page. The next one may be gone before it is read. */
static void fibers(void) {
  const size_t page = os_page_size;
  char *const at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  struct frame *const first = (struct frame *)(void *)(at + page) - 2;
  make_chain(first, 4); /* across the border of two pages that can be read */
  expect(first, 2);
  CHECK(mprotect(at + page, page, PROT_NONE) == 0);
  expect(first, 2);
  CHECK(os_is_readable(at, page) && !os_is_readable(at + page, page) && !os_is_readable(at, 2 * page));
  CHECK(munmap(at, 2 * page) == 0);
}

/* A thread's stack, and right below its guard page a fiber's, as the kernel would place it. */
static void *on_a_fiber(void *fiber) {
  struct frame *const first = (struct frame *)(void *)((char *)fiber + os_page_size) - 2;
  struct frame here[2] __attribute__((aligned(16)));
  CHECK((uintptr_t)first < OS_THREAD && OS_THREAD - (uintptr_t)first < 8 * MiB);
  make_chain(first, 4); /* across the border of two pages of the fiber's stack */
  expect(first, 2);
  make_chain(here, 2); /* back on its own one */
  expect(here, 2);
  expect(first, 2);
  return NULL;
}

static void fibers_of_threads(void) {
  enum { FIBER = 16 };
  const size_t page = os_page_size, bytes = (FIBER + 1) * page + STACK_BYTES;
  char *const at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED && mprotect(at + FIBER * page, page, PROT_NONE) == 0);
  pthread_attr_t attributes;
  pthread_t thread;
  CHECK(pthread_attr_init(&attributes) == 0);
  CHECK(pthread_attr_setstack(&attributes, at + (FIBER + 1) * page, STACK_BYTES) == 0);
  CHECK(pthread_create(&thread, &attributes, on_a_fiber, at) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(munmap(at, bytes) == 0);
}

static bool is_resident(char *page) {
  unsigned char resident;
  CHECK(mincore(page, os_page_size, &resident) == 0);
  return resident & 1;
}

/* Frames on three pages of a thread's stack, and then as high as frames can lie. The page above the stack is somebody
 * else's: a walk must not even ask for it. */
static void *on_own_stack(void *above) {
  char here[3 * 4096 + 2 * sizeof(struct frame)] __attribute__((aligned(16)));
  struct frame *const first = (struct frame *)(void *)here;
  for (uintptr_t i = 0; i < 4; i++) {
    struct frame *const frame = (struct frame *)(void *)(here + i * 4096);
    *frame = (struct frame){i < 3 ? (uintptr_t)frame + 4096 : 0, 0x10000 + i};
  }
  expect(first, 4);
  for (uintptr_t at = OS_THREAD & ~(uintptr_t)15; at > (uintptr_t)here + sizeof here; at -= 4096) {
    first->next = at;
    stack_walk(found, STACK_MOST, first);
  }
  CHECK(!is_resident(above));
  return NULL;
}

static void threads(void) {
  char *const at = mmap(NULL, STACK_BYTES + 4 * os_page_size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(at != MAP_FAILED);
  pthread_attr_t attributes;
  pthread_t thread;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, at, STACK_BYTES) == 0);
  CHECK(pthread_create(&thread, &attributes, on_own_stack, at + STACK_BYTES) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(munmap(at, STACK_BYTES + 4 * os_page_size) == 0);
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
  fibers();
  fibers_of_threads();
  threads();
  real_stacks();
  return 0;
}

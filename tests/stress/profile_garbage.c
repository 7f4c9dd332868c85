/* profile_garbage: code without frame pointers leaves any value in their register. With each such value at a call of
 * malloc, the sample has its first return address, and the walk ends where the chain ends: no crash, no hang, and no
 * address of a place that is none. The values: none, numbers, addresses of nothing, of pages without access, of a file
 * that was cut short, of the stack in a circle, of the ends of mappings, and many that are drawn.
 *
 *  profile_garbage [long] */
#include "../check.h"

#include "heap/profile.h"
#include "heap/stack.h"
#include "os/os.h"
#include <fcntl.h>
#include <sys/mman.h>

#if defined(__x86_64__) || defined(__aarch64__)

enum { INTERVAL = 4096, CERTAIN = 64 * INTERVAL, DRAWN = 20000 / TEST_SCALE };

/* Calls malloc with the value in the register of the frame pointer, as its caller's frame. */
void *malloc_with(uintptr_t value, size_t size, void *(*call)(size_t));
extern const char malloc_with_after[]; /* where that call returns to */
#if defined(__x86_64__)
__asm__(".text\n.globl malloc_with\n.globl malloc_with_after\nmalloc_with:\n"
        "push %rbp\nmov %rdi, %rbp\nmov %rsi, %rdi\ncall *%rdx\n"
        "malloc_with_after:\npop %rbp\nret\n"
        ".section .note.GNU-stack,\"\",%progbits\n.text\n");
#else
__asm__(".text\n.globl malloc_with\n.globl malloc_with_after\nmalloc_with:\n"
        "stp x29, x30, [sp, #-16]!\nmov x29, x0\nmov x0, x1\nblr x2\n"
        "malloc_with_after:\nldp x29, x30, [sp], #16\nret\n");
#endif

/* Returns the newest sample's stack. */
static const struct profile_site *site_of(const void *block) {
  for (uint32_t i = 1; i <= profile_samples_most(); i++) {
    const struct profile_sample *const row = profile_sample_at(i);
    if (row && row->block == block) return profile_site_at(row->site);
  }
  return NULL;
}

static unsigned deepest;

/* The library's own functions may come before it, where no call of theirs became a jump. */
static bool has_return_address(const uintptr_t *frames, uint32_t depth) {
  for (uint32_t i = 0; i < depth && i < 5; i++)
    if (frames[i] == (uintptr_t)malloc_with_after) return true;
  return false;
}

static void sample_with(uintptr_t value) {
  void *const block = malloc_with(value, CERTAIN, tslab_malloc);
  lock_take(&profile_lock);
  const struct profile_site *const site = site_of(block);
  CHECK(site != NULL);
  const uintptr_t *const frames = profile_frames(site);
  CHECK_COUNT(site->depth, <=, STACK_MOST);
  if (site->depth == 0) CHECK(profile_totals().stackless > 0); /* the long form fills the table */
  else CHECK(has_return_address(frames, site->depth));
  for (uint32_t i = 0; i < site->depth; i++) CHECK(frames[i] >= 4096 && frames[i] < (uintptr_t)1 << 48);
  if (site->depth > deepest) deepest = site->depth;
  lock_release(&profile_lock);
  tslab_free(block);
}

/* ---- the values -------------------------------------------------------------------------------------------------- */

static char *region; /* readable, no access, readable, not mapped, of a file behind its end */
static size_t page;

static void make_pages(void) {
  page = os_page_size;
  region = mmap(NULL, 5 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(region != MAP_FAILED);
  CHECK(mprotect(region + page, page, PROT_NONE) == 0 && munmap(region + 3 * page, page) == 0);
  const int file = memfd_create("short", MFD_CLOEXEC);
  CHECK(file >= 0 && ftruncate(file, 0) == 0);
  CHECK(mmap(region + 4 * page, page, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == region + 4 * page);
  close(file);
}

static void fixed_values(void) {
  uintptr_t circle[4] __attribute__((aligned(16)));
  const uintptr_t here = (uintptr_t)circle;
  const uintptr_t values[] = {
      0, 1, 16, 4096, UINTPTR_MAX, UINTPTR_MAX - 15, (uintptr_t)1 << 47, ((uintptr_t)1 << 47) - 16, (uintptr_t)1 << 63,
      here, here + 8, here + 1, here + page, here + ((uintptr_t)256 << 10), here - 4096,
  };
  circle[0] = here;
  circle[1] = (uintptr_t)malloc_with_after;
  circle[2] = here;
  circle[3] = 0;
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) sample_with(values[i]);
  circle[0] = here + 16; /* and from there back */
  sample_with(here);
  __asm__ volatile("" : : "r"(circle) : "memory");
  for (uintptr_t at = (uintptr_t)region - 16; at <= (uintptr_t)region + 5 * page; at += page / 2) sample_with(at);
  for (size_t i = 0; i < 5; i++) sample_with((uintptr_t)region + (i + 1) * page - 16);
}

enum { LADDER = 512 };
static uintptr_t *ladder; /* lies on the stack, and looks like frames, mostly */

/* The stack itself with all that lies on it, places near it, places in the mappings, and any word. */
static uintptr_t draw(uint64_t *random) {
  const uintptr_t any = check_random(random), here = (uintptr_t)&any;
  switch (check_random(random) % 7) {
    case 0: return here + any % 8192;
    case 1: return (here + any % ((uintptr_t)1 << 19)) & ~(uintptr_t)15;
    case 2: return (uintptr_t)region + any % (5 * page);
    case 3: return here & ~(any % 4096);
    case 4: return any >> check_random(random) % 64;
    case 5: return any & ~(uintptr_t)15;
    default: return (uintptr_t)&ladder[any % LADDER / 2 * 2];
  }
}

/* Frames that lie above each other, with an odd value here and there. */
static void make_frames(uintptr_t *words, size_t count, uint64_t *random) {
  for (size_t i = 0; i < count; i += 2) {
    const uint64_t r = check_random(random);
    words[i] = r % 32 ? (uintptr_t)&words[i] + 16 * (r % 16 + 1) : draw(random);
    words[i + 1] = r >> r % 64;
  }
}

/* The same from each place of a page that lies right before one without access. */
static unsigned deepest_walk(uint64_t *random) {
  uintptr_t found[STACK_MOST], *const words = (uintptr_t *)(void *)region;
  const size_t count = page / sizeof *words;
  unsigned most = 0;
  make_frames(words, count, random);
  for (size_t i = 0; i < count; i += 2) {
    const unsigned depth = stack_walk(found, STACK_MOST, &words[i]);
    CHECK_COUNT(depth, <=, STACK_MOST);
    if (depth > most) most = depth;
  }
  return most;
}

int main(int argc, char **argv) {
  const int draws = argc > 1 && strcmp(argv[1], "long") == 0 ? 100 * DRAWN : DRAWN;
  uintptr_t words[LADDER] __attribute__((aligned(16)));
  uint64_t random = 1;
  unsigned walked = 0;
  os_start();
  CHECK(tslab_profile_interval(INTERVAL, NULL) == 0);
  make_pages();
  ladder = words;
  fixed_values();
  for (int i = 0; i < draws; i++) {
    if (i % 16 == 0) make_frames(ladder, LADDER, &random);
    sample_with(draw(&random));
    if (i % 16 != 0) continue;
    const unsigned most = deepest_walk(&random);
    if (most > walked) walked = most;
  }
  printf("%d values: the deepest stack of garbage has %u frames, the deepest walk found %u\n", draws, deepest, walked);
  CHECK_COUNT(walked, ==, STACK_MOST); /* some do not end before */
  CHECK_COUNT(deepest, >, STACK_MOST / 2);
  return 0;
}

#else

int main(void) { return 77; }

#endif

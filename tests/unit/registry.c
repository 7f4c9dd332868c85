/* registry: heaps are made, released to the pool with their lists, and acquired again. A heap that holds nothing is
 * folded, and no walk meets it. */
#include "unit.h"

#include "heap/fast.h"
#include "heap/flush.h"
#include "heap/refill.h"
#include "heap/registry.h"
#include "heap/remote.h"
#include "os/os.h"
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

enum { HEAPS = 20, CLASS = 4 };

static struct heap *heaps[HEAPS];

static void check_new(struct heap *heap, uint32_t index) {
  CHECK(heap != NULL && heap != &empty_heap && heap->live);
  CHECK_COUNT((uintptr_t)heap % HEAP_ALIGNMENT, ==, 0);
  CHECK_COUNT(heap_class_of(heap, 0), >=, CLASSES);
  CHECK_COUNT(heap->index, ==, index);
  for (unsigned class = 0; class < CLASSES; class++) {
    CHECK(heap->list[class] == CHAIN_END && heap->count[class].now == 0);
    CHECK_COUNT(heap_class_of(heap, heap_entry(heap, class)), ==, class);
    CHECK_COUNT(heap_class_of(&empty_heap, heap_entry(heap, class)), >=, CLASSES);
  }
}

static void all_of_them(void) {
  for (unsigned i = 0; i < HEAPS; i++) {
    heaps[i] = heap_acquire();
    check_new(heaps[i], i + 1);
    memset(heaps[i]->magazines, 0x11, sizeof heaps[i]->store->magazines); /* damage would show in a neighbour */
  }
  unsigned seen = 0;
  for (struct heap *p = atomic_load(&all_heaps); p; p = p->next_heap) CHECK(p == heaps[HEAPS - ++seen]);
  CHECK_COUNT(seen, ==, HEAPS);
  CHECK_COUNT(live_heaps, ==, HEAPS);
  CHECK_COUNT(unfolded_heaps, ==, 0);
  for (unsigned i = 0; i < HEAPS; i++) memset(heaps[i]->magazines, 0, sizeof heaps[i]->store->magazines);
}

/* Blocks that waited for their way to another heap do not stay behind. */
static void pool(void) {
  struct heap *const one = heaps[3], *const other = heaps[4];
  void *const block = heap_refill(one, CLASS), *const remote = heap_refill(other, CLASS);
  CHECK(block != NULL && remote != NULL);
  void *const head = one->list[CLASS];
  struct run *const slab = pages_run_of(remote);
  const unsigned before = slab_count(atomic_load(&slab->word));
  heap_free_remote(one, slab, remote);
  heap_leave(one);
  heap_release(one);
  CHECK_COUNT(slab_count(atomic_load(&slab->word)), ==, before + 1);
  CHECK(!one->live && one->list[CLASS] == head && one->store->remote.count == 0);
  CHECK_COUNT(live_heaps, ==, HEAPS - 1);
  CHECK_COUNT(unfolded_heaps, ==, 1);
  CHECK(heap_acquire() == one && one->live && one->list[CLASS] == head);
  CHECK_COUNT(live_heaps, ==, HEAPS);
  CHECK_COUNT(unfolded_heaps, ==, 0);
  check_new(heap_acquire(), HEAPS + 1);
}

static unsigned count_active(void) {
  unsigned active = 0;
  for (const struct heap *p = atomic_load(&active_heaps); p; p = p->next_active) active++;
  return active;
}

/* An empty heap in the pool leaves the list of active heaps, and its next thread puts it back; a heap that is in use,
   or holds memory, stays. Heaps of epochs are in no such list. */
static void settling(void) {
  const unsigned before = count_active();
  CHECK(!heap_fold(heaps[7]));
  for (unsigned i = 10; i < HEAPS; i++) heap_release(heaps[i]);
  for (unsigned i = 10; i < HEAPS; i++) CHECK(heap_fold(heaps[i]) && !heap_fold(heaps[i]));
  CHECK_COUNT(count_active(), ==, before - (HEAPS - 10));
  CHECK(heap_guard(heaps[10]) == &common_heap.lock && heap_guard(heaps[0]) == &heaps[0]->lock);
  for (unsigned i = HEAPS; i-- > 10;) CHECK(heap_acquire() == heaps[i] && !heaps[i]->folded);
  CHECK_COUNT(count_active(), ==, before);

  CHECK(heap_refill(heaps[7], CLASS) != NULL);
  heap_release(heaps[7]);
  CHECK(!heap_fold(heaps[7])); /* its list holds blocks */
  heaps_fold_dead(heaps[7]);
  CHECK(heaps[7]->folded && heaps[7]->counters == NULL && count_active() == before - 1);
  CHECK(heap_acquire() == heaps[7] && heaps[7]->counters != NULL && count_active() == before);
  check_new(heaps[7], 8);
}

/* ---- what a dead thread leaves ----------------------------------------------------------------------------------- */

/* Returns how many bytes of the heap's body are resident, in whole pages from its start, the thread's record. */
static size_t resident_bytes(const struct heap *heap) {
  const size_t parts = THREAD_ROOM + sizeof(struct heap_store) + sizeof(struct counters);
  const size_t bytes = round_up(parts, os_page_size);
  unsigned char in_core[GRANULE / 4096];
  size_t resident = 0;
  CHECK(mincore(heap_room_for_thread(heap), bytes, in_core) == 0);
  for (size_t page = 0; page < bytes / os_page_size; page++) resident += in_core[page] & 1 ? os_page_size : 0;
  return resident;
}

enum { MOST = 20000, WINDOW = 2 * MiB };

/* Takes blocks until the heap has a full slab of its own; its first slabs are shared. Returns how many these are. */
static unsigned take_slab(struct heap *heap, void *blocks[MOST]) {
  for (unsigned taken = 0; taken < MOST; taken++) {
    void *const listed = fast_pop(heap, CLASS, pages.key);
    CHECK((blocks[taken] = listed ? listed : heap_refill(heap, CLASS)) != NULL);
    if (heap->bins[CLASS].slabs > 1) return taken + 1;
  }
  CHECK(false);
  return 0;
}

static bool is_walked(const struct heap *heap) {
  for (struct heap *p = heaps_first_of_threads(); p; p = heaps_next_of_threads(p)) {
    CHECK(!p->folded && !heap_is_nobodys(p));
    if (p == heap) return true;
  }
  return false;
}

/* Nobody walks over the heaps of threads that are gone, however many these are. */
static void dies(struct heap *heap) {
  CHECK(is_walked(heap));
  heap_leave(heap);
  heap_release(heap);
  heaps_fold_dead(heap);
  CHECK(heap->folded && !is_walked(heap));
}

/* A folded heap keeps its store and counters only as long as a slab leads to it. Its next thread finds it as new. */
static void dead_heap_gives_its_pages_back(void) {
  static void *blocks[MOST];
  struct heap *const heap = heaps[8], *const other = heaps[9];
  if (os_page_size > GRANULE / 4) return; /* heaps share such pages */
  for (unsigned class = 0; class < CLASSES; class++) heap->counters->classes[class].samples = 1;
  const unsigned taken = take_slab(heap, blocks);
  CHECK_COUNT(resident_bytes(heap), >=, 16 * KiB);
  dies(heap);
  CHECK_COUNT(heap->bins[CLASS].slabs, ==, 1);
  CHECK_COUNT(resident_bytes(heap), >, 0);
  for (unsigned i = 0; i < taken; i++) heap_free_remote(other, pages_run_of(blocks[i]), blocks[i]);
  heap_flush_lists(other); /* the hardened library's quarantine, too */
  CHECK(!heap_fold(heap)); /* once more, because it has lost its slab */
  CHECK_COUNT(resident_bytes(heap), ==, 0);

  CHECK(heap_acquire() == heap && !heap->folded);
  CHECK(heap->store->notice != NULL && heap->store->remote.room == REMOTE_BYTES);
  CHECK(heap_refill(heap, CLASS) != NULL);
  dies(heap);
  CHECK_COUNT(resident_bytes(heap), ==, 0);
  CHECK(heap_acquire() == heap);
  check_new(heap, 9);
}

/* In a fork child a thread that does not exist may have held a folded heap's lock, so it is reset, but only once:
 * another thread of the child may take it before the heap's next thread comes. */
static struct heap *_Atomic acquired;

static void *acquires(void *unused) {
  atomic_store(&acquired, heap_acquire());
  return unused;
}

static void inherited_lock_is_reset_once(void) {
  struct heap *const heap = heaps[8];
  pthread_t next;
  dies(heap);
  registry_after_fork();
  const unsigned held = locks_held;
  lock_take(&heap->lock);
  locks_held = held; /* by the thread that does not exist */
  CHECK(!heap_fold(heap));
  lock_take(&heap->lock);
  CHECK(pthread_create(&next, NULL, acquires, NULL) == 0);
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  CHECK(heap->folded && atomic_load(&acquired) == NULL);
  lock_release(&heap->lock);
  CHECK(pthread_join(next, NULL) == 0 && atomic_load(&acquired) == heap);
  check_new(heap, 9);
}

static size_t kilobytes_of(const char *name) {
  char line[128];
  size_t kilobytes = 0;
  FILE *const status = fopen("/proc/self/status", "r");
  CHECK(status != NULL);
  while (fgets(line, sizeof line, status))
    if (strncmp(line, name, strlen(name)) == 0) kilobytes = strtoul(line + strlen(name), NULL, 10);
  CHECK(fclose(status) == 0);
  return kilobytes;
}

/* Linux 6.14 and later give page tables back, if it was built to. Returns true if it is such a kernel. */
static bool kernel_returns_tables(void) {
  enum { WINDOWS = 16 };
  char *const all = mmap(NULL, (WINDOWS + 1) * WINDOW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char *const windows = (char *)round_up((uintptr_t)all, WINDOW);
  CHECK(all != MAP_FAILED);
  madvise(windows, WINDOWS * WINDOW, MADV_NOHUGEPAGE); /* may fail: a kernel without huge pages */
  const size_t before = kilobytes_of("VmPTE:");
  for (int i = 0; i < WINDOWS; i++) windows[i * WINDOW] = 1;
  CHECK(madvise(windows, WINDOWS * WINDOW, MADV_DONTNEED) == 0);
  const size_t after = kilobytes_of("VmPTE:");
  CHECK(munmap(all, (WINDOWS + 1) * WINDOW) == 0);
  return after < before + WINDOWS * os_page_size / KiB;
}

/* A fork copies page tables, also empty ones. */
static void many_dead_heaps_give_their_page_tables_back(void) {
  enum { MANY = 2000 };
  static struct heap *many[MANY];
  if (os_page_size > GRANULE / 4 || !kernel_returns_tables()) return;
  const size_t before = kilobytes_of("VmPTE:");
  for (unsigned turn = 0; turn < 2; turn++) { /* new heaps, and heaps from the pool */
    for (unsigned i = 0; i < MANY; i++) CHECK((many[i] = heap_acquire()) != NULL);
    const size_t grown = kilobytes_of("VmPTE:") - before;
    CHECK_COUNT(grown, >=, MANY * sizeof(struct heap_store) / WINDOW * 4); /* the kernel's tables have 4 KiB at least */
    for (unsigned i = 0; i < MANY; i++) dies(many[i]);
    CHECK_COUNT(kilobytes_of("VmPTE:") - before, <=, grown / 4);
  }
}

int main(void) {
  start_floors();
  CHECK(current_heap == &empty_heap);
  all_of_them();
  pool();
  settling();
  dead_heap_gives_its_pages_back();
  inherited_lock_is_reset_once();
  many_dead_heaps_give_their_page_tables_back();
  return 0;
}

/* kernel: src/os for the explorer: memory of its arena, a clock that does what it is told, and locks that wait in its
 * scheduler instead of in the kernel. See src/os/os.h for the contracts. */
#include "explore.h"
#include "base/bits.h"
#include "os/lock.h"
#include "os/os.h"

size_t os_page_size = 4096;
uintptr_t os_main_stack_end, os_main_thread; /* no walk here knows a stack */
char *kernel_shared;
bool kernel_has_barrier = true;
static size_t file_length;

void os_start(void) {}

void *os_reserve(void *hint, size_t length) {
  (void)hint;
  return explore_arena(round_up(length, 64 * KiB));
}
bool os_reserve_at(void *at, size_t length) { return (void)at, (void)length, false; }
void os_run_also_where(uint32_t id) { (void)id; }
bool os_is_occupied(void *at, size_t length) { return (void)at, (void)length, false; }
bool os_unreserve(void *at, size_t length) { return (void)at, (void)length, true; }
bool os_can_reserve(size_t length) { return (void)length, true; }
bool os_can_commit(size_t length) { return (void)length, true; }
bool os_commit(void *at, size_t length) { return (void)at, (void)length, true; }
bool os_purge(void *at, size_t length) { return explore_zero(at, length), true; }
enum os_moved os_move(void *from, void *to, size_t length) { return (void)from, (void)to, (void)length, NOT_MOVED; }
bool os_move_away(void *from, void *to, size_t length, size_t more) {
  return (void)from, (void)to, (void)length, (void)more, false;
}
bool os_is_locked(void *at) { return (void)at, false; }
bool os_has_sequences(void) { return true; }
bool os_heal(void *at, size_t length) { return explore_zero(at, length), true; }
size_t os_address_space_limit(void) { return 64 * MiB; }
bool os_data_is_limited(void) { return false; }
bool os_promises_strictly(void) { return false; }
bool os_has_sanitizer(void) { return false; }
size_t os_physical_memory(void) { return 64 * MiB; }
uint64_t os_random(void) { return 0x6a09e667f3bcc908; }
bool os_draw(void *to, size_t length) { return (void)to, (void)length, false; }
_Atomic uint32_t *os_fork_witness(void) { return NULL; }
bool os_populate(void *at, size_t length) { return (void)at, (void)length, true; }
bool os_populate_huge(void *at, size_t length) { return (void)at, (void)length, true; }
bool os_allows_huge(void) { return false; }
bool os_open_page_table(void) { return false; }
void os_close_page_table(void) {}
bool os_is_all_here(void *at) { return (void)at, false; }
enum os_collapsed os_collapse(void *at) { return (void)at, OS_REFUSED; }
void os_forget_moves(void) {}
uint64_t os_divisions(void) { return 0; }
bool os_forbid(void *at, size_t length) { return (void)at, (void)length, false; }
bool os_guard(void *at, size_t length) { return (void)at, (void)length, false; }
bool os_unguard(void *at, size_t length) { return (void)at, (void)length, true; }
bool os_secure_mode(void) { return false; }

uint64_t os_now_ns(void) { return explore_clock(); }
uint64_t os_now_coarse_ns(void) { return explore_clock(); }
uint64_t os_now_raw_ns(void) { return explore_clock(); }
uint64_t os_now_real_ns(void) { return explore_clock(); }
uint64_t os_start_ns(void) { return explore_clock(); }
uint64_t os_thread_ns(void) { return explore_clock(); }
bool os_is_readable(const void *at, size_t length) { return at != NULL && length != 0; }
bool os_is_mapped_as_one(const void *at, const void *to) { return (void)at, (void)to, false; }
bool os_is_unreadable(const void *at) { return at == NULL; }
uint32_t os_thread_id(void) { return (uint32_t)(explore_self() + 2); }
size_t os_resident_bytes(void) { return 0; }

/* ---- files: one, of the segment ---------------------------------------------------------------------------------- */

int os_create(const char *path) { return (void)path, 3; }
int os_open(const char *path) { return (void)path, -1; }
void os_close(int file) { (void)file; }
size_t os_read_at(int file, void *to, size_t length, uint64_t offset) {
  (void)file, (void)to, (void)length, (void)offset;
  return 0;
}
bool os_set_length(const char *path, uint64_t length) { return (void)path, file_length = length, true; }
bool os_remove(const char *path) { return (void)path, true; }
int os_file_of(int file, struct os_file *out) {
  (void)file;
  *out = (struct os_file){.inode = 1, .links = 1, .length = file_length, .regular = true};
  return 0;
}
int os_file_at(const char *path, struct os_file *out) {
  (void)path;
  *out = (struct os_file){.inode = 1, .links = 1, .length = file_length, .regular = true};
  return 0;
}
void *os_share(int file, size_t length) {
  (void)file;
  return kernel_shared = explore_arena(round_up(length, 64 * KiB));
}
bool os_obtain(void *at, size_t length) { return (void)at, (void)length, true; }
void os_set_aside(void *at, size_t length) { (void)at, (void)length; }
void os_each_name(const char *directory, bool (*visit)(const char *name, void *arg), void *arg) {
  (void)directory, (void)visit, (void)arg;
}
uint32_t os_process_id(void) { return 1; }
bool os_process_exists(uint32_t process) { return process == 1; }
uint64_t os_process_namespace(void) { return 1; }
uint32_t os_user(void) { return 0; }

/* ---- threads ----------------------------------------------------------------------------------------------------- */

bool os_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds) {
  (void)milliseconds;
  if (atomic_load_explicit(word, memory_order_seq_cst) == value) explore_sleep(word);
  return true;
}
void os_wake(_Atomic uint32_t *word, int waiters) { explore_wake(word, waiters); }
void os_rest(void) { explore_yield(); }
signal_set os_block_signals(void) { return 0; } /* no signals here */
void os_restore_signals(signal_set before) { (void)before; }
bool os_leave_files(void) { return true; }
uint64_t os_file_system_bytes(int file) { return (void)file, 0; }
bool os_is_in_loader(uintptr_t address) { return (void)address, false; }
bool os_barrier_everywhere(void) {
  if (kernel_has_barrier) explore_barrier();
  return kernel_has_barrier;
}

/* ---- locks: a thread that waits for one cannot run --------------------------------------------------------------- */

uint64_t lock_take_slow(struct lock *lock) {
  do explore_wait(&lock->word);
  while (!lock_word_try(lock));
  lock_count(&lock->contended, 1);
  return 1;
}
void lock_release_slow(struct lock *lock) { (void)lock; }

/* tables: see tables.h.                                                                             floor: stats */
#include "stats/tables.h"

#include "heap/timing.h"
#include "os/os.h"
#include "process/process.h"
#include "slab/classes.h"
#include "stats/collect.h"
#include "stats/profile.h"

#define FIELD(row, name, kind, unit, help) {#name, offsetof(struct row, name), 1, kind, UNIT_##unit, help}
#define LABEL(row, name, help) \
  {#name, offsetof(struct row, name), sizeof ((struct row *)NULL)->name, TEXT, UNIT_NONE, help}
#define FIELDS(array) .fields = array, .count = sizeof array / sizeof *array

#define P(name, kind, unit, help) FIELD(tslab_stats_global, name, kind, unit, help)
static const struct statistic process[] = {
    P(allocations, COUNTER, NONE, "blocks handed out since the start, realloc moves included"),
    P(frees, COUNTER, NONE, "blocks taken back"),
    P(live_blocks, GAUGE, NONE, "blocks in use: allocations - frees"),
    P(live_bytes, GAUGE, BYTES, "usable bytes of blocks in use"),
    P(large_live_blocks, GAUGE, NONE, "blocks in use above the largest size class"),
    P(large_live_bytes, GAUGE, BYTES, "usable bytes of these"),
    P(cached_blocks, GAUGE, NONE, "free blocks in threads' lists"),
    P(cached_bytes, GAUGE, BYTES, "bytes of these"),
    P(reserved_bytes, GAUGE, BYTES, "address space, not memory"),
    P(committed_bytes, GAUGE, BYTES, "made writable since the start: in_use + free_dirty + free_clean"),
    P(in_use_bytes, GAUGE, BYTES, "runs that hold slabs, chunks, large blocks, tables or the reserve"),
    P(free_dirty_bytes, GAUGE, BYTES, "free runs not yet given back"),
    P(returned_bytes, COUNTER, BYTES, "given to the operating system since the start"),
    P(purge_calls, COUNTER, NONE, "system calls that did so"),
    P(purge_failures, COUNTER, NONE, "those of them that the kernel refused"),
    P(slabs_born, COUNTER, NONE, "slabs made"),
    P(slabs_retired, COUNTER, NONE, "slabs given up when they were empty"),
    P(threads, GAUGE, NONE, "threads that have allocated, and live"),
    P(heaps, GAUGE, NONE, "thread-epoch pairs ever held at a time"),
    P(misuses, COUNTER, NONE, "misuses reported and survived, TSLAB_ON_MISUSE=report"),
    P(leaked_at_fork, COUNTER, NONE, "threads of the parent whose lists a fork child gave up"),
    P(free_clean_bytes, GAUGE, BYTES, "free runs that the operating system has back, or never gave"),
    P(reserve_bytes, GAUGE, BYTES, "kept ready for the next epochs, part of in_use_bytes"),
    P(resident_bytes, GAUGE, BYTES, "resident memory; 0 where /proc does not say, and as published: tslab looks"),
    P(slow_allocations, COUNTER, NONE, "allocations that the fast path did not serve"),
    P(slow_frees, COUNTER, NONE, "visits of a slow path by free that did more than add the block to a list"),
    P(samples, COUNTER, NONE, "allocations timed end to end, one in about TSLAB_SAMPLE"),
    P(requested_bytes, GAUGE, BYTES, "of live blocks of classes, as asked for: an estimate from the samples"),
    P(requested_error, GAUGE, BYTES, "its standard error"),
    P(epochs_open, GAUGE, NONE, "epochs open now, epoch 0 not counted"),
    P(epochs_closing, GAUGE, NONE, "epochs closed that wait for their last block, child or thread"),
    P(epochs_opened, COUNTER, NONE, "epochs opened"),
    P(epochs_ended, COUNTER, NONE, "epochs ended"),
    P(bytes_recycled, COUNTER, BYTES, "kept ready for the next epoch, by ends of epochs"),
    P(bytes_returned, COUNTER, BYTES, "given to the operating system, by ends of epochs"),
    P(clock_ns, GAUGE, NANOSECONDS, "CLOCK_MONOTONIC when this was collected"),
    P(clock_raw_ns, GAUGE, NANOSECONDS, "CLOCK_MONOTONIC_RAW then: what the two gained on each other was adjusted"),
    P(leaked_blocks, GAUGE, NONE, "blocks of classes that a fork child lost with the lists of its parent's threads"),
    P(leaked_bytes, GAUGE, BYTES, "bytes of these"),
    P(frozen_bytes, GAUGE, BYTES, "memory that a child which no fork handler saw left as it was"),
    P(large_cached_bytes, GAUGE, BYTES, "kept by threads for their next large blocks, part of in_use_bytes"),
    P(scope_misuses, COUNTER, NONE, "failed calls on scopes and epochs, which TSLAB_ON_SCOPE=report names"),
    P(limit_hard, GAUGE, BYTES, "how much the library may hold before malloc fails, 0 for no limit"),
    P(limit_soft, GAUGE, BYTES, "how much it may hold before free memory goes back at once, 0 for no limit"),
    P(limit_held, GAUGE, BYTES, "what it holds, as these limits count: docs/limits.md"),
    P(limit_refusals, COUNTER, NONE, "allocations that failed for the hard limit"),
    P(limit_purged_bytes, COUNTER, BYTES, "given back by threads that asked for memory at a limit"),
    P(huge_moved_bytes, COUNTER, BYTES, "of dense memory, moved to huge pages (TSLAB_HUGE)"),
};

#define C(name, kind, unit, help) FIELD(tslab_class_stats, name, kind, unit, help)
static const struct statistic class[] = {
    C(object_size, GAUGE, BYTES, "usable bytes of a block"),
    C(allocations, COUNTER, NONE, "blocks handed out"),
    C(frees, COUNTER, NONE, "blocks taken back"),
    C(live_blocks, GAUGE, NONE, "blocks in use: allocations - frees"),
    C(live_bytes, GAUGE, BYTES, "bytes of these"),
    C(cached_blocks, GAUGE, NONE, "free blocks in threads' lists"),
    C(slabs, GAUGE, NONE, "slabs held"),
    C(slabs_born, COUNTER, NONE, "slabs made"),
    C(slabs_retired, COUNTER, NONE, "slabs given up when they were empty"),
    C(refills, COUNTER, NONE, "visits of malloc's slow path"),
    C(overflows, COUNTER, NONE, "visits of free's slow path"),
    C(remote_frees, COUNTER, NONE, "frees of a block whose slab belongs to another heap"),
    C(from_list, COUNTER, NONE, "allocations that the fast path served"),
    C(from_magazine, COUNTER, NONE, "served by the thread's magazines"),
    C(from_slab, COUNTER, NONE, "served by blocks that came back to one of the thread's slabs"),
    C(from_remote, COUNTER, NONE, "the same, among them blocks that other threads freed"),
    C(from_fresh, COUNTER, NONE, "served by pages of a slab that were not in use before, or were given back"),
    C(from_adopted, COUNTER, NONE, "served by a slab that a dead thread left"),
    C(from_reserve, COUNTER, NONE, "served by a new slab out of the reserve"),
    C(from_run, COUNTER, NONE, "served by a new slab in memory that was free"),
    C(from_map, COUNTER, NONE, "served by a new slab for which address space had to be made writable"),
    C(slabs_recycled, COUNTER, NONE, "of the slabs retired, those kept ready for the next epoch"),
    C(lock_fast_acquire, COUNTER, NONE, "locks of heaps taken for this class at the first try"),
    C(lock_contended, COUNTER, NONE, "locks of heaps taken for this class not at the first try"),
    C(slab_take_attempts, COUNTER, NONE, "takings of a slab's free blocks by malloc's slow path, one CAS each"),
    C(slab_take_cas_retries, COUNTER, NONE, "CAS that failed there"),
    C(slab_push_attempts, COUNTER, NONE, "pushes of freed blocks to slabs of other heaps, one CAS each"),
    C(slab_push_cas_retries, COUNTER, NONE, "CAS that failed there"),
    C(slab_adopt_attempts, COUNTER, NONE, "tries to take over a partial slab that a dead thread left"),
    C(slab_adopt_failures, COUNTER, NONE, "those that found another thread at it, or nothing left"),
    C(samples, COUNTER, NONE, "allocations of this class timed end to end"),
    C(sampled_requested_bytes, COUNTER, BYTES, "what the sampled allocations asked for"),
    C(sampled_requested_squares, COUNTER, NONE, "the squares of that, for its error"),
};

#define W(name, kind, unit, help) FIELD(tslab_path_stats, name, kind, unit, help)
static const struct statistic path[] = {
    LABEL(tslab_path_stats, name, "the way that the calls took"),
    W(entries, COUNTER, NONE, "calls, of the fast path: samples"),
    W(wall_ns_sum, COUNTER, NANOSECONDS, "their time"),
    W(wall_ns_max, GAUGE, NANOSECONDS, "the longest"),
    W(samples, COUNTER, NONE, "those of them that were sampled, one in about TSLAB_SAMPLE"),
    W(sampled_wall_ns_sum, COUNTER, NANOSECONDS, "time of the samples"),
    W(cpu_samples, COUNTER, NONE, "samples whose thread time was taken too, one in TSLAB_SAMPLE_CPU"),
    W(cpu_wall_ns_sum, COUNTER, NANOSECONDS, "wall time of these"),
    W(cpu_ns_sum, COUNTER, NANOSECONDS, "thread time of these"),
    W(wait_ns_sum, COUNTER, NANOSECONDS, "wall - thread time of these"),
    W(lock_wait_ns_sum, COUNTER, NANOSECONDS, "of all entries: waiting for locks"),
    {"buckets", offsetof(tslab_path_stats, buckets), TSLAB_BUCKETS, HISTOGRAM, UNIT_NANOSECONDS,
     "entries by their time"},
};

#define T(name, kind, unit, help) FIELD(tslab_thread_stats, name, kind, unit, help)
static const struct statistic thread[] = {
    T(thread_id, GAUGE, NONE, "as gettid says, 0 for those in one row because they are gone or too many"),
    T(alive, GAUGE, NONE, "threads of the row that live"),
    T(allocations, COUNTER, NONE, "blocks handed out in epoch 0"),
    T(frees, COUNTER, NONE, "blocks taken back there"),
    T(cached_bytes, GAUGE, BYTES, "free blocks in its lists"),
    T(slow_allocations, COUNTER, NONE, "allocations, in any epoch, that the fast path did not serve"),
    T(slow_frees, COUNTER, NONE, "visits of a slow path by free, in any epoch"),
    T(slow_wall_ns_sum, COUNTER, NANOSECONDS, "time in slow paths"),
    T(alloc_samples, COUNTER, NONE, "allocations timed end to end"),
    T(alloc_wall_ns_sum, COUNTER, NANOSECONDS, "their time"),
    T(alloc_wall_ns_max, GAUGE, NANOSECONDS, "the longest"),
    T(alloc_cpu_samples, COUNTER, NONE, "those of them whose thread time was taken, what follows is theirs"),
    T(alloc_cpu_ns_sum, COUNTER, NANOSECONDS, "thread time"),
    T(alloc_cpu_ns_max, GAUGE, NANOSECONDS, "the longest"),
    T(alloc_wait_ns_sum, COUNTER, NANOSECONDS, "wall - thread time"),
    T(alloc_wait_ns_max, GAUGE, NANOSECONDS, "the longest"),
    T(repair_count, COUNTER, NONE, "allocations before which something had to be mended"),
    T(repair_wall_ns_sum, COUNTER, NANOSECONDS, "their time"),
    T(repair_wall_ns_max, GAUGE, NANOSECONDS, "the longest"),
    T(repair_cpu_samples, COUNTER, NONE, "those of them whose thread time was taken, what follows is theirs"),
    T(repair_cpu_ns_sum, COUNTER, NANOSECONDS, "thread time"),
    T(repair_cpu_ns_max, GAUGE, NANOSECONDS, "the longest"),
    T(repair_wait_ns_sum, COUNTER, NANOSECONDS, "wall - thread time"),
    T(repair_wait_ns_max, GAUGE, NANOSECONDS, "the longest"),
    T(repair_reason_remote, COUNTER, NONE, "blocks that other threads freed were collected"),
    T(repair_reason_adopt, COUNTER, NONE, "a dead thread's slab was adopted"),
    T(repair_reason_purge, COUNTER, NONE, "memory was refused, given back, and asked for again"),
    T(repair_reason_other, COUNTER, NONE, "a damaged list was given up"),
};

#define L(name, kind, unit, help) FIELD(tslab_label_stats, name, kind, unit, help)
static const struct statistic label[] = {
    LABEL(tslab_label_stats, label, "the label of the epochs"),
    L(opened, COUNTER, NONE, "epochs opened"),
    L(ended, COUNTER, NONE, "epochs ended"),
    L(open, GAUGE, NONE, "epochs open or closing"),
    L(allocations, COUNTER, NONE, "blocks handed out in them"),
    L(live_blocks, GAUGE, NONE, "blocks in use"),
    L(live_bytes, GAUGE, BYTES, "bytes of these"),
    L(committed_bytes, GAUGE, BYTES, "chunks, slabs and large blocks that they hold"),
    L(bytes_recycled, COUNTER, BYTES, "kept ready for the next epoch, by those that ended"),
    L(bytes_returned, COUNTER, BYTES, "given to the operating system, by those that ended"),
    L(refused, COUNTER, NONE, "allocations that failed for a budget"),
    L(diverted, COUNTER, NONE, "mallocs that went to epoch 0 because the epoch was closing"),
    L(samples, COUNTER, NONE, "allocations inside their scopes timed end to end"),
    L(sampled_wall_ns_sum, COUNTER, NANOSECONDS, "their time"),
    L(sampled_wall_ns_max, GAUGE, NANOSECONDS, "the longest"),
    L(cpu_samples, COUNTER, NONE, "those of them whose thread time was taken, what follows is theirs"),
    L(cpu_ns_sum, COUNTER, NANOSECONDS, "thread time"),
    L(wait_ns_sum, COUNTER, NANOSECONDS, "wall - thread time"),
    L(slow_allocations, COUNTER, NONE, "allocations that no bump of a pointer or list served"),
    L(lock_fast_acquire, COUNTER, NONE, "locks of their heaps taken at the first try"),
    L(lock_contended, COUNTER, NONE, "locks of their heaps taken not at the first try"),
    L(slab_take_cas_retries, COUNTER, NONE, "CAS that failed when a slab's free blocks were taken"),
    L(slab_push_cas_retries, COUNTER, NONE, "CAS that failed when blocks were pushed to slabs of other heaps"),
    L(exempt_scopes, COUNTER, NONE, "scopes of epoch 0 inside their scopes"),
    L(exempt_bytes, COUNTER, BYTES, "allocated in those"),
};

#define E(name, kind, unit, help) FIELD(tslab_epoch_status, name, kind, unit, help)
static const struct statistic epoch[] = {
    E(epoch, GAUGE, NONE, "its id"),
    E(era, GAUGE, NONE, "resets so far"),
    E(state, GAUGE, NONE, "1 open, 2 closing"),
    E(flags, GAUGE, NONE, "1 closes by itself, 2 may be destroyed"),
    E(age_ns, GAUGE, NANOSECONDS, "since it was opened"),
    E(threads_inside, GAUGE, NONE, "threads inside"),
    E(live_blocks, GAUGE, NONE, "blocks in use"),
    E(live_bytes, GAUGE, BYTES, "bytes of these"),
    E(slabs, GAUGE, NONE, "chunks, slabs and large blocks held"),
    E(slabs_pinned, GAUGE, NONE, "those of them that hold a live block"),
    E(committed_bytes, GAUGE, BYTES, "of these"),
    E(budget_bytes, GAUGE, BYTES, "its budget, 0 for none"),
    E(charged_bytes, GAUGE, BYTES, "committed_bytes and its children's"),
    E(refused, COUNTER, NONE, "allocations that failed for a budget"),
    E(diverted, COUNTER, NONE, "mallocs that went to epoch 0 because it was closing"),
    E(parent, GAUGE, NONE, "the id of its parent, 0 for none"),
    E(allocations, COUNTER, NONE, "blocks handed out in it since it was opened"),
    E(closed_ns, GAUGE, NANOSECONDS, "since it was closed, 0 while it is open"),
    LABEL(tslab_epoch_status, label, "its label"),
};

#define K(name, kind, unit, help) FIELD(tslab_lock_stats, name, kind, unit, help)
static const struct statistic lock[] = {
    LABEL(tslab_lock_stats, name, "what the locks protect"),
    K(fast, COUNTER, NONE, "taken at the first try"),
    K(contended, COUNTER, NONE, "taken not at the first try"),
    K(wait_ns, COUNTER, NANOSECONDS, "waited by those"),
    K(hold_ns, COUNTER, NANOSECONDS, "held, while TSLAB_LOCK_TIMES=1"),
};

#define S(name, kind, unit, help) FIELD(sample, name, kind, unit, help)
static const struct statistic sample_fields[] = {
    S(number, GAUGE, NONE, "counts the samples of the process from 1; where one is missing, it was overwritten"),
    S(at_ns, GAUGE, NANOSECONDS, "when it began, on CLOCK_MONOTONIC_RAW"),
    S(thread_id, GAUGE, NONE, "the thread, as gettid says"),
    S(requested, GAUGE, BYTES, "what was asked for"),
    S(usable, GAUGE, BYTES, "what was given"),
    S(wall_ns, GAUGE, NANOSECONDS, "from call to return"),
    S(cpu_ns, GAUGE, NANOSECONDS, "thread time meanwhile, 2^64 - 1 where it was not taken"),
    S(lock_wait_ns, GAUGE, NANOSECONDS, "of wall_ns: waiting for locks"),
    S(path, GAUGE, NONE, "the row of its path"),
    S(label, GAUGE, NONE, "the row of its epoch's label, 2^64 - 1 for epoch 0"),
};

#define R(name, kind, unit, help) FIELD(profile_row, name, kind, unit, help)
static const struct statistic profile[] = {
    R(interval_bytes, GAUGE, BYTES, "allocated for each sample, in the mean, 0 in a pause"),
    R(samples, COUNTER, NONE, "blocks sampled since the start"),
    R(frees, COUNTER, NONE, "those of them that were freed"),
    R(lost, COUNTER, NONE, "those of them that count as allocated alone, because the tables were full"),
    R(stackless, COUNTER, NONE, "those of them whose call site is not known, because the table of stacks was full"),
    R(live_samples, GAUGE, NONE, "samples in use"),
    R(sites, GAUGE, NONE, "call sites, by their stacks"),
    R(memory_bytes, GAUGE, BYTES, "memory that the profile uses"),
    R(guards, COUNTER, NONE, "samples that were placed between inaccessible pages (TSLAB_GUARD)"),
    R(guards_live, GAUGE, NONE, "those of them in use"),
    R(guards_refused, COUNTER, NONE,
      "samples that were to be and were not: too large, the pool full, or many of their call site in it"),
    R(guard_bytes, GAUGE, BYTES, "pages that guarded blocks in use lie on"),
    R(began_ns, GAUGE, NANOSECONDS, "when the profile began, on CLOCK_MONOTONIC: blocks from before are no samples"),
    R(automatic, GAUGE, NONE, "1 if the process chooses the interval by itself, 0 if someone set it"),
};

#define I(name, kind, unit, help) FIELD(site_row, name, kind, unit, help)
static const struct statistic site[] = {
    I(site, GAUGE, NONE, "its number, 1 for all whose stack is not known"),
    I(allocated_samples, COUNTER, NONE, "blocks sampled"),
    I(allocated_blocks, COUNTER, NONE, "blocks allocated: an estimate, as are all that follow"),
    I(allocated_bytes, COUNTER, BYTES, "bytes of these, as asked for"),
    I(allocated_error_bytes, GAUGE, BYTES, "the standard error of allocated_bytes"),
    I(live_samples, GAUGE, NONE, "sampled blocks in use: exact"),
    I(live_blocks, GAUGE, NONE, "blocks in use"),
    I(live_bytes, GAUGE, BYTES, "bytes of these, as asked for"),
    I(error_bytes, GAUGE, BYTES, "the standard error of live_bytes"),
    LABEL(site_row, stack, "return addresses, the innermost first"),
};

#define H(name, kind, unit, help) FIELD(holder_row, name, kind, unit, help)
static const struct statistic holder[] = {
    H(site, GAUGE, NONE, "the number of the call site"),
    H(state, GAUGE, NONE, "0 plain malloc, 1 open epochs, 2 a closing epoch"),
    H(epoch, GAUGE, NONE, "the id of the closing epoch; 0 for all others, and for closing ones of a label together"),
    H(live_samples, GAUGE, NONE, "sampled blocks in use"),
    H(live_blocks, GAUGE, NONE, "blocks in use: an estimate"),
    H(live_bytes, GAUGE, BYTES, "bytes of these, as asked for: an estimate"),
    H(error_bytes, GAUGE, BYTES, "its standard error"),
    H(slabs, GAUGE, NONE, "chunks and large blocks in which sampled blocks lie"),
    H(oldest_ns, GAUGE, NANOSECONDS, "when the oldest of the samples was allocated, on CLOCK_MONOTONIC"),
    LABEL(holder_row, label, "the label of the epochs"),
};

#define A(name, kind, unit, help) FIELD(lifespan_row, name, kind, unit, help)
static const struct statistic lifespan[] = {
    A(site, GAUGE, NONE, "the number of the call site"),
    A(object_size, GAUGE, BYTES, "the size class"),
    A(live_samples, GAUGE, NONE, "sampled blocks in use"),
    A(live_bytes, GAUGE, BYTES, "usable bytes of blocks in use: an estimate, as are the two that follow"),
    A(peak_bytes, GAUGE, BYTES, "the most that were in use at a time"),
    A(freed_samples, COUNTER, NONE, "sampled blocks that were freed"),
    A(freed_bytes, COUNTER, BYTES, "usable bytes of blocks that were freed: an estimate"),
    A(ebbs, COUNTER, NONE, "how often what is in use fell from half of the most to an eighth of it"),
    A(age_half_ns, GAUGE, NANOSECONDS, "half of the freed samples lived at most so long, to a factor of two"),
    A(age_most_ns, GAUGE, NANOSECONDS, "nine in ten of them did"),
};

#define B(name, kind, unit, help) FIELD(spread_row, name, kind, unit, help)
static const struct statistic spread[] = {
    B(object_size, GAUGE, BYTES, "the size class"),
    B(slabs, GAUGE, NONE, "slabs of plain malloc"),
    B(resident_bytes, GAUGE, BYTES, "their pages that may be resident"),
    B(used_bytes, GAUGE, BYTES, "blocks in them that are in use or on threads' lists"),
};

const struct statistics tables[TABLES] = {
    [TABLE_PROCESS] = {"process", "the process as a whole, all epochs included", FIELDS(process),
                       sizeof(tslab_stats_global), 1, collect_process},
    [TABLE_CLASS] = {"class", "one size class, in all epochs", FIELDS(class), sizeof(tslab_class_stats), CLASSES,
                     collect_classes},
    [TABLE_PATH] = {"path", "a way that calls take, and how long they took", FIELDS(path), sizeof(tslab_path_stats),
                    PATHS, collect_paths},
    [TABLE_THREAD] = {"thread", "one thread", FIELDS(thread), sizeof(tslab_thread_stats), TABLE_THREADS_MOST,
                      collect_threads},
    [TABLE_LABEL] = {"label", "all epochs of one label, those that ended included", FIELDS(label),
                     sizeof(tslab_label_stats), TABLE_LABELS_MOST, collect_labels},
    [TABLE_EPOCH] = {"epoch", "one epoch that is open or closing: the oldest ones and the largest", FIELDS(epoch),
                     sizeof(tslab_epoch_status), TABLE_EPOCHS_MOST, collect_epochs},
    [TABLE_LOCK] = {"lock", "the locks of one kind", FIELDS(lock), sizeof(tslab_lock_stats), LOCK_KINDS, collect_locks},
    [TABLE_SAMPLE] = {"sample", "one allocation timed end to end, the newest ones", FIELDS(sample_fields),
                      sizeof(struct sample), TABLE_SAMPLES_MOST, collect_samples},
    [TABLE_PROFILE] = {"profile", "the heap profile, where there is one", FIELDS(profile),
                       sizeof(struct profile_row), TABLE_PROFILES_MOST, profile_collect},
    [TABLE_SITE] = {"site", "a call site of the heap profile: those that hold or allocated most", FIELDS(site),
                    sizeof(struct site_row), TABLE_SITES_MOST, profile_collect_sites},
    [TABLE_HOLDER] = {"holder", "what one call site holds in plain malloc, open epochs of a label or a closing epoch",
                      FIELDS(holder), sizeof(struct holder_row), TABLE_HOLDERS_MOST, profile_collect_holders},
    [TABLE_LIFESPAN] = {"lifespan",
                        "how long blocks of a call site live in a class of plain malloc: those that held most",
                        FIELDS(lifespan), sizeof(struct lifespan_row), TABLE_LIFESPANS_MOST,
                        profile_collect_lifespans},
    [TABLE_SPREAD] = {"spread", "slabs of one class in plain malloc, and how full they are; with a heap profile",
                      FIELDS(spread), sizeof(struct spread_row), CLASSES, profile_collect_spreads},
};

static size_t room_of(const struct statistics *table) {
  return round_up((size_t)table->most * table->row_bytes, os_page_size);
}

void *table_room(const struct statistics *table) {
  void *room = process_start() ? os_reserve(NULL, room_of(table)) : NULL;
  if (!room || os_commit(room, room_of(table))) return room;
  os_unreserve(room, room_of(table));
  return NULL;
}

void table_room_end(const struct statistics *table, void *room) { os_unreserve(room, room_of(table)); }

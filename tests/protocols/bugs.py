"""One-line bugs in copies of the shipped sources, which the explorer must find.

    bugs.py list [hardened]          name;source;scenario;header of each, one a line, of the release or the hardened
                                     build; the header, if it has the bug and not the source
    bugs.py write NAME SOURCE COPY   the source, or header, with that bug

What is replaced must be there exactly once: a test of a bug that is not in it would prove nothing.
"""

import sys
from pathlib import Path
from typing import NamedTuple


class Bug(NamedTuple):
    name: str
    scenario: str
    source: str
    old: str
    new: str
    release_only: bool = False  # the hardened build does not come to these lines in the scenario
    header: str = ""  # the bug is in this header of src/, as the source includes it


BUGS = [
    # ---- an order that is weakened, a store or a barrier that is dropped
    Bug("push_relaxed", "remote-free", "src/slab/slab.c",
        '#include "slab/slab.h"\n',  # its only release is that of the push
        '#include "pages/pages.h"\n#define memory_order_release memory_order_relaxed\n#include "slab/slab.h"\n'),
    Bug("no_barrier", "entering", "src/epoch/inside.c",
        "if (inside_is_one_sided()) os_barrier_everywhere();", "if (inside_is_one_sided()) (void)0;"),
    Bug("enter_unfenced", "entering-fenced", "src/epoch/scope.c",
        "atomic_exchange_explicit(&thread->looking, id, memory_order_seq_cst);",
        "atomic_store_explicit(&thread->looking, id, memory_order_release);"),
    Bug("no_fence_at_halt", "halting-fenced", "src/heap/bump.c", "  FENCE_ALL();\n", ""),
    Bug("no_invalidation", "publication", "src/stats/publish.c",
        "  atomic_store_explicit(&head->number, 0, memory_order_relaxed);\n", ""),
    Bug("parent_left_alone", "parents", "src/epoch/finish.c", "!e->stepping && !e->descending &&", "!e->stepping &&"),
    Bug("no_shut_at_destroy", "destroy", "src/epoch/destroy.c", "if (!alone) inside_shut(e);", "(void)alone;"),
    Bug("served_late", "collecting", "src/heap/refill.c",
        "  counter_add(&heap->counters->refills[class].served[served_by(heap)], 1);\n  FENCE_STORES();\n"
        "  void *const block = fast_pop(heap, class, pages.key);\n",
        "  void *const block = fast_pop(heap, class, pages.key);\n"
        "  counter_add(&heap->counters->refills[class].served[served_by(heap)], 1);\n"),
    # ---- a re-check that is missing: after announcing, after claiming, under the lock
    Bug("relist_once", "last-free-slab", "src/heap/bins.c",
        "if (atomic_compare_exchange_weak_explicit(&slab->word, &old, old & ~SLAB_PENDING,",
        "if (atomic_fetch_and_explicit(&slab->word, ~SLAB_PENDING, memory_order_relaxed) ||\n"
        "        atomic_compare_exchange_weak_explicit(&slab->word, &old, old & ~SLAB_PENDING,"),
    Bug("unlist_always", "slab-claim", "src/heap/bins.c",
        "if (slab_count(old) >= slab->threshold) return false;", ""),
    Bug("adopted_meanwhile", "adoption", "src/heap/bins.c",
        "if (heap_of(slab) == *heap) return guard;", "return guard;"),
    Bug("folded_meanwhile", "folding", "src/heap/heap.c",
        "if (LIKELY(guard == heap_guard(heap))) return guard;", "return guard;"),
    Bug("purged_with_a_slab", "folding", "src/heap/registry.c", "return !has_slabs;", "return has_slabs || true;"),
    Bug("folded_without_a_slab", "dying", "src/heap/registry.c", "return store->unlisted_slabs == 0 && ", "return "),
    Bug("alive_meanwhile", "thread-death", "src/heap/flush.c",
        "if (!heap->live && !tcache_is_folded(heap, class))", "if (!tcache_is_folded(heap, class))", release_only=True),
    Bug("purge_unclaimed", "trimming", "src/heap/bins.c",
        "  if (atomic_fetch_or_explicit(&slab->word, SLAB_PENDING, memory_order_relaxed) & SLAB_PENDING) return 0;\n",
        ""),
    Bug("enter_unchecked", "entering", "src/epoch/scope.c",
        "if (LIKELY(heap != NULL)) {\n      scope_stay(thread, heap);",
        "if (e->owner == thread) heap = e->heaps;\n    if (LIKELY(heap != NULL)) {\n      scope_stay(thread, heap);"),
    Bug("entered_at_once", "entering", "src/malloc/epochs.c",
        "  if (UNLIKELY(atomic_load_explicit(&e->open_id, memory_order_acquire) != id)) return false;\n"
        "  struct heap *heap = scope_find(thread, e);",
        "  struct heap *heap = scope_find(thread, e);", header="epoch/scope.h"),
    Bug("left_at_once", "entering", "src/malloc/epochs.c",
        "  scope_was_seen(e, id);\n", "", header="epoch/scope.h"),
    Bug("stale_attachment", "slot-again", "src/malloc/epochs.c",
        "return heap && attach_is_valid(heap, thread, e) ? heap : NULL;", "return heap;", header="epoch/scope.h"),
    Bug("looked_at_late", "entering", "src/epoch/close.c",
        "  return atomic_load_explicit(&thread->looking, memory_order_acquire) == id ||\n"
        "         atomic_load_explicit(&heap->bump.entered, memory_order_acquire) != 0;",
        "  return atomic_load_explicit(&heap->bump.entered, memory_order_acquire) != 0 ||\n"
        "         atomic_load_explicit(&thread->looking, memory_order_acquire) == id;",
        header="epoch/inside.h"),
    Bug("unseen_after_a_call", "by-id", "src/malloc/epochs.c",
        "  scope_was_seen(named->epoch, id);\n", ""),
    Bug("owns_before_inside", "entering", "src/epoch/finish.c",
        "!e->descending && inside_threads(e) == 0 &&\n"
        "              atomic_load_explicit(&e->arena.own, memory_order_seq_cst) == 0 &&",
        "!e->descending &&\n"
        "              atomic_load_explicit(&e->arena.own, memory_order_seq_cst) == 0 &&"
        " !inside_threads(e) &&"),
    Bug("ended_meanwhile", "last-free", "src/epoch/finish.c",
        "bool done = epoch_state(e) == EPOCH_CLOSING && !e->stepping", "bool done = !e->stepping"),
    Bug("left_unseen", "auto-close", "src/epoch/scope.c",
        "relies on it to complete the close. */\n"
        "  if (entered == 0 && UNLIKELY(scope_open_id(e) != id || scope_has_ended(e)))",
        "relies on it to complete the close. */\n  if (entered == 0 && UNLIKELY(scope_open_id(e) != id))"),
    Bug("attached_meanwhile", "thread-leaves", "src/epoch/scope.c",
        "bool is_mine = attach_is_valid(heap, thread, e);", "bool is_mine = true;"),
    Bug("lock_sleeps_unseen", "lock", "src/os/lock.c",
        "uint32_t wanted = seen ? seen | 1 : lock_mark() | 1;", "uint32_t wanted = seen ? seen | 1 : lock_mark();"),
    Bug("claimed_without_barrier", "cached-epoch", "src/epoch/cache.c", "    inside_barrier_of_one();\n", ""),
    Bug("claimed_meanwhile", "cached-epoch", "src/epoch/cache.c",
        "    if (!atomic_load_explicit(&thread->takes_cached, memory_order_acquire)) {", "    {"),
    Bug("cleared_meanwhile", "cached-again-fenced", "src/epoch/cache.c",
        "      if (e) atomic_store_explicit(&thread->cached_epoch, NULL, memory_order_relaxed);",
        "      atomic_store_explicit(&thread->cached_epoch, NULL, memory_order_relaxed);"),
    Bug("taken_meanwhile", "cached-epoch", "src/epoch/cache.c",
        "  if (UNLIKELY(atomic_load_explicit(&thread->cached_is_claimed, memory_order_seq_cst))) "
        "wait_for_claimer(thread);\n",
        "  if (!thread) wait_for_claimer(thread);\n"),
    Bug("taken_unfenced", "cached-epoch-fenced", "src/epoch/cache.c",
        "  else atomic_exchange_explicit(&thread->takes_cached, true, memory_order_seq_cst);",
        "  else atomic_store_explicit(&thread->takes_cached, true, memory_order_release);"),
    Bug("open_before_id", "cached-opens", "src/epoch/epoch.c",
        "  atomic_store_explicit(&e->open_id, id, memory_order_release);\n"
        "  /* After open_id: as soon as the epoch is open, any thread that finds it may close it. */\n"
        "  atomic_store_explicit(&e->state, EPOCH_OPEN, memory_order_release);\n",
        "  atomic_store_explicit(&e->state, EPOCH_OPEN, memory_order_release);\n"
        "  atomic_store_explicit(&e->open_id, id, memory_order_release);\n"),
    Bug("claim_ends_unlocked", "cached-claim", "src/epoch/cache.c",
        "  if (is_kept) plain->store->chunks.cached_seen = 0;\n"
        "  else if (id == plain->store->chunks.cached_seen) chunk_cache_drop_epoch(plain, index);\n"
        "  else plain->store->chunks.cached_seen = id;\n"
        "  epoch_unlock(e);\n",
        "  epoch_unlock(e);\n"
        "  if (is_kept) plain->store->chunks.cached_seen = 0;\n"
        "  else if (id == plain->store->chunks.cached_seen) chunk_cache_drop_epoch(plain, index);\n"
        "  else plain->store->chunks.cached_seen = id;\n"),
    Bug("unwound_remote", "taking-back", "src/heap/bump.c",
        "uint64_t freed = starts & bump_freed(bump->freed, word_start)->local,",
        "struct chunk_freed *bits = bump_freed(bump->freed, word_start);\n"
        "    uint64_t freed = starts & (bits->local | bits->remote),", release_only=True),
    Bug("two_whole_granules", "quarters", "src/slab/quarter.c",
        "  bool whole = split->threshold == ALL;\n"
        "  if (whole && before) unlink_run(split);\n"
        "  else if (!whole && !before) link_newest(split);\n"
        "  lock_release(&quarter_lock);\n",
        "  if (split->threshold != ALL && !before) link_newest(split);\n"
        "  lock_release(&quarter_lock);\n"
        "  bool whole = split->threshold == ALL;\n"
        "  if (whole && before) unlink_run(split);\n"),
    Bug("two_owners", "owners", "src/epoch/epoch.c",
        "    if (is_free) atomic_store_explicit(&e->arena.owned, OWNED, memory_order_relaxed);\n", ""),
    Bug("owner_forgotten_in_wait", "owners", "src/epoch/epoch.c",
        "    if (!epoch_is_owned(e)) return;\n    lock_release", "    if (e) return;\n    lock_release"),
    Bug("child_of_an_owned_parent", "owned-parents", "src/epoch/open.c",
        "  if (error == 0 && epoch_is_owned(parent)) error = EBUSY;\n", ""),
    Bug("opened_meanwhile", "opened-below", "src/epoch/close.c",
        "  if (epoch_has_children(e)) *(bool *)again = true;\n", "  (void)again;\n"),
    # ---- an early return
    Bug("close_stops_at_a_guest", "detaching", "src/epoch/close.c", "      halt(p);\n      continue;\n",
        "      halt(p);\n      return true;\n"),
    Bug("relist_lists_and_leaves", "last-free-slab", "src/heap/bins.c",
        "continue; /* blocks that came meanwhile count, too */", "return false;"),
]  # fmt: skip


def write(name: str, source: str, copy: str) -> int:
    bug = next(bug for bug in BUGS if bug.name == name)
    text = Path(source).read_text(encoding="utf-8")
    found = text.count(bug.old)
    if found != 1:
        print(f"{source}: expected this text once, found it {found} times; adapt the bug {name} to it:\n{bug.old}")
        return 1
    Path(copy).write_text(f'#line 1 "{source}"\n' + text.replace(bug.old, bug.new), encoding="utf-8")
    return 0


def main() -> int:
    match sys.argv[1:]:
        case ["list", *build] if build in ([], ["hardened"]):
            bugs = [bug for bug in BUGS if not (build and bug.release_only)]
            print("\n".join(f"{bug.name};{bug.source};{bug.scenario};{bug.header}" for bug in bugs))
            return 0
        case ["write", name, source, copy]:
            return write(name, source, copy)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())

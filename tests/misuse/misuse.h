/* misuse.h: how a misuse is written: one mistake, one file.
 *
 * A file KIND-FORM.c of this directory is a program that makes one mistake in `run`, and says by MISUSE what that is
 * and what follows, by default and in the hardened preset. misuse.c starts each in a process of its own and holds it to
 * its exact lines on standard error and its exit status; docs/misuse.md shows what the files say.
 *
 * The pointer that is misused is named by `culprit`. A program that is NAMED runs twice: it must abort after its line,
 * and under TSLAB_ON_MISUSE=report it must write the same line, count one misuse, go on, and leave a sound heap. */
#ifndef TSLAB_TESTS_MISUSE_H
#define TSLAB_TESTS_MISUSE_H

#include "../epochs.h"

enum misuse_end {
  AS_BY_DEFAULT,
  NAMED,    /* a line and SIGABRT; under report the line, and the program goes on */
  FATAL,    /* a line and SIGABRT, under report too */
  FAULTS,   /* a line and SIGSEGV */
  TOLD,     /* a line, and the program goes on: nothing is lost */
  RETURNED, /* no line; the calls return an error, and the program checks that */
  MISSED,   /* no line and no error; the program calls `harm` if the mistake did harm */
  CRASHES,  /* no line, and SIGSEGV where the harm meets somebody */
};

struct misuse_outcome {
  enum misuse_end end;
  const char *says; /* lines without their "tslab: "; 0xADDR is the culprit, * any text */
};

struct misuse {
  const char *name; /* or the file's path, whose last heap it is */
  const char *does;
  void (*run)(void);
  struct misuse_outcome by_default, hardened; /* without a line of its own: the same line */
  struct misuse_outcome in_one_page; /* by default, where a page is as large as a slab of SMALL blocks */
  const char *environment; /* NAME=value */
  bool leaves;             /* the process ends after `run`, and what is to be seen comes then */
};

/* Many files are compiled as one, which takes a tenth of the time: the build names each by MISUSE_FILE, and these names
 * become the file's own. Where another name is in two files, the compiler says so: it belongs here, too. */
#ifdef MISUSE_FILE
#define MISUSE_JOIN_(file, name) file##_##name
#define MISUSE_JOIN(file, name)  MISUSE_JOIN_(file, name)
#define MISUSE_OWN(name)         MISUSE_JOIN(MISUSE_FILE, name)
#define run           MISUSE_OWN(run)
#define data          MISUSE_OWN(data)
#define many          MISUSE_OWN(many)
#define stays         MISUSE_OWN(stays)
#define MANY          MISUSE_OWN(MANY)
#else
#define MISUSE_OWN(name) name
#endif

/* The linker puts all of them into one array. */
#define MISUSE_ROW(id, ...) MISUSE_ROW_(id, __VA_ARGS__)
#define MISUSE_ROW_(id, ...)                                                                          \
  static const struct misuse id##_row = {__VA_ARGS__};                                                \
  static const struct misuse *const id##_listed __attribute__((used, section("misuses"))) = &id##_row
#define MISUSE(what, how, line, ...)                                                                  \
  MISUSE_ROW(MISUSE_OWN(this), __FILE__, what, run, .by_default = {how, line}, __VA_ARGS__)

enum { SMALL = 96, MEDIUM = 20000, LARGE = 3 << 20, HUGE = 1 << 30 };
enum { STACK_MOST = 8 << 20 }; /* an address at most this far above a caller's frames counts as its stack */
#define SMALL_TEXT   "96-byte class"
#define SMALL_BLOCK  "block of the " SMALL_TEXT
#define MEDIUM_TEXT  "20480-byte class"
#define MEDIUM_BLOCK "block of the " MEDIUM_TEXT
#define LARGE_TEXT   "large block"
#define CHUNK_TEXT   "96-byte block of an epoch"
#define LAST_TEXT    "block of an epoch" /* its place was taken back, and its size is gone */

/* The usual lines. */
#define TWICE(what) "double free of 0xADDR (" what ")"
/* The default library tells what it finds when a list is looked at. Two words are all that it has: from the block's
 * owner after a double free, from a write after its free, or from the block below. */
#define LATE              "; found late: libtslab-hardened.so.0 names a double free at the call"
#define TWICE_LATE(what)  TWICE(what) LATE
#define CHANGED(what, by) \
  "free block 0xADDR (" what ") has changed: it was freed twice, written to after its free, or overrun by " by LATE
#define CHANGED_AT_8(what) \
  "free block 0xADDR (" what ") has changed at byte 8: it was freed twice, or written to after its free" LATE
#define CORRUPTED \
  "free list corrupted: it links to 0xADDR, which is not a block: a free block was written to, or overrun by the " \
  "block before it; libtslab-hardened.so.0 names the block"
#define NEIGHBOUR(state)  "the block before it (0x*, " state ")"
/* Where memory served an epoch before. */
#define OR_STALE(line) \
  line "; if no other call freed this block, one freed it by a pointer from before a reset or an epoch's end " \
       "(TSLAB_ON_DESTROY=trap names that call)"
#define OR_MOVED_ON(line) line "; or it is a pointer from before a reset or an epoch's end, where another block lay"
#define FREED(call, what)           call " of freed block 0xADDR (" what ")"
#define UNUSED(call, what)          call " of 0xADDR (" what "; freed long ago, or never allocated)"
#define ENDED(call) \
  call " of 0xADDR (no block: it was freed, alone or with its epoch, or never allocated)"
#define INTERIOR(call, bytes, what) call " of interior pointer 0xADDR (" #bytes " bytes into a " what ")"
#define FOREIGN(call)               call " of foreign pointer 0xADDR (not from this allocator)"
#define STACK(call)                 call " of stack pointer 0xADDR"
#define WRONG_SIZE(size, what)      "free_sized of 0xADDR with size " #size " (" what ")"
#define WRITTEN(at)                 "write to freed block 0xADDR (" SMALL_TEXT ", at byte " #at ")"
#define WRITTEN_OR_OVERRUN(by)      WRITTEN(0) ", or overrun from " by

/* With TSLAB_GUARD=4K. */
#define GUARDED_BY  .environment = "TSLAB_GUARD=4K"
#define ODD_BLOCK   "93-byte guarded block"
#define OF_MISUSED  " of epoch \"misused\""
#define ALLOCATED   "\n  allocated by thread * at *"
#define FREED_TOO   ALLOCATED "\n  freed by thread * at *"
#define ENDED_TOO   ALLOCATED "\n  ended with its epoch by thread * at *"
#define ACCESS(what, access, bytes) what ": " access " at 0x*, " #bytes " bytes "

/* With TSLAB_PROFILE=4K. */
#define SAMPLED_BY .environment = "TSLAB_PROFILE=4K"
#define SAMPLED    "\n  allocated by thread * at *+0x*"
#define SAMPLED_LAST "\n  the last sample at 0xADDR was allocated by thread * at *+0x*"

#if defined(__x86_64__)
#define READ  "read"
#define WRITE "write"
#else
#define READ  "use"
#define WRITE "use"
#endif

/* Tells the runner the address and hides from the compiler what becomes of it. */
void *culprit(void *block);

/* A block with something in it, as culprit. */
void *culprit_of(size_t size);

/* A small block of the slab of `block`, the first that was taken of it, that is on no list yet: as the kernel gave it,
 * with its neighbours. Where all of the slab is one page there is none, and it is one that is on the list. */
char *never_handed_out(const char *block);

/* Checks that a MISSED mistake has done harm. */
void harm(bool done);

/* The family's functions, each on another thread that is gone when they return. */
void free_elsewhere(void *block);
void realloc_elsewhere(void *block);

/* A block of ODD bytes that TSLAB_GUARD guards, at the start or at the end of its pages: tries until there is one. */
enum { ODD = 93, ODD_END = 96 /* bytes from its start to the end of its pages, where it lies at their end */ };
enum guard_side { AT_ANY, AT_START, AT_END };
char *guarded_in(tslab_epoch e, enum guard_side side);

/* A block that is a sample of the heap profile: tries until there is one. */
char *sampled_in(tslab_epoch e, size_t size);

/* A small block of an epoch that has freed so much that it turned from chunks to slabs. */
void *promoted_block(tslab_epoch e);

#endif

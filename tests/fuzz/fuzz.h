/* fuzz.h: the fuzzers share instructions, threads that take turns, and blocks that know their contents.
 *
 * An input is a header byte and instructions of 5 bytes. Each instruction names the thread that executes it. The other
 * threads wait, so that an input does the same in every run and a finding can be reproduced. In racing inputs all
 * threads execute their instructions at the same time.
 *
 *   header    [ racing 1 | purges 1 | .. | no cache 1 | no reserve 1 | one sample in: 1024 1 8 none 2 ]
 *   op        [ kind 8 ] [ thread 2 | variant 6 ] [ x 8 ] [ a 8 ] [ b 8 ] */
#ifndef TSLAB_TESTS_FUZZ_H
#define TSLAB_TESTS_FUZZ_H

#include "../check.h"

#include <stdbool.h>

enum { THREADS = 4, SLOTS = 64, PILES = 4, PILE_MOST = 4096, OP_BYTES = 5, INPUT_MOST = 4096 };

struct op {
  uint8_t kind, thread, variant, x, a, b;
};

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The functions that a fuzzer of instructions provides. */
struct fuzzer {
  void (*begin)(void);                      /* of an input */
  void (*step)(unsigned thread, struct op); /* by that thread; alone unless fuzz_racing */
  bool (*exits)(struct op);                 /* true: the thread ends here, and a new one runs its next instruction */
  void (*exited)(unsigned thread);          /* after such an end, and at the end of the input */
  void (*end)(void);                        /* by thread 0, the others gone: takes back what is left, and judges */
};
extern const struct fuzzer fuzzer;
extern bool fuzz_racing; /* the threads run at the same time */
extern bool fuzz_purges; /* the end gives all unused memory back */

/* Keeps the input among the last 256, where FUZZ_HISTORY names a file. */
void fuzz_remember(const uint8_t *data, size_t size);

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

struct block {
  unsigned char *start; /* NULL: none */
  size_t size, usable;
  uint64_t seed; /* of what it holds */
  int epoch;     /* where the fuzzer's model has it */
};

extern struct block slots[SLOTS];
struct pile {
  struct block blocks[PILE_MOST];
  unsigned first, count; /* a ring */
};
extern struct pile piles[PILES];
enum { PILE_BYTES = 4 << 20 }; /* taken by one instruction, at most */
struct block *pile_at(struct pile *pile, unsigned i);
struct block *pile_next(struct pile *pile); /* the place of one more block; NULL: full, or empty */
struct block *pile_take(struct pile *pile, bool oldest);

/* A size from two bytes: every class and its borders, up to a MiB. */
size_t fuzz_size(uint8_t a, uint8_t b);

/* A block just handed out: it starts on a multiple of `alignment`, overlaps no other, and is filled. */
struct block block_new(void *start, size_t size, size_t alignment, int epoch);

/* realloc, or reallocarray in units of `unit` bytes. False: NULL came back, and the block is as before. */
bool block_resize(struct block *b, size_t size, size_t unit);

/* Before it goes back: verified, and no longer claimed. */
void block_forget(struct block *b);

/* Before a call that may give it up, and after the call has failed to. */
void block_unclaim(struct block *b);
void block_reclaim(struct block *b);

/* The block is given up by its epoch's end: nobody may look at it. */
void block_lose(struct block *b);

void check_zero(const unsigned char *start, size_t size);

/* free, or free_sized. Nothing when there is no block. */
void block_free(struct block *b, bool sized);

/* While threads race, a block goes to another one by mail: a letter at a time for each thread. False when the box is
 * full, or empty. The block is then no longer the sender's. */
bool mail_send(struct block *b, unsigned to);
bool mail_receive(unsigned thread, struct block *b);

/* All that came and went since the process began, of all threads, and what there is. */
extern _Atomic uint64_t blocks_made, blocks_gone;
extern _Atomic uint64_t bytes_live;

/* The statistics agree with those, and with themselves. Nobody else is running. */
void check_statistics(void);

#endif

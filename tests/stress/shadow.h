/* shadow.h: records, independently of the allocator, which bytes of the address space belong to a block in use: one bit
 * for each 16 bytes below 2^47, in a table of tables that is filled as addresses appear. */
#ifndef TSLAB_TESTS_SHADOW_H
#define TSLAB_TESTS_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A block now in use. Stops the test when any of its bytes already belongs to another block. */
void shadow_claim(const void *block, size_t usable);

/* A block no longer in use. Stops the test when any of its bytes is not claimed. */
void shadow_release(const void *block, size_t usable);

/* The same for a block of the epoch that the test numbers `tag` (below 2^44), and for the quarters of granules that it
 * lies in, which may hold live blocks of one epoch only. False when that does not hold: the caller knows more to say
 * about it. */
bool shadow_claim_in(const void *block, size_t usable, uint64_t tag);
bool shadow_release_in(const void *block, size_t usable, uint64_t tag);

/* Bytes resident now, as the kernel sees it, of all 64 KiB granules that ever held a claimed block. */
size_t shadow_resident(void);

#endif

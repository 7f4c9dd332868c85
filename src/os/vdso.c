/* vdso: see vdso.h.                                                                                 floor: os
 *
 * The vDSO is an ELF library. Its dynamic section leads to its symbols, by addresses that begin at 0. A table of hashes
 * tells how many symbols there are: an older kernel's has DT_HASH, a newer one's may have DT_GNU_HASH alone. */
#include "os/vdso.h"

#include <elf.h>
#include <string.h>
#include <sys/auxv.h>

#if defined(__x86_64__)
#define CLOCK_NAME "__vdso_clock_gettime"
#else
#define CLOCK_NAME "__kernel_clock_gettime" /* arm64 */
#endif

struct image {
  const char *base; /* where the image's address 0 lies */
  const Elf64_Dyn *dynamic;
};

static struct image image_of(const char *start) {
  const Elf64_Ehdr *head = (const void *)start;
  const Elf64_Phdr *segment = (const void *)(start + head->e_phoff);
  struct image image = {NULL, NULL};
  const char *dynamic = NULL;
  for (unsigned i = 0; i < head->e_phnum; i++, segment++) {
    if (segment->p_type == PT_LOAD && !image.base) image.base = start + segment->p_offset - segment->p_vaddr;
    if (segment->p_type == PT_DYNAMIC) dynamic = start + segment->p_offset;
  }
  if (image.base) image.dynamic = (const void *)dynamic;
  return image;
}

static const void *table(const struct image *image, Elf64_Sxword tag) {
  for (const Elf64_Dyn *at = image->dynamic; at->d_tag != DT_NULL; at++)
    if (at->d_tag == tag) return image->base + at->d_un.d_ptr;
  return NULL;
}

/* The chains of that table hold the symbols from `first` on, and the last entry of each chain is odd. */
static uint32_t count_by_chains(const uint32_t *hashes) {
  uint32_t buckets = hashes[0], first = hashes[1], words = hashes[2], last = 0;
  const uint32_t *bucket = hashes + 4 + words * (sizeof(uint64_t) / sizeof(uint32_t)), *chain = bucket + buckets;
  for (uint32_t i = 0; i < buckets; i++)
    if (bucket[i] > last) last = bucket[i];
  if (last < first) return first;
  while (chain[last - first] % 2 == 0) last++;
  return last + 1;
}

static uint32_t count_symbols(const struct image *image) {
  const uint32_t *hashes = table(image, DT_HASH), *chains = table(image, DT_GNU_HASH);
  return hashes ? hashes[1] : chains ? count_by_chains(chains) : 0;
}

clock_function *vdso_clock(void) {
  const char *start = (const char *)getauxval(AT_SYSINFO_EHDR);
  struct image image = start ? image_of(start) : (struct image){NULL, NULL};
  if (!image.dynamic) return NULL;
  const Elf64_Sym *symbols = table(&image, DT_SYMTAB);
  const char *names = table(&image, DT_STRTAB);
  if (!symbols || !names) return NULL;
  for (uint32_t left = count_symbols(&image); left > 0; left--, symbols++)
    if (symbols->st_shndx != SHN_UNDEF && strcmp(names + symbols->st_name, CLOCK_NAME) == 0)
      return (clock_function *)(uintptr_t)(image.base + symbols->st_value);
  return NULL;
}

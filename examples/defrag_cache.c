/* A cache that gives memory back. Most of its entries expire, in no order, and each slab is left with a few that live.
 * Plain malloc can do nothing then. This cache starts a new generation: it closes the epoch of the old one, asks which
 * of its entries lie in slabs that are less than half full, and moves these. The last one to leave a slab gives its
 * memory back, at that moment. Other entries stay where they are. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tslab/tslab.h>

enum { ENTRIES = 200000, BATCH = 256 };

static char *cache[ENTRIES]; /* the entry's number, as text, and whatever else it holds */
static tslab_epoch generation;

static void put(int key, size_t size) {
  cache[key] = tslab_epoch_malloc(generation, size);
  if (cache[key] == NULL) abort();
  memset(cache[key], 'x', size);
  snprintf(cache[key], size, "%d", key);
}

/* Half of the slab is worth less than what it pins. */
static int lies_in_waste(const tslab_slab_use *use) { return use->used_bytes < use->capacity_bytes / 2; }

static size_t move_wasteful(char **slots[], size_t count) {
  void *blocks[BATCH] = {0};
  tslab_slab_use uses[BATCH];
  size_t moved = 0;
  for (size_t i = 0; i < count; i++) blocks[i] = *slots[i];
  tslab_occupancy(blocks, count, uses);
  for (size_t i = 0; i < count; i++) {
    if (uses[i].epoch == generation || !lies_in_waste(&uses[i])) continue;
    char *const copy = tslab_epoch_move(*slots[i], generation);
    if (copy == NULL) continue; /* it is as it was */
    *slots[i] = copy;
    moved++;
  }
  return moved;
}

static size_t defragment(void) {
  const tslab_epoch old = generation;
  char **slots[BATCH];
  size_t count = 0, moved = 0;
  generation = tslab_epoch_open("cache");
  tslab_epoch_close(old, NULL); /* its entries stay valid */
  for (int key = 0; key < ENTRIES; key++) {
    if (cache[key] == NULL) continue;
    slots[count++] = &cache[key];
    if (count == BATCH) {
      moved += move_wasteful(slots, count);
      count = 0;
    }
  }
  return moved + move_wasteful(slots, count);
}

static size_t resident_bytes(void) {
  size_t total = 0, resident = 0;
  FILE *const statm = fopen("/proc/self/statm", "r");
  if (statm == NULL || fscanf(statm, "%zu %zu", &total, &resident) != 2) abort();
  fclose(statm);
  return resident * (size_t)sysconf(_SC_PAGESIZE);
}

int main(void) {
  generation = tslab_epoch_open("cache");
  srand(1);
  for (int key = 0; key < ENTRIES; key++) put(key, (size_t)(64 + rand() % 448));
  const size_t full = resident_bytes();
  for (int key = 0; key < ENTRIES; key++)
    if (rand() % 8 != 0) { /* seven of eight expire */
      free(cache[key]);
      cache[key] = NULL;
    }
  const size_t expired = resident_bytes(), moved = defragment(), after = resident_bytes();
  printf("full: %zu MiB; seven of eight entries expired: %zu MiB; %zu moved: %zu MiB\n", full >> 20, expired >> 20,
         moved, after >> 20);

  int wrong = 0;
  for (int key = 0; key < ENTRIES; key++) {
    wrong += cache[key] != NULL && atoi(cache[key]) != key;
    free(cache[key]);
  }
  tslab_epoch_close(generation, NULL);
  return wrong == 0 && after < expired / 2 ? 0 : 1;
}

/* classes: see classes.h.                                                                           floor: slab */
#include "slab/classes.h"

#include "slab/secret.h"

#define FOUR(of, a, b, c, d) of(a), of(b), of(c), of(d)
#define ALL(of)                                                                                                        \
  FOUR(of, 16, 32, 48, 64), FOUR(of, 80, 96, 112, 128), FOUR(of, 144, 160, 176, 192), FOUR(of, 208, 224, 240, 256),    \
      FOUR(of, 288, 320, 352, 384), FOUR(of, 416, 448, 480, 512), FOUR(of, 576, 640, 704, 768),                        \
      FOUR(of, 832, 896, 960, 1024), FOUR(of, 1280, 1536, 1792, 2048), FOUR(of, 2560, 3072, 3584, 4096),               \
      FOUR(of, 5120, 6144, 7168, 8192), FOUR(of, 10240, 12288, 14336, 16384), FOUR(of, 20480, 24576, 28672, 32768)
#define SIZE(size) size

const uint16_t class_sizes[CLASSES] = {ALL(SIZE)};

void classes_start(void) {
  if (TSLAB_HARDENED) secret_start();
  struct class_tables *tables = class_tables();
  unsigned class = 0;
  for (size_t size = 0; size <= DIRECT_MAX; size++) {
    if (size > class_sizes[class]) class++;
    tables->direct[size] = (uint8_t)class;
  }
  class = 0;
  for (size_t step = 0; step <= SMALL_MAX >> 8; step++) {
    while (class_sizes[class] < step << 8) class++;
    tables->coarse[step] = (uint8_t)class;
  }
  for (class = 0; class < CLASSES; class++) {
    tables->inverse[class] = UINT64_MAX / class_sizes[class] + 1;
    tables->lines[class] = (uint16_t)max_size(class_sizes[class], CACHE_LINE);
  }
}

unsigned class_of_aligned(size_t size, size_t alignment) {
  if (size > SMALL_MAX || alignment > SMALL_MAX) return CLASSES;
  unsigned class = class_of(max_size(size, alignment));
  while (class < CLASSES && class_sizes[class] % alignment != 0) class++;
  return class;
}

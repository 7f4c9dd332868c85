/* posix_memalign, memalign, aligned_alloc, valloc, pvalloc. */
#include "../check.h"

static void check_block(void *block, size_t alignment, size_t size) {
  CHECK(block != NULL);
  CHECK_COUNT((uintptr_t)block % alignment, ==, 0);
  CHECK_COUNT(tslab_malloc_usable_size(block), >=, size);
  memset(block, 0x77, tslab_malloc_usable_size(block));
}

static void every_alignment_and_size(void) {
  const size_t sizes[] = {0, 1, 15, 16, 17, 48, 100, 777, 4096, 5000, 65536, 65537, 200001, (1 << 20) + 5};
  for (size_t alignment = 1; alignment <= ((size_t)16 << 20); alignment *= 2)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      void *blocks[6] = {0};
      check_block(blocks[0] = tslab_memalign(alignment, sizes[i]), alignment, sizes[i]);
      check_block(blocks[1] = tslab_aligned_alloc(alignment, sizes[i]), alignment, sizes[i]);
      check_block(blocks[2] = tslab_malloc(sizes[i]), 16, sizes[i]);
      if (alignment >= sizeof(void *)) {
        errno = 1234;
        CHECK(tslab_posix_memalign(&blocks[3], alignment, sizes[i]) == 0);
        CHECK(tslab_posix_memalign(&blocks[4], alignment, sizes[i]) == 0);
        CHECK(errno == 1234);
        check_block(blocks[3], alignment, sizes[i]);
        check_block(blocks[4], alignment, sizes[i]);
        CHECK(blocks[3] != blocks[4]);
      }
      check_block(blocks[5] = tslab_malloc(sizes[i]), 16, sizes[i]);
      for (int j = 0; j < 6; j++) tslab_free(blocks[j]);
    }
}

/* As in glibc, errno also names a lack of memory, and keeps its value otherwise. */
static void posix_memalign_refuses(int expected, size_t alignment, size_t size) {
  void *out = &out;
  errno = 1234;
  CHECK(tslab_posix_memalign(&out, alignment, size) == expected);
  CHECK_COUNT(errno, ==, expected == ENOMEM ? ENOMEM : 1234);
  CHECK(out == &out);
}

static void posix_memalign_errors(void) {
  const size_t bad[] = {0, 1, 2, 4, 3, 7, 9, 12, 24, 48, 100, 4095, 4097, SIZE_MAX, (size_t)PTRDIFF_MAX};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) posix_memalign_refuses(EINVAL, bad[i], 10);
  for (size_t alignment = 8; alignment != 0; alignment *= 2) {
    posix_memalign_refuses(ENOMEM, alignment, SIZE_MAX);
    posix_memalign_refuses(ENOMEM, alignment, PTRDIFF_MAX);
  }
  posix_memalign_refuses(ENOMEM, (size_t)1 << 62, 1);
  posix_memalign_refuses(ENOMEM, (size_t)1 << 63, 1);
}

/* memalign does as glibc does: it rounds an alignment that is no power of two up to the next one. (The tables are
 * volatile, because a compiler that sees such an alignment believes it.)                                             */
static void memalign_rounds_alignments_up(void) {
  static const volatile size_t pairs[][2] = {{0, 1},   {3, 4},     {17, 32},     {24, 32},
                                           {48, 64}, {100, 128}, {4095, 4096}, {5000, 8192}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    void *block = tslab_memalign(pairs[i][0], 300);
    check_block(block, pairs[i][1], 300);
    tslab_free(block);
  }
  static const volatile struct { size_t alignment, size; int expected; } refused[] = {
      {SIZE_MAX, 1, EINVAL}, {((size_t)1 << 63) + 1, 1, EINVAL}, {64, SIZE_MAX, ENOMEM}, {(size_t)1 << 62, 1, ENOMEM}};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    errno = 0;
    CHECK(tslab_memalign(refused[i].alignment, refused[i].size) == NULL);
    CHECK_COUNT(errno, ==, refused[i].expected);
  }
}

/* aligned_alloc refuses such an alignment, as C17 demands and glibc does from 2.38 on. */
static void aligned_alloc_refuses_odd_alignments(void) {
  static const volatile size_t odd[] = {0, 3, 17, 24, 48, 100, 4095, 5000, PTRDIFF_MAX, SIZE_MAX / 2 + 2, SIZE_MAX};
  static const volatile size_t sizes[] = {0, 1, 300, 100000, SIZE_MAX};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
    for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
      errno = 0;
      CHECK(tslab_aligned_alloc(odd[i], sizes[j]) == NULL);
      CHECK_COUNT(errno, ==, EINVAL);
    }
}

static void aligned_alloc_corners(void) {
  /* The size need not be a multiple of the alignment. */
  void *block = tslab_aligned_alloc(64, 100);
  check_block(block, 64, 100);
  tslab_free(block);
  errno = 0;
  CHECK(tslab_aligned_alloc(64, SIZE_MAX - 32) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_aligned_alloc(4096, PTRDIFF_MAX) == NULL && errno == ENOMEM);
}

static void page_aligned_forms(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t sizes[] = {1, 100, page - 1, page, page + 1, 10 * page + 3};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void *v = tslab_valloc(sizes[i]), *p = tslab_pvalloc(sizes[i]);
    check_block(v, page, sizes[i]);
    check_block(p, page, (sizes[i] + page - 1) / page * page);
    tslab_free(v);
    tslab_free(p);
  }
  void *v = tslab_valloc(0), *p = tslab_pvalloc(0);
  check_block(v, page, 0);
  check_block(p, page, 0);
  tslab_free(v);
  tslab_free(p);
  errno = 0;
  CHECK(tslab_valloc(SIZE_MAX) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_pvalloc(SIZE_MAX) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(tslab_pvalloc(SIZE_MAX - page) == NULL && errno == ENOMEM);
}

static void many_aligned_blocks_do_not_overlap(void) {
  enum { COUNT = 2000 };
  static unsigned char *blocks[COUNT];
  static size_t sizes[COUNT];
  uint64_t random = 5;
  for (size_t i = 0; i < COUNT; i++) {
    const size_t alignment = (size_t)16 << check_random(&random) % 9;
    sizes[i] = check_random(&random) % 3000;
    blocks[i] = tslab_memalign(alignment, sizes[i]);
    CHECK(blocks[i] != NULL);
    CHECK_COUNT((uintptr_t)blocks[i] % alignment, ==, 0);
    memset(blocks[i], (int)(i % 251), sizes[i]);
  }
  for (size_t i = 0; i < COUNT; i++) {
    for (size_t j = 0; j < sizes[i]; j++) CHECK(blocks[i][j] == i % 251);
    tslab_free(blocks[i]);
  }
}

int main(void) {
  every_alignment_and_size();
  posix_memalign_errors();
  memalign_rounds_alignments_up();
  aligned_alloc_refuses_odd_alignments();
  aligned_alloc_corners();
  page_aligned_forms();
  many_aligned_blocks_do_not_overlap();
  return 0;
}

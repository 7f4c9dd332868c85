/* trees: one operation is the life of a node: it is taken, visited once in the order of keys, and freed.
 *
 * `turns` trees of `nodes` nodes are built, visited and freed, one after the other, after a first one for warm-up.
 * `built=down` builds a complete tree, each parent before its children, as a parser does; `built=random` inserts
 * keys in no order, as a map does. A node has `size` to `most` bytes, and its links and its key are written. The
 * tree is freed in the order of its keys, in reverse, parents first (`pre`), children first (`post`), or in no
 * order: that one is drawn outside what is timed. The cost of the frees, and the place of the next tree, may depend
 * on that order: so the build, the visit and the frees are timed apart. */
#include "lab.h"

#include <stdlib.h>
#include <string.h>

static long nodes = 200000, size = 32, most = 32, turns = 20;
static const char *built = "down", *frees = "post";

static const lab_option options[] = {
  { .name = "nodes", .help = "nodes of a tree", .number = &nodes, .least = 1 },
  { .name = "size", .help = "bytes of the smallest node", .number = &size, .least = 24 },
  { .name = "most", .help = "bytes of the largest node", .number = &most, .least = 24 },
  { .name = "built", .help = "parents first, or keys in no order", .text = &built, .choices = "down|random" },
  { .name = "frees", .help = "the order of the frees", .text = &frees, .choices = "in|reverse|pre|post|random" },
  { .name = "turns", .help = "trees that are timed", .number = &turns, .least = 1 },
  { .name = NULL },
};
static const lab_about workload = { "trees", "builds, visits and frees trees", options };

typedef struct node {
  struct node *less, *greater;
  uint64_t key;
} node;

static uint64_t state;
static node **taken; /* in the order in which they were taken */
static size_t count;

static node *take(uint64_t key) {
  node *n = malloc((size_t)size + lab_below(&state, (uint32_t)(most - size + 1)));
  if (!n)
    lab_fail("out of memory");
  *n = (node){ NULL, NULL, key };
  return taken[count++] = n;
}

/* Returns a complete tree of the keys [first, end). */
static node *build_down(uint64_t first, uint64_t end) {
  if (first == end)
    return NULL;
  uint64_t middle = first + (end - first) / 2;
  node *n = take(middle);
  n->less = build_down(first, middle);
  n->greater = build_down(middle + 1, end);
  return n;
}

static node *build_random(void) {
  node *root = NULL;
  for (long i = 0; i < nodes; i++) {
    uint64_t key = lab_random(&state);
    node **at = &root;
    while (*at)
      at = key < (*at)->key ? &(*at)->less : &(*at)->greater;
    *at = take(key);
  }
  return root;
}

static uint64_t visit(const node *n) { return n ? visit(n->less) + n->key + visit(n->greater) : 0; }

static void free_in(node *n) {
  if (!n)
    return;
  node *greater = n->greater;
  free_in(n->less);
  free(n);
  free_in(greater);
}

static void free_reverse(node *n) {
  if (!n)
    return;
  node *less = n->less;
  free_reverse(n->greater);
  free(n);
  free_reverse(less);
}

static void free_pre(node *n) {
  if (!n)
    return;
  node *less = n->less, *greater = n->greater;
  free(n);
  free_pre(less);
  free_pre(greater);
}

static void free_post(node *n) {
  if (!n)
    return;
  free_post(n->less);
  free_post(n->greater);
  free(n);
}

/* The nodes were shuffled before. */
static void free_random(node *root) {
  (void)root;
  for (size_t i = 0; i < count; i++)
    free(taken[i]);
}

static const struct order { const char *name; void (*free)(node *root); } orders[] = {
  { "in", free_in },       { "reverse", free_reverse }, { "pre", free_pre },
  { "post", free_post },   { "random", free_random },
};

static const struct order *order_named(const char *name) {
  const struct order *order = orders;
  while (strcmp(order->name, name) != 0)
    order++;
  return order;
}

static void shuffle(void) {
  for (size_t i = count; i > 1; i--) {
    size_t j = lab_below(&state, (uint32_t)i);
    node *t = taken[i - 1];
    taken[i - 1] = taken[j];
    taken[j] = t;
  }
}

static double build_ns, visit_ns, free_ns;
static uint64_t first_sum; /* of the keys of the first tree, to 48 bits: the visits are not in vain */

static void turn(const struct order *order) {
  count = 0;
  uint64_t begin = lab_now_ns(CLOCK_MONOTONIC);
  node *root = strcmp(built, "down") == 0 ? build_down(0, (uint64_t)nodes) : build_random();
  uint64_t stands = lab_now_ns(CLOCK_MONOTONIC);
  uint64_t sum = visit(root);
  uint64_t visited = lab_now_ns(CLOCK_MONOTONIC);
  if (lab_calls == 0) { /* the first tree alone, for the proof moves the caches */
    first_sum = sum & 0xFFFFFFFFFFFF;
    lab_proof_live(count * (uint64_t)size);
  }
  lab_calls += count;
  if (order->free == free_random)
    shuffle();
  uint64_t frees_begin = lab_now_ns(CLOCK_MONOTONIC);
  order->free(root);
  free_ns += (double)(lab_now_ns(CLOCK_MONOTONIC) - frees_begin);
  build_ns += (double)(stands - begin);
  visit_ns += (double)(visited - stands);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  if (most < size)
    lab_fail("--most must not be below --size");
  state = lab_seed;
  taken = lab_map((size_t)nodes * sizeof *taken);
  const struct order *order = order_named(frees);
  lab_litter((size_t)size, (size_t)most);
  turn(order);
  build_ns = visit_ns = free_ns = 0;
  for (long i = 0; i < turns; i++)
    turn(order);
  double lives = (double)nodes * (double)turns;
  lab_row(NULL);
  lab_metric("node_mean_ns", (build_ns + visit_ns + free_ns) / lives);
  lab_metric("build_mean_ns", build_ns / lives);
  lab_metric("visit_mean_ns", visit_ns / lives);
  lab_metric("free_mean_ns", free_ns / lives);
  lab_metric("first_sum_count", (double)first_sum);
  return lab_finish();
}

/* label: the same text has the same row for all threads; the first 255 texts have rows of their own beside the empty
 * one, and all others share the last row; a label of an epoch is cut at 63 characters. */
#include "unit.h"

#include "heap/label.h"
#include <pthread.h>

enum { THREADS = 8, TEXTS = 400, ROUNDS = 20 };

static uint32_t rows[THREADS][TEXTS];
static pthread_barrier_t barrier;

static const char *text_of(unsigned number, char *out) {
  snprintf(out, LABEL_BYTES, "label %u of %u", number, number * 7919);
  return out;
}

static void *intern(void *argument) {
  const unsigned self = (unsigned)(uintptr_t)argument;
  char text[LABEL_BYTES];
  pthread_barrier_wait(&barrier);
  for (unsigned round = 0; round < ROUNDS; round++)
    for (unsigned i = 0; i < TEXTS; i++) {
      const unsigned number = (i + self * 50) % TEXTS; /* each thread begins at another label, so that all make rows */
      const uint32_t row = label_row(text_of(number, text));
      CHECK_COUNT(row, <=, LABELS);
      CHECK(row != 0);
      if (row != LABEL_OTHERS) CHECK(strcmp(labels[row].text, text) == 0); /* found whole */
      if (round > 0) CHECK_COUNT(row, ==, rows[self][number]);
      rows[self][number] = row;
      shared_add(&labels[row].samples, 1);
    }
  return NULL;
}

static void from_many_threads(void) {
  pthread_t threads[THREADS];
  bool taken[LABELS + 1] = {false};
  unsigned own = 0;
  CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, intern, (void *)i) == 0);
  for (unsigned i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  for (unsigned i = 0; i < TEXTS; i++) {
    for (unsigned t = 1; t < THREADS; t++) CHECK_COUNT(rows[t][i], ==, rows[0][i]);
    if (rows[0][i] == LABEL_OTHERS) continue;
    CHECK(!taken[rows[0][i]]);
    taken[rows[0][i]] = true;
    own++;
    CHECK_COUNT(labels[rows[0][i]].samples, ==, THREADS * ROUNDS);
  }
  CHECK_COUNT(own, ==, LABELS - 1); /* row 0 is the epochs' without a label */
  CHECK_COUNT(labels_made(), ==, LABELS);
  CHECK_COUNT(labels[LABEL_OTHERS].samples, ==, THREADS * ROUNDS * (TEXTS - own));
}

static void the_longest(void) {
  _Atomic uint64_t most = 5;
  shared_max(&most, 4);
  CHECK_COUNT(most, ==, 5);
  shared_max(&most, 6);
  CHECK_COUNT(most, ==, 6);
}

/* Returns the row of that label from the public call. */
static bool find(const char *label, tslab_label_stats *out) {
  for (unsigned i = 0; tslab_stats_label(i, out, sizeof *out) == 0; i++)
    if (strcmp(out->label, label) == 0) return true;
  return false;
}

static void open_and_close(const char *label) {
  const tslab_epoch e = tslab_epoch_open(label);
  CHECK(e != 0);
  CHECK(tslab_epoch_close(e, NULL) == 0);
}

/* In a process of its own: the rows are few. */
static void of_epochs(void) {
  tslab_label_stats row;
  char longest[LABEL_BYTES], longer[2 * LABEL_BYTES];
  memset(longest, 'x', sizeof longest - 1), longest[sizeof longest - 1] = 0;
  memset(longer, 'x', sizeof longer - 1), longer[sizeof longer - 1] = 0;
  open_and_close(longest);
  open_and_close(longer);
  CHECK(find(longest, &row));
  CHECK_COUNT(row.opened, ==, 2); /* cut, they are one */
  open_and_close(NULL);
  open_and_close("");
  CHECK(find("", &row));
  CHECK_COUNT(row.opened, ==, 2);
  CHECK(!find("(others)", &row));
  char text[LABEL_BYTES];
  for (unsigned i = 0; i < TEXTS; i++) open_and_close(text_of(i, text));
  CHECK(find(text_of(0, text), &row) && row.opened == 1);
  CHECK(!find(text_of(TEXTS - 1, text), &row));
  CHECK(find("(others)", &row));
  CHECK_COUNT(row.opened, ==, TEXTS - (LABELS - 2)); /* row 0, and the one of x */
  CHECK_COUNT(row.ended, ==, row.opened);
  unsigned count = 0;
  while (tslab_stats_label(count, &row, sizeof row) == 0) count++;
  CHECK_COUNT(count, ==, LABELS + 1);
}

int main(void) {
  CHECK_COUNT(labels_made(), ==, 1);
  CHECK_COUNT(label_row(""), ==, 0);
  CHECK(in_child(of_epochs) == 0);
  from_many_threads();
  the_longest();
  return 0;
}

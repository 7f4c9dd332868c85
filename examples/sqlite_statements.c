/* A query engine whose statements have a lifetime and a budget. Each statement runs in an epoch of its own: SQLite,
 * which knows nothing of it, allocates there what it sorts and joins. A statement that wants too much gets
 * SQLITE_NOMEM, and only that one; when it is over, its memory goes back, and the report says what SQLite kept. */
#include <stdio.h>
#include <stdlib.h>

#include <sqlite3.h>

#include <tslab/tslab.h>

enum { BUDGET = 4 << 20, PAGE = 4096 + 512, CACHED_PAGES = 512, STATEMENTS = 50 };

struct outcome {
  int error;
  long long result;         /* the first column of the last row */
  unsigned long long kept;  /* bytes that outlived the statement */
};

static struct outcome run(sqlite3 *database, const char *sql) {
  const tslab_epoch_options options = {.struct_size = sizeof options, .label = "statement", .budget_bytes = BUDGET};
  const tslab_epoch epoch = tslab_epoch_open_with(&options);
  struct outcome outcome = {0};
  sqlite3_stmt *statement = NULL;

  tslab_epoch_enter(epoch);
  outcome.error = sqlite3_prepare_v2(database, sql, -1, &statement, NULL);
  while (outcome.error == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
    outcome.result = sqlite3_column_int64(statement, 0);
  const int finalized = sqlite3_finalize(statement);
  if (outcome.error == SQLITE_OK) outcome.error = finalized;
  tslab_epoch_leave(epoch);

  tslab_epoch_report report;
  tslab_epoch_close(epoch, &report); /* safe: SQLite's caches stay valid */
  outcome.kept = report.live_bytes;
  return outcome;
}

int main(void) {
  static char pages[CACHED_PAGES * PAGE]; /* SQLite gets its long-lived memory before the first statement */
  sqlite3 *database;
  sqlite3_config(SQLITE_CONFIG_PAGECACHE, pages, PAGE, CACHED_PAGES);
  if (sqlite3_open(":memory:", &database) != SQLITE_OK) return 1;
  sqlite3_exec(database, "PRAGMA temp_store = memory", NULL, NULL, NULL);
  sqlite3_exec(database, "CREATE TABLE numbers(n INTEGER PRIMARY KEY, half INTEGER)", NULL, NULL, NULL);
  sqlite3_exec(database, "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 5000) "
               "INSERT INTO numbers SELECT n, n / 2 FROM c", NULL, NULL, NULL);

  const char *const fair = "SELECT max(length(t)) FROM (SELECT group_concat(n) AS t FROM numbers GROUP BY half % 50)";
  const char *const greedy = "SELECT a.n || '-' || b.n AS pair FROM numbers a, numbers b ORDER BY pair";
  unsigned long long kept = 0;
  int served = 0;
  for (int i = 0; i < STATEMENTS; i++) {
    const struct outcome outcome = run(database, fair);
    served += outcome.error == SQLITE_OK && outcome.result > 0;
    kept += outcome.kept;
  }
  const struct outcome refused = run(database, greedy), after = run(database, fair);
  printf("%d statements served, which left %llu bytes; the greedy one: %s; the next one: %s\n", served, kept,
         sqlite3_errstr(refused.error), sqlite3_errstr(after.error));
  sqlite3_close(database);
  return served == STATEMENTS && refused.error == SQLITE_NOMEM && after.error == SQLITE_OK ? 0 : 1;
}

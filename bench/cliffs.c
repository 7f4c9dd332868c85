/* cliffs: the kind's help says what one operation does beside or over `count` things; a figure is the cost of one.
 *
 * A service has many of something: requests in flight on one thread, threads, threads that are gone, epochs that stay
 * open, free runs, buffers that grow. Each kind makes `count` of one such thing and says what an operation costs then,
 * so that runs with 1, 10 and 100 times as many show where cost bends. bench/cliffs/ has the kinds, by what they count.
 *
 * --of says how the work is done: `malloc` by plain malloc and free, `epoch` in epochs, `mi-heap` in mimalloc's heaps.
 * Sizes, writes and random draws are the same in each. A kind that has no such form refuses it.
 *
 * A timing takes `operations` blocks or so, after a tenth of that as warm-up; where nothing else is said, a figure is
 * the median over nine slices of it. `idle_ms` is how long the kinds wait that measure what is done at rest. The blocks
 * of the proof are taken after the memory figures. */
#include "cliffs/kinds.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int form = PLAIN;
long count = 100, operations = 2000000, objects = 20, idle_ms = 1500;

static const char *kind_name = "turns", *form_name = "malloc";

static const lab_option options[] = {
  { .name = "kind", .help = "of what there are many", .text = &kind_name,
    .choices = "turns|tenants|calls|tide|longpoll|idle|used|labels|children|handles|destroy|threads|rest|dead|requests|"
               "beside-destroy|beside-frees|blocks|live|grow|runs|fit|sparse" },
  { .name = "count", .help = "how many of it", .number = &count, .least = 1 },
  { .name = "of", .help = "how the work is done", .text = &form_name, .choices = "malloc|epoch|mi-heap" },
  { .name = "operations", .help = "blocks that a timing takes", .number = &operations, .least = 1000 },
  { .name = "objects", .help = "blocks of a request or a tenant (requests, tenants)", .number = &objects, .least = 1 },
  { .name = "idle_ms", .help = "milliseconds at rest (tide, longpoll, rest, dead, live, runs)", .number = &idle_ms,
    .least = 1 },
  { .name = NULL },
};
static const lab_about workload = { "cliffs", "does what a service does, beside many of one kind of thing", options };

static const struct kind {
  const char *name;
  void (*run)(void);
  int forms;
} kinds[] = {
  { "turns", run_turns, PLAIN | IN_EPOCHS },
  { "tenants", run_tenants, PLAIN | IN_EPOCHS },
  { "calls", run_calls, PLAIN | IN_EPOCHS | IN_HEAPS },
  { "tide", run_tide, PLAIN | IN_EPOCHS },
  { "longpoll", run_longpoll, PLAIN | IN_EPOCHS },
  { "idle", run_idle, IN_EPOCHS },
  { "used", run_used, IN_EPOCHS },
  { "labels", run_labels, IN_EPOCHS },
  { "children", run_children, IN_EPOCHS },
  { "handles", run_handles, IN_EPOCHS },
  { "destroy", run_destroy, PLAIN | IN_EPOCHS },
  { "threads", run_threads, PLAIN },
  { "rest", run_rest, PLAIN },
  { "dead", run_dead, PLAIN },
  { "requests", run_requests, PLAIN | IN_EPOCHS },
  { "beside-destroy", run_beside_destroy, PLAIN | IN_EPOCHS },
  { "beside-frees", run_beside_frees, PLAIN | IN_EPOCHS },
  { "blocks", run_blocks, PLAIN },
  { "live", run_live, PLAIN },
  { "grow", run_grow, PLAIN },
  { "runs", run_runs, PLAIN },
  { "fit", run_fit, PLAIN },
  { "sparse", run_sparse, PLAIN },
};

/* ---- figures and clocks ---- */

enum { MOST_FIGURES = 16, SLICES = 9 };
static struct { const char *name; double value; } figures[MOST_FIGURES];
static unsigned figure_count;

void cliffs_figure(const char *name, double value) {
  if (figure_count == MOST_FIGURES)
    lab_fail("more than %d figures of a kind", MOST_FIGURES);
  figures[figure_count].name = name;
  figures[figure_count++].value = value;
}

uint64_t cliffs_clock(void) { return lab_now_ns(CLOCK_MONOTONIC); }

double cliffs_ns(void (*work)(long n), long n) {
  double slice[SLICES];
  long each = n / SLICES ? n / SLICES : 1;
  work(each);
  for (unsigned i = 0; i < SLICES; i++) {
    uint64_t start = cliffs_clock();
    work(each);
    slice[i] = ns_each(start, each);
  }
  return lab_median(slice, SLICES);
}

void cliffs_sleep(long ms) {
  struct timespec left = { ms / 1000, ms % 1000 * 1000000 };
  while (nanosleep(&left, &left) != 0)
    ;
}

double cliffs_rest_cpu(void) {
  uint64_t cpu = lab_now_ns(CLOCK_PROCESS_CPUTIME_ID), start = cliffs_clock();
  cliffs_sleep(idle_ms);
  return (double)(lab_now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (double)(cliffs_clock() - start) * 100;
}

void cliffs_fork(void) {
  enum { FORKS = 9 };
  double took[FORKS];
  for (unsigned i = 0; i < FORKS; i++) {
    uint64_t start = cliffs_clock();
    pid_t child = fork();
    if (child == 0)
      _exit(0);
    took[i] = ns_each(start, 1);
    if (child < 0 || waitpid(child, NULL, 0) != child)
      lab_fail("fork: %s", strerror(errno));
  }
  cliffs_figure("fork_ns", lab_median(took, FORKS));
}

/* ---- threads at rest ---- */

/* Room for the static thread-local memory of any allocator; only what is touched is resident. */
enum { CREW_STACK = 128 << 10 };
static struct {
  pthread_mutex_t lock;
  pthread_cond_t came, go;
  long at_rest, count;
  bool leaving;
  pthread_t *ids;
  void (*work)(long), (*last)(long);
} crew = { .lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER, .go = PTHREAD_COND_INITIALIZER };

static void *crew_main(void *index) {
  crew.work((long)(intptr_t)index);
  pthread_mutex_lock(&crew.lock);
  crew.at_rest++;
  pthread_cond_signal(&crew.came);
  while (!crew.leaving)
    pthread_cond_wait(&crew.go, &crew.lock);
  pthread_mutex_unlock(&crew.lock);
  if (crew.last)
    crew.last((long)(intptr_t)index);
  return NULL;
}

void crew_start(long threads, void (*work)(long), void (*last)(long)) {
  pthread_attr_t small;
  must(pthread_attr_init(&small), "pthread_attr_init");
  must(pthread_attr_setstacksize(&small, CREW_STACK), "pthread_attr_setstacksize");
  if (!crew.ids)
    crew.ids = lab_map((size_t)threads * sizeof *crew.ids);
  crew.work = work;
  crew.last = last;
  for (long i = 0; i < threads; i++) {
    int error = pthread_create(&crew.ids[i], &small, crew_main, (void *)(intptr_t)i);
    if (error)
      lab_fail("thread %ld of %ld: %s", i + 1, threads, strerror(error));
  }
  pthread_mutex_lock(&crew.lock);
  for (crew.count = threads; crew.at_rest < threads;)
    pthread_cond_wait(&crew.came, &crew.lock);
  pthread_mutex_unlock(&crew.lock);
  pthread_attr_destroy(&small);
}

void crew_end(void) {
  pthread_mutex_lock(&crew.lock);
  crew.leaving = true;
  pthread_cond_broadcast(&crew.go);
  pthread_mutex_unlock(&crew.lock);
  for (long i = 0; i < crew.count; i++)
    pthread_join(crew.ids[i], NULL);
}

/* ---- the prober ---- */

static struct {
  pthread_t thread;
  _Atomic bool stop;
  void (*once)(void);
  long period_us;
  lab_histogram *waits;
} prober;

static void *prober_main(void *unused) {
  (void)unused;
  uint64_t cost = lab_timer_cost();
  while (!prober.stop) {
    uint64_t start = lab_ticks_begin();
    prober.once();
    lab_record(prober.waits, lab_ticks_between(start, lab_ticks_end(), cost));
    nanosleep(&(struct timespec){ 0, prober.period_us * 1000 }, NULL);
  }
  return NULL;
}

void prober_start(void (*once)(void), long period_us) {
  prober.waits = lab_map(sizeof *prober.waits);
  prober.once = once;
  prober.period_us = period_us;
  once();                                           /* a first time is not counted */
  must(pthread_create(&prober.thread, NULL, prober_main, NULL), "pthread_create");
}

const lab_histogram *prober_end(void) {
  prober.stop = true;
  pthread_join(prober.thread, NULL);
  return prober.waits;
}

void prober_figures(const lab_histogram *waits) {
  cliffs_figure("wait_longest_ns", (double)waits->max * lab_tick_ns());
  cliffs_figure("wait_mean_ns", waits->total ? waits->sum / (double)waits->total * lab_tick_ns() : 0);
}

/* ---- */

static const struct kind *choose(void) {
  static const struct { const char *name; int bit; } forms[] = {
    { "malloc", PLAIN }, { "epoch", IN_EPOCHS }, { "mi-heap", IN_HEAPS },
  };
  const struct kind *kind = kinds;
  while (strcmp(kind->name, kind_name) != 0)
    kind++;
  for (unsigned i = 0; i < sizeof forms / sizeof *forms; i++)
    if (strcmp(forms[i].name, form_name) == 0)
      form = forms[i].bit;
  if (!(kind->forms & form))
    lab_fail("--kind=%s has no form --of=%s", kind_name, form_name);
  return kind;
}

/* Most kinds hold little at their end, so the proof holds blocks of its own. The row counts its calls. */
static void prove(void) {
  enum { HELD = 10000, SIZE = 128 };
  char **held = lab_map(HELD * sizeof *held);
  for (unsigned i = 0; i < HELD; i++)
    held[i] = take(SIZE);
  lab_proof_live(HELD * SIZE);
  lab_calls = HELD;
  for (unsigned i = 0; i < HELD; i++)
    free(held[i]);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  choose()->run();
  lab_row(NULL);
  prove();
  for (unsigned i = 0; i < figure_count; i++)
    lab_metric(figures[i].name, figures[i].value);
  return lab_finish();
}

/* requests: each request allocates 200 objects in an epoch of its own, which ends in one of six ways, and replaces a
 * few sessions of two stores that live as long as the process. After the first tenth memory stays where it is.
 *                                                                                                   requests [long] */
#include "memory.h"

#include <time.h>

enum { OBJECTS = 200, SESSIONS = 2000, SURVIVORS = 64, SAMPLES = 9 };

enum ending { DESTROY, RESET, CLOSE, CLOSE_WITH_SURVIVOR, CLOSE_IN_STEPS, ADVANCE, ENDINGS };
static const char *const names[ENDINGS] = {"destroy",    "reset",  "close", "close with a survivor",
                                           "close_step", "advance"};

struct store {
  tslab_epoch epoch;
  unsigned char *sessions[SESSIONS];
};
static struct store plain, session_epoch; /* epoch 0, and an epoch that is never closed */

static tslab_epoch kept; /* is reset at the end of a request, and serves the next that ends so */
static struct survivor {
  unsigned char *block;
  tslab_epoch epoch;
} survivors[SURVIVORS]; /* each pins its request's epoch until it is freed, 64 such requests later */

static uint64_t session_random = 1, object_random;

static uint64_t draw(uint64_t bound) { return check_random(&object_random) % bound; }

#define EXPECT(request, ending, epoch, condition)                                                                      \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      dprintf(2, "%s:%d: does not hold: %s (errno %d), request %llu, which ends by %s, epoch %#llx\n", __FILE__,       \
              __LINE__, #condition, errno, (unsigned long long)(request), names[ending], (unsigned long long)(epoch)); \
      _exit(1);                                                                                                        \
    }                                                                                                                  \
  } while (0)

/* A session's size follows from its number, so that what is live is always the same. */
static void renew(struct store *store, unsigned number) {
  const size_t size = 64 + number * 37 % 1500;
  unsigned char **const session = &store->sessions[number];
  if (*session) CHECK_COUNT((*session)[size - 1], ==, number & 0xff);
  CHECK(tslab_epoch_enter(store->epoch) == 0);
  tslab_free(*session);
  *session = tslab_malloc(size);
  CHECK(*session != NULL && tslab_epoch_of(*session) == store->epoch);
  memset(*session, (int)(number & 0xff), size);
  CHECK(tslab_epoch_leave(store->epoch) == 0);
}

static tslab_epoch open_destroyable(void) {
  const tslab_epoch_options options = {
      .struct_size = sizeof options, .label = "request", .flags = TSLAB_EPOCH_DESTROYABLE};
  return tslab_epoch_open_with(&options);
}

static void serve(uint64_t number) {
  unsigned char *objects[OBJECTS];
  const enum ending ending = (enum ending)(number % ENDINGS);
  tslab_epoch_report r = {0};
  tslab_epoch_status status;
  tslab_epoch epoch;
  int rc = 0;
  /* So a survivor pins the same memory in each round of the survivors. */
  object_random = number % (ENDINGS * SURVIVORS) + 1;
  switch (ending) {
  case ADVANCE: epoch = tslab_epoch_advance("request", NULL); break;
  case RESET: epoch = kept; break;
  default: epoch = open_destroyable(); break;
  }
  EXPECT(number, ending, epoch, epoch != 0);
  if (ending != ADVANCE) EXPECT(number, ending, epoch, tslab_epoch_enter(epoch) == 0);
  for (unsigned i = 0; i < OBJECTS; i++) {
    const size_t size = draw(100) ? 16 + draw(464) : 16 + draw(20000);
    objects[i] = tslab_malloc(size);
    EXPECT(number, ending, epoch, objects[i] != NULL);
    memset(objects[i], (int)i, size);
    if (i % 64 == 0) {
      EXPECT(number, ending, epoch, tslab_epoch_of(objects[i]) == epoch);
      const uint64_t which = check_random(&session_random) % (2 * SESSIONS);
      renew(which % 2 ? &plain : &session_epoch, (unsigned)which / 2);
    }
  }
  for (unsigned i = 0; i < OBJECTS; i++) EXPECT(number, ending, epoch, objects[i][15] == (unsigned char)i);
  const unsigned freed = ending == DESTROY || ending == RESET ? 0 : OBJECTS;
  const unsigned survivor = ending == CLOSE_WITH_SURVIVOR ? (unsigned)draw(OBJECTS) : OBJECTS;
  for (unsigned i = 0; i < freed; i++)
    if (i != survivor) tslab_free(objects[i]);
  if (ending == ADVANCE) {
    /* The one that it opens serves nothing and is closed by hand. */
    const tslab_epoch next = tslab_epoch_advance("none", &r);
    EXPECT(number, ending, next, next != 0 && tslab_epoch_leave(next) == 0 && tslab_epoch_close(next, NULL) == 0);
  } else {
    EXPECT(number, ending, epoch, tslab_epoch_leave(epoch) == 0);
    switch (ending) {
    case DESTROY: rc = tslab_epoch_destroy(epoch, &r); break;
    case RESET: rc = tslab_epoch_reset(epoch, &r); break;
    case CLOSE_IN_STEPS:
      do rc = tslab_epoch_close_step(epoch, 5000, &r);
      while (rc == EAGAIN);
      break;
    default: rc = tslab_epoch_close(epoch, &r); break;
    }
    EXPECT(number, ending, epoch, rc == 0);
  }
  EXPECT(number, ending, epoch, r.epoch == epoch && r.threads_inside == 0);
  EXPECT(number, ending, epoch, r.live_blocks == OBJECTS - freed + (survivor < OBJECTS));
  rc = tslab_epoch_info(epoch, &status);
  if (ending == RESET) EXPECT(number, ending, epoch, rc == 0 && status.live_blocks == 0);
  else if (ending != CLOSE_WITH_SURVIVOR) EXPECT(number, ending, epoch, rc == ESTALE);
  else {
    EXPECT(number, ending, epoch, rc == 0 && status.state == TSLAB_EPOCH_CLOSING && status.live_blocks == 1);
    struct survivor *const place = &survivors[number / ENDINGS % SURVIVORS];
    tslab_free(place->block);
    if (place->epoch) EXPECT(number, ending, place->epoch, tslab_epoch_info(place->epoch, &status) == ESTALE);
    *place = (struct survivor){objects[survivor], epoch};
  }
}

static int compare(const void *a, const void *b) {
  return *(const size_t *)a < *(const size_t *)b ? -1 : *(const size_t *)a > *(const size_t *)b;
}

/* Serves requests from `number` to `end`. The median of what is resident meanwhile: the reserve and the scavenger come
 * and go. */
static size_t resident_while_serving(uint64_t number, uint64_t end) {
  size_t samples[SAMPLES];
  const uint64_t each = (end - number) / SAMPLES;
  for (unsigned i = 0; i < SAMPLES; i++) {
    for (uint64_t j = 0; j < each; j++) serve(number++);
    samples[i] = resident_bytes();
  }
  while (number < end) serve(number++);
  qsort(samples, SAMPLES, sizeof *samples, compare);
  return samples[SAMPLES / 2];
}

/* Serves requests until the process publishes itself. That takes memory once, some seconds after the start: a slow
 * machine has served a tenth of the requests by then, a fast one has not. One that may not publish is given up on. */
static uint64_t serve_until_published(void) {
  char name[64];
  uint64_t number = 0;
  const time_t end = time(NULL) + 10;
  snprintf(name, sizeof name, "/dev/shm/tslab.%d", (int)getpid());
  while (access(name, F_OK) != 0 && time(NULL) < end)
    for (unsigned i = 0; i < ENDINGS * SURVIVORS; i++) serve(number++);
  return number;
}

static int count_visits(const tslab_epoch_status *status, void *argument) {
  (void)status;
  ++*(unsigned *)argument;
  return 0;
}

int main(int argc, char **argv) {
  const uint64_t requests = argc > 1 && strcmp(argv[1], "long") == 0 ? 1000000 : 100000;
  const uint64_t window = requests / 50;
  tslab_stats_global before, after;
  unsigned visits = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  printf("%llu requests of %d objects\n", (unsigned long long)requests,
         OBJECTS); /* stdio has its buffer from here on */
  CHECK(tslab_stats(&before, sizeof before) == 0);
  CHECK((session_epoch.epoch = tslab_epoch_open("sessions")) != 0);
  CHECK((kept = open_destroyable()) != 0);
  for (unsigned i = 0; i < SESSIONS; i++) {
    renew(&plain, i);
    renew(&session_epoch, i);
  }

  const uint64_t first = serve_until_published(), tenth = first + requests / 10, end = first + requests;
  uint64_t number = first;
  while (number < tenth - window) serve(number++);
  const size_t early = resident_while_serving(number, tenth);
  for (number = tenth; number < end - window;) serve(number++);
  const size_t late = resident_while_serving(number, end);
  /* The newest samples are kept, and published in two snapshots: 40 KiB each that fill while requests are served. */
  const size_t samples = 3 * 40960;
  const size_t allowed = (early / 100 > 65536 ? early / 100 : 65536) + samples;
  printf("resident %zu KiB after a tenth, %zu KiB at the end\n", early >> 10, late >> 10);
  CHECK_COUNT(late, <=, early + allowed);
  CHECK_COUNT(late + allowed, >=, early);

  CHECK(tslab_epoch_each(count_visits, &visits) == 0);
  CHECK_COUNT(visits, ==, 2 + SURVIVORS);
  for (unsigned i = 0; i < SURVIVORS; i++) tslab_free(survivors[i].block);
  for (unsigned i = 0; i < SESSIONS; i++) {
    tslab_free(plain.sessions[i]);
    tslab_free(session_epoch.sessions[i]);
  }
  CHECK(tslab_epoch_destroy(kept, NULL) == 0);
  CHECK(tslab_epoch_close(session_epoch.epoch, NULL) == 0);
  visits = 0;
  CHECK(tslab_epoch_each(count_visits, &visits) == 0);
  CHECK_COUNT(visits, ==, 0);
  CHECK(tslab_stats(&after, sizeof after) == 0);
  CHECK_COUNT(after.live_blocks, >=, before.live_blocks);
  CHECK_COUNT(after.live_blocks, <=, before.live_blocks + 1); /* libc's for the scavenger's thread */
  return 0;
}

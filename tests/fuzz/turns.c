/* turns.c: runs inputs that are made of instructions; see fuzz.h. */
#include "fuzz.h"

#include "base/options.h"

#include <pthread.h>
#include <semaphore.h>

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

bool fuzz_racing, fuzz_purges;

static struct {
  const uint8_t *at;
  size_t ops, next;
} program;

static struct {
  pthread_t thread;
  sem_t turn;
  bool alive;
} workers[THREADS];
static sem_t all_done;
static pthread_attr_t small_stacks; /* an input's threads are new ones, and begin quickly */
static pthread_barrier_t all_here; /* a race begins */

static struct op op_at(size_t i) {
  const uint8_t *const p = program.at + i * OP_BYTES;
  return (struct op){.kind = p[0], .thread = p[1] & (THREADS - 1), .variant = p[1] >> 2, .x = p[2], .a = p[3],
                     .b = p[4]};
}

static void *take_turns(void *argument);

static void wake(unsigned i) {
  if (!workers[i].alive) {
    workers[i].alive = true;
    CHECK(pthread_create(&workers[i].thread, &small_stacks, take_turns, (void *)(uintptr_t)i) == 0);
  }
  sem_post(&workers[i].turn);
}

static void wait_turn(sem_t *turn) {
  while (sem_wait(turn) != 0) {} /* a signal came */
}

/* The thread that has the turn passes it to the thread of the next instruction, and at the end to the first thread. */
static void *take_turns(void *argument) {
  const unsigned self = (unsigned)(uintptr_t)argument;
  for (;;) {
    wait_turn(&workers[self].turn);
    if (program.next == program.ops) return NULL;
    while (program.next < program.ops && op_at(program.next).thread == self) {
      const struct op op = op_at(program.next++);
      if (fuzzer.exits(op)) {
        program.next--; /* so that who waits for the end of this thread goes on after it */
        sem_post(&all_done);
        return NULL;
      }
      fuzzer.step(self, op);
    }
    if (program.next == program.ops) sem_post(&all_done);
    else wake(op_at(program.next).thread);
  }
}

static void retire(unsigned i) {
  CHECK(pthread_join(workers[i].thread, NULL) == 0);
  workers[i].alive = false;
  fuzzer.exited(i);
}

static void run_in_turns(void) {
  while (program.next < program.ops) {
    wake(op_at(program.next).thread);
    wait_turn(&all_done);
    if (program.next < program.ops) retire(op_at(program.next++).thread);
  }
  for (unsigned i = 0; i < THREADS; i++)
    if (workers[i].alive) {
      sem_post(&workers[i].turn);
      retire(i);
    }
}

static void *race(void *argument) {
  const unsigned self = (unsigned)(uintptr_t)argument;
  pthread_barrier_wait(&all_here);
  for (size_t i = 0; i < program.ops; i++) {
    const struct op op = op_at(i);
    if (op.thread == self && !fuzzer.exits(op)) fuzzer.step(self, op);
  }
  return NULL;
}

static void run_racing(void) {
  for (unsigned i = 0; i < THREADS; i++)
    CHECK(pthread_create(&workers[i].thread, &small_stacks, race, (void *)(uintptr_t)i) == 0);
  for (unsigned i = 0; i < THREADS; i++) {
    CHECK(pthread_join(workers[i].thread, NULL) == 0);
    fuzzer.exited(i);
  }
}

static void *finish(void *unused) {
  fuzzer.end();
  return unused;
}

int LLVMFuzzerInitialize(int *count, char ***arguments) {
  (void)count, (void)arguments;
  options.scavenger = 0; /* which would act by the clock */
  options.publish = 0;
  CHECK(pthread_attr_init(&small_stacks) == 0 && pthread_attr_setstacksize(&small_stacks, 256 << 10) == 0);
  CHECK(pthread_barrier_init(&all_here, NULL, THREADS) == 0);
  CHECK(sem_init(&all_done, 0, 0) == 0);
  for (unsigned i = 0; i < THREADS; i++) CHECK(sem_init(&workers[i].turn, 0, 0) == 0);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const size_t samples[] = {1024, 1, 8, 0};
  if (size < 1 + OP_BYTES || size > INPUT_MOST) return -1;
  fuzz_remember(data, size);
  options.sample = samples[data[0] & 3];
  options.reserve_bytes = data[0] & 4 ? 0 : (size_t)1 << 20;
  options.cache_bytes = data[0] & 8 ? 0 : (size_t)2 << 20;
  fuzz_racing = data[0] & 128;
  fuzz_purges = data[0] & 64;
  program.at = data + 1;
  program.ops = (size - 1) / OP_BYTES;
  program.next = 0;
  fuzzer.begin();
  if (fuzz_racing) run_racing();
  else run_in_turns();
  pthread_t last; /* no thread of ours takes anything along to the next input */
  CHECK(pthread_create(&last, &small_stacks, finish, NULL) == 0);
  CHECK(pthread_join(last, NULL) == 0);
  return 0;
}

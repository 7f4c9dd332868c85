/* libc_locks: one thread forks, again and again, while others hold each of libc's locks under which memory may be
 * allocated: that of a stream and of the list of streams, those of atfork handlers, the loader, exit handlers, locales,
 * time zones and name services. Nothing hangs, and each child allocates and ends. The long form goes on for a minute
 * with the locks of streams beside eight threads that allocate.
 *  libc_locks [long] */
#include "../check.h"

#include <dlfcn.h>
#include <locale.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { LINE = 50000, HANDLERS = 500, ALLOCATORS = 8, OWN = 64, PATIENCE_S = 60, MOST = 8 };

static _Atomic int stop, forks;
static char name[] = "/tmp/libc_locks.XXXXXX";

static void use_heap(void) {
  void *blocks[OWN];
  for (size_t i = 0; i < OWN; i++) CHECK((blocks[i] = tslab_malloc(i * i * 7 + 1)) != NULL);
  for (size_t i = 0; i < OWN; i++) tslab_free(blocks[i]);
}

/* ---- who holds what ---------------------------------------------------------------------------------------------- */

/* The line's buffer grows while the stream is locked, and larger each time, so that a list of free blocks ends. */
static void read_lines(void) {
  FILE *const file = fopen(name, "r");
  char *line = NULL;
  size_t size = 0;
  CHECK(file != NULL);
  while (!stop) {
    rewind(file);
    CHECK(getline(&line, &size, file) == LINE + 1);
    tslab_free(line);
    line = NULL;
    size = 0;
  }
  fclose(file);
}

static void flush_all(void) {
  while (!stop) fflush(NULL);
}

/* A handler cannot be taken back, but with its library; so there are few, one for each fork that was seen. */
static void nothing(void) {}
static void register_handlers(void) {
  for (int i = 0, seen = 0; i < HANDLERS && !stop; i++, seen = forks) {
    CHECK(pthread_atfork(nothing, nothing, nothing) == 0);
    while (forks == seen && !stop) use_heap();
  }
}

static void load_libraries(void) {
  while (!stop) {
    void *const library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    if (library) dlclose(library);
    use_heap();
  }
}

static void set_locales(void) {
  while (!stop) {
    setlocale(LC_ALL, "C.UTF-8");
    setlocale(LC_ALL, "C");
  }
}

static void set_time_zones(void) {
  for (unsigned i = 0; !stop; i++) {
    static char zone[2][16] = {"TZ=AAA-1", "TZ=BBB+1"};
    CHECK(putenv(zone[i % 2]) == 0);
    tzset();
  }
}

static void look_up_names(void) {
  struct passwd entry, *found;
  char buffer[4096];
  while (!stop) getpwnam_r("root", &entry, buffer, sizeof buffer, &found);
}

static void keep_allocating(void) {
  while (!stop) use_heap();
}

/* ---- forking ----------------------------------------------------------------------------------------------------- */

static void *run(void *body) {
  ((void (*)(void))(uintptr_t)body)();
  return NULL;
}

static void fork_once(void) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(PATIENCE_S);
    use_heap();
    _exit(0);
  }
  alarm(PATIENCE_S); /* for each fork */
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  forks++;
}

static void fork_beside(int times, int seconds, void (*const bodies[])(void), int count) {
  const time_t end = time(NULL) + seconds;
  pthread_t threads[MOST + ALLOCATORS];
  stop = forks = 0;
  for (int i = 0; i < count; i++) CHECK(pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)bodies[i]) == 0);
  while (forks < times || time(NULL) < end) fork_once();
  stop = 1;
  for (int i = 0; i < count; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* libc reads which services there are at the first look-up, under a lock: once in each process. */
static void first_look_up(void) {
  void (*const bodies[])(void) = {look_up_names};
  fork_beside(3, 0, bodies, 1);
  _exit(0);
}

static void make_file(void) {
  const int file = mkstemp(name);
  CHECK(file >= 0);
  FILE *const out = fdopen(file, "w");
  for (int i = 0; i < LINE; i++) fputc('x', out);
  fputc('\n', out);
  CHECK(fclose(out) == 0);
}

int main(int argc, char **argv) {
  const int is_long = argc > 1 && strcmp(argv[1], "long") == 0;
  const int many = is_long ? 50 : 1, times = many * 400 / TEST_SCALE;
  void (*const streams[])(void) = {read_lines, flush_all};
  void (*const handlers[])(void) = {register_handlers};
  void (*const others[])(void) = {load_libraries, set_locales, set_time_zones, look_up_names};
  void (*const busy[MOST + ALLOCATORS])(void) = {read_lines,      flush_all,       register_handlers, load_libraries,
                                                keep_allocating, keep_allocating, keep_allocating,   keep_allocating,
                                                keep_allocating, keep_allocating, keep_allocating,   keep_allocating};
  void (*const beside[2 + ALLOCATORS])(void) = {read_lines,      flush_all,       keep_allocating, keep_allocating,
                                                keep_allocating, keep_allocating, keep_allocating, keep_allocating,
                                                keep_allocating, keep_allocating};
  make_file();
  for (int i = 0; i < many * 20; i++) {
    int status;
    const pid_t child = fork();
    if (child == 0) first_look_up();
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  fork_beside(times, 0, streams, 2);
  fork_beside(times, 0, handlers, 1);
  fork_beside(times, 0, others, 4);
  fork_beside(times / 10, 0, busy, 4 + ALLOCATORS);
  if (is_long) fork_beside(0, 60, beside, 2 + ALLOCATORS);
  unlink(name);
  return 0;
}

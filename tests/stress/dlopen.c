/* dlopen: the library is loaded into a process that already runs threads, serves them, and may be closed while blocks
 * are in use. Its static TLS, three words, fits the 512 bytes that glibc leaves for late comers. It does not hear of
 * threads: two of them, which it never serves, may fork at once, and keep their signals and libc's list of streams.
 * The process may have this library already, by LD_PRELOAD. Each of the two then has a libc of its own and keeps a
 * thread's heap under the same key. Threads that only the second one serves end as others do.
 *  dlopen LIBRARY [forks|copy] */
#include "../check.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { THREADS = 4, BLOCKS = 2000, FORKS = 2000 };

static pthread_barrier_t loaded;
static void *(*library_malloc)(size_t);
static void *(*library_realloc)(void *, size_t);
static void (*library_free)(void *);
static bool (*library_owns)(const void *);

static void use_library(void) {
  static _Thread_local unsigned char *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = library_malloc(i);
    CHECK(blocks[i] != NULL && library_owns(blocks[i]));
    memset(blocks[i], (int)i, i);
  }
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = library_realloc(blocks[i], 3 * i + 1);
    CHECK(blocks[i] != NULL);
    for (size_t j = 0; j < i; j += 7) CHECK(blocks[i][j] == (unsigned char)i);
    library_free(blocks[i]);
  }
}

static void *wait_and_use(void *unused) {
  pthread_barrier_wait(&loaded);
  use_library();
  return unused;
}

static void *fork_often(void *unused) {
  for (int i = 0; i < FORKS; i++) {
    sigset_t blocked;
    const pid_t child = fork();
    if (child == 0) _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 && !sigismember(&blocked, SIGUSR1));
  }
  fflush(NULL);
  return unused;
}

static int check_tls(struct dl_phdr_info *info, size_t size, void *name) {
  (void)size;
  if (!strstr(info->dlpi_name, name)) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_TLS) CHECK_COUNT(info->dlpi_phdr[i].p_memsz, <=, 24);
  return 1;
}

/* dlsym answers with a data pointer; POSIX has it hold a function's address. */
static void find(void *library, const char *name, void *function) {
  void *address = dlsym(library, name);
  CHECK(address != NULL);
  memcpy(function, &address, sizeof address);
}

static void fork_at_once(const char *name) {
  pthread_t threads[2];
  CHECK(dlopen(name, RTLD_NOW | RTLD_LOCAL) != NULL);
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, fork_often, NULL) == 0);
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void find_all(void *library) {
  if (!library) dprintf(2, "%s\n", dlerror());
  CHECK(library != NULL);
  find(library, "tslab_malloc", &library_malloc);
  find(library, "tslab_realloc", &library_realloc);
  find(library, "tslab_free", &library_free);
  find(library, "tslab_owns", &library_owns);
}

static void *use_and_end(void *unused) {
  use_library();
  return unused;
}

static void use_copy(const char *name) {
  find_all(dlmopen(LM_ID_NEWLM, name, RTLD_NOW));
  for (int i = 0; i < THREADS; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use_and_end, NULL) == 0 && pthread_join(thread, NULL) == 0);
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 2 || argc == 3);
  if (argc == 3) return (strcmp(argv[2], "forks") == 0 ? fork_at_once : use_copy)(argv[1]), 0;
  pthread_t threads[THREADS];
  CHECK(pthread_barrier_init(&loaded, NULL, THREADS + 1) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, wait_and_use, NULL) == 0);

  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  find_all(library);
  CHECK(dl_iterate_phdr(check_tls, (void *)(uintptr_t)"libtslab") == 1);
  pthread_barrier_wait(&loaded);
  use_library();
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);

  void *ours = malloc(100); /* still the C library's */
  CHECK(ours != NULL && !library_owns(ours));
  free(ours);
  void *block = library_malloc(100);
  CHECK(dlclose(library) == 0);
  library_free(block); /* the library stays while its blocks may */
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL);
  use_library();
  return 0;
}

/* loader_threads: a program loads many plugins with thread-local storage. glibc keeps its lists of these for 62
 * libraries at a time, and allocates the next list when its count is already higher. The library must not make its
 * thread in that malloc: glibc would end the process.
 *  loader_threads PLUGIN */
#include "../check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { PLUGINS = 75, FIRST = 58, LAST = 66, SHIFTS = 4, STEP = 3 };

static char folder[] = "/tmp/tslab-loader-XXXXXX";

static const char *path_of(int number) {
  static char path[sizeof folder + 32];
  snprintf(path, sizeof path, "%s/%d.so", folder, number);
  return path;
}

/* glibc takes files with different numbers for different libraries. */
static void copy_plugin(const char *plugin, int number) {
  struct stat status;
  const int from = open(plugin, O_RDONLY), to = open(path_of(number), O_WRONLY | O_CREAT | O_EXCL, 0700);
  CHECK(from >= 0 && to >= 0 && fstat(from, &status) == 0);
  CHECK(sendfile(to, from, NULL, (size_t)status.st_size) == status.st_size);
  CHECK(close(from) == 0 && close(to) == 0);
}

static void *nothing(void *unused) { return unused; }

/* The first slow path after more than a second makes the library's thread. The mallocs in between decide which one of
 * the loader's is such a path. */
static void load_all(int pause_before, int shift) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
  for (int i = 1; i <= PLUGINS; i++) {
    for (int k = 0; i == pause_before && k < shift; k++) {
      void *volatile lost = malloc(1237);
      CHECK(lost != NULL);
    }
    if (i == pause_before) usleep(1300000);
    CHECK(dlopen(path_of(i), RTLD_NOW) != NULL);
  }
}

int main(int argc, char **argv) {
  int status, wrong = 0;
  CHECK(argc == 2 && mkdtemp(folder));
  for (int i = 1; i <= PLUGINS; i++) copy_plugin(argv[1], i);
  for (int at = FIRST; at <= LAST; at++) {
    for (int shift = 0; shift < SHIFTS; shift++) {
      const pid_t child = fork();
      if (child > 0) continue;
      load_all(at, shift * STEP);
      _exit(0);
    }
    for (int i = 0; i < SHIFTS; i++) {
      CHECK(wait(&status) > 0);
      wrong += status != 0;
    }
  }
  for (int i = 1; i <= PLUGINS; i++) unlink(path_of(i));
  rmdir(folder);
  CHECK_COUNT(wrong, ==, 0);
  return 0;
}

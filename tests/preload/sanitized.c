/* sanitized: a program under a sanitizer makes the calls that a preloaded library sees: it allocates, in threads too,
 * forks, loads a library, and limits its address space. It prints "ok".
 *
 * Threads take turns: gcc's ThreadSanitizer, a shared library, sees neither our malloc nor our free, so a block that
 * passes from one thread to another is a race to it, unless the program orders the two. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *argument) {
  for (size_t i = 1; i < 2000; i++) {
    pthread_mutex_lock(&turn);
    char *block = malloc(i * 7);
    memset(block, 1, i * 7);
    block = realloc(block, i * 11);
    free(calloc(i, 3));
    free(block);
    pthread_mutex_unlock(&turn);
  }
  return argument;
}

int main(void) {
  pthread_t threads[3];
  work(NULL);
  for (int i = 0; i < 3; i++)
    if (pthread_create(&threads[i], NULL, work, NULL) != 0) return 1;
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  dlopen("libresolv.so.2", RTLD_NOW);
  const pid_t child = fork();
  if (child == 0) {
    work(NULL);
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
  if (status == 0 && setrlimit(RLIMIT_AS, &none) == 0) puts("ok");
  return 0;
}

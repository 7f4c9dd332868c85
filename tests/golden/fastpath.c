/* fastpath: which instructions of an allocator one warm call executes.
 *
 *   fastpath LIBRARY      each line of its output is one measured call: the entry point's name, a tab, then the
 *                         link-time addresses of the library's instructions in the order executed, with a dash where
 *                         the call left the library; "absent" when the library lacks the entry point
 *
 * It restarts itself with the library preloaded and forks, so that parent and child have it at the same place. The
 * child warms its caches and makes the calls, each between two marker functions; the parent single-steps the child from
 * one marker to the other and keeps only addresses inside the library, which leaves out the caller and its PLT.
 * An allocator may visit a slow path once in many calls, so every call is measured TRIALS times: the reader takes the
 * commonest path. Exit status: 0, or 1 after a message on standard error.                                         */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#define PROGRAM_COUNTER(registers) ((registers).rip)
#elif defined(__aarch64__)
#define PROGRAM_COUNTER(registers) ((registers).pc)
#else
#error "fastpath: name this architecture's program counter here"
#endif

enum {
  TRIALS = 15,
  BLOCK = 64,
  WARM_BLOCKS = 64,    /* enough that no list is empty, few enough that no list is full */
  WARM_ROUNDS = 500,   /* a cache may earn its length by use; one of 128 blocks visits at every second trial's call */
  STEP_LIMIT = 100000, /* a call that takes more never ends: single-stepping breaks load-exclusive loops on aarch64 */
};

static struct {
  void *(*malloc)(size_t);
  void (*free)(void *);
  void *(*calloc)(size_t, size_t);
  void *(*realloc)(void *, size_t);
  void *(*new)(size_t);
  void (*delete)(void *);
  void (*delete_sized)(void *, size_t);
} library;

static struct {
  struct stat file;
  uintptr_t base; /* the loader added this to link-time addresses */
  struct {
    uintptr_t begin, end;
  } text[8];
  int texts;
} object;

static _Noreturn __attribute__((format(printf, 1, 2))) void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("fastpath: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  _exit(1);
}

static _Noreturn void fail_ptrace(const char *request) {
  fail("this process may not single-step its own child (%s: %s).\n"
       "  In a container, allow ptrace: docker run --cap-add=SYS_PTRACE (or --security-opt seccomp=unconfined).\n"
       "  Where /proc/sys/kernel/yama/ptrace_scope is 3, no process may be traced until a boot with a lower value.\n"
       "  Under qemu-user or another debugger there is no single-stepping: run it on the machine itself.",
       request, strerror(errno));
}

/* ---- the child: the calls ---------------------------------------------------------------------------------------- */

/* The stores differ, so that the compiler cannot merge the two functions into one address. */
static volatile int stage;
static __attribute__((noinline)) void call_begins(void) { stage = 1; }
static __attribute__((noinline)) void call_ends(void) { stage = 2; }

static void call_malloc(void) {
  call_begins();
  void *block = library.malloc(BLOCK);
  call_ends();
  library.free(block);
}

static void call_free(void) {
  void *block = library.malloc(BLOCK);
  call_begins();
  library.free(block);
  call_ends();
}

static void call_pair(void) {
  call_begins();
  library.free(library.malloc(BLOCK));
  call_ends();
}

static void call_calloc(void) {
  call_begins();
  void *block = library.calloc(1, BLOCK);
  call_ends();
  library.free(block);
}

static void call_realloc(void) {
  void *block = library.malloc(BLOCK);
  call_begins();
  block = library.realloc(block, BLOCK);
  call_ends();
  library.free(block);
}

static void call_new(void) {
  call_begins();
  void *block = library.new(BLOCK);
  call_ends();
  library.delete(block);
}

static void call_delete(void) {
  void *block = library.new(BLOCK);
  call_begins();
  library.delete(block);
  call_ends();
}

static void call_delete_sized(void) {
  void *block = library.new(BLOCK);
  call_begins();
  library.delete_sized(block, BLOCK);
  call_ends();
}

static const struct {
  const char *name;
  void (*call)(void);
  bool cxx;
} entries[] = {
  {"malloc(64)", call_malloc, false},
  {"free", call_free, false},
  {"malloc(64) + free", call_pair, false},
  {"calloc(1, 64)", call_calloc, false},
  {"realloc(block, 64)", call_realloc, false},
  {"operator new(64)", call_new, true},
  {"operator delete", call_delete, true},
  {"operator delete, sized", call_delete_sized, true},
};
enum { ENTRIES = sizeof entries / sizeof *entries };

static bool absent(int entry) { return entries[entry].cxx && !library.delete_sized; }

static void warm(void) {
  void *blocks[WARM_BLOCKS];
  for (int i = 0; i < WARM_BLOCKS; i++) blocks[i] = library.malloc(BLOCK);
  for (int i = 0; i < WARM_BLOCKS; i++) library.free(blocks[i]);
}

static _Noreturn void child(void) {
  if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) fail_ptrace("PTRACE_TRACEME");
  library.malloc(BLOCK); /* kept: a first block of a slab may be page-aligned; jemalloc's sized delete is slow for it */
  for (int round = 0; round < WARM_ROUNDS; round++) warm();
  for (int entry = 0; entry < ENTRIES; entry++) {
    if (absent(entry)) continue;
    for (int trial = 0; trial < TRIALS; trial++) {
      warm();
      raise(SIGSTOP); /* from here the parent steps until call_ends */
      entries[entry].call();
    }
  }
  _exit(0);
}

/* ---- the parent: the steps --------------------------------------------------------------------------------------- */

static bool in_library(uintptr_t pc) {
  for (int i = 0; i < object.texts; i++)
    if (pc >= object.text[i].begin && pc < object.text[i].end) return true;
  return false;
}

static void await_stop(pid_t pid, int expected) {
  int status;
  if (waitpid(pid, &status, 0) != pid) fail("waitpid: %s", strerror(errno));
  if (WIFSTOPPED(status) && WSTOPSIG(status) == expected) return;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1) _exit(1); /* the child has said why */
  fail("the measured child %s %d where a stop with signal %d was expected",
       WIFEXITED(status) ? "ended with status" : WIFSIGNALED(status) ? "was killed by signal" : "stopped with signal",
       WIFEXITED(status) ? WEXITSTATUS(status) : WIFSIGNALED(status) ? WTERMSIG(status) : WSTOPSIG(status), expected);
}

static uintptr_t step(pid_t pid) {
  struct user_regs_struct registers;
  struct iovec view = {&registers, sizeof registers};
  if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL)) fail_ptrace("PTRACE_SINGLESTEP");
  await_stop(pid, SIGTRAP);
  if (ptrace(PTRACE_GETREGSET, pid, (void *)(uintptr_t)NT_PRSTATUS, &view)) fail_ptrace("PTRACE_GETREGSET");
  return PROGRAM_COUNTER(registers);
}

static void trace_call(pid_t pid, int entry) {
  int steps = 0;
  uintptr_t pc;
  while ((pc = step(pid)) != (uintptr_t)call_begins)
    if (++steps > STEP_LIMIT) fail("%s: the call did not begin within %d instructions", entries[entry].name, steps);

  printf("%s\t", entries[entry].name);
  uintptr_t last = 0;
  bool entered = false, outside = false;
  while ((pc = step(pid)) != (uintptr_t)call_ends) {
    if (++steps > STEP_LIMIT) fail("%s: the call did not end within %d instructions", entries[entry].name, steps);
    if (!in_library(pc)) {
      outside = true;
    } else if (pc != last) { /* a repeated string instruction traps at every round, and is one instruction */
      printf(" %s%jx", entered && outside ? "- " : "", (uintmax_t)(pc - object.base));
      entered = true;
      outside = false;
    }
    last = pc;
  }
  putchar('\n');
}

static void trace(pid_t pid) {
  await_stop(pid, SIGSTOP);
  if (ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(uintptr_t)PTRACE_O_EXITKILL)) fail_ptrace("PTRACE_SETOPTIONS");
  bool first = true;
  for (int entry = 0; entry < ENTRIES; entry++) {
    if (absent(entry)) printf("%s\tabsent\n", entries[entry].name);
    for (int trial = 0; trial < TRIALS && !absent(entry); trial++) {
      if (!first) {
        if (ptrace(PTRACE_CONT, pid, NULL, NULL)) fail_ptrace("PTRACE_CONT");
        await_stop(pid, SIGSTOP);
      }
      first = false;
      trace_call(pid, entry);
    }
  }
}

/* ---- the library ------------------------------------------------------------------------------------------------- */

static int note_object(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size, (void)unused;
  struct stat file;
  if (stat(info->dlpi_name, &file) || file.st_dev != object.file.st_dev || file.st_ino != object.file.st_ino) return 0;
  object.base = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X) || object.texts == 8) continue;
    object.text[object.texts].begin = object.base + segment->p_vaddr;
    object.text[object.texts++].end = object.base + segment->p_vaddr + segment->p_memsz;
  }
  return 1;
}

/* The entry point as this process sees it, or NULL when another object provides it. */
static void *entry_point(const char *name) {
  void *address = dlsym(RTLD_DEFAULT, name);
  return in_library((uintptr_t)address) ? address : NULL;
}

static void find_library(const char *path) {
  dl_iterate_phdr(note_object, NULL);
  *(void **)&library.malloc = entry_point("malloc");
  *(void **)&library.free = entry_point("free");
  *(void **)&library.calloc = entry_point("calloc");
  *(void **)&library.realloc = entry_point("realloc");
  *(void **)&library.new = entry_point("_Znwm");
  *(void **)&library.delete = entry_point("_ZdlPv");
  *(void **)&library.delete_sized = entry_point("_ZdlPvm");
  if (!library.malloc || !library.free || !library.calloc || !library.realloc)
    fail("%s does not replace malloc, free, calloc and realloc here: is it an allocator built for this machine?", path);
  if (!library.new || !library.delete) library.delete_sized = NULL;
}

int main(int argc, char **argv) {
  char path[4096];
  if (argc != 2) fail("usage: fastpath LIBRARY");
  if (!realpath(argv[1], path) || stat(path, &object.file)) fail("%s: %s", argv[1], strerror(errno));
  if (strpbrk(path, " :")) fail("%s: the loader cannot preload a path with a space or a colon; move it", path);

  const char *preload = getenv("LD_PRELOAD");
  if (!preload || strcmp(preload, path)) {
    setenv("LD_PRELOAD", path, 1);
    execv("/proc/self/exe", argv);
    fail("cannot start itself again: %s", strerror(errno));
  }
  find_library(path);

  pid_t pid = fork();
  if (pid < 0) fail("fork: %s", strerror(errno));
  if (!pid) child();
  trace(pid);
  return 0;
}

/* interpose: replaces functions of libc, so that programs run with this library as without it.      floor: runtime
 *
 *   pthread_create, thrd_create, dlopen,     allocate in epoch 0, inside a scope too
 *   dlmopen, __cxa_atexit
 *   fork                                     takes no lock of libc's in a program of one thread
 *   fork, _Fork                              do not count the scavenger among the child's threads
 *   fork, pthread_create, thrd_create        end the scavenger where it has the last process that a limit allows, and
 *                                            unmap free memory where it leaves no room
 *   mremap                                   waits while the scavenger moves the pages
 *   setrlimit, prlimit, mlockall             give back the unused reservation, and unmap free memory, before they limit
 *                                            or lock addresses
 *   unshare, setns                           end the scavenger, which would stay in the old namespace
 *   setuid and all of its family             end the scavenger, which may have other capabilities
 *   prctl, libseccomp's seccomp_load         let the library make no thread behind a filter of system calls
 *
 * The first five allocate memory that outlives every scope: libc keeps a thread's stack and its thread-local storage
 * for later threads, and a loaded library and a list of exit handlers for the process. In a request's epoch this memory
 * would pin the epoch, or dangle after its destroy. Outside a scope these calls jump straight to libc's function, so
 * that dlopen and dlmopen see their true caller. Only the shared library has all these: a static program has no next
 * definition to find. */
#include "runtime/interpose.h"

#include "epoch/scope.h"
#include "os/os.h"
#include "process/process.h"
#include "runtime/birth.h"
#include "runtime/scavenger.h"
#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
typedef int create_simply_function(thrd_t *, thrd_start_t, void *);
typedef void *open_function(const char *, int);
typedef int exit_function(void (*)(void *), void *, void *);
typedef pid_t fork_function(void);
typedef int control_function(int, ...);
typedef void *remap_function(void *, size_t, size_t, int, ...);
exit_function __cxa_atexit; /* no header of libc declares it */

static create_function *_Atomic next_create;
static create_simply_function *_Atomic next_create_simply;
static open_function *_Atomic next_open;
static exit_function *_Atomic next_exit;
static fork_function *_Atomic next_fork, *_Atomic next_bare_fork;
static volatile char *libc_is_single; /* libc's own __libc_single_threaded, of which the program may have a copy */
static control_function *_Atomic next_control;
static remap_function *_Atomic next_remap;
static bool setuid_is_replaced; /* by a library behind this one */
static unsigned *libc_threads_count; /* glibc's own count of the threads that it made, and the first */

/* Libc's definition: the next one after ours. dlsym waits for a thread that is loading a library. That thread may
 * itself wait for this one, if a constructor in the library joins it. So find_next looks names up before there are
 * threads, and find_more before the program makes a thread or loads a library. */
#define NEXT(place, name) \
  (atomic_load_explicit(&(place), memory_order_relaxed) ? atomic_load_explicit(&(place), memory_order_relaxed) \
                                                        : (place = (__typeof__(place))dlsym(RTLD_NEXT, name)))

static int create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument);
static struct thread_calls libc_threads = {create, pthread_join, pthread_detach};

/* Behind libc in the loader's order there is no next definition, and the program calls libc's functions. */
static bool find_thread_calls(void) {
  libc_threads.join = (__typeof__(libc_threads.join))dlsym(RTLD_NEXT, "pthread_join");
  libc_threads.detach = (__typeof__(libc_threads.detach))dlsym(RTLD_NEXT, "pthread_detach");
  return NEXT(next_create, "pthread_create") && libc_threads.join && libc_threads.detach;
}

/* Returns true if the program's pthread_create is ours, or one that may call ours. It is libc's if libc comes first, or
 * if dlopen loaded this library. */
static bool hears_of_threads(void) {
  void *next = (void *)(uintptr_t)atomic_load_explicit(&next_create, memory_order_relaxed);
  return next && dlsym(RTLD_DEFAULT, "pthread_create") != next;
}

__attribute__((constructor(101))) static void find_next(void) {
  if (find_thread_calls()) scavenger_use(&libc_threads);
  (void)NEXT(next_exit, "__cxa_atexit");
  (void)NEXT(next_fork, "fork"); /* a signal handler may be the first to fork */
  (void)NEXT(next_bare_fork, "_Fork");
  (void)NEXT(next_control, "prctl");
  (void)NEXT(next_remap, "mremap");
  setuid_is_replaced = !os_is_in_one_library(dlsym(RTLD_NEXT, "setuid"), dlsym(RTLD_NEXT, "__libc_start_main"));
  libc_is_single = dlsym(RTLD_NEXT, "__libc_single_threaded");
  libc_threads_count = dlsym(RTLD_NEXT, "__nptl_nthreads");
  if (hears_of_threads()) birth_expect_notes();
}

static _Atomic bool knows_more;
static COLD void find_more(void);
static void expect_threads(void) {
  if (UNLIKELY(!atomic_load_explicit(&knows_more, memory_order_acquire))) find_more();
}

static bool is_in_scope(void) { return current_heap->arena != NULL; }

/* Enters epoch 0. In a thread that already is in TSLAB_SCOPES scopes this fails, and the call allocates in the scope's
 * epoch. */
static bool enter_default(void) { return scope_enter(current_thread, 0) == 0; }
static void leave_default(bool entered) {
  if (entered) scope_leave(current_thread, 0);
}

/* Returns false in a signal handler that interrupted this thread while it holds a lock, perhaps the one that a trim
 * takes. Later slow paths then notice a limit, as they notice one that another process set. A vfork child sees its
 * parent's heap. */
static bool may_trim(void) { return process_has_started() && locks_held == 0 && !process_is_visitor(); }

/* The process may have begun under a limit of addresses or data. Then our reservation and free memory may leave no room
 * for a thread's stack. */
static COLD bool make_room(void) {
  size_t limit = os_address_space_limit();
  bool is_limited = limit != SIZE_MAX, counts = is_limited || pages_counts_mapped() || os_data_is_limited();
  if (!counts || !may_trim()) return false;
  if (is_limited) pages_trim_reservation(limit);
  pages_unmap_free();
  return true;
}

/* Under strict overcommit (vm.overcommit_memory 2) a fork needs as much memory as the process may write to. */
static COLD bool make_room_for_fork(void) {
  if (!may_trim()) return false;
  pages_unmap_free();
  return true;
}

/* Returns true in a signal handler that interrupted this thread in the middle of a change, for whose end the scavenger
 * may wait. */
static bool is_in_change(void) {
  const struct heap *plain = current_thread ? current_thread->plain : current_heap;
  return locks_held != 0 || current_heap->sampling.sequence % 2 != 0 || plain->sampling.sequence % 2 != 0;
}

/* Ends the scavenger; a later slow path makes a new one. Returns false if there is none, or if it only ends soon. A
 * vfork child has no scavenger. */
static COLD bool end_scavenger(void) {
  return scavenger_is_there() && !process_is_visitor() && scavenger_dismiss(!is_in_change());
}

/* A program may move the pages of its own blocks. The kernel refuses most moves of several mappings. */
SHOWN void *mremap(void *at, size_t length, size_t wanted, int flags, ...) {
  va_list more;
  va_start(more, flags);
  void *to = va_arg(more, void *);
  va_end(more);
  remap_function *next = atomic_load_explicit(&next_remap, memory_order_relaxed);
  os_begin_taking(at, length);
  void *mapped = next ? next(at, length, wanted, flags, to)
                      : (void *)syscall(SYS_mremap, at, length, wanted, flags, to); /* before find_next */
  os_end_taking();
  return mapped;
}

static int create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
  create_function *next = NEXT(next_create, "pthread_create");
  int error = next(thread, attributes, start, argument);
  return UNLIKELY(error == EAGAIN) && make_room() ? next(thread, attributes, start, argument) : error;
}

/* A limit of processes counts threads (RLIMIT_NPROC, pids.max). Then the scavenger may have the program's last one, and
 * another thread may make the next scavenger before this thread tries again. */
#define PLACE_TRIES 3
static int create_in_its_place(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                               void *argument) {
  int error = create(thread, attributes, start, argument);
  for (int tries = 0; UNLIKELY(error == EAGAIN) && tries < PLACE_TRIES && end_scavenger(); tries++)
    error = create(thread, attributes, start, argument);
  return error;
}

static int create_for_program(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                              void *argument) {
  birth_note_thread();
  expect_threads();
  return create_in_its_place(thread, attributes, start, argument);
}

SHOWN int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
  if (UNLIKELY(scavenger_is_made_here())) return create(thread, attributes, start, argument);
  if (process_has_started()) scavenger_notice_thread();
  if (LIKELY(!is_in_scope())) return create_for_program(thread, attributes, start, argument);
  bool entered = enter_default();
  int error = create_for_program(thread, attributes, start, argument);
  leave_default(entered);
  return error;
}

/* libc's thrd_create calls no pthread_create that a library can replace. Its word for EAGAIN is thrd_error. */
static int create_simply(thrd_t *thread, thrd_start_t start, void *argument) {
  birth_note_thread();
  expect_threads();
  create_simply_function *next = NEXT(next_create_simply, "thrd_create");
  int result = next(thread, start, argument);
  if (UNLIKELY(result == thrd_error) && make_room()) result = next(thread, start, argument);
  for (int tries = 0; UNLIKELY(result == thrd_error) && tries < PLACE_TRIES && end_scavenger(); tries++)
    result = next(thread, start, argument);
  return result;
}

SHOWN int thrd_create(thrd_t *thread, thrd_start_t start, void *argument) {
  if (process_has_started()) scavenger_notice_thread();
  if (LIKELY(!is_in_scope())) return create_simply(thread, start, argument);
  bool entered = enter_default();
  int result = create_simply(thread, start, argument);
  leave_default(entered);
  return result;
}

/* A library loaded with RTLD_DEEPBIND finds libc's malloc and free before ours, while libc itself calls ours. So the
 * wrong free gets the first block that crosses, for instance a strdup. PHP loads all its modules in this way. */
#ifdef RTLD_DEEPBIND
enum { UNSAFE_MODES = RTLD_DEEPBIND };
#else
enum { UNSAFE_MODES = 0 };
#endif

SHOWN void *dlopen(const char *file, int mode) {
  mode &= ~UNSAFE_MODES;
  expect_threads();
  if (LIKELY(!is_in_scope())) return NEXT(next_open, "dlopen")(file, mode);
  bool entered = enter_default();
  void *library = NEXT(next_open, "dlopen")(file, mode);
  leave_default(entered);
  return library;
}

/* A library of another namespace takes malloc and free from there, and so does its libc. */
#ifdef LM_ID_BASE
typedef void *open_in_function(Lmid_t, const char *, int);
static open_in_function *_Atomic next_open_in;

SHOWN void *dlmopen(Lmid_t space, const char *file, int mode) {
  if (space == LM_ID_BASE) mode &= ~UNSAFE_MODES;
  expect_threads();
  if (LIKELY(!is_in_scope())) return NEXT(next_open_in, "dlmopen")(space, file, mode);
  bool entered = enter_default();
  void *library = NEXT(next_open_in, "dlmopen")(space, file, mode);
  leave_default(entered);
  return library;
}
#endif

static pid_t fork_in_its_place(void) {
  fork_function *next = NEXT(next_fork, "fork");
  pid_t child = next();
  if (UNLIKELY(child < 0) && errno == ENOMEM && make_room_for_fork()) child = next();
  for (int tries = 0; UNLIKELY(child < 0) && errno == EAGAIN && tries < PLACE_TRIES && end_scavenger(); tries++)
    child = next(); /* see create_in_its_place */
  return child;
}

static bool is_only_ours(unsigned threads) { return threads == 1 || (threads == 2 && scavenger_is_there()); }

/* Returns true if the process is known to have no thread but this one and the scavenger. libc makes some threads by
 * names of its own, for instance for timers, and counts them, but not anew in a child that clone made. The kernel's
 * list needs /proc, and has workers of io_uring, too. */
static bool is_alone(void) {
  if (birth_had_threads()) return false;
  return (libc_threads_count && is_only_ours(*libc_threads_count)) || is_only_ours(process_threads());
}

unsigned libc_other_threads(void) {
  unsigned count = libc_threads_count ? *libc_threads_count : 0, ours = scavenger_is_there() ? 2 : 1;
  return count > ours ? count - ours : 0;
}

/* For a child for which glibc did not count its threads anew, once. The thread that glibc believes to be the last calls
 * exit when it ends, so that handlers of atexit run. */
void libc_uncount_scavenger(void) {
  static _Atomic uint32_t uncounted_in;
  if (atomic_exchange(&uncounted_in, os_process_id()) == os_process_id()) return;
  if (libc_threads_count && *libc_threads_count > 1) --*libc_threads_count;
}

/* glibc counts a child's threads anew only if it believed at the start of the fork that there are several. Then the
 * count is 1 here. Otherwise the scavenger may be counted, also one that a handler of the program's brought to life
 * after that start. glibc's daemon and forkpty come here, too. */
void libc_begin_child(void) {
  if (birth_had_threads() || !libc_is_single) return;
  libc_uncount_scavenger();
  *libc_is_single = true;
}

/* A signal handler may call fork, and so interrupt a fork, fflush(NULL) or getpwnam. In a process of several threads
 * glibc's fork takes locks that the interrupted call may hold, and the scavenger is a second thread. So in a program of
 * one thread glibc believes during the fork that the process has one thread, as in the child it has. */
SHOWN pid_t fork(void) {
  if (!libc_is_single || *libc_is_single || !is_alone()) return fork_in_its_place();
  *libc_is_single = true;
  pid_t child = fork_in_its_place();
  if (child != 0) *libc_is_single = false;
  return child;
}

#if defined(__GLIBC__)
SHOWN pid_t _Fork(void) {
  bool with_scavenger = scavenger_is_there();
  fork_function *next = NEXT(next_bare_fork, "_Fork");
  pid_t child = next();
  if (child == 0 && with_scavenger) libc_uncount_scavenger();
  return child;
}
#endif

/* atexit and the destructors of C++ statics call this. */
SHOWN int __cxa_atexit(void (*handler)(void *), void *argument, void *library) {
  if (LIKELY(!is_in_scope())) return NEXT(next_exit, "__cxa_atexit")(handler, argument, library);
  bool entered = enter_default();
  int error = NEXT(next_exit, "__cxa_atexit")(handler, argument, library);
  leave_default(entered);
  return error;
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* RLIMIT_AS counts reserved addresses. So before the limit falls these give back all addresses that no block uses yet.
 * The heap later maps addresses on demand, as far as the limit lets it. A vfork child sees its parent's heap, but its
 * limit is not its parent's. These functions make libc's one system call themselves, because signal handlers and fork
 * children call them, where dlsym could wait for ever. */
#if defined(__GLIBC__)
typedef __rlimit_resource_t resource;
#else
typedef int resource;
#endif
static int set_limit(pid_t process, resource what, const struct rlimit *limit, struct rlimit *old) {
  return (int)syscall(SYS_prlimit64, process, what, limit, old);
}

/* Free memory counts in both limits as long as it is mapped and may be written. */
static void notice_limit(resource what, const struct rlimit *limit) {
  if ((what != RLIMIT_AS && what != RLIMIT_DATA) || !limit || limit->rlim_cur == RLIM_INFINITY) return;
  if (!may_trim()) return;
  if (what == RLIMIT_AS) pages_trim_reservation(limit->rlim_cur);
  pages_count_mapped(what == RLIMIT_AS ? limit->rlim_cur : SIZE_MAX);
  pages_unmap_free();
}

/* A limit that rose, or that the kernel refused, leaves free memory mapped longer again. */
static int set_own_limit(pid_t process, resource what, const struct rlimit *limit, struct rlimit *old) {
  size_t before = pages_mapping_limit();
  notice_limit(what, limit);
  int error = set_limit(process, what, limit, old);
  if (what == RLIMIT_AS && limit && may_trim()) pages_set_mapping_limit(error ? before : limit->rlim_cur);
  return error;
}

SHOWN int setrlimit(resource what, const struct rlimit *limit) { return set_own_limit(0, what, limit, NULL); }

/* For the kernel the id of any thread stands for its process. */
SHOWN int prlimit(pid_t process, resource what, const struct rlimit *limit, struct rlimit *old) {
  pid_t own = getpid();
  bool is_own = process == 0 || process == own || process == (pid_t)os_thread_id() ||
                syscall(SYS_tgkill, own, process, 0) == 0;
  return is_own ? set_own_limit(process, what, limit, old) : set_limit(process, what, limit, old);
}

/* The same functions under the names that programs compiled for large files call. */
#if defined(__GLIBC__)
SHOWN int setrlimit64(resource, const struct rlimit64 *) __attribute__((alias("setrlimit")));
SHOWN int prlimit64(pid_t, resource, const struct rlimit64 *, struct rlimit64 *) __attribute__((alias("prlimit")));
#endif

static int lock_all(int flags) {
  os_begin_locking();
  int error = (int)syscall(SYS_mlockall, flags);
  os_end_locking();
  return error;
}

/* The kernel would make all free memory resident, so this unmaps it first. It counts all addresses as locked memory,
 * also those that are only reserved, and would refuse to lock them all. If a process without a limit locks them, and
 * the limit falls or the superuser becomes another user, the kernel would refuse every further lock or mapping. */
SHOWN int mlockall(int flags) {
  bool trims = may_trim(), maps_locked = flags & MCL_FUTURE && (flags & MCL_CURRENT || pages_counts_mapped());
  size_t limit = os_locking_limit();
  if (trims && maps_locked && limit != SIZE_MAX) pages_count_locked(limit);
  if (!trims || !(flags & MCL_CURRENT)) return lock_all(flags);
  pages_trim_reservation(0);
  pages_unmap_free();
  int error = lock_all(flags);
  if (!(flags & MCL_FUTURE)) pages_reserve_tables(pages_mapping_limit()); /* these are not locked */
  return error;
}

/* ---- users and capabilities -------------------------------------------------------------------------------------- */

/* Each thread has a user and capabilities of its own. libc's setuid and similar calls ask the kernel for each thread,
 * and abort if the kernel allows one thread and refuses another. The program takes care of its own threads, for
 * instance by prctl or capset, and knows nothing of the scavenger. So these calls end it, and the next scavenger
 * inherits what the thread that makes it has. It also counts no more for a user with a limit of processes.
 *
 * A process of one thread makes the system call: these functions may run in a signal handler, which may have
 * interrupted another one of them, and libc's take a lock once a process has had two threads. Such a process also needs
 * none of libc's functions, so most programs never look them up. A scavenger that ends soon counts for nothing. If
 * another library replaces these functions, as fakeroot does, it gets every call. */
static bool has_one_thread(void) {
  return (libc_is_single && *libc_is_single) || is_alone() || process_threads() == 1;
}

#define FOR_EACH_THREAD(name, parameters, arguments, is_simple, ...)                                      \
  typedef int name##_function parameters;                                                                 \
  static name##_function *next_##name;                                                                    \
  SHOWN int name parameters {                                                                             \
    end_scavenger();                                                                                      \
    if ((is_simple) && !setuid_is_replaced && has_one_thread()) return (int)syscall(__VA_ARGS__);         \
    expect_threads();                                                                                     \
    return next_##name arguments;                                                                         \
  }

FOR_EACH_THREAD(setuid, (uid_t user), (user), true, SYS_setuid, user)
FOR_EACH_THREAD(seteuid, (uid_t user), (user), user != (uid_t)-1, SYS_setresuid, -1, user, -1)
FOR_EACH_THREAD(setreuid, (uid_t real, uid_t effective), (real, effective), true, SYS_setreuid, real, effective)
FOR_EACH_THREAD(setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved), true, SYS_setresuid,
                real, effective, saved)
FOR_EACH_THREAD(setgid, (gid_t group), (group), true, SYS_setgid, group)
FOR_EACH_THREAD(setegid, (gid_t group), (group), group != (gid_t)-1, SYS_setresgid, -1, group, -1)
FOR_EACH_THREAD(setregid, (gid_t real, gid_t effective), (real, effective), true, SYS_setregid, real, effective)
FOR_EACH_THREAD(setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved), true, SYS_setresgid,
                real, effective, saved)
FOR_EACH_THREAD(setgroups, (size_t count, const gid_t *groups), (count, groups), true, SYS_setgroups, count, groups)
FOR_EACH_THREAD(initgroups, (const char *user, gid_t group), (user, group), false, 0)

/* Several threads may do this at the same time, because they find the same. */
static void find_more(void) {
  (void)NEXT(next_create_simply, "thrd_create");
  next_setuid = (setuid_function *)dlsym(RTLD_NEXT, "setuid");
  next_seteuid = (seteuid_function *)dlsym(RTLD_NEXT, "seteuid");
  next_setreuid = (setreuid_function *)dlsym(RTLD_NEXT, "setreuid");
  next_setresuid = (setresuid_function *)dlsym(RTLD_NEXT, "setresuid");
  next_setgid = (setgid_function *)dlsym(RTLD_NEXT, "setgid");
  next_setegid = (setegid_function *)dlsym(RTLD_NEXT, "setegid");
  next_setregid = (setregid_function *)dlsym(RTLD_NEXT, "setregid");
  next_setresgid = (setresgid_function *)dlsym(RTLD_NEXT, "setresgid");
  next_setgroups = (setgroups_function *)dlsym(RTLD_NEXT, "setgroups");
  next_initgroups = (initgroups_function *)dlsym(RTLD_NEXT, "initgroups");
  atomic_store_explicit(&knows_more, true, memory_order_release); /* pairs with expect_threads */
}

/* ---- namespaces -------------------------------------------------------------------------------------------------- */

/* The kernel lets a process into some namespaces only while it has a single thread. Into others a thread goes alone.
 * The scavenger would then keep the old ones, or an old working directory, in use. So these calls end it. */
#define ALONE_TRIES 100 /* a millisecond each: the kernel drops a joined thread a moment later */

static long call_alone(long number, long first, long second) {
  bool has_ended = end_scavenger();
  long done = syscall(number, first, second);
  for (int tries = 0; done != 0 && has_ended && (errno == EINVAL || errno == EUSERS) && tries < ALONE_TRIES; tries++) {
    os_rest();
    done = syscall(number, first, second);
  }
  return done;
}

SHOWN int unshare(int what) { return (int)call_alone(SYS_unshare, what, 0); }
SHOWN int setns(int file, int kind) { return (int)call_alone(SYS_setns, file, kind); }

/* ---- filters of system calls ------------------------------------------------------------------------------------- */

/* A filter of the program's own knows the calls that the program makes, and may end the process at any other. To make a
 * thread takes some ten of these. A filter that only refuses calls does no harm. libseccomp does not call prctl for its
 * filters, and hides them. */
static bool may_kill(const struct sock_fprog *filter) {
  for (unsigned i = 0; i < filter->len; i++) {
    const struct sock_filter *rule = &filter->filter[i];
    if (BPF_CLASS(rule->code) != BPF_RET) continue;
    uint32_t action = rule->k & SECCOMP_RET_ACTION_FULL;
    if (BPF_RVAL(rule->code) != BPF_K || (action != SECCOMP_RET_ERRNO && action != SECCOMP_RET_ALLOW)) return true;
  }
  return false;
}

SHOWN int prctl(int what, ...) {
  unsigned long more[4];
  va_list arguments;
  va_start(arguments, what);
  for (int i = 0; i < 4; i++) more[i] = va_arg(arguments, unsigned long);
  va_end(arguments);
  int done = NEXT(next_control, "prctl")(what, more[0], more[1], more[2], more[3]);
  if (what != PR_SET_SECCOMP || done != 0) return done;
  if (more[0] != SECCOMP_MODE_FILTER || may_kill((const struct sock_fprog *)more[1])) scavenger_forbid();
  return done;
}

typedef int load_function(void *);
load_function seccomp_load; /* libseccomp's header may be missing */
SHOWN int seccomp_load(void *filter) {
  load_function *next = (load_function *)dlsym(RTLD_NEXT, "seccomp_load");
  int error = next ? next(filter) : -ENOSYS;
  if (error == 0) scavenger_forbid();
  return error;
}

/* ---- the program's malloc ---------------------------------------------------------------------------------------- */

HIDDEN extern const char __ehdr_start[], _end[]; /* the bounds of this library, from the linker */

/* A malloc in the program itself, such as a sanitizer's, comes before that of a preloaded library. */
bool libc_is_malloc(void) { return (uintptr_t)malloc - (uintptr_t)__ehdr_start < (uintptr_t)(_end - __ehdr_start); }

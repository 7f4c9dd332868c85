/* shim: put before every shipped source that the explorer runs (-include); the sources themselves are unchanged.
 *
 * They are compiled with -fsanitize=thread and linked with explore.c in the place of that sanitizer's library: so every
 * access to memory, atomic or plain, comes by the explorer. Three things are set right for that:
 * - The sources may not believe that they run under the sanitizer, for there they do without fences and membarrier.
 *   What LOAD_RACING and STORE_RACING mark is atomic nevertheless: the marks are what other threads may race with.
 * - No inline assembler, whose accesses nobody would see: the sources take the branches that they have for processors
 *   unknown to them. Headers of the system must be read before.
 * - Threads are the explorer's. */
#ifndef TSLAB_TESTS_PROTOCOLS_SHIM_H
#define TSLAB_TESTS_PROTOCOLS_SHIM_H

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#undef __x86_64__
#undef __aarch64__
#undef __SANITIZE_THREAD__

#include "base/attr.h"
#undef LOAD_RACING
#undef STORE_RACING
#undef FENCE_STORES
#undef FENCE_ALL
#define LOAD_RACING(place)         __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define STORE_RACING(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELAXED)
#define FENCE_STORES()             __atomic_thread_fence(__ATOMIC_RELEASE)
#define FENCE_ALL()                __atomic_thread_fence(__ATOMIC_SEQ_CST)

int explored_key_create(pthread_key_t *key, void (*ends)(void *));
int explored_setspecific(pthread_key_t key, const void *value);
int explored_thread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument);
#define pthread_key_create explored_key_create
#define pthread_setspecific explored_setspecific
#define pthread_create explored_thread_create

#endif

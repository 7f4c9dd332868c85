/* shim: put before every shipped source that the explorer runs (-include); the sources themselves are unchanged.
 *
 * They are compiled with -fsanitize=thread and linked with explore.c in place of that sanitizer's library. So each
 * access to memory, atomic or plain, calls the explorer. This file changes three things for that:
 * - It hides the sanitizer from the sources, because they use no fences and no membarrier under one. It makes the
 *   accesses that LOAD_RACING and STORE_RACING mark atomic, because other threads may race with them.
 * - It leaves out inline assembler, whose accesses the explorer would not see: the sources take the branches for
 *   processors that they do not know. It includes the system's headers before that.
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

/* All threads are contexts in one thread of the system. */
int explore_self(void);
#define LOCK_THREAD ((uintptr_t)(explore_self() + 2) * 4096)

#endif

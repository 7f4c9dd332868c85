/* fork_interrupts_library: registers fork handlers when it is loaded, for which glibc takes a lock. */
#include <pthread.h>

static void do_nothing(void) {}

__attribute__((constructor)) static void start(void) { pthread_atfork(do_nothing, do_nothing, do_nothing); }

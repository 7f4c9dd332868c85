/* wrapped_library: see wrapped.c. */
#include <unistd.h>

int setuid(uid_t user) { return (void)user, 4711; }

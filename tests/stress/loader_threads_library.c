/* loader_threads_library: has thread-local storage of its own. */
static _Thread_local int of_thread;

int *of_this_thread(void);
int *of_this_thread(void) { return &of_thread; }

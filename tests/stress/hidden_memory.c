/* hidden_memory: a filter hides the size of the machine's memory from a program that starts. The library then asks
 * nothing more of the kernel for each block: it maps as it does otherwise. */
#include "filter.h"
#include "memory.h"

#include <sys/mman.h>

#define MIB ((size_t)1 << 20)

/* From now on a mapping for which the kernel would promise memory ends the process: the library makes one only to ask
 * for more than the machine has. */
static bool forbid_promises(void) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_NORESERVE, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static void use_memory(void) {
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, 100000, 16 * MIB), >=, 16 * MIB);
  CHECK_COUNT(fill_list(&list, 3 * MIB, 60 * MIB), >=, 60 * MIB);
  free_list(&list);
  const tslab_epoch epoch = tslab_epoch_open("hidden");
  CHECK(epoch != 0 && tslab_epoch_malloc(epoch, 1000) != NULL);
  CHECK(tslab_epoch_close(epoch, NULL) == 0);
}

int main(int argc, char **argv) {
  if (argc == 1) {
    char again[] = "again", *const arguments[] = {argv[0], again, NULL};
    if (!answer_with(SYS_sysinfo, EPERM)) return SKIPPED;
    execv(argv[0], arguments);
    CHECK(false);
  }
  if (!forbid_promises()) return SKIPPED;
  use_memory();
  return 0;
}

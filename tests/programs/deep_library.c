/* deep_library: what a module does with memory that its program, libc and it hand to each other. See deep.c. */
#include <stdlib.h>
#include <string.h>

char *module_gives(void);
char *module_gives(void) { return malloc(100); }

char *module_gives_from_libc(void);
char *module_gives_from_libc(void) { return strdup("a word that libc allocates"); }

void module_takes(char *block);
void module_takes(char *block) { free(block); }

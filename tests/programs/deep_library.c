/* deep_library: a module that exchanges memory with its program and libc. See deep.c. */
#include <stdlib.h>
#include <string.h>

char *module_gives(void);
char *module_gives(void) { return malloc(100); }

char *module_gives_from_libc(void);
char *module_gives_from_libc(void) { return strdup("a word that libc allocates"); }

void module_takes(char *block);
void module_takes(char *block) { free(block); }

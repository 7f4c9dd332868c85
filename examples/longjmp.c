/* longjmp skips the leaves of the scopes that it jumps out of. The function that catches the jump remembers the depth
 * beforehand and unwinds to it, before anything else: printf, too, allocates. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tslab/tslab.h>

static jmp_buf failed;
static tslab_epoch document, element; /* not locals: those that change after setjmp are lost */

/* Each nested element is parsed in a scope of its own. */
static void parse(const char *text) {
  tslab_epoch_enter(element);
  char *const copy = strdup(text);
  if (copy == NULL || *copy == '!') longjmp(failed, 1); /* nobody frees the copies: the destroy below does */
  if (*copy == '(') parse(copy + 1);
  free(copy);
  tslab_epoch_leave(element);
}

static tslab_epoch open_destroyable(const char *label) {
  const tslab_epoch_options options = {
      .struct_size = sizeof options, .label = label, .flags = TSLAB_EPOCH_DESTROYABLE};
  return tslab_epoch_open_with(&options);
}

static int parse_document(const char *text) {
  document = open_destroyable("document");
  element = open_destroyable("element");
  const int depth = tslab_scope_depth();
  int jumped_over = 0;
  if (setjmp(failed) == 0) {
    tslab_epoch_enter(document);
    parse(text);
    tslab_epoch_leave(document);
  } else {
    jumped_over = tslab_scope_depth() - depth;
    tslab_scope_unwind(depth);
  }
  tslab_epoch_report report;
  if (tslab_epoch_destroy(element, &report) != 0 || tslab_epoch_destroy(document, NULL) != 0) return -1;
  printf("%s: the parser jumped out of %d scopes and left %llu blocks\n", text, jumped_over,
         (unsigned long long)report.live_blocks);
  return jumped_over;
}

int main(void) {
  const int good = parse_document("((("), bad = parse_document("((((!");
  return good == 0 && bad == 6 && tslab_scope_depth() == 0 && tslab_epoch_current() == TSLAB_EPOCH_DEFAULT ? 0 : 1;
}

/* huge: see huge.h.                                                                                 floor: pages */
#include "pages/huge.h"

#include "base/options.h"
#include "os/os.h"

#define LOOKS_A_TICK 32 /* windows whose pages are looked at */
#define MOVES_A_TICK 2  /* each takes some hundred microseconds; while no thread takes slow paths, only one */
#define ROUND_TICKS  8  /* from the start of a round to that of the next one, at least */
#define FAILURES     4  /* in a row: then the kernel has no huge pages for a while */
#define REST_TICKS   240

/* The states of windows lie in pieces of a page, one for each 8 GiB. Windows beyond the last piece stay. */
#define PIECE  4096
#define PIECES 1024

enum { UNKNOWN, DENSE, SETTLED }; /* SETTLED: moved, or the kernel refused */

static struct {
  bool may_look;        /* neither the setting nor the system refuses, and the kernel has not failed from the start */
  uint8_t **pieces;
  struct cuttings cuttings;
  size_t windows, next; /* of this round: how many there are, and which one comes next */
  unsigned since;       /* ticks since the round began, and */
  size_t held;          /* the bytes that the heap held then, or the fewest since */
  unsigned rest;        /* ticks to wait after failures */
  unsigned failures;
  unsigned waiting;     /* windows that this round found dense and did not move */
  uint64_t divisions;   /* os_divisions() when the round began */
  bool looks_at_settled; /* the round looks at all windows: some huge page was divided */
} state;
static _Atomic size_t moved; /* windows */

size_t huge_moved_bytes(void) { return atomic_load_explicit(&moved, memory_order_relaxed) * HUGE_PAGE; }

static char *window_start(size_t window) {
  return (char *)round_up((uintptr_t)pages.base, HUGE_PAGE) + window * HUGE_PAGE;
}

static uint8_t *state_of(size_t window) { return &state.pieces[window / PIECE][window % PIECE]; }

/* Makes room for the states of so many windows. Returns of how many there is room. */
static size_t make_room(size_t windows) {
  size_t piece = 0;
  if (!state.pieces) state.pieces = pages_cut(&state.cuttings, PIECES * sizeof *state.pieces);
  if (!state.pieces) return 0;
  for (; piece < PIECES && piece * PIECE < windows; piece++) {
    if (!state.pieces[piece]) state.pieces[piece] = pages_cut(&state.cuttings, PIECE);
    if (!state.pieces[piece]) break;
  }
  return min_size(windows, piece * PIECE);
}

static size_t windows_before(const char *end) { return (size_t)(end - window_start(0)) / HUGE_PAGE; }

void huge_start(bool may_open) {
  state.may_look = may_open && options.huge && os_allows_huge();
}

/* Returns true if the heap is large and has grown since the last round began. */
static bool has_grown(void) {
  size_t held = pages_totals().held;
  if (held < state.held) state.held = held;
  return held >= HUGE_LEAST_HEAP && held >= state.held + HUGE_PAGE;
}

static bool begin_round(void) {
  state.since = 0;
  const struct run *first = pages_first_run();
  state.held = pages_totals().held;
  if (!first || state.held < HUGE_LEAST_HEAP) return false;
  state.next = windows_before(run_start(first) + HUGE_PAGE); /* tables lie below */
  char *end = pages.base + (__atomic_load_n(&pages.count, __ATOMIC_RELAXED) << GRANULE_SHIFT);
  state.windows = make_room(windows_before(end));
  uint64_t divisions = os_divisions();
  state.looks_at_settled = divisions != state.divisions;
  state.divisions = divisions;
  state.waiting = 0;
  return true;
}

/* Moves a dense window. */
static void move(size_t window) {
  enum os_collapsed done = os_collapse(window_start(window));
  if (done != OS_CHANGES) *state_of(window) = SETTLED;
  if (done == OS_COLLAPSED) {
    state.failures = 0;
    atomic_fetch_add_explicit(&moved, 1, memory_order_relaxed);
  } else if (done == OS_REFUSED && ++state.failures == FAILURES) {
    state.failures = 0;
    state.rest = REST_TICKS;
    state.may_look = huge_moved_bytes() != 0;
  }
}

/* Looks at a window. Returns true if it should be moved. */
static bool look(size_t window) {
  uint8_t before = *state_of(window);
  bool is_dense = os_is_all_here(window_start(window));
  if (before != SETTLED || !is_dense) *state_of(window) = is_dense ? DENSE : UNKNOWN;
  return is_dense && before == DENSE;
}

static void look_on(unsigned most) {
  unsigned looks = 0, moves = 0;
  for (; state.next < state.windows && looks < LOOKS_A_TICK && state.rest == 0; state.next++) {
    if (*state_of(state.next) == SETTLED && !state.looks_at_settled) continue;
    looks++;
    bool is_to_move = look(state.next);
    if (is_to_move && ++moves > most) return;
    if (is_to_move) move(state.next);
    state.waiting += *state_of(state.next) == DENSE;
  }
}

bool huge_look(bool is_active) {
  if (!state.may_look || pages_is_pressed()) return false;
  if (state.rest) {
    state.rest--;
    return false;
  }
  state.since++;
  bool is_over = state.next >= state.windows, grew = has_grown();
  if (is_over && state.since < ROUND_TICKS) return state.waiting != 0 || grew;
  if (is_over && !begin_round()) return false;
  if (!os_open_page_table()) return false;
  look_on(is_active ? MOVES_A_TICK : 1);
  os_close_page_table();
  return state.next < state.windows || state.waiting != 0;
}

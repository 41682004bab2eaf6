/*
 * Memory that fails for the code under test alone.
 */
#include "tests/unit/server/torture.h"

#include "base/memory.h"

static size_t left;   /* allocations until the one that fails; 0: none will */
static bool reached;
static unsigned paused;

static void torture_count(void) {
  size_t made = memory_fail_after(0, 0);
  reached |= left > 0 && made >= left;
  left = made < left ? left - made : 0;
}

void torture_begin(size_t n) {
  left = n;
  reached = false;
  memory_fail_after(n, 0);
}

bool torture_end(void) {
  torture_count();
  left = 0;
  return reached;
}

void torture_pause(void) {
  if (paused++ == 0)
    torture_count();
}

void torture_resume(void) {
  if (--paused == 0)
    memory_fail_after(left, 0);
}

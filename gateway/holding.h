/*
 * What exchanges of one loop hold in memory for slow clients: bodies that are not whole yet, answers that are not taken
 * yet. Together they have a bound. Beyond it the one that has stood still longest is given up: whoever sends or reads,
 * however slowly, goes before whoever stopped. Small ones do not count.
 *
 * Thread: the loop's.
 */
#ifndef GATEWAY_HOLDING_H
#define GATEWAY_HOLDING_H

#include <h2o/linklist.h>
#include <stddef.h>

enum { HOLDING_SMALL_BYTES = 32768 }; /* as much as a head */

/* Within what holds; zero: nothing is held. */
struct holding {
  struct holdings *holdings; /* NULL: not counted */
  h2o_linklist_t link;
  size_t bytes;
};

struct holdings {
  h2o_linklist_t list; /* struct holding, the one that stands still longest first */
  size_t bytes, limit;
};

void holdings_init(struct holdings *holdings, size_t limit);
/* It moved: it holds `bytes` now. */
void holding_set(struct holdings *holdings, struct holding *holding, size_t bytes);
/* It holds nothing any more. */
void holding_end(struct holding *holding);
/* Beyond the bound: the one to give up, which the caller then ends; NULL: nothing is to be done. Never `newest`, the one that
 * moved last, so that one alone may be larger than the bound. */
struct holding *holdings_excess(const struct holdings *holdings, const struct holding *newest);

#endif

#include "gateway/holding.h"

void holdings_init(struct holdings *holdings, size_t limit) {
  h2o_linklist_init_anchor(&holdings->list);
  holdings->bytes = 0;
  holdings->limit = limit;
}

void holding_end(struct holding *holding) {
  if (!holding->holdings)
    return;
  holding->holdings->bytes -= holding->bytes;
  holding->holdings = NULL;
  h2o_linklist_unlink(&holding->link);
}

void holding_set(struct holdings *holdings, struct holding *holding, size_t bytes) {
  holding_end(holding);
  if (bytes <= HOLDING_SMALL_BYTES)
    return;
  holding->holdings = holdings;
  holding->bytes = bytes;
  holdings->bytes += bytes;
  h2o_linklist_insert(&holdings->list, &holding->link);
}

struct holding *holdings_excess(const struct holdings *holdings, const struct holding *newest) {
  if (holdings->bytes <= holdings->limit)
    return NULL;
  struct holding *longest = (struct holding *)(void *)((char *)holdings->list.next - offsetof(struct holding, link));
  return longest == newest ? NULL : longest;
}

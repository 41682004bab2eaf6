/*
 * A binary heap of Leases by deadline.
 */
#include "server/lease_deadlines.h"

#include "base/memory.h"

int lease_deadlines_reserve(struct lease_table *table) {
  if (table->deadline_count < table->deadline_capacity)
    return 0;
  size_t capacity = table->deadline_capacity ? table->deadline_capacity * 2 : 64;
  if (capacity > SIZE_MAX / sizeof(*table->deadlines))
    return -1;
  struct lease **grown = memory_resize(table->deadlines, capacity * sizeof(*grown));
  if (!grown)
    return -1;
  table->deadlines = grown;
  table->deadline_capacity = capacity;
  return 0;
}

static void heap_put(struct lease_table *table, size_t place, struct lease *lease) {
  table->deadlines[place] = lease;
  lease->deadline_place = place;
}

static void heap_rise(struct lease_table *table, struct lease *lease) {
  size_t place = lease->deadline_place;
  while (place > 0) {
    size_t parent = (place - 1) / 2;
    if (table->deadlines[parent]->facts.deadline <= lease->facts.deadline)
      break;
    heap_put(table, place, table->deadlines[parent]);
    place = parent;
  }
  heap_put(table, place, lease);
}

static void heap_sink(struct lease_table *table, struct lease *lease) {
  size_t place = lease->deadline_place;
  for (;;) {
    size_t child = 2 * place + 1;
    if (child >= table->deadline_count)
      break;
    if (child + 1 < table->deadline_count &&
        table->deadlines[child + 1]->facts.deadline < table->deadlines[child]->facts.deadline)
      child++;
    if (lease->facts.deadline <= table->deadlines[child]->facts.deadline)
      break;
    heap_put(table, place, table->deadlines[child]);
    place = child;
  }
  heap_put(table, place, lease);
}

void lease_deadlines_moved(struct lease_table *table, struct lease *lease) {
  heap_rise(table, lease);
  heap_sink(table, lease);
}

void lease_deadlines_add(struct lease_table *table, struct lease *lease) {
  heap_put(table, table->deadline_count++, lease);
  heap_rise(table, lease);
}

void lease_deadlines_remove(struct lease_table *table, struct lease *lease) {
  size_t place = lease->deadline_place;
  struct lease *last = table->deadlines[--table->deadline_count];
  if (last == lease)
    return;
  heap_put(table, place, last);
  lease_deadlines_moved(table, last);
}

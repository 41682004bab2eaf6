/*
 * The Leases this process knows, and how they are found.
 *
 * A scope keeps its active Leases in one sorted array. New ones nearly always come last, a page is a run of neighbours
 * behind a binary search, and taking one out moves pointers only, which stays cheap for far more Leases than a
 * scope will ever hold.
 */
#include "server/lease_table.h"

#include "base/memory.h"
#include "server/lease_deadlines.h"
#include <string.h>

int lease_table_init(struct lease_table *table) {
  *table = (struct lease_table){0};
  if (label_map_init(&table->ids) == 0 && label_map_init(&table->idempotency) == 0 &&
      label_map_init(&table->scopes) == 0 && label_map_init(&table->consumers) == 0)
    return 0;
  lease_table_free(table);
  return -1;
}

void lease_table_free(struct lease_table *table) {
  for (struct lease *lease; table->ids.count > 0 && (lease = lease_table_next(table, NULL));)
    lease_table_remove(table, lease);
  label_map_free(&table->ids);
  label_map_free(&table->idempotency);
  label_map_free(&table->scopes);
  label_map_free(&table->consumers);
  memory_free(table->deadlines);
  *table = (struct lease_table){0};
}

/* --- groups --- */

static struct lease_group *group_find(const struct label_map *map, const char *label) {
  struct label_entry *entry = label_map_find(map, label);
  return entry ? LABEL_OWNER(entry, struct lease_group, entry) : NULL;
}

/* With one more reference; NULL without memory. */
static struct lease_group *group_use(struct label_map *map, const char *label) {
  struct lease_group *group = group_find(map, label);
  if (!group) {
    group = memory_zero(sizeof(*group));
    if (!group)
      return NULL;
    memcpy(group->label, label, strnlen(label, LABEL_SIZE - 1));
    label_map_insert(map, &group->entry, group->label);
  }
  group->references++;
  return group;
}

static void group_leave(struct label_map *map, struct lease_group *group) {
  if (!group || --group->references > 0)
    return;
  label_map_remove(map, &group->entry);
  memory_free(group->leases);
  memory_free(group);
}

static int group_grow(struct lease_group *group) {
  if (group->count < group->capacity)
    return 0;
  size_t capacity = group->capacity ? group->capacity * 2 : 2;
  if (capacity > SIZE_MAX / sizeof(*group->leases))
    return -1;
  struct lease **grown = memory_resize(group->leases, capacity * sizeof(*grown));
  if (!grown)
    return -1;
  group->leases = grown;
  group->capacity = capacity;
  return 0;
}

/* List order. */
static int lease_compare(const struct lease *lease, int64_t created, const char *id) {
  if (lease->facts.created_at != created)
    return lease->facts.created_at < created ? -1 : 1;
  return strcmp(lease->facts.id, id);
}

/* How many Leases stand before (created, id), or up to it. */
static size_t group_position(const struct lease_group *group, int64_t created, const char *id, bool behind) {
  size_t low = 0, high = group->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = lease_compare(group->leases[middle], created, id);
    if (order < 0 || (behind && order == 0))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Room must have been made. */
static void group_insert(struct lease_group *group, struct lease *lease) {
  size_t place = group_position(group, lease->facts.created_at, lease->facts.id, false);
  memmove(group->leases + place + 1, group->leases + place, (group->count - place) * sizeof(*group->leases));
  group->leases[place] = lease;
  group->count++;
}

static void group_take_out(struct lease_group *group, const struct lease *lease) {
  size_t place = group_position(group, lease->facts.created_at, lease->facts.id, false);
  group->count--;
  memmove(group->leases + place, group->leases + place + 1, (group->count - place) * sizeof(*group->leases));
}

/* --- Leases --- */

static void lease_free(struct lease_table *table, struct lease *lease) {
  group_leave(&table->scopes, lease->scope);
  group_leave(&table->consumers, lease->consumer);
  memory_free(lease);
}

struct lease *lease_table_add(struct lease_table *table, const struct backend_sandbox *facts) {
  struct lease *lease = memory_zero(sizeof(*lease));
  if (!lease)
    return NULL;
  lease->facts = *facts;
  lease->scope = group_use(&table->scopes, facts->scope);
  lease->consumer = group_use(&table->consumers, facts->consumer);
  if (!lease->scope || !lease->consumer || group_grow(lease->scope) < 0 || lease_deadlines_reserve(table) < 0) {
    lease_free(table, lease);
    return NULL;
  }
  label_map_insert(&table->ids, &lease->by_id, lease->facts.id);
  label_map_insert(&table->idempotency, &lease->by_idempotency, lease->facts.idempotency);
  group_insert(lease->scope, lease);
  lease->scope->held++;
  lease->consumer->held++;
  lease_deadlines_add(table, lease);
  return lease;
}

void lease_table_update(struct lease_table *table, struct lease *lease, const struct backend_sandbox *facts) {
  bool active = lease->state == LEASE_ACTIVE;
  bool reordered = active && facts->created_at != lease->facts.created_at;
  if (reordered)
    group_take_out(lease->scope, lease);
  lease->facts.created_at = facts->created_at;
  lease->facts.expires_at = facts->expires_at;
  lease->facts.deadline = facts->deadline;
  if (facts->last_used_at > lease->facts.last_used_at)
    lease->facts.last_used_at = facts->last_used_at;
  if (reordered)
    group_insert(lease->scope, lease);
  if (active)
    lease_deadlines_moved(table, lease);
}

void lease_table_end(struct lease_table *table, struct lease *lease) {
  if (lease->state != LEASE_ACTIVE)
    return;
  lease->state = LEASE_ENDING;
  label_map_remove(&table->idempotency, &lease->by_idempotency);
  group_take_out(lease->scope, lease);
  lease->scope->held--;
  lease->consumer->held--;
  lease_deadlines_remove(table, lease);
}

void lease_table_remove(struct lease_table *table, struct lease *lease) {
  lease_table_end(table, lease);
  label_map_remove(&table->ids, &lease->by_id);
  lease_free(table, lease);
}

struct lease *lease_table_find(const struct lease_table *table, const char *id) {
  struct label_entry *entry = label_map_find(&table->ids, id);
  return entry ? LABEL_OWNER(entry, struct lease, by_id) : NULL;
}

struct lease *lease_table_find_idempotent(const struct lease_table *table, const char *idempotency) {
  struct label_entry *entry = label_map_find(&table->idempotency, idempotency);
  return entry ? LABEL_OWNER(entry, struct lease, by_idempotency) : NULL;
}

struct lease *lease_table_nearest(const struct lease_table *table) {
  return table->deadline_count > 0 ? table->deadlines[0] : NULL;
}

struct lease *lease_table_next(const struct lease_table *table, const struct lease *lease) {
  struct label_entry *entry = label_map_next(&table->ids, lease ? &lease->by_id : NULL);
  return entry ? LABEL_OWNER(entry, struct lease, by_id) : NULL;
}

size_t lease_table_count(const struct lease_table *table) {
  return table->ids.count;
}

/* --- quotas --- */

static bool group_full(const struct lease_group *group, size_t quota) {
  return quota > 0 && group->held >= quota;
}

enum lease_reserved lease_table_reserve(struct lease_table *table, const char *scope, const char *consumer,
                                        size_t scope_quota, size_t consumer_quota,
                                        struct lease_reservation *reservation) {
  struct lease_reservation taken = {.scope = group_use(&table->scopes, scope),
                                    .consumer = group_use(&table->consumers, consumer)};
  enum lease_reserved result = LEASE_RESERVED;
  if (!taken.scope || !taken.consumer)
    result = LEASE_RESERVE_NO_MEMORY;
  else if (group_full(taken.scope, scope_quota) || group_full(taken.consumer, consumer_quota))
    result = LEASE_OVER_QUOTA;
  if (result != LEASE_RESERVED) {
    group_leave(&table->scopes, taken.scope);
    group_leave(&table->consumers, taken.consumer);
    return result;
  }
  taken.scope->held++;
  taken.consumer->held++;
  *reservation = taken;
  return LEASE_RESERVED;
}

void lease_table_unreserve(struct lease_table *table, struct lease_reservation *reservation) {
  if (!reservation->scope)
    return;
  reservation->scope->held--;
  reservation->consumer->held--;
  group_leave(&table->scopes, reservation->scope);
  group_leave(&table->consumers, reservation->consumer);
  *reservation = (struct lease_reservation){0};
}

/* --- lists --- */

size_t lease_table_list(const struct lease_table *table, const char *scope, const char *pool, int64_t created,
                        const char *id, size_t limit, struct lease **found, bool *more) {
  *more = false;
  const struct lease_group *group = group_find(&table->scopes, scope);
  if (!group)
    return 0;
  size_t count = 0;
  for (size_t place = id ? group_position(group, created, id, true) : 0; place < group->count; place++) {
    struct lease *lease = group->leases[place];
    if (pool && strcmp(lease->facts.pool, pool) != 0)
      continue;
    if (count == limit) {
      *more = true;
      break;
    }
    found[count++] = lease;
  }
  return count;
}

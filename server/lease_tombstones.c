/*
 * Leases that have ended: a queue by age with a hash by id.
 */
#include "server/lease_tombstones.h"

#include "base/memory.h"
#include <string.h>

int lease_tombstones_init(struct lease_tombstones *tombstones) {
  *tombstones = (struct lease_tombstones){0};
  return label_map_init(&tombstones->ids);
}

static void tombstones_drop_oldest(struct lease_tombstones *tombstones) {
  struct lease_tombstone *dropped = tombstones->oldest;
  tombstones->oldest = dropped->younger;
  if (!tombstones->oldest)
    tombstones->youngest = NULL;
  label_map_remove(&tombstones->ids, &dropped->by_id);
  memory_free(dropped);
}

void lease_tombstones_free(struct lease_tombstones *tombstones) {
  while (tombstones->oldest)
    tombstones_drop_oldest(tombstones);
  label_map_free(&tombstones->ids);
}

void lease_tombstones_add(struct lease_tombstones *tombstones, const struct backend_sandbox *facts,
                          enum backend_end end, int64_t now) {
  lease_tombstones_prune(tombstones, now);
  if (tombstones->ids.count >= TOMBSTONES_KEPT)
    tombstones_drop_oldest(tombstones);
  struct lease_tombstone *added = memory_zero(sizeof(*added));
  if (!added)
    return;
  added->ended = now;
  added->end = end;
  memcpy(added->id, facts->id, sizeof(added->id));
  memcpy(added->scope, facts->scope, sizeof(added->scope));
  label_map_insert(&tombstones->ids, &added->by_id, added->id);
  if (tombstones->youngest)
    tombstones->youngest->younger = added;
  else
    tombstones->oldest = added;
  tombstones->youngest = added;
}

void lease_tombstones_prune(struct lease_tombstones *tombstones, int64_t now) {
  while (tombstones->oldest && now - tombstones->oldest->ended > TOMBSTONE_LIFETIME)
    tombstones_drop_oldest(tombstones);
}

const struct lease_tombstone *lease_tombstones_find(const struct lease_tombstones *tombstones, const char *id) {
  struct label_entry *entry = label_map_find(&tombstones->ids, id);
  return entry ? LABEL_OWNER(entry, struct lease_tombstone, by_id) : NULL;
}

/*
 * What an API server sends: the first byte chooses the kind, lines follow. The first line is a page of a list, the
 * others are events of a watch. The store stays whole whatever they say, and tells of every change once.
 */
// Sources: base/*.c backend/kubernetes/claim.c backend/kubernetes/feed.c
// Sources: backend/kubernetes/object.c backend/kubernetes/store.c
// Libraries: -lcjson -lcrypto -lprotobuf-c
#include "backend/kubernetes/claim.h"
#include "backend/kubernetes/feed.h"
#include "base/log.h"
#include "base/memory.h"
#include "tests/fuzz/fuzz.h"
#include <stdbool.h>
#include <string.h>

/* Each known object carries a mark as its attachment. */
static void changed(void *context, struct object *before, struct object *after) {
  size_t *known = context;
  static char mark;
  PROMISE(before || after);
  if (before)
    PROMISE(before->attachment == &mark);
  if (after && before)
    PROMISE(after->attachment == &mark && strcmp(before->uid, after->uid) == 0 && after->seen == before->seen);
  if (after)
    after->attachment = &mark;
  *known += (after != NULL);
  *known -= (before != NULL);
}

static void check(const struct store *store, enum object_kind kind, size_t known) {
  size_t walked = 0;
  for (const struct object *object = NULL; (object = store_next(store, kind, object)); walked++) {
    char id[LIMIT_LEASE_ID_BYTES + 1], name[CLAIM_NAME_SIZE];
    PROMISE(store_find(store, kind, object->name) == object);
    PROMISE(object_size(object) < 16384);
    if (claim_lease_id(object->name, object->uid, id))
      PROMISE(claim_name_of_id(id, name) && strncmp(name, object->name, sizeof name - 1) == 0);
  }
  PROMISE(walked == known && store_count(store, kind) == known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  log_set_level(LOG_ERROR);
  enum object_kind kind = (enum object_kind)(data[0] % OBJECT_KINDS);
  const char *text = (const char *)data + 1, *end = (const char *)data + size;
  struct store store;
  struct feed feed;
  size_t known = 0;
  store_init(&store, changed, &known);
  feed_init(&feed, &store, kind);
  for (bool first = true; text < end; first = false) {
    const char *newline = memchr(text, '\n', (size_t)(end - text));
    size_t length = (size_t)((newline ? newline : end) - text);
    struct error *err CLEANUP_ERROR = NULL;
    enum feed_next next = first ? feed_page(&feed, text, length, &err) : feed_line(&feed, text, length, &err);
    PROMISE(err == NULL || next == FEED_LIST);
    check(&store, kind, known);
    text += length + 1;
  }
  store_free(&store);
  return 0;
}

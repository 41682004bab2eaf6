#include "backend/kubernetes/feed.h"

#include "base/log.h"
#include "base/memory.h"
#include <string.h>

enum { GONE = 410 };

void feed_init(struct feed *feed, struct store *store, enum object_kind kind) {
  *feed = (struct feed){.store = store, .kind = kind};
}

void feed_restart(struct feed *feed) {
  feed->listing = false;
  feed->next_page[0] = 0;
}

/* Copies a member that is a text of at most size - 1 bytes; without it, "". */
static int copy_member(const struct json *object, const char *name, char *out, size_t size, struct error **err) {
  struct json_text text;
  if (json_get_text(object, name, &text, err) < 0)
    return -1;
  if (text.length >= size)
    return error_set_detail(err, REASON_INTERNAL, "%s has %zu bytes", name, text.length);
  if (text.length > 0)
    memcpy(out, text.data, text.length);
  out[text.length] = 0;
  return 0;
}

/* An object that makes no sense is left out; without memory -1. */
static int put(struct feed *feed, const struct json *json, bool listed, struct error **err) {
  CLEANUP_ERROR struct error *problem = NULL;
  struct object *object = object_decode(feed->kind, json, &problem);
  if (object)
    return store_put(feed->store, object, listed) < 0 ? error_set_memory(err) : 0;
  if (strcmp(error_detail(problem), "out of memory") == 0)
    return error_move(err, &problem);
  log_write(LOG_WARNING, "object_left_out", LOG_TEXT("kind", object_kind_name(feed->kind)), LOG_DETAIL(problem));
  return 0;
}

/* Of the elements of `items`. */
static int put_items(struct feed *feed, const struct json *list, struct error **err) {
  const void *position = NULL, *inner = NULL;
  struct json_text name;
  const struct json *value, *item;
  while (json_next(list, &position, &name, &value)) {
    if (strcmp(name.data, "items") != 0)
      continue;
    inner = NULL;
    while (json_is_array(value) && json_next(value, &inner, &name, &item))
      if (put(feed, item, true, err) < 0)
        return -1;
  }
  return 0;
}

static int page_read(struct feed *feed, const char *text, size_t length, struct error **err) {
  CLEANUP_JSON struct json *list = json_parse_trusted(text, length, err);
  const struct json *metadata = NULL;
  if (!list || json_get_object(list, "metadata", &metadata, err) < 0)
    return -1;
  if (!metadata)
    return error_set_detail(err, REASON_INTERNAL, "a list without metadata");
  if (copy_member(metadata, "resourceVersion", feed->version, sizeof feed->version, err) < 0 ||
      copy_member(metadata, "continue", feed->next_page, sizeof feed->next_page, err) < 0)
    return -1;
  if (!feed->version[0])
    return error_set_detail(err, REASON_INTERNAL, "a list without a resourceVersion");
  if (!feed->listing)
    store_list_begin(feed->store, feed->kind);
  feed->listing = true;
  return put_items(feed, list, err);
}

enum feed_next feed_page(struct feed *feed, const char *text, size_t length, struct error **err) {
  if (page_read(feed, text, length, err) < 0) {
    error_context(err, "list of %s", object_kind_name(feed->kind));
    feed_restart(feed);
    return FEED_LIST;
  }
  if (feed->next_page[0])
    return FEED_PAGE;
  feed->listing = false;
  store_list_end(feed->store, feed->kind);
  return FEED_WATCH;
}

static int remove_object(struct feed *feed, const struct json *metadata, struct error **err) {
  struct json_text name, uid;
  if (json_get_text(metadata, "name", &name, err) < 0 || json_get_text(metadata, "uid", &uid, err) < 0)
    return -1;
  if (name.data && uid.data)
    store_remove(feed->store, feed->kind, name.data, uid.data);
  return 0;
}

/* Returns the Status's code. */
static int64_t status_code(const struct json *status) {
  bool present = false;
  int64_t code = 0;
  return json_get_integer(status, "code", &present, &code, NULL) == 0 && present ? code : 0;
}

static int event_apply(struct feed *feed, const char *type, const struct json *object, struct error **err) {
  const struct json *metadata = NULL;
  char version[FEED_VERSION_SIZE];
  if (json_get_object(object, "metadata", &metadata, err) < 0)
    return -1;
  if (!metadata)
    return error_set_detail(err, REASON_INTERNAL, "an event without metadata");
  if (copy_member(metadata, "resourceVersion", version, sizeof version, err) < 0)
    return -1;
  if (strcmp(type, "ADDED") == 0 || strcmp(type, "MODIFIED") == 0) {
    if (put(feed, object, false, err) < 0)
      return -1;
  } else if (strcmp(type, "DELETED") == 0) {
    if (remove_object(feed, metadata, err) < 0)
      return -1;
  } else if (strcmp(type, "BOOKMARK") != 0) {
    return error_set_detail(err, REASON_INTERNAL, "an event of unknown type \"%.16s\"", type);
  }
  if (version[0])
    memcpy(feed->version, version, sizeof version);
  return 0;
}

static enum feed_next line_read(struct feed *feed, const char *text, size_t length, struct error **err) {
  CLEANUP_JSON struct json *event = json_parse_trusted(text, length, err);
  struct json_text type;
  const struct json *object = NULL;
  if (!event || json_get_text(event, "type", &type, err) < 0 || json_get_object(event, "object", &object, err) < 0)
    return FEED_LIST;
  if (!type.data || !object) {
    error_set_detail(err, REASON_INTERNAL, "an event without a type or an object");
    return FEED_LIST;
  }
  if (strcmp(type.data, "ERROR") == 0) {
    int64_t code = status_code(object);
    if (code != GONE)
      error_set_detail(err, REASON_INTERNAL, "the watch ended with status %lld", (long long)code);
    return FEED_LIST;
  }
  return event_apply(feed, type.data, object, err) < 0 ? FEED_LIST : FEED_WATCH;
}

enum feed_next feed_line(struct feed *feed, const char *text, size_t length, struct error **err) {
  CLEANUP_ERROR struct error *problem = NULL;
  enum feed_next next = line_read(feed, text, length, &problem);
  if (problem) {
    error_context(&problem, "watch of %s", object_kind_name(feed->kind));
    error_move(err, &problem);
  }
  return next;
}

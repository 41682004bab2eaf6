/*
 * The secrets of every Consumer, prepared as HMAC keys. Time must not tell which Consumers exist: ids are found by
 * their SHA-256 with a fixed number of steps, every Consumer has the same number of keys (the missing ones are random),
 * and an unknown one is checked against a last row of random keys.
 */
#include "base/key_ring.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/memory.h"
#include "base/text.h"
#include <endian.h>
#include <stdlib.h>
#include <string.h>

struct key_row {
  uint8_t id[DIGEST_SIZE]; /* SHA-256 of the Consumer id */
  struct digest_key keys[LIMIT_SECRETS_PER_CONSUMER];
};

struct key_ring {
  size_t count;          /* Consumers */
  size_t keys_each;      /* most secrets that one has */
  struct key_row rows[]; /* in order of id, and one more for everybody else */
};

static void hash_id(const char *consumer, size_t length, uint8_t id[static DIGEST_SIZE]) {
  struct digest digest;
  digest_start(&digest);
  digest_update(&digest, consumer, length);
  digest_finish(&digest, id);
}

bool identity_valid(const char *text, size_t length) {
  return text_characters(text, length) <= LIMIT_IDENTITY_CHARACTERS && !text_blank(text, length) &&
         memchr(text, '\0', length) == NULL;
}

static int add_secret(struct key_row *row, size_t *count, const struct json *value, struct json_text consumer,
                      struct error **err) {
  struct json_text secret;
  if (json_as_text(value, &secret) != 0 || secret.length == 0)
    return error_set_detail(err, REASON_INTERNAL, "a secret of Consumer '%s' must be a non-empty string",
                            consumer.data);
  if (*count == LIMIT_SECRETS_PER_CONSUMER)
    return error_set_detail(err, REASON_INTERNAL, "Consumer '%s' must have at most %d secrets", consumer.data,
                            LIMIT_SECRETS_PER_CONSUMER);
  digest_key_set(&row->keys[(*count)++], secret.data, secret.length);
  return 0;
}

static void fill_random(struct key_row *row, size_t from) {
  uint8_t secret[DIGEST_SIZE];
  for (size_t i = from; i < LIMIT_SECRETS_PER_CONSUMER; i++) {
    random_bytes(secret, sizeof secret);
    digest_key_set(&row->keys[i], secret, sizeof secret);
  }
  memory_wipe(secret, sizeof secret);
}

/* Fills one row from a member of the object. */
static int add_consumer(struct key_ring *ring, struct json_text consumer, const struct json *value,
                        struct error **err) {
  struct key_row *row = &ring->rows[ring->count];
  size_t count = 0;
  if (!identity_valid(consumer.data, consumer.length))
    return error_set_detail(err, REASON_INTERNAL, "a Consumer id must have 1 to %d characters and not be blank",
                            LIMIT_IDENTITY_CHARACTERS);
  if (json_is_array(value)) {
    const void *position = NULL;
    const struct json *element;
    struct json_text none;
    while (json_next(value, &position, &none, &element))
      if (add_secret(row, &count, element, consumer, err) != 0)
        return -1;
    if (count == 0)
      return error_set_detail(err, REASON_INTERNAL, "Consumer '%s' must have a secret", consumer.data);
  } else if (add_secret(row, &count, value, consumer, err) != 0) {
    return -1;
  }
  hash_id(consumer.data, consumer.length, row->id);
  fill_random(row, count);
  ring->count++;
  if (count > ring->keys_each)
    ring->keys_each = count;
  return 0;
}

static int compare_rows(const void *a, const void *b) {
  return memcmp(((const struct key_row *)a)->id, ((const struct key_row *)b)->id, DIGEST_SIZE);
}

/* Every member of the object, then order. */
static int fill_ring(struct key_ring *ring, const struct json *consumers, struct error **err) {
  const void *position = NULL;
  const struct json *value;
  struct json_text consumer;
  while (json_next(consumers, &position, &consumer, &value))
    if (add_consumer(ring, consumer, value, err) != 0)
      return -1;
  qsort(ring->rows, ring->count, sizeof ring->rows[0], compare_rows);
  for (size_t i = 1; i < ring->count; i++)
    if (compare_rows(&ring->rows[i - 1], &ring->rows[i]) == 0)
      return error_set_detail(err, REASON_INTERNAL, "a Consumer stands twice");
  fill_random(&ring->rows[ring->count], 0);
  return 0;
}

static struct key_ring *ring_from(const struct json *consumers, struct error **err) {
  size_t count = 0;
  const void *position = NULL;
  const struct json *value;
  struct json_text name;
  if (!json_is_object(consumers) || !json_next(consumers, &position, &name, &value)) {
    error_set_detail(err, REASON_INTERNAL,
                     "must be a JSON object of Consumer ids with their secrets, and name one at least");
    return NULL;
  }
  do
    count++;
  while (json_next(consumers, &position, &name, &value));
  struct key_ring *ring = memory_zero(sizeof *ring + (count + 1) * sizeof ring->rows[0]);
  if (ring == NULL) {
    error_set_memory(err);
    return NULL;
  }
  if (fill_ring(ring, consumers, err) == 0)
    return ring;
  ring->count = count;
  key_ring_free(ring);
  return NULL;
}

struct key_ring *key_ring_parse(const char *json, size_t length, struct error **err) {
  struct error *cause CLEANUP_ERROR = NULL;
  struct json *consumers CLEANUP_JSON = json_parse_trusted(json, length, &cause);
  if (consumers != NULL)
    return ring_from(consumers, err);
  if (error_reason(cause) == REASON_INVALID_JSON)
    error_set_detail(err, REASON_INTERNAL, "must be a JSON object: %s", error_detail(cause));
  else
    error_move(err, &cause);
  return NULL;
}

void key_ring_free(struct key_ring *ring) {
  if (ring == NULL)
    return;
  memory_wipe(ring->rows, (ring->count + 1) * sizeof ring->rows[0]);
  memory_free(ring);
}

/* The first eight bytes of an id as a number, in the order of compare_rows. Two Consumers whose hashes share them do
 * not occur. */
static uint64_t place_of(const uint8_t id[static DIGEST_SIZE]) {
  uint64_t place;
  memcpy(&place, id, sizeof place);
  return be64toh(place);
}

/* The row of an id, or the last one. Takes the same steps for each. */
static const struct key_row *find_row(const struct key_ring *ring, const uint8_t id[static DIGEST_SIZE], bool *known) {
  uint64_t place = place_of(id);
  size_t base = 0;
  for (size_t length = ring->count; length > 1;) {
    size_t half = length / 2;
    base += place_of(ring->rows[base + half].id) <= place ? half : 0;
    length -= half;
  }
  *known = digest_equal(ring->rows[base].id, id, DIGEST_SIZE);
  return &ring->rows[*known ? base : ring->count];
}

bool key_ring_verify(const struct key_ring *ring, const char *consumer, size_t consumer_length, const char *message,
                     size_t message_length, const uint8_t signature[static DIGEST_SIZE]) {
  uint8_t id[DIGEST_SIZE], wanted[DIGEST_SIZE];
  bool known, good = false;
  hash_id(consumer, consumer_length, id);
  const struct key_row *row = find_row(ring, id, &known);
  for (size_t i = 0; i < ring->keys_each; i++) {
    digest_hmac(&row->keys[i], message, message_length, wanted);
    good |= digest_equal(wanted, signature, DIGEST_SIZE);
  }
  memory_wipe(wanted, sizeof wanted);
  return good && known;
}

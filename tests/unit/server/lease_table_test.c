/*
 * The Lease table against a naive model: an array that is searched and sorted anew for each question.
 */
#include "server/lease_table.h"

#include "base/memory.h"
#include "tests/unit/server/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_MAX = 300, SCOPES = 5, CONSUMERS = 2, POOLS = 3, STEPS = 20000 };

struct model_lease {
  struct backend_sandbox facts;
  bool active;
};

struct model {
  struct model_lease leases[MODEL_MAX];
  size_t count;
  size_t pending[SCOPES];
  uint64_t random;
  unsigned next_id;
};

static unsigned model_draw(struct model *model, unsigned bound) {
  return (unsigned)(check_random(&model->random) % bound);
}

static void scope_label(char label[static LABEL_SIZE], unsigned scope) {
  snprintf(label, LABEL_SIZE, "scope%u", scope);
}

/* Scopes 0, 2, 4 belong to Consumer 0, the others to Consumer 1. */
static void consumer_label(char label[static LABEL_SIZE], unsigned scope) {
  snprintf(label, LABEL_SIZE, "consumer%u", scope % CONSUMERS);
}

static struct backend_sandbox model_facts(struct model *model) {
  struct backend_sandbox facts = {0};
  unsigned scope = model_draw(model, SCOPES);
  unsigned number = model->next_id++;
  /* Ids in another order than times. */
  snprintf(facts.id, sizeof(facts.id), "lease-%08x%024x", (unsigned)(number * 2654435761u), number);
  snprintf(facts.pool, sizeof(facts.pool), "pool%u", model_draw(model, POOLS));
  scope_label(facts.scope, scope);
  consumer_label(facts.consumer, scope);
  snprintf(facts.idempotency, sizeof(facts.idempotency), "key%u", number);
  facts.created_at = 1000 + model_draw(model, 40); /* many are equal */
  facts.expires_at = facts.created_at + 1;
  facts.last_used_at = facts.created_at;
  facts.deadline = model_draw(model, 1000);
  return facts;
}

static int model_compare(const void *left, const void *right) {
  const struct model_lease *a = *(struct model_lease *const *)left, *b = *(struct model_lease *const *)right;
  if (a->facts.created_at != b->facts.created_at)
    return a->facts.created_at < b->facts.created_at ? -1 : 1;
  return strcmp(a->facts.id, b->facts.id);
}

static size_t model_held(const struct model *model, const char *label, bool consumer) {
  size_t held = 0;
  for (size_t i = 0; i < model->count; i++) {
    const struct model_lease *lease = &model->leases[i];
    held += lease->active && strcmp(consumer ? lease->facts.consumer : lease->facts.scope, label) == 0;
  }
  for (unsigned scope = 0; scope < SCOPES; scope++) {
    char text[LABEL_SIZE];
    (consumer ? consumer_label : scope_label)(text, scope);
    held += strcmp(text, label) == 0 ? model->pending[scope] : 0;
  }
  return held;
}

static void check_list(struct model *model, struct lease_table *table) {
  char scope[LABEL_SIZE], pool[16];
  scope_label(scope, model_draw(model, SCOPES));
  snprintf(pool, sizeof(pool), "pool%u", model_draw(model, POOLS));
  const char *filter = model_draw(model, 2) ? pool : NULL;
  struct model_lease *expected[MODEL_MAX];
  size_t total = 0;
  for (size_t i = 0; i < model->count; i++) {
    struct model_lease *lease = &model->leases[i];
    if (lease->active && strcmp(lease->facts.scope, scope) == 0 && (!filter || strcmp(lease->facts.pool, filter) == 0))
      expected[total++] = lease;
  }
  qsort(expected, total, sizeof(*expected), model_compare);

  size_t limit = 1 + model_draw(model, 7), given = 0;
  int64_t created = 0;
  char position[LIMIT_LEASE_ID_BYTES + 1] = "";
  for (bool more = true; more;) {
    struct lease *found[8];
    size_t count = lease_table_list(table, scope, filter, created, position[0] ? position : NULL, limit, found, &more);
    assert_true(count <= limit);
    for (size_t i = 0; i < count; i++) {
      assert_true(given < total);
      assert_string_equal(found[i]->facts.id, expected[given]->facts.id);
      created = found[i]->facts.created_at;
      memcpy(position, found[i]->facts.id, sizeof(position));
      given++;
    }
    assert_int_equal(more, given < total);
  }
  assert_int_equal(given, total);
}

static void check_nearest(const struct model *model, const struct lease_table *table) {
  int64_t nearest = INT64_MAX;
  for (size_t i = 0; i < model->count; i++)
    if (model->leases[i].active && model->leases[i].facts.deadline < nearest)
      nearest = model->leases[i].facts.deadline;
  const struct lease *lease = lease_table_nearest(table);
  assert_int_equal(lease ? lease->facts.deadline : INT64_MAX, nearest);
}

static void check_found(struct model *model, const struct lease_table *table) {
  assert_int_equal(lease_table_count(table), model->count);
  if (model->count == 0)
    return;
  const struct model_lease *lease = &model->leases[model_draw(model, (unsigned)model->count)];
  const struct lease *found = lease_table_find(table, lease->facts.id);
  assert_non_null(found);
  assert_int_equal(found->state, lease->active ? LEASE_ACTIVE : LEASE_ENDING);
  assert_int_equal(found->facts.deadline, lease->facts.deadline);
  assert_ptr_equal(lease_table_find_idempotent(table, lease->facts.idempotency), lease->active ? found : NULL);
  assert_null(lease_table_find(table, "lease-"));
}

/* Against a quota of just what is held, and of one more. */
static void step_reserve(struct model *model, struct lease_table *table) {
  unsigned scope = model_draw(model, SCOPES);
  char label[LABEL_SIZE], consumer[LABEL_SIZE];
  scope_label(label, scope);
  consumer_label(consumer, scope);
  size_t held = model_held(model, label, false), consumer_held = model_held(model, consumer, true);
  struct lease_reservation reservation = {0};
  if (held > 0)
    assert_int_equal(lease_table_reserve(table, label, consumer, held, 0, &reservation), LEASE_OVER_QUOTA);
  if (consumer_held > 0)
    assert_int_equal(lease_table_reserve(table, label, consumer, 0, consumer_held, &reservation), LEASE_OVER_QUOTA);
  assert_null(reservation.scope);
  assert_int_equal(lease_table_reserve(table, label, consumer, held + 1, consumer_held + 1, &reservation), LEASE_RESERVED);
  assert_int_equal(lease_table_reserve(table, label, consumer, held + 1, 0, &(struct lease_reservation){0}),
                   LEASE_OVER_QUOTA);
  lease_table_unreserve(table, &reservation);
  lease_table_unreserve(table, &reservation);
}

static void step_add(struct model *model, struct lease_table *table) {
  if (model->count == MODEL_MAX)
    return;
  struct model_lease *added = &model->leases[model->count++];
  *added = (struct model_lease){.facts = model_facts(model), .active = true};
  struct lease *lease = lease_table_add(table, &added->facts);
  assert_non_null(lease);
  assert_string_equal(lease->facts.id, added->facts.id);
}

static void step_change(struct model *model, struct lease_table *table) {
  if (model->count == 0)
    return;
  size_t place = model_draw(model, (unsigned)model->count);
  struct model_lease *changed = &model->leases[place];
  struct lease *lease = lease_table_find(table, changed->facts.id);
  switch (model_draw(model, 3)) {
  case 0:
    changed->facts.deadline = model_draw(model, 1000);
    changed->facts.created_at = 1000 + model_draw(model, 40);
    lease_table_update(table, lease, &changed->facts);
    break;
  case 1:
    changed->active = false;
    lease_table_end(table, lease);
    lease_table_end(table, lease);
    break;
  default:
    lease_table_remove(table, lease);
    model->leases[place] = model->leases[--model->count];
  }
}

static void test_against_model(void **state) {
  (void)state;
  struct model *model = calloc(1, sizeof(*model));
  assert_non_null(model);
  model->random = 20260731;
  struct lease_table table;
  assert_int_equal(lease_table_init(&table), 0);
  for (unsigned step = 0; step < STEPS; step++) {
    switch (model_draw(model, 5)) {
    case 0:
    case 1:
      step_add(model, &table);
      break;
    case 2:
      step_change(model, &table);
      break;
    case 3:
      step_reserve(model, &table);
      break;
    default:
      check_list(model, &table);
    }
    /* Now and then the table is emptied, so that it passes through small sizes often. */
    while (step % 1000 == 999 && model->count > 0)
      step_change(model, &table);
    check_nearest(model, &table);
    check_found(model, &table);
  }
  lease_table_free(&table);
  free(model);
}

static void test_walk_survives_removal(void **state) {
  (void)state;
  struct model model = {.random = 7};
  struct lease_table table;
  assert_int_equal(lease_table_init(&table), 0);
  for (int i = 0; i < 200; i++) {
    struct backend_sandbox facts = model_facts(&model);
    assert_non_null(lease_table_add(&table, &facts));
  }
  size_t seen = 0;
  for (struct lease *lease = lease_table_next(&table, NULL), *next; lease; lease = next) {
    next = lease_table_next(&table, lease);
    if (seen++ % 2)
      lease_table_remove(&table, lease);
  }
  assert_int_equal(seen, 200);
  assert_int_equal(lease_table_count(&table), 100);
  lease_table_free(&table);
}

/* Each allocation fails in turn: nothing is added, counted or leaked. */
static void test_no_memory(void **state) {
  (void)state;
  struct model model = {.random = 9};
  struct backend_sandbox facts = model_facts(&model);
  bool added = false;
  for (size_t n = 1; !added; n++) {
    struct lease_table table;
    memory_fail_after(n, 0);
    int initialised = lease_table_init(&table);
    struct lease *lease = initialised == 0 ? lease_table_add(&table, &facts) : NULL;
    memory_fail_after(0, 0);
    if (initialised < 0)
      continue;
    added = lease != NULL;
    assert_int_equal(lease_table_count(&table), added ? 1 : 0);
    struct lease_reservation reservation = {0};
    assert_int_equal(lease_table_reserve(&table, facts.scope, facts.consumer, 1, 0, &reservation),
                     added ? LEASE_OVER_QUOTA : LEASE_RESERVED);
    lease_table_unreserve(&table, &reservation);
    lease_table_free(&table);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_against_model),
    cmocka_unit_test(test_walk_survives_removal),
    cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

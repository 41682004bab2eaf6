#include "backend/kubernetes/object.h"

#include "backend/kubernetes/claim.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/memory.h"
#include <stdio.h>
#include <string.h>

enum { TEXTS_MAX = 16, CONTAINERS_BYTES = 1024 };

/* A record being made: its strings are views into the JSON until all are known, and then move into one block. */
struct draft {
  struct object object;
  struct {
    const char **slot; /* in `object` */
    const char *data;
    size_t length;
  } texts[TEXTS_MAX];
  size_t text_count;
  char containers[CONTAINERS_BYTES];
};

const char *object_kind_name(enum object_kind kind) {
  static const char *const names[] = {"SandboxClaim", "Sandbox", "Pod", "SandboxWarmPool", "Node"};
  return names[kind];
}

/* --- reading JSON that may lack anything --- */

/* The object's member of that name, or NULL if there is none or it is no object. */
static const struct json *member(const struct json *json, const char *name) {
  const struct json *value = NULL;
  return json && json_get_object(json, name, &value, NULL) == 0 ? value : NULL;
}

/* The same for an array. */
static const struct json *list_member(const struct json *json, const char *name) {
  const void *position = NULL;
  struct json_text key;
  const struct json *value, *found = NULL;
  while (json && json_next(json, &position, &key, &value))
    if (strcmp(key.data, name) == 0)
      found = json_is_array(value) ? value : NULL;
  return found;
}

static struct json_text text_member(const struct json *json, const char *name) {
  struct json_text text = {"", 0};
  if (!json || json_get_text(json, name, &text, NULL) < 0 || !text.data)
    return (struct json_text){"", 0};
  text.length = strlen(text.data); /* up to a NUL, which no name has */
  return text;
}

static bool flag_member(const struct json *json, const char *name) {
  bool present = false, value = false;
  return json && json_get_boolean(json, name, &present, &value, NULL) == 0 && present && value;
}

static int64_t number_member(const struct json *json, const char *name, int64_t fallback) {
  bool present = false;
  int64_t value = 0;
  return json && json_get_integer(json, name, &present, &value, NULL) == 0 && present ? value : fallback;
}

static bool text_is(struct json_text text, const char *wanted) {
  return strcmp(text.data, wanted) == 0;
}

/* The element of an array of objects whose `type` is this. */
static const struct json *condition_of(const struct json *status, const char *type) {
  const struct json *conditions = list_member(status, "conditions");
  const void *position = NULL;
  struct json_text name;
  const struct json *condition;
  while (conditions && json_next(conditions, &position, &name, &condition))
    if (json_is_object(condition) && text_is(text_member(condition, "type"), type))
      return condition;
  return NULL;
}

/* The controlling owner of that kind, or NULL. */
static const struct json *owner_of(const struct json *metadata, const char *kind) {
  const struct json *owners = list_member(metadata, "ownerReferences");
  const void *position = NULL;
  struct json_text name;
  const struct json *owner;
  while (owners && json_next(owners, &position, &name, &owner))
    if (json_is_object(owner) && flag_member(owner, "controller") && text_is(text_member(owner, "kind"), kind))
      return owner;
  return NULL;
}

/* --- the record --- */

static void keep(struct draft *draft, const char **slot, struct json_text text) {
  size_t place = draft->text_count++;
  draft->texts[place].slot = slot;
  draft->texts[place].data = text.data;
  draft->texts[place].length = text.length < OBJECT_NAME_BYTES ? text.length : OBJECT_NAME_BYTES;
}

/* A cut is made where a character begins. */
static void keep_message(struct draft *draft, const char **slot, struct json_text text) {
  if (text.length > OBJECT_MESSAGE_BYTES) {
    text.length = OBJECT_MESSAGE_BYTES;
    while (text.length > 0 && ((unsigned char)text.data[text.length] & 0xc0) == 0x80)
      text.length--;
  }
  keep(draft, slot, text);
}

static struct object *draft_finish(const struct draft *draft) {
  size_t size = sizeof(struct object);
  for (size_t i = 0; i < draft->text_count; i++)
    size += draft->texts[i].length + 1;
  char *block = memory_new(size);
  if (!block)
    return NULL;
  struct object *object = (struct object *)(void *)block;
  *object = draft->object;
  char *at = block + sizeof(struct object);
  for (size_t i = 0; i < draft->text_count; i++) {
    size_t offset = (size_t)((const char *)draft->texts[i].slot - (const char *)&draft->object);
    memcpy(at, draft->texts[i].data, draft->texts[i].length);
    at[draft->texts[i].length] = 0;
    const char *text = at;
    memcpy(block + offset, &text, sizeof text);
    at += draft->texts[i].length + 1;
  }
  return object;
}

/* --- one kind each --- */

/* Wall nanoseconds of a time, or 0. */
static int64_t time_member(const struct json *json, const char *name) {
  struct json_text text = text_member(json, name);
  int64_t wall = 0;
  return text.length > 0 && clock_parse(text.data, text.length, &wall) == 0 ? wall : 0;
}

static struct json_text label_member(const struct json *labels, const char *name) {
  struct json_text text = text_member(labels, name);
  return strlen(text.data) < LABEL_SIZE ? text : (struct json_text){"", 0};
}

/* The Ready condition: is it True? Else its reason and message are kept. */
static bool keep_ready(struct draft *draft, const struct json *status, const char **reason, const char **message) {
  const struct json *condition = condition_of(status, "Ready");
  bool ready = text_is(text_member(condition, "status"), "True");
  keep(draft, reason, ready ? (struct json_text){"", 0} : text_member(condition, "reason"));
  keep_message(draft, message, ready ? (struct json_text){"", 0} : text_member(condition, "message"));
  return ready;
}

static void claim_read(struct draft *draft, const struct json *json, const struct json *metadata) {
  struct claim_facts *claim = &draft->object.claim;
  const struct json *labels = member(metadata, "labels"), *annotations = member(metadata, "annotations");
  const struct json *status = member(json, "status");
  struct json_text scope = label_member(labels, CLAIM_LABEL_SCOPE),
                   consumer = label_member(labels, CLAIM_LABEL_CONSUMER);
  struct json_text key = label_member(labels, CLAIM_LABEL_IDEMPOTENCY),
                   pool = text_member(annotations, CLAIM_POOL_NAME);
  claim->created_at = time_member(annotations, CLAIM_CREATED_AT);
  claim->expires_at = time_member(annotations, CLAIM_EXPIRES_AT);
  claim->managed = text_is(text_member(labels, CLAIM_LABEL_MANAGED), "true") && scope.length > 0 &&
                   consumer.length > 0 && key.length > 0 && pool.length > 0 && pool.length <= LIMIT_POOL_NAME_BYTES &&
                   claim->created_at > 0 && claim->expires_at > claim->created_at;
  keep(draft, &claim->scope, scope);
  keep(draft, &claim->consumer, consumer);
  keep(draft, &claim->idempotency, key);
  keep(draft, &claim->pool, pool);
  keep(draft, &claim->attempt, text_member(annotations, CLAIM_ATTEMPT));
  keep(draft, &claim->warm_pool, text_member(member(member(json, "spec"), "warmPoolRef"), "name"));
  struct json_text sandbox = text_member(member(status, "sandbox"), "name");
  keep(draft, &claim->sandbox, sandbox.length > 0 ? sandbox : text_member(annotations, CLAIM_ASSIGNED));
  claim->ready = keep_ready(draft, status, &claim->reason, &claim->message);
  claim->was_ready = claim->ready || text_member(annotations, CLAIM_FIRST_READY).length > 0;
}

static void sandbox_read(struct draft *draft, const struct json *json, const struct json *metadata) {
  struct sandbox_facts *sandbox = &draft->object.sandbox;
  const struct json *status = member(json, "status"), *claim = owner_of(metadata, "SandboxClaim");
  struct json_text pod = text_member(member(metadata, "annotations"), "agents.x-k8s.io/pod-name");
  keep(draft, &sandbox->claim, text_member(claim, "name"));
  keep(draft, &sandbox->claim_uid, text_member(claim, "uid"));
  keep(draft, &sandbox->warm_pool, text_member(owner_of(metadata, "SandboxWarmPool"), "name"));
  keep(draft, &sandbox->pod, pod.length > 0 ? pod : text_member(metadata, "name"));
  sandbox->ready = keep_ready(draft, status, &sandbox->reason, &sandbox->message);
  if (text_is(text_member(member(json, "spec"), "operatingMode"), "Suspended"))
    sandbox->ready = false; /* the condition may not have followed yet */
}

static enum pod_phase phase_of(struct json_text text) {
  static const char *const names[] = {"Unknown", "Pending", "Running", "Succeeded", "Failed"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (text_is(text, names[i]))
      return (enum pod_phase)i;
  return POD_UNKNOWN;
}

/* What holds up the first container that waits, or how the last one that ended did. */
struct container_trouble {
  struct json_text waiting, ended, message;
};

static void trouble_read(const struct json *status, const char *list, struct container_trouble *trouble) {
  const struct json *statuses = list_member(status, list), *container;
  const void *position = NULL;
  struct json_text name;
  while (statuses && json_next(statuses, &position, &name, &container)) {
    if (!json_is_object(container))
      continue;
    const struct json *state = member(container, "state"), *waiting = member(state, "waiting");
    const struct json *ended = member(state, "terminated");
    if (!ended)
      ended = member(member(container, "lastState"), "terminated");
    if (waiting && trouble->waiting.length == 0) {
      trouble->waiting = text_member(waiting, "reason");
      trouble->message = text_member(waiting, "message");
    }
    if (ended)
      trouble->ended = text_member(ended, "reason");
  }
}

static struct json_text containers_read(struct draft *draft, const struct json *spec) {
  const struct json *containers = list_member(spec, "containers"), *container;
  const void *position = NULL;
  struct json_text name;
  struct buffer out;
  buffer_borrow(&out, draft->containers, sizeof draft->containers);
  while (containers && json_next(containers, &position, &name, &container)) {
    struct json_text text = json_is_object(container) ? text_member(container, "name") : (struct json_text){"", 0};
    if (text.length > 0 && buffer_append_format(&out, "/%s", text.data) < 0)
      break;
  }
  return (struct json_text){out.length > 0 ? draft->containers : "", out.length};
}

static void pod_read(struct draft *draft, const struct json *json, const struct json *metadata) {
  struct pod_facts *pod = &draft->object.pod;
  const struct json *spec = member(json, "spec"), *status = member(json, "status"),
                    *owner = owner_of(metadata, "Sandbox");
  const struct json *scheduled = condition_of(status, "PodScheduled");
  struct container_trouble trouble = {{"", 0}, {"", 0}, {"", 0}};
  trouble_read(status, "initContainerStatuses", &trouble);
  trouble_read(status, "containerStatuses", &trouble);
  struct json_text reason = text_member(status, "reason"), message = text_member(status, "message");
  pod->phase = phase_of(text_member(status, "phase"));
  pod->ready = text_is(text_member(condition_of(status, "Ready"), "status"), "True");
  pod->unschedulable = text_is(text_member(scheduled, "status"), "False") &&
                       text_is(text_member(scheduled, "reason"), "Unschedulable");
  if (pod->unschedulable)
    message = text_member(scheduled, "message");
  else if (trouble.waiting.length > 0)
    message = trouble.message;
  keep(draft, &pod->sandbox, text_member(owner, "name"));
  keep(draft, &pod->sandbox_uid, text_member(owner, "uid"));
  keep(draft, &pod->node, text_member(spec, "nodeName"));
  keep(draft, &pod->address, text_member(status, "podIP"));
  keep(draft, &pod->runtime, text_member(spec, "runtimeClassName"));
  struct json_text containers = containers_read(draft, spec);
  keep(draft, &pod->containers, containers);
  draft->texts[draft->text_count - 1].length = containers.length;
  keep(draft, &pod->waiting, trouble.waiting);
  keep(draft, &pod->reason, reason.length > 0 ? reason : trouble.ended);
  keep_message(draft, &pod->message, message);
}

static void pool_read(struct draft *draft, const struct json *json) {
  draft->object.pool.desired = number_member(member(json, "spec"), "replicas", 1);
  draft->object.pool.ready = number_member(member(json, "status"), "readyReplicas", 0);
}

static void node_read(struct draft *draft, const struct json *json) {
  draft->object.node.cordoned = flag_member(member(json, "spec"), "unschedulable");
  draft->object.node.ready = text_is(text_member(condition_of(member(json, "status"), "Ready"), "status"), "True");
}

struct object *object_decode(enum object_kind kind, const struct json *json, struct error **err) {
  const struct json *metadata = json_is_object(json) ? member(json, "metadata") : NULL;
  struct json_text name = text_member(metadata, "name"), uid = text_member(metadata, "uid");
  if (name.length == 0 || name.length > OBJECT_NAME_BYTES || uid.length == 0) {
    error_set_detail(err, REASON_INTERNAL, "a %s without metadata.name and metadata.uid", object_kind_name(kind));
    return NULL;
  }
  struct draft draft;
  memset(&draft.object, 0, sizeof draft.object);
  draft.text_count = 0;
  draft.object.kind = kind;
  draft.object.deleting = text_member(metadata, "deletionTimestamp").length > 0;
  keep(&draft, &draft.object.name, name);
  keep(&draft, &draft.object.uid, uid);
  switch (kind) {
  case OBJECT_CLAIM:
    claim_read(&draft, json, metadata);
    break;
  case OBJECT_SANDBOX:
    sandbox_read(&draft, json, metadata);
    break;
  case OBJECT_POD:
    pod_read(&draft, json, metadata);
    break;
  case OBJECT_POOL:
    pool_read(&draft, json);
    break;
  case OBJECT_NODE:
  case OBJECT_KINDS:
    node_read(&draft, json);
    break;
  }
  struct object *object = draft_finish(&draft);
  if (!object)
    error_set_memory(err);
  return object;
}

static size_t texts_size(const char *const *texts, size_t count) {
  size_t size = 0;
  for (size_t i = 0; i < count; i++)
    size += strlen(texts[i]) + 1;
  return size;
}

size_t object_size(const struct object *object) {
  size_t size = sizeof *object + strlen(object->name) + 1 + strlen(object->uid) + 1;
  if (object->kind == OBJECT_CLAIM) {
    const struct claim_facts *claim = &object->claim;
    size += texts_size((const char *const[]){claim->scope, claim->consumer, claim->idempotency, claim->pool,
                                             claim->attempt, claim->warm_pool, claim->sandbox, claim->reason,
                                             claim->message},
                       9);
  } else if (object->kind == OBJECT_SANDBOX) {
    const struct sandbox_facts *sandbox = &object->sandbox;
    size += texts_size((const char *const[]){sandbox->claim, sandbox->claim_uid, sandbox->warm_pool, sandbox->pod,
                                             sandbox->reason, sandbox->message},
                       6);
  } else if (object->kind == OBJECT_POD) {
    const struct pod_facts *pod = &object->pod;
    size += texts_size((const char *const[]){pod->sandbox, pod->sandbox_uid, pod->node, pod->address, pod->runtime,
                                             pod->containers, pod->waiting, pod->reason, pod->message},
                       9);
  }
  return size;
}

bool object_has_container(const struct object *pod, const char *name) {
  const char *at = pod->pod.containers;
  size_t length = strlen(name);
  if (length == 0)
    return *at != 0;
  while (*at == '/') {
    size_t size = strcspn(at + 1, "/");
    if (size == length && memcmp(at + 1, name, length) == 0)
      return true;
    at += 1 + size;
  }
  return false;
}

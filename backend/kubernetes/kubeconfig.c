#include "backend/kubernetes/kubeconfig.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/text.h"
#include <string.h>
#include <yaml.h>

enum { VALUE_BYTES = 1 << 20, LIST_MAX = 256 };

/* One text being read. */
struct reading {
  yaml_document_t document;
  const char *folder;
  struct error **err;
};

static int refuse(const struct reading *reading, const char *path, const char *rule) {
  return error_set_detail(reading->err, REASON_INTERNAL, "kubeconfig: %s %s", path, rule);
}

static int no_memory(const struct reading *reading) {
  return error_set_memory(reading->err);
}

/* --- walking the document --- */

static bool scalar_is(const yaml_node_t *node, const char *text) {
  return node && node->type == YAML_SCALAR_NODE && node->data.scalar.length == strlen(text) &&
         memcmp(node->data.scalar.value, text, node->data.scalar.length) == 0;
}

/* NULL if `map` is no map or has no such key. */
static yaml_node_t *member(struct reading *reading, const yaml_node_t *map, const char *name) {
  if (!map || map->type != YAML_MAPPING_NODE)
    return NULL;
  for (const yaml_node_pair_t *pair = map->data.mapping.pairs.start; pair < map->data.mapping.pairs.top; pair++)
    if (scalar_is(yaml_document_get_node(&reading->document, pair->key), name))
      return yaml_document_get_node(&reading->document, pair->value);
  return NULL;
}

/* Not there, empty or null: what a kubeconfig writes for "nothing". */
static bool is_nothing(const yaml_node_t *node) {
  if (!node)
    return true;
  if (node->type != YAML_SCALAR_NODE)
    return false;
  return node->data.scalar.length == 0 ||
         (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && (scalar_is(node, "null") || scalar_is(node, "~")));
}

static bool is_true(const yaml_node_t *node) {
  return scalar_is(node, "true") || scalar_is(node, "True") || scalar_is(node, "TRUE");
}

/* The value of `kind` ("cluster") in the element of a list ("clusters") with that name. */
static yaml_node_t *named(struct reading *reading, const char *list, const char *kind, const char *name) {
  yaml_node_t *items = member(reading, yaml_document_get_root_node(&reading->document), list);
  if (!items || items->type != YAML_SEQUENCE_NODE)
    return NULL;
  for (const yaml_node_item_t *item = items->data.sequence.items.start; item < items->data.sequence.items.top; item++) {
    yaml_node_t *element = yaml_document_get_node(&reading->document, *item);
    if (scalar_is(member(reading, element, "name"), name))
      return member(reading, element, kind);
  }
  return NULL;
}

/* --- values --- */

/* A text without NUL; *out stays NULL if nothing is said. */
static int take_text(struct reading *reading, const yaml_node_t *map, const char *name, char **out) {
  const yaml_node_t *node = member(reading, map, name);
  if (is_nothing(node))
    return 0;
  if (node->type != YAML_SCALAR_NODE || node->data.scalar.length > VALUE_BYTES ||
      memchr(node->data.scalar.value, 0, node->data.scalar.length))
    return refuse(reading, name, "must be a text");
  *out = memory_string_of((const char *)node->data.scalar.value, node->data.scalar.length);
  return *out ? 0 : no_memory(reading);
}

/* A path that is relative is one below the folder. */
static int take_path(struct reading *reading, const yaml_node_t *map, const char *name, char **out) {
  CLEANUP_MEMORY char *path = NULL;
  if (take_text(reading, map, name, &path) < 0)
    return -1;
  if (!path || path[0] == '/') {
    *out = path;
    path = NULL;
    return 0;
  }
  CLEANUP_BUFFER struct buffer whole;
  buffer_init(&whole, VALUE_BYTES);
  if (buffer_append_format(&whole, "%s/%s", reading->folder, path) < 0)
    return no_memory(reading);
  *out = buffer_take(&whole);
  return 0;
}

/* Base64, with white space anywhere. */
static int take_data(struct reading *reading, const yaml_node_t *map, const char *name, char **out) {
  CLEANUP_MEMORY char *text = NULL;
  if (take_text(reading, map, name, &text) < 0)
    return -1;
  if (!text)
    return 0;
  size_t kept = 0;
  for (const char *at = text; *at; at++)
    if (!strchr(" \t\r\n", *at))
      text[kept++] = *at;
  CLEANUP_BUFFER struct buffer bytes;
  buffer_init(&bytes, VALUE_BYTES);
  if (!buffer_reserve(&bytes, kept + 1)) /* so that what fails below is not memory */
    return no_memory(reading);
  int decoded = text_unbase64(&bytes, text, kept);
  memory_wipe(text, kept);
  if (decoded < 0 || bytes.length == 0 || memchr(bytes.data, 0, bytes.length))
    return refuse(reading, name, "must be base64 of a PEM text");
  *out = buffer_take(&bytes);
  return 0;
}

/* --- the exec plug-in --- */

static const char *const exec_versions[] = {"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"};

static size_t sequence_length(const yaml_node_t *node) {
  return node && node->type == YAML_SEQUENCE_NODE
             ? (size_t)(node->data.sequence.items.top - node->data.sequence.items.start)
             : 0;
}

/* An array of `count` texts and a NULL. */
static int list_new(struct reading *reading, const yaml_node_t *node, const char *name, char ***list) {
  if (!is_nothing(node) && (node->type != YAML_SEQUENCE_NODE || sequence_length(node) > LIST_MAX))
    return refuse(reading, name, "must be a list of at most 256");
  *list = memory_array(sequence_length(node) + 1, sizeof(char *));
  return *list ? 0 : no_memory(reading);
}

static int take_arguments(struct reading *reading, const yaml_node_t *map, char ***out) {
  const yaml_node_t *node = member(reading, map, "args");
  if (list_new(reading, node, "args", out) < 0)
    return -1;
  for (size_t i = 0; i < sequence_length(node); i++) {
    const yaml_node_t *item = yaml_document_get_node(&reading->document, node->data.sequence.items.start[i]);
    if (!item || item->type != YAML_SCALAR_NODE || memchr(item->data.scalar.value, 0, item->data.scalar.length))
      return refuse(reading, "args", "must be a list of texts");
    if (!((*out)[i] = memory_string_of((const char *)item->data.scalar.value, item->data.scalar.length)))
      return no_memory(reading);
  }
  return 0;
}

static int take_environment(struct reading *reading, const yaml_node_t *map, char ***out) {
  const yaml_node_t *node = member(reading, map, "env");
  if (list_new(reading, node, "env", out) < 0)
    return -1;
  for (size_t i = 0; i < sequence_length(node); i++) {
    const yaml_node_t *item = yaml_document_get_node(&reading->document, node->data.sequence.items.start[i]);
    CLEANUP_MEMORY char *name = NULL, *value = NULL;
    if (take_text(reading, item, "name", &name) < 0 || take_text(reading, item, "value", &value) < 0)
      return -1;
    if (!name || strchr(name, '='))
      return refuse(reading, "env", "must be a list of names and values");
    CLEANUP_BUFFER struct buffer pair;
    buffer_init(&pair, VALUE_BYTES);
    if (buffer_append_format(&pair, "%s=%s", name, value ? value : "") < 0)
      return no_memory(reading);
    (*out)[i] = buffer_take(&pair);
  }
  return 0;
}

static int take_exec(struct reading *reading, const yaml_node_t *user, struct kubeconfig_exec *exec) {
  const yaml_node_t *map = member(reading, user, "exec");
  if (is_nothing(map))
    return 0;
  if (take_text(reading, map, "apiVersion", &exec->api_version) < 0 ||
      take_text(reading, map, "command", &exec->command) < 0)
    return -1;
  bool known = false;
  for (size_t i = 0; i < sizeof exec_versions / sizeof exec_versions[0]; i++)
    known |= exec->api_version && strcmp(exec->api_version, exec_versions[i]) == 0;
  if (!known)
    return refuse(reading, "exec.apiVersion", "must be client.authentication.k8s.io/v1 or v1beta1");
  if (!exec->command)
    return refuse(reading, "exec.command", "is missing");
  exec->cluster_info = is_true(member(reading, map, "provideClusterInfo"));
  /* A command with a folder in it is relative to the kubeconfig's. */
  if (exec->command[0] != '/' && strchr(exec->command, '/')) {
    memory_free(exec->command);
    exec->command = NULL;
    if (take_path(reading, map, "command", &exec->command) < 0)
      return -1;
  }
  return take_arguments(reading, map, &exec->arguments) < 0 || take_environment(reading, map, &exec->environment) < 0
             ? -1
             : 0;
}

/* --- the parts --- */

static int take_cluster(struct reading *reading, const yaml_node_t *cluster, struct kubeconfig *config) {
  if (is_true(member(reading, cluster, "insecure-skip-tls-verify")))
    return refuse(reading, "insecure-skip-tls-verify", "is not supported: the server's certificate is always verified");
  if (take_text(reading, cluster, "server", &config->server) < 0 ||
      take_text(reading, cluster, "tls-server-name", &config->server_name) < 0 ||
      take_text(reading, cluster, "proxy-url", &config->proxy) < 0 ||
      take_data(reading, cluster, "certificate-authority-data", &config->authority) < 0)
    return -1;
  if (!config->authority && take_path(reading, cluster, "certificate-authority", &config->authority_file) < 0)
    return -1;
  if (!config->server || strncmp(config->server, "https://", 8) != 0 || strlen(config->server) == 8)
    return refuse(reading, "server", "must be a URL that begins with https://");
  for (size_t length = strlen(config->server); config->server[length - 1] == '/'; length--)
    config->server[length - 1] = 0;
  return 0;
}

static int take_user(struct reading *reading, const yaml_node_t *user, struct kubeconfig *config) {
  if (!is_nothing(member(reading, user, "username")) || !is_nothing(member(reading, user, "password")))
    return refuse(reading, "username", "is not supported: use a certificate, a token or an exec plug-in");
  if (!is_nothing(member(reading, user, "auth-provider")))
    return refuse(reading, "auth-provider", "is not supported: use an exec plug-in");
  if (take_data(reading, user, "client-certificate-data", &config->certificate) < 0 ||
      take_data(reading, user, "client-key-data", &config->key) < 0 ||
      take_path(reading, user, "tokenFile", &config->token_file) < 0)
    return -1;
  if (!config->certificate && take_path(reading, user, "client-certificate", &config->certificate_file) < 0)
    return -1;
  if (!config->key && take_path(reading, user, "client-key", &config->key_file) < 0)
    return -1;
  if (!config->token_file && take_text(reading, user, "token", &config->token) < 0)
    return -1;
  if (take_exec(reading, user, &config->exec) < 0)
    return -1;
  bool certificate = config->certificate || config->certificate_file, key = config->key || config->key_file;
  if (certificate != key)
    return refuse(reading, "client-certificate", "and client-key belong together");
  if (!certificate && !config->token && !config->token_file && !config->exec.command)
    return refuse(reading, "user", "must have a certificate, a token or an exec plug-in");
  return 0;
}

static int take_context(struct reading *reading, const char *context, struct kubeconfig *config) {
  const yaml_node_t *root = yaml_document_get_root_node(&reading->document);
  CLEANUP_MEMORY char *current = NULL, *cluster_name = NULL, *user_name = NULL;
  if (!root || root->type != YAML_MAPPING_NODE)
    return error_set_detail(reading->err, REASON_INTERNAL, "kubeconfig: it must be a map");
  if (!context && take_text(reading, root, "current-context", &current) < 0)
    return -1;
  const char *name = context ? context : current;
  if (!name)
    return refuse(reading, "current-context", "is not set, and no context was chosen");
  const yaml_node_t *chosen = named(reading, "contexts", "context", name);
  if (!chosen)
    return error_set_detail(reading->err, REASON_INTERNAL, "kubeconfig: it has no context \"%.200s\"", name);
  if (take_text(reading, chosen, "cluster", &cluster_name) < 0 || take_text(reading, chosen, "user", &user_name) < 0 ||
      take_text(reading, chosen, "namespace", &config->namespace_) < 0)
    return -1;
  const yaml_node_t *cluster = cluster_name ? named(reading, "clusters", "cluster", cluster_name) : NULL;
  const yaml_node_t *user = user_name ? named(reading, "users", "user", user_name) : NULL;
  if (!cluster || !user)
    return error_set_detail(reading->err, REASON_INTERNAL, "kubeconfig: the context's %s is not among those it lists",
                            cluster ? "user" : "cluster");
  return take_cluster(reading, cluster, config) < 0 ? -1 : take_user(reading, user, config);
}

int kubeconfig_parse(struct kubeconfig *config, const char *text, size_t length, const char *folder,
                     const char *context, struct error **err) {
  *config = (struct kubeconfig){0};
  CLEANUP_ERROR struct error *problem = NULL;
  struct reading reading = {.folder = folder, .err = &problem};
  yaml_parser_t parser;
  if (!yaml_parser_initialize(&parser))
    return error_set_memory(err);
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
  int loaded = yaml_parser_load(&parser, &reading.document);
  if (!loaded) {
    size_t line = parser.problem_mark.line + 1;
    bool memory = parser.error == YAML_MEMORY_ERROR;
    yaml_parser_delete(&parser);
    return memory ? error_set_memory(err)
                  : error_set_detail(err, REASON_INTERNAL, "kubeconfig: line %zu is no YAML", line);
  }
  int result = take_context(&reading, context, config);
  yaml_document_delete(&reading.document);
  yaml_parser_delete(&parser);
  return result < 0 ? error_move(err, &problem) : 0;
}

static void text_free(char *text) {
  if (text)
    memory_wipe(text, strlen(text));
  memory_free(text);
}

static void list_free(char **list) {
  for (size_t i = 0; list && list[i]; i++)
    text_free(list[i]);
  memory_free(list);
}

void kubeconfig_free(struct kubeconfig *config) {
  char *texts[] = {config->server,       config->server_name,     config->authority,   config->authority_file,
                   config->proxy,        config->namespace_,      config->certificate, config->certificate_file,
                   config->key,          config->key_file,        config->token,       config->token_file,
                   config->exec.command, config->exec.api_version};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    text_free(texts[i]);
  list_free(config->exec.arguments);
  list_free(config->exec.environment);
  *config = (struct kubeconfig){0};
}

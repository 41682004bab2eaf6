#include "backend/kubernetes/access.h"

#include "backend/kubernetes/curl.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

/* One transport that asks. */
struct asked {
  struct credentials_waiter waiter;
  const struct access *access;
  podexec_granted *granted;
  void *context;
};

static void on_credential(void *context, const struct credential *credential, struct error *err) {
  struct asked asked = *(struct asked *)context;
  memory_free(context);
  if (!credential) {
    asked.granted(asked.context, NULL, err);
    return;
  }
  const struct podexec_endpoint endpoint = {
      .websocket = {.host = asked.access->host,
                    .port = asked.access->port,
                    .server_name = credentials_server_name(asked.access->credentials),
                    .authorities = credential->authority,
                    .certificate = credential->certificate,
                    .key = credential->key,
                    .bearer = credential->bearer},
      .prefix = asked.access->prefix};
  asked.granted(asked.context, &endpoint, NULL);
}

static void *access_ask(void *context, podexec_granted *granted, void *granted_context) {
  const struct access *access = context;
  struct asked *asked = memory_zero(sizeof *asked);
  if (!asked)
    return NULL;
  asked->access = access;
  asked->granted = granted;
  asked->context = granted_context;
  /* When it was granted at once, what is returned is of no use any more, and not used. */
  credentials_get(access->credentials, &asked->waiter, on_credential, asked);
  return asked;
}

static void access_cancel(void *context, void *asked) {
  const struct access *access = context;
  credentials_cancel(access->credentials, &((struct asked *)asked)->waiter);
  memory_free(asked);
}

static void access_refused(void *context) {
  const struct access *access = context;
  credentials_refused(access->credentials);
}

/* A part of the URL; without brackets, without "/" at its end. */
static int part_copy(CURLU *url, CURLUPart part, char **out) {
  char *text = NULL;
  if (curl.url_get(url, part, &text, part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0) != CURLUE_OK)
    return -1;
  size_t length = strlen(text);
  while (length > 0 && strchr("/]", text[length - 1]))
    length--;
  const char *from = text[0] == '[' ? text + 1 : text;
  *out = memory_string_of(from, length > 0 ? length - (size_t)(from - text) : 0);
  curl.free(text);
  return *out ? 0 : -1;
}

int access_init(struct access *access, struct credentials *credentials, struct error **err) {
  CLEANUP_MEMORY char *port = NULL;
  CURLU *url = curl.url();
  *access = (struct access){.credentials = credentials};
  access->podexec = (struct podexec_access){
      .ask = access_ask, .cancel = access_cancel, .refused = access_refused, .context = access};
  int result = url && curl.url_set(url, CURLUPART_URL, credentials_server(credentials), 0) == CURLUE_OK &&
                       part_copy(url, CURLUPART_HOST, &access->host) == 0 &&
                       part_copy(url, CURLUPART_PATH, &access->prefix) == 0 &&
                       part_copy(url, CURLUPART_PORT, &port) == 0
                   ? 0
                   : -1;
  curl.url_cleanup(url);
  if (result < 0)
    return error_set_detail(err, REASON_INTERNAL, "the API server's address is no URL: %s",
                            credentials_server(credentials));
  access->port = (uint16_t)strtoul(port, NULL, 10);
  return 0;
}

void access_free(struct access *access) {
  memory_free(access->host);
  memory_free(access->prefix);
  access->host = access->prefix = NULL;
}

/*
 * Parsing the list of addresses, and binding each: a unix socket under its lock, anything else with or without TLS.
 */
#include "server/listeners.h"

#include "base/log.h"
#include "base/memory.h"
#include "server/certificates.h"
#include "server/socket_lock.h"

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#define VARIABLE "SANDBOX_GRPC_ADDRESS"
#define UNIX_PREFIX "unix:"

enum { LISTENERS_MAX = 16, ADDRESS_MAX_BYTES = 512, PORT_DIGITS = 5, PORT_MAX = 65535 };

struct listener {
  char address[ADDRESS_MAX_BYTES];
  struct socket_lock *lock; /* of a unix socket */
  struct certificates *certificates;
};

struct listeners {
  size_t count;
  struct listener items[LISTENERS_MAX];
};

static bool is_unix(const char *address) { return strncmp(address, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0; }

/* host:port, the port in decimal; an IPv6 host stands in brackets. */
static bool is_host_and_port(const char *address) {
  const char *colon = strrchr(address, ':');
  if (!colon || colon == address)
    return false;
  if (memchr(address, ':', (size_t)(colon - address)) && (address[0] != '[' || colon[-1] != ']'))
    return false;
  size_t digits = strspn(colon + 1, "0123456789");
  if (digits == 0 || digits > PORT_DIGITS || colon[1 + digits] != '\0')
    return false;
  int port = 0;
  for (const char *digit = colon + 1; *digit; digit++)
    port = port * 10 + (*digit - '0');
  return port <= PORT_MAX;
}

static bool is_loopback(const char *address) {
  return strncmp(address, "127.", 4) == 0 || strncmp(address, "localhost:", 10) == 0 ||
         strncmp(address, "[::1]:", 6) == 0;
}

static int unix_open(struct listener *listener, struct acceptor *acceptor, struct error **err) {
  listener->lock = socket_lock_take(listener->address + strlen(UNIX_PREFIX), err);
  if (!listener->lock)
    return error_context(err, VARIABLE);
  mode_t before = umask(0177); /* the socket must never be open to others, not even for a moment */
  int result = acceptor_listen_unix(acceptor, listener->address, err);
  umask(before);
  if (result < 0)
    return error_context(err, VARIABLE);
  log_write(LOG_INFO, "listening", LOG_TEXT("address", listener->address));
  return 0;
}

static void warn_of_anybody(const struct listener *listener) {
  log_write(LOG_WARNING, "listening_to_anybody", LOG_TEXT("address", listener->address),
            LOG_TEXT("detail", listener->certificates
                                   ? "whoever reaches this port can load the server; let clients need a certificate"
                                   : "tokens, commands and files cross the network unencrypted"));
}

static int tcp_open(struct listener *listener, struct acceptor *acceptor, const struct server_settings *settings,
                    struct error **err) {
  if (settings->tls_certificate) {
    listener->certificates =
        certificates_new(settings->tls_certificate, settings->tls_key, settings->tls_client_ca, err);
    if (!listener->certificates)
      return error_context(err, "SANDBOX_GRPC_TLS_CERT, _KEY, _CLIENT_CA");
  }
  int port;
  if (acceptor_listen_tcp(acceptor, listener->address, listener->certificates, &port, err) < 0)
    return error_context(err, VARIABLE);
  const char *tls = !listener->certificates ? "none" : settings->tls_client_ca ? "mutual" : "server";
  log_write(LOG_INFO, "listening", LOG_TEXT("address", listener->address), LOG_NUMBER("port", port),
            LOG_TEXT("tls", tls));
  if (!is_loopback(listener->address) && !settings->tls_client_ca)
    warn_of_anybody(listener);
  return 0;
}

static int listener_open(struct listener *listener, struct acceptor *acceptor, const struct server_settings *settings,
                         struct error **err) {
  return is_unix(listener->address) ? unix_open(listener, acceptor, err) : tcp_open(listener, acceptor, settings, err);
}

/* Copies the next address of the list, trimmed. */
static int address_next(const char **list, char address[static ADDRESS_MAX_BYTES], struct error **err) {
  const char *start = *list + strspn(*list, " \t");
  size_t length = strcspn(start, ",");
  *list = start + length + (start[length] == ',');
  while (length > 0 && (start[length - 1] == ' ' || start[length - 1] == '\t'))
    length--;
  if (length == 0 || length >= ADDRESS_MAX_BYTES)
    return error_set_detail(err, REASON_INTERNAL,
                            VARIABLE " must be a comma-separated list of unix:/path or host:port");
  memcpy(address, start, length);
  address[length] = '\0';
  if (!is_unix(address) && !is_host_and_port(address))
    return error_set_detail(err, REASON_INTERNAL, VARIABLE ": %s is neither unix:/path nor host:port", address);
  return 0;
}

struct listeners *listeners_new(void) {
  return memory_zero(sizeof(struct listeners));
}

int listeners_open(struct listeners *listeners, struct acceptor *acceptor, const struct server_settings *settings,
                   struct error **err) {
  const char *list = settings->addresses;
  do {
    if (listeners->count == LISTENERS_MAX)
      return error_set_detail(err, REASON_INTERNAL, VARIABLE " must have at most %d addresses", LISTENERS_MAX);
    struct listener *listener = &listeners->items[listeners->count++];
    if (address_next(&list, listener->address, err) < 0 || listener_open(listener, acceptor, settings, err) < 0)
      return -1;
  } while (*list != '\0');
  return 0;
}

void listeners_remove_sockets(struct listeners *listeners) {
  for (size_t i = 0; i < listeners->count; i++) {
    socket_lock_release(listeners->items[i].lock);
    listeners->items[i].lock = NULL;
  }
}

void listeners_free(struct listeners *listeners) {
  if (!listeners)
    return;
  listeners_remove_sockets(listeners);
  for (size_t i = 0; i < listeners->count; i++)
    certificates_free(listeners->items[i].certificates);
  memory_free(listeners);
}

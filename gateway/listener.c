#include "gateway/listener.h"

#include "base/limits.h"
#include "base/memory.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  BACKLOG = 4096,
  KEEPALIVE_IDLE_SECONDS = 30, /* then a client whose machine is gone is found out, even while a long command runs */
  KEEPALIVE_INTERVAL_SECONDS = 10,
  KEEPALIVE_PROBES = 3,
  PORT_DIGITS = 5,
};

#define RULE "SANDBOX_ADDRESS must be host:port, or several separated by commas"

static void set_option(int socket, int level, int option, int value) {
  (void)setsockopt(socket, level, option, &value, sizeof value);
}

/* Accepted sockets inherit these. */
static void set_options(int socket) {
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_SECONDS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
}

static int open_one(const struct addrinfo *info) {
  int opened = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, info->ai_protocol);
  if (opened < 0)
    return -1;
  set_options(opened);
  if (bind(opened, info->ai_addr, info->ai_addrlen) == 0 && listen(opened, BACKLOG) == 0)
    return opened;
  int number = errno;
  close(opened);
  errno = number;
  return -1;
}

/* Splits "host:port" or "[host]:port" in place. Returns 0, or -1. */
static int split(char *address, char **host, char **port) {
  char *colon = strrchr(address, ':');
  if (!colon || colon[1] == '\0')
    return -1;
  *colon = '\0';
  *host = address;
  *port = colon + 1;
  /* getaddrinfo takes names and lets numbers wrap. */
  size_t digits = strspn(*port, "0123456789");
  if ((*port)[digits] || digits > PORT_DIGITS || strtoul(*port, NULL, 10) > UINT16_MAX)
    return -1;
  size_t length = strlen(address);
  if (address[0] == '[' && length > 2 && address[length - 1] == ']') {
    address[length - 1] = '\0';
    *host = address + 1;
  } else if (strchr(address, ':') || length == 0) {
    return -1;
  }
  return 0;
}

static int open_address(const char *text, struct error **err) {
  char *copy CLEANUP_MEMORY = memory_string(text);
  char *host, *port;
  struct addrinfo *found = NULL;
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
  if (!copy)
    return error_set_memory(err);
  if (split(copy, &host, &port) < 0)
    return error_set_detail(err, REASON_INTERNAL, RULE);
  int result = getaddrinfo(host, port, &hints, &found);
  if (result != 0)
    return error_set_detail(err, REASON_INTERNAL, RULE ": '%s': %s", text, gai_strerror(result));
  int opened = -1;
  for (const struct addrinfo *info = found; info && opened < 0; info = info->ai_next)
    opened = open_one(info);
  int number = errno;
  freeaddrinfo(found);
  return opened >= 0 ? opened : error_set_errno(err, number, "SANDBOX_ADDRESS: cannot listen on '%s'", text);
}

static int open_next(char *address, int *sockets, size_t size, size_t *count, struct error **err) {
  address += strspn(address, " ");
  address[strcspn(address, " ")] = '\0';
  if (*count == size)
    return error_set_detail(err, REASON_INTERNAL, "SANDBOX_ADDRESS must have at most %zu addresses", size);
  int opened = open_address(address, err);
  if (opened < 0)
    return -1;
  sockets[(*count)++] = opened;
  return 0;
}

int listener_open_all(const char *addresses, int *sockets, size_t size, struct error **err) {
  char *copy CLEANUP_MEMORY = memory_string(addresses);
  size_t count = 0;
  if (!copy)
    return error_set_memory(err);
  for (char *rest = copy, *address; (address = strsep(&rest, ","));) {
    if (open_next(address, sockets, size, &count, err) == 0)
      continue;
    while (count > 0)
      close(sockets[--count]);
    return -1;
  }
  return (int)count;
}

void listener_name(int socket, char name[static LISTENER_NAME_BYTES]) {
  struct sockaddr_storage address;
  socklen_t length = sizeof address;
  char host[64], port[8];
  if (getsockname(socket, (struct sockaddr *)&address, &length) < 0 ||
      getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    snprintf(name, LISTENER_NAME_BYTES, "?");
  else
    snprintf(name, LISTENER_NAME_BYTES, address.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

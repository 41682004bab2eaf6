#include "server/tcp_sockets.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HOST_MAX_BYTES = 256, BACKLOG = 1024 };

/* Splits "host:port" and "[host]:port". */
static int address_split(const char *address, char host[static HOST_MAX_BYTES], const char **service) {
  const char *colon = strrchr(address, ':');
  size_t length = colon ? (size_t)(colon - address) : 0;
  if (length >= 2 && address[0] == '[' && address[length - 1] == ']') {
    address++;
    length -= 2;
  }
  if (length == 0 || length >= HOST_MAX_BYTES)
    return -1;
  memcpy(host, address, length);
  host[length] = '\0';
  *service = colon + 1;
  return 0;
}

static void port_set(struct sockaddr *address, int port) {
  if (address->sa_family == AF_INET)
    ((struct sockaddr_in *)(void *)address)->sin_port = htons((uint16_t)port);
  else
    ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons((uint16_t)port);
}

static int port_of(int fd) {
  struct sockaddr_storage address;
  socklen_t length = sizeof address;
  if (getsockname(fd, (struct sockaddr *)&address, &length) < 0)
    return -1;
  return ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                            : ((struct sockaddr_in6 *)&address)->sin6_port);
}

/* -1 and errno. */
static int socket_open(const struct addrinfo *found) {
  int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  /* Connections of a server before this one do not hold the port; a live listener does. */
  int yes = 1, no = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (found->ai_family == AF_INET6)
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
    return fd;
  int reason = errno;
  close(fd);
  errno = reason;
  return -1;
}

/* The machine may have no IPv6, say, though the name has such an address. */
static bool is_not_here(int error) { return error == EADDRNOTAVAIL || error == EAFNOSUPPORT; }

static void sockets_close(const int *sockets, size_t count) {
  for (size_t i = 0; i < count; i++)
    close(sockets[i]);
}

int tcp_sockets_open(const char *address, int sockets[static TCP_SOCKETS_MAX], size_t *count, int *port,
                     struct error **err) {
  char host[HOST_MAX_BYTES];
  const char *service;
  size_t most = *count < TCP_SOCKETS_MAX ? *count : TCP_SOCKETS_MAX;
  *count = 0;
  if (address_split(address, host, &service) < 0)
    return error_set_detail(err, REASON_INTERNAL, "cannot listen on %s: no host", address);
  const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  struct addrinfo *all;
  int result = getaddrinfo(host, service, &hints, &all);
  if (result != 0)
    return error_set_detail(err, REASON_INTERNAL, "cannot listen on %s: %s", address, gai_strerror(result));
  int reason = 0;
  *port = 0;
  for (struct addrinfo *found = all; found && *count < most; found = found->ai_next) {
    if (*count > 0)
      port_set(found->ai_addr, *port);
    int fd = socket_open(found);
    if (fd >= 0) {
      sockets[(*count)++] = fd;
      *port = port_of(fd);
    } else if (reason == 0 || !is_not_here(errno)) {
      reason = errno;
    }
  }
  freeaddrinfo(all);
  if (*count > 0 && (reason == 0 || is_not_here(reason)))
    return 0;
  sockets_close(sockets, *count);
  *count = 0;
  return error_set_errno(err, reason != 0 ? reason : EADDRNOTAVAIL, "cannot listen on %s", address);
}

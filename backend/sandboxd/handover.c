/*
 * Descriptors through a socket: see handover.h.
 */
#include "backend/sandboxd/handover.h"

#include "backend/sandboxd/connection.h"
#include "base/log.h"
#include "base/memory.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct guest {
  struct agent *agent;
  struct guest *next;
  struct loop_watch socket;
};

union handover_control {
  struct cmsghdr header;
  char bytes[CMSG_SPACE(2 * sizeof(int))];
};

int handover_send(int socket, int input, int output) {
  const int descriptors[2] = {input, output};
  union handover_control control = {0};
  char byte = 0;
  struct iovec data = {.iov_base = &byte, .iov_len = 1};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  control.header.cmsg_level = SOL_SOCKET;
  control.header.cmsg_type = SCM_RIGHTS;
  control.header.cmsg_len = CMSG_LEN(sizeof descriptors);
  memcpy(CMSG_DATA(&control.header), descriptors, sizeof descriptors);
  return sendmsg(socket, &message, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

/* Takes the guest off the list; returns its socket. */
static int guest_end(struct guest *guest) {
  struct agent *agent = guest->agent;
  int socket = guest->socket.descriptor;
  struct guest **link = &agent->guests;
  while (*link != guest)
    link = &(*link)->next;
  *link = guest->next;
  agent->guest_count--;
  loop_watch_set(&agent->loop, &guest->socket, 0);
  memory_free(guest);
  return socket;
}

static void guest_dismiss(struct guest *guest) {
  close(guest_end(guest));
}

/* Returns 0 and two descriptors, or -1. None is left open otherwise. */
static int take_descriptors(int socket, int descriptors[static 2]) {
  union handover_control control = {0};
  char byte;
  struct iovec data = {.iov_base = &byte, .iov_len = 1};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1)
    return -1;
  const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
    return -1;
  size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  memcpy(descriptors, CMSG_DATA(header), (count < 2 ? count : 2) * sizeof(int));
  if (count == 2)
    return 0;
  if (count == 1)
    close(descriptors[0]);
  return -1;
}

static void guest_ready(void *context, uint32_t events) {
  struct guest *guest = context;
  struct agent *agent = guest->agent;
  CLEANUP_ERROR struct error *err = NULL;
  int descriptors[2];
  (void)events;
  if (take_descriptors(guest->socket.descriptor, descriptors) != 0) {
    guest_dismiss(guest);
    return;
  }
  int socket = guest_end(guest);
  if (agent_connect(agent, descriptors[0], descriptors[1], socket, &err) != 0)
    log_write(LOG_WARNING, "connection_refused", LOG_DETAIL(err));
}

/* Commands of another user have no business here. */
static bool same_user(int socket) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

void handover_welcome(struct agent *agent, int socket) {
  struct guest *guest = same_user(socket) ? memory_zero(sizeof *guest) : NULL;
  if (!guest) {
    close(socket);
    return;
  }
  guest->agent = agent;
  guest->socket = (struct loop_watch){.descriptor = socket, .ready = guest_ready, .context = guest};
  guest->next = agent->guests;
  agent->guests = guest;
  agent->guest_count++;
  if (loop_watch_set(&agent->loop, &guest->socket, EPOLLIN) != 0) {
    guest_dismiss(guest);
    return;
  }
  if (agent->guest_count <= HANDOVER_GUESTS)
    return;
  struct guest *oldest = agent->guests;
  while (oldest->next)
    oldest = oldest->next;
  guest_dismiss(oldest);
}

/*
 * Connections that `sandboxd connect` brings: it comes through a socket, hands over the two descriptors it was started
 * with and stays, so that whatever carries them stays too. From then on sandboxd itself reads and writes them, and
 * nothing stands between. The socket tells each side that the other one is gone.
 */
#ifndef BACKEND_SANDBOXD_HANDOVER_H
#define BACKEND_SANDBOXD_HANDOVER_H

#include "backend/sandboxd/agent.h"

#define HANDOVER_GUESTS 8 /* that came and have not handed over yet; a further one takes the place of the oldest */

/* sandboxd's side: serves what comes through this accepted socket, which is taken over. */
void handover_welcome(struct agent *agent, int socket);

/* The other side. Returns 0, or -1 and errno. */
int handover_send(int socket, int input, int output);

#endif

/*
 * A transport that breaks: it passes bytes on to another one and cuts the connection after so many of them, in the
 * middle of whatever is on its way.
 */
#ifndef TESTS_UNIT_SESSION_TRANSPORT_CUT_H
#define TESTS_UNIT_SESSION_TRANSPORT_CUT_H

#include "backend/transport.h"

struct transport_cut {
  struct transport transport;
  struct transport *inner;
  struct transport_events events;
  size_t least, most; /* bytes in both directions between two cuts; most 0: never */
  unsigned seed;
  unsigned times; /* cuts to come; 0: without end */
  size_t left;
  bool open;
  unsigned cuts;
};

/* inner is taken over. */
void transport_cut_init(struct transport_cut *cut, struct transport *inner);
/* From now on. */
void transport_cut_every(struct transport_cut *cut, size_t least, size_t most, unsigned seed);
/* So many times, each after so many bytes of a connection. */
void transport_cut_times(struct transport_cut *cut, unsigned times, size_t bytes);

#endif

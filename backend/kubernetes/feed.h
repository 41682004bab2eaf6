/*
 * The texts of the API server, read into a store: pages of a list, lines of a watch. It knows where the next list or
 * watch has to begin. No I/O. Thread: one owner at a time.
 */
#ifndef KUBERNETES_FEED_H
#define KUBERNETES_FEED_H

#include "backend/kubernetes/store.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>

enum { FEED_VERSION_SIZE = 64, FEED_CONTINUE_SIZE = 4096 };

struct feed {
  struct store *store;
  enum object_kind kind;
  bool listing;                       /* within a list of several pages */
  char version[FEED_VERSION_SIZE];    /* where a watch begins; "" before the first list */
  char next_page[FEED_CONTINUE_SIZE]; /* the token of the next page, or "" */
};

void feed_init(struct feed *feed, struct store *store, enum object_kind kind);

/* What to do next. */
enum feed_next {
  FEED_PAGE,  /* get the next page */
  FEED_WATCH, /* watch from `version` */
  FEED_LIST,  /* begin a new list: what is known is too old, or cannot be trusted */
};
/* Forgets an unfinished list: the next page is a first one. */
void feed_restart(struct feed *feed);
/* One page. FEED_LIST with *err: it was no list, or there is no memory. */
enum feed_next feed_page(struct feed *feed, const char *text, size_t length, struct error **err);
/* One line of a watch, without its end. FEED_LIST: the version is too old (no *err), or the line makes no sense, or
 * there is no memory (*err). */
enum feed_next feed_line(struct feed *feed, const char *text, size_t length, struct error **err);

#endif

/*
 * Paths as Consumers write them, made relative to the workspace. Text only: symlinks are the agent's matter.
 */
#include "backend/session/session.h"

#include "base/text.h"
#include <string.h>

#define WORKSPACE "workspace"

/* An absolute path as it is walked along. */
struct walk {
  char *out;     /* its components below the first one */
  size_t length; /* of out */
  size_t depth;  /* components so far */
  bool inside;   /* the first one is the workspace */
};

static void step_up(struct walk *walk) {
  if (walk->depth == 0)
    return;
  walk->depth--;
  walk->inside = walk->inside && walk->depth > 0;
  while (walk->length > 0 && walk->out[--walk->length] != '/')
    continue;
}

static void step_down(struct walk *walk, const char *name, size_t length) {
  if (walk->depth++ == 0) {
    walk->inside = length == strlen(WORKSPACE) && memcmp(name, WORKSPACE, length) == 0;
    return;
  }
  if (walk->length > 0)
    walk->out[walk->length++] = '/';
  memcpy(walk->out + walk->length, name, length);
  walk->length += length;
}

int session_path_normalise(const char *path, char *out, struct error **err) {
  size_t length = strnlen(path, LIMIT_PATH_BYTES + 1);
  if (length > LIMIT_PATH_BYTES || !text_valid(path, length))
    return error_set_field(err, REASON_INVALID_PATH, "path", NULL);
  bool absolute = path[0] == '/';
  struct walk walk = {.out = out, .depth = absolute ? 0 : 1, .inside = !absolute};
  for (const char *at = path; *at;) {
    size_t part = strcspn(at, "/");
    if (part == 2 && memcmp(at, "..", 2) == 0)
      step_up(&walk);
    else if (part > 0 && !(part == 1 && *at == '.'))
      step_down(&walk, at, part);
    at += part + (at[part] == '/');
  }
  out[walk.length] = '\0';
  return walk.inside ? 0 : error_set_field(err, REASON_INVALID_PATH, "path", NULL);
}

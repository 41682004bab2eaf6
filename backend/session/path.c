/*
 * Paths as Consumers write them, made relative to the workspace. Text only: symlinks are the agent's matter.
 */
#include "backend/session/session.h"

#include <string.h>

#define ROOT "workspace"

struct walk {
  char *out;
  size_t length;
  size_t depth;      /* components of the absolute path so far */
  bool inside;       /* the first one was ROOT */
};

/* One component of the absolute path; false for a step that leaves the workspace. */
static bool walk_step(struct walk *walk, const char *name, size_t length)
{
  if (length == 0 || (length == 1 && name[0] == '.'))
    return true;
  if (length == 2 && name[0] == '.' && name[1] == '.') {
    if (walk->depth > 0)
      walk->depth--;
    while (walk->length > 0 && walk->out[--walk->length] != '/')
      ;
    return true;
  }
  if (walk->depth == 0)
    walk->inside = length == strlen(ROOT) && memcmp(name, ROOT, length) == 0;
  else {
    if (walk->length > 0)
      walk->out[walk->length++] = '/';
    memcpy(walk->out + walk->length, name, length);
    walk->length += length;
  }
  walk->depth++;
  return true;
}

int session_path_normalise(const char *path, char *out, struct error **err)
{
  size_t length = strlen(path);
  if (length > LIMIT_PATH_BYTES)
    return error_set_field(err, REASON_INVALID_PATH, "path", NULL);
  bool absolute = path[0] == '/';
  struct walk walk = {.out = out, .depth = absolute ? 0 : 1, .inside = !absolute};
  for (const char *at = path; at < path + length;) {
    size_t part = strcspn(at, "/");
    if (!walk_step(&walk, at, part))
      break;
    if (walk.depth == 0)
      walk.inside = false;
    at += part + (at[part] == '/');
  }
  out[walk.length] = '\0';
  return walk.inside && walk.depth > 0 ? 0 : error_set_field(err, REASON_INVALID_PATH, "path", NULL);
}

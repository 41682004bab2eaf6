/* Loading libcurl: see curl.h. */
#include "backend/kubernetes/curl.h"

#include <dlfcn.h>

#define LIBRARY "libcurl.so.4" /* whose functions the headers declare */

struct curl_library curl;

static int find(void *library, const char *name, void *function, struct error **err) {
  void *found = dlsym(library, name);
  if (!found)
    return error_set_detail(err, REASON_INTERNAL, "%s lacks %s", LIBRARY, name);
  /* POSIX has an object pointer hold a function's address. */
  *(void **)function = found;
  return 0;
}

int curl_load(struct error **err) {
  static bool loaded;
  if (loaded)
    return 0;
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return error_set_detail(err, REASON_INTERNAL, "cannot load libcurl: %s", dlerror());
#define CURL_FIND(name)                                                                                                \
  if (find(library, "curl_" #name, &curl.name, err) < 0)                                                               \
    return -1;
  CURL_FUNCTIONS(CURL_FIND)
#undef CURL_FIND
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    return error_set_detail(err, REASON_INTERNAL, "libcurl does not start");
  loaded = true;
  return 0;
}

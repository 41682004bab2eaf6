/*
 * libcurl, loaded when the backend is made and not before: with what it brings along it costs a process some 3 MiB and
 * forty libraries, which a lease-server on another backend has no use for.
 *
 * A function of libcurl is called as a member: curl_multi_init() is curl.multi_init(). Thread: any, once curl_load has
 * succeeded.
 */
#ifndef BACKEND_KUBERNETES_CURL_H
#define BACKEND_KUBERNETES_CURL_H

#include "base/error.h"
#include <curl/curl.h>

#define CURL_FUNCTIONS(function)                                                                                       \
  function(easy_cleanup) function(easy_escape) function(easy_getinfo) function(easy_init) function(easy_setopt)        \
  function(easy_strerror) function(free) function(global_init) function(multi_add_handle) function(multi_assign)       \
  function(multi_cleanup) function(multi_info_read) function(multi_init) function(multi_remove_handle)                 \
  function(multi_setopt) function(multi_socket_action) function(slist_append) function(slist_free_all) function(url)   \
  function(url_cleanup) function(url_get) function(url_set)

struct curl_library {
#define CURL_MEMBER(name) __typeof__(curl_##name) *name;
  CURL_FUNCTIONS(CURL_MEMBER)
#undef CURL_MEMBER
};

/* All NULL until loaded; never unloaded. */
extern struct curl_library curl;

/* Loads and prepares it, once. Returns 0, or -1 and *err. Thread: the loop's. */
int curl_load(struct error **err);

#endif

/*
 * The API server as a test wants it: calls are noted, and answered when the test says so. Stands in for
 * backend/kubernetes/api.h and credentials.h. Its own memory never fails.
 */
#ifndef TESTS_UNIT_KUBERNETES_API_DOUBLE_H
#define TESTS_UNIT_KUBERNETES_API_DOUBLE_H

#include "backend/kubernetes/api.h"
#include <stdbool.h>

/* The oldest open call with that method ("WATCH" for a watch) whose path has this text in it; NULL if there is none. */
struct api_call *double_find(const char *method, const char *path);
const char *double_path(const struct api_call *call);
const char *double_body(const struct api_call *call);
/* Ends it. code 0: no answer. reason: of the Status, for what is no success. */
void double_answer(struct api_call *call, int code, const char *reason, const char *body);
/* A watch says something. */
void double_line(struct api_call *call, const char *text);
/* Open calls. */
size_t double_open(void);

#endif

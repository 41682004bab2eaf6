#include "backend/kubernetes/judge.h"
#include "base/clock.h"
#include "tests/unit/kubernetes/check.h"
#include <string.h>

/* A Claim that is ready; each test breaks one thing. */
struct scene {
  struct object claim, sandbox, pod, node, warm_pool;
  struct pool_settings pool;
  struct judge_facts facts;
  int64_t stuck_since;
};

static void set(struct scene *scene) {
  memset(scene, 0, sizeof *scene);
  scene->claim = (struct object){.kind = OBJECT_CLAIM, .name = "lease-1", .uid = "c1"};
  scene->claim.claim = (struct claim_facts){.scope = "",
                                            .consumer = "",
                                            .idempotency = "",
                                            .pool = "coding",
                                            .attempt = "",
                                            .warm_pool = "wp",
                                            .sandbox = "sb",
                                            .reason = "",
                                            .message = "",
                                            .ready = true};
  scene->sandbox = (struct object){.kind = OBJECT_SANDBOX, .name = "sb", .uid = "s1"};
  scene->sandbox.sandbox = (struct sandbox_facts){
      .claim = "lease-1", .claim_uid = "c1", .warm_pool = "", .pod = "sb", .reason = "", .message = "", .ready = true};
  scene->pod = (struct object){.kind = OBJECT_POD, .name = "sb", .uid = "p1"};
  scene->pod.pod = (struct pod_facts){.sandbox = "sb",
                                      .sandbox_uid = "s1",
                                      .node = "n",
                                      .address = "10.0.0.1",
                                      .runtime = "gvisor",
                                      .containers = "/shell/proxy",
                                      .waiting = "",
                                      .reason = "",
                                      .message = "",
                                      .phase = POD_RUNNING,
                                      .ready = true};
  scene->node = (struct object){.kind = OBJECT_NODE, .name = "n", .uid = "n1"};
  scene->node.node = (struct node_facts){.ready = true};
  scene->warm_pool = (struct object){.kind = OBJECT_POOL, .name = "wp", .uid = "w1"};
  memcpy(scene->pool.name, "coding", 7);
  memcpy(scene->pool.runtime, "gvisor", 7);
  scene->facts = (struct judge_facts){.claim = &scene->claim,
                                      .sandbox = &scene->sandbox,
                                      .pod = &scene->pod,
                                      .node = &scene->node,
                                      .warm_pool = &scene->warm_pool,
                                      .pool = &scene->pool,
                                      .now = CLOCK_SECOND,
                                      .exhausted_timeout = 10 * CLOCK_SECOND};
}

static struct judgement judge(struct scene *scene) {
  struct judgement judgement;
  judge_claim(&scene->facts, &scene->stuck_since, &judgement);
  return judgement;
}

static void expect(struct scene *scene, enum judge_word word, enum reason reason) {
  struct judgement judgement = judge(scene);
  if (judgement.word != word || judgement.reason != reason)
    fail_msg("word %d, reason %s: %s", judgement.word, reason_name(judgement.reason), judgement.detail);
}

/* It waits for the patience and not a moment longer, then fails; when the trouble passes, the clock starts anew. */
static void expect_hold(struct scene *scene, enum reason reason) {
  scene->facts.now = 100 * CLOCK_SECOND;
  struct judgement first = judge(scene);
  assert_int_equal(first.word, JUDGE_WAIT);
  assert_int_equal(first.reason, reason);
  assert_int_equal(first.again, 110 * CLOCK_SECOND);
  scene->facts.now = 110 * CLOCK_SECOND - 1;
  expect(scene, JUDGE_WAIT, reason);
  scene->facts.now = 110 * CLOCK_SECOND;
  expect(scene, JUDGE_FAIL, reason);
}

static void test_ready(void **state) {
  (void)state;
  struct scene scene;
  set(&scene);
  expect(&scene, JUDGE_READY, REASON_NONE);
  scene.facts.node = NULL; /* nodes may not be watched */
  expect(&scene, JUDGE_READY, REASON_NONE);
  memcpy(scene.pool.container, "proxy", 6);
  expect(&scene, JUDGE_READY, REASON_NONE);
}

static void test_unbound(void **state) {
  (void)state;
  struct scene scene;
  set(&scene);
  scene.claim.claim.sandbox = "";
  scene.facts.sandbox = scene.facts.pod = scene.facts.node = NULL;
  expect(&scene, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT);
  scene.claim.claim.reason = "SandboxMissing";
  expect(&scene, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT);
  scene.claim.claim.reason = "TemplateNotFound";
  expect_hold(&scene, REASON_SANDBOX_START_FAILED);
  scene.claim.claim.reason = "AdoptionConflict";
  expect(&scene, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT);
  assert_int_equal(scene.stuck_since, 0);
  scene.claim.claim.reason = "ReconcilerError";
  expect_hold(&scene, REASON_SANDBOX_START_FAILED);
}

static void test_gone(void **state) {
  (void)state;
  struct scene scene;
  set(&scene);
  scene.claim.deleting = true;
  expect(&scene, JUDGE_GONE, REASON_SANDBOX_START_FAILED);
  set(&scene);
  scene.claim.claim.reason = "ClaimExpired";
  expect(&scene, JUDGE_GONE, REASON_SANDBOX_START_FAILED);
}

static void test_bound_is_not_ready(void **state) {
  (void)state;
  struct scene scene;
  set(&scene);
  scene.facts.sandbox = NULL;
  expect(&scene, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT);
  set(&scene);
  scene.sandbox.sandbox.claim_uid = "another";
  expect(&scene, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT);
  set(&scene);
  scene.sandbox.sandbox.ready = false;
  expect(&scene, JUDGE_WAIT, REASON_SANDBOX_NOT_READY);
  set(&scene);
  scene.pod.pod.ready = false;
  expect(&scene, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT);
  set(&scene);
  scene.pod.pod.sandbox_uid = "another";
  expect(&scene, JUDGE_WAIT, REASON_SANDBOX_POD_NOT_FOUND);
}

static void test_without_pod(void **state) {
  (void)state;
  struct scene scene;
  set(&scene);
  scene.facts.pod = scene.facts.node = NULL;
  expect_hold(&scene, REASON_SANDBOX_POD_NOT_FOUND);
  set(&scene);
  scene.facts.pod = scene.facts.node = NULL;
  scene.sandbox.sandbox.ready = false;
  scene.sandbox.sandbox.reason = "DependenciesNotReady";
  expect(&scene, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT);
  scene.sandbox.sandbox.reason = "ReconcilerError";
  expect_hold(&scene, REASON_SANDBOX_START_FAILED);
}

static void test_leaving(void **state) {
  (void)state;
  struct scene scene;
  for (int i = 0; i < 5; i++) {
    set(&scene);
    bool *const flags[] = {&scene.sandbox.deleting, &scene.pod.deleting, &scene.node.deleting,
                           &scene.node.node.cordoned};
    if (i < 4)
      *flags[i] = true;
    else
      scene.node.node.ready = false;
    expect(&scene, JUDGE_GIVE_BACK, REASON_POOL_EXHAUSTED);
  }
  set(&scene);
  scene.sandbox.sandbox.reason = "MultiplePods";
  expect(&scene, JUDGE_GIVE_BACK, REASON_SANDBOX_START_FAILED);
  set(&scene);
  scene.pod.pod.phase = POD_FAILED;
  expect(&scene, JUDGE_GIVE_BACK, REASON_SANDBOX_START_FAILED);
  scene.pod.pod.phase = POD_SUCCEEDED;
  expect(&scene, JUDGE_GIVE_BACK, REASON_SANDBOX_START_FAILED);
}

static void test_verified(void **state) {
  (void)state;
  struct scene scene;
  set(&scene);
  scene.pod.pod.runtime = "runc";
  expect(&scene, JUDGE_FAIL, REASON_RUNTIME_CLASS_MISMATCH);
  scene.pod.pod.runtime = "";
  expect(&scene, JUDGE_FAIL, REASON_RUNTIME_CLASS_MISMATCH);
  scene.pod.pod.phase = POD_PENDING; /* it need not start for that */
  expect(&scene, JUDGE_FAIL, REASON_RUNTIME_CLASS_MISMATCH);
  set(&scene);
  memcpy(scene.pool.container, "she", 4);
  expect(&scene, JUDGE_FAIL, REASON_SANDBOX_CONTAINER_NOT_FOUND);
}

static void test_pending(void **state) {
  (void)state;
  static const char *const broken[] = {"ImagePullBackOff", "InvalidImageName",           "ErrImageNeverPull",
                                       "CrashLoopBackOff", "CreateContainerConfigError", "RunContainerError"};
  struct scene scene;
  set(&scene);
  scene.pod.pod.phase = POD_PENDING;
  scene.pod.pod.ready = false;
  scene.pod.pod.waiting = "ContainerCreating";
  expect(&scene, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT);
  scene.pod.pod.waiting = "ErrImagePull"; /* it is tried again */
  expect(&scene, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT);
  for (size_t i = 0; i < COUNT_OF(broken); i++) {
    scene.pod.pod.waiting = broken[i];
    expect(&scene, JUDGE_FAIL, REASON_SANDBOX_START_FAILED);
  }
  scene.pod.pod.waiting = "";
  scene.pod.pod.unschedulable = true;
  scene.pod.pod.message = "0/1 nodes are available";
  expect_hold(&scene, REASON_POOL_EXHAUSTED);
  assert_non_null(strstr(judge(&scene).detail, "0/1 nodes"));
  scene.pod.pod.unschedulable = false;
  expect(&scene, JUDGE_WAIT, REASON_SANDBOX_READY_TIMEOUT);
  assert_int_equal(scene.stuck_since, 0);
}

static void test_lost(void **state) {
  (void)state;
  struct scene scene;
  set(&scene);
  assert_null(judge_lost("p1", &scene.sandbox, &scene.pod));
  scene.pod.deleting = true; /* it still runs */
  scene.pod.pod.ready = false;
  assert_null(judge_lost("p1", &scene.sandbox, &scene.pod));
  assert_non_null(judge_lost("p2", &scene.sandbox, &scene.pod));
  assert_non_null(judge_lost("p1", &scene.sandbox, NULL));
  assert_non_null(judge_lost("p1", NULL, &scene.pod));
  scene.pod.pod.phase = POD_FAILED;
  scene.pod.pod.reason = "Evicted";
  assert_string_equal(judge_lost("p1", &scene.sandbox, &scene.pod), "the Pod was evicted");
  scene.pod.pod.phase = POD_SUCCEEDED;
  assert_non_null(judge_lost("p1", &scene.sandbox, &scene.pod));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ready),       cmocka_unit_test(test_unbound),
      cmocka_unit_test(test_gone),        cmocka_unit_test(test_bound_is_not_ready),
      cmocka_unit_test(test_without_pod), cmocka_unit_test(test_leaving),
      cmocka_unit_test(test_verified),    cmocka_unit_test(test_pending),
      cmocka_unit_test(test_lost),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

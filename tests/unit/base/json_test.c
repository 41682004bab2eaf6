#include "base/json.h"
#include "base/limits.h"
#include "base/memory.h"
#include "tests/unit/base/check.h"
#include <string.h>

/* Parses a copy of exactly this length, so that a sanitizer sees a read behind the end. */
static struct json *parse(const char *text, size_t length, struct error **err) {
  CLEANUP_MEMORY char *copy = memory_new(length);
  memcpy(copy, text, length);
  return json_parse(copy, length, err);
}

struct text_case {
  const char *json;
  size_t json_length;
  const char *text;
  size_t length;
};

static const struct text_case texts[] = {
    {BYTES("\"\""), BYTES("")},
    {BYTES(" \t\r\n\"a\" \n"), BYTES("a")},
    {BYTES("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), BYTES("\"\\/\b\f\n\r\t")},
    {BYTES("\"\\u0041\\u00e4\\u20AC\\ud83d\\uDE00\""), BYTES("A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80")},
    {BYTES("\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\x7f\""), BYTES("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\x7f")},
    {BYTES("\"\\u0000\""), BYTES("\0")},
    {BYTES("\"a\\u0000b\\u0000\""), BYTES("a\0b\0")},
    {BYTES("\"\\u0001\""), BYTES("\x01")},
    {BYTES("\"\\u00010\\u00011\\u00000\\u00001\""), BYTES("\x01"
                                                          "0\x01"
                                                          "1\0"
                                                          "0\0"
                                                          "1")},
    {BYTES("\"\\u0001\\u0030\""), BYTES("\x01"
                                        "0")},
    {BYTES("\"#1\""), BYTES("#1")},
    {BYTES("\"00000000\""), BYTES("00000000")},
    {BYTES("\"\\uFFFF\\ufdd0\xef\xbf\xbe\""), BYTES("\xef\xbf\xbf\xef\xb7\x90\xef\xbf\xbe")},
    {BYTES("\"\\u2028\\u2029\""), BYTES("\xe2\x80\xa8\xe2\x80\xa9")},
    {BYTES("\"\\u007f\\u0080\\u07ff\\u0800\\ud7ff\\ue000\\ud800\\udc00\\udbff\\udfff\""),
     BYTES("\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf")},
};

static void test_texts(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(texts); i++) {
    struct error *err CLEANUP_ERROR = NULL;
    struct json *json CLEANUP_JSON = parse(texts[i].json, texts[i].json_length, &err);
    if (json == NULL)
      fail_msg("%s: %s", texts[i].json, error_detail(err));
    struct json_text text;
    assert_int_equal(json_as_text(json, &text), 0);
    assert_int_equal(text.length, texts[i].length);
    assert_memory_equal(text.data, texts[i].text, texts[i].length + 1);
  }
}

static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *text;
    size_t length;
  } cases[] = {
      {BYTES("")},
      {BYTES(" ")},
      {BYTES("{")},
      {BYTES("}")},
      {BYTES("[")},
      {BYTES("[1")},
      {BYTES("[1,")},
      {BYTES("[1,]")},
      {BYTES("[,1]")},
      {BYTES("[1 2]")},
      {BYTES("[1}")},
      {BYTES("{]")},
      {BYTES("{\"a\"}")},
      {BYTES("{\"a\":}")},
      {BYTES("{\"a\":1,}")},
      {BYTES("{a:1}")},
      {BYTES("{1:1}")},
      {BYTES("{\"a\" 1}")},
      {BYTES("{,}")},
      {BYTES("1 1")},
      {BYTES("{} x")},
      {BYTES("{}{}")},
      {BYTES("nul")},
      {BYTES("nulll")},
      {BYTES("True")},
      {BYTES("tru")},
      {BYTES("fals")},
      {BYTES("NaN")},
      {BYTES("Infinity")},
      {BYTES("-")},
      {BYTES("+1")},
      {BYTES("01")},
      {BYTES("-01")},
      {BYTES("1.")},
      {BYTES(".5")},
      {BYTES("1.e1")},
      {BYTES("1e")},
      {BYTES("1e+")},
      {BYTES("1e-x")},
      {BYTES("0x1")},
      {BYTES("1_0")},
      {BYTES("\"")},
      {BYTES("\"a")},
      {BYTES("\"\\\"")},
      {BYTES("\"\\")},
      {BYTES("\"\\x\"")},
      {BYTES("\"\\u\"")},
      {BYTES("\"\\u12\"")},
      {BYTES("\"\\u123g\"")},
      {BYTES("\"\\u123")},
      {BYTES("\"\n\"")},
      {BYTES("\"\t\"")},
      {BYTES("\"\x1f\"")},
      {BYTES("\"a\0b\"")},
      {BYTES("'a'")},
      {BYTES("\"\\ud800\"")},
      {BYTES("\"\\udc00\"")},
      {BYTES("\"\\ud800x\"")},
      {BYTES("\"\\ud800\\n\"")},
      {BYTES("\"\\ud800\\ud800\"")},
      {BYTES("\"\\ud800\\u0041\"")},
      {BYTES("\"\\udc00\\ud800\"")},
      {BYTES("\"\\ud800")},
      {BYTES("\"\\ud800\\udc0\"")},
      {BYTES("\"\xff\"")},
      {BYTES("\"\xc0\x80\"")},
      {BYTES("\"\xed\xa0\x80\"")},
      {BYTES("\"\xe2\x82\"")},
      {BYTES("\xef\xbb\xbf{}")},
      {BYTES("{}\0")},
      {BYTES("\0{}")},
      {BYTES("/**/1")},
      {BYTES("1//")},
      {BYTES("\v1")},
      {BYTES("\xc2\xa0"
             "1")},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct error *err CLEANUP_ERROR = NULL;
    struct json *json CLEANUP_JSON = parse(cases[i].text, cases[i].length, &err);
    if (json != NULL)
      fail_msg("accepted: %s", cases[i].text);
    assert_int_equal(error_reason(err), REASON_INVALID_JSON);
    assert_string_equal(error_message(err), "Request body must be valid JSON");
    assert_true(error_detail(err)[0] != '\0');
  }
}

static void test_place_of_the_error(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  assert_null(json_parse(BYTES("{\n  \"secret\": \"x\",\n  y\n}"), &err));
  assert_string_equal(error_detail(err), "not valid JSON at line 3, column 3");
}

static void test_integers(void **state) {
  (void)state;
  static const struct {
    const char *json;
    int64_t value;
  } good[] = {{"0", 0},
              {"-0", 0},
              {"7", 7},
              {"-12", -12},
              {"9007199254740992", INT64_C(9007199254740992)},
              {"-9007199254740992", INT64_C(-9007199254740992)},
              {"2000000000", 2000000000}};
  for (size_t i = 0; i < COUNT_OF(good); i++) {
    struct json *json CLEANUP_JSON = parse(good[i].json, strlen(good[i].json), NULL);
    int64_t value = 99;
    assert_int_equal(json_as_integer(json, &value), 0);
    assert_true(value == good[i].value);
    struct json_text text;
    assert_int_equal(json_as_text(json, &text), -1);
  }
  static const char *const bad[] = {"1.0",
                                    "1e3",
                                    "1E0",
                                    "0.5",
                                    "-1.0",
                                    "9007199254740993",
                                    "-9007199254740993",
                                    "99999999999999999999999999",
                                    "1e400",
                                    "\"1\"",
                                    "\"#1\"",
                                    "true",
                                    "null",
                                    "[1]",
                                    "{}"};
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    struct json *json CLEANUP_JSON = parse(bad[i], strlen(bad[i]), NULL);
    assert_non_null(json);
    int64_t value = 99;
    assert_int_equal(json_as_integer(json, &value), -1);
    assert_int_equal(value, 99);
  }
}

static void assert_wrong_type(struct error **err, const char *field) {
  assert_int_equal(error_reason(*err), REASON_INVALID_JSON);
  assert_string_equal(error_field(*err), field);
  error_free(err);
}

static void test_fields(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  struct json *json CLEANUP_JSON = parse(BYTES("{\"text\":\"x\",\"number\":5,\"yes\":true,\"no\":false,\"none\":null,"
                                               "\"object\":{\"a\":1},\"array\":[1],\"half\":0.5,"
                                               "\"twice\":1,\"twice\":\"last\",\"gone\":1,\"gone\":null,"
                                               "\"te\\u0078t2\":\"escaped\",\"nul\\u0000\":1,\"\":\"empty\"}"),
                                         &err);
  assert_true(json_is_object(json));
  assert_false(json_is_array(json));
  struct json_text text;
  int64_t number = 99;
  bool present, yes = false;
  const struct json *value;
  assert_int_equal(json_get_text(json, "text", &text, &err), 0);
  assert_string_equal(text.data, "x");
  assert_int_equal(json_get_text(json, "text2", &text, &err), 0);
  assert_string_equal(text.data, "escaped");
  assert_int_equal(json_get_text(json, "", &text, &err), 0);
  assert_string_equal(text.data, "empty");
  assert_int_equal(json_get_text(json, "twice", &text, &err), 0);
  assert_string_equal(text.data, "last");
  assert_int_equal(json_get_text(json, "none", &text, &err), 0);
  assert_null(text.data);
  assert_int_equal(json_get_text(json, "gone", &text, &err), 0);
  assert_null(text.data);
  static const char *const absent[] = {"absent", "TEXT", "tex", "text3", "nul"};
  for (size_t i = 0; i < COUNT_OF(absent); i++) {
    assert_int_equal(json_get_text(json, absent[i], &text, &err), 0);
    assert_null(text.data);
  }
  assert_int_equal(json_get_integer(json, "number", &present, &number, &err), 0);
  assert_true(present && number == 5);
  assert_int_equal(json_get_integer(json, "none", &present, &number, &err), 0);
  assert_false(present);
  assert_int_equal(json_get_boolean(json, "yes", &present, &yes, &err), 0);
  assert_true(present && yes);
  assert_int_equal(json_get_boolean(json, "no", &present, &yes, &err), 0);
  assert_true(present && !yes);
  assert_int_equal(json_get_boolean(json, "absent", &present, &yes, &err), 0);
  assert_false(present);
  assert_int_equal(json_get_object(json, "object", &value, &err), 0);
  assert_int_equal(json_get_integer(value, "a", &present, &number, &err), 0);
  assert_true(present && number == 1);
  assert_int_equal(json_get_object(json, "absent", &value, &err), 0);
  assert_null(value);
}

static void test_fields_of_another_type(void **state) {
  (void)state;
  struct error *err CLEANUP_ERROR = NULL;
  struct json *json CLEANUP_JSON =
      parse(BYTES("{\"text\":\"x\",\"number\":5,\"yes\":true,\"array\":[1],\"half\":0.5}"), &err);
  struct json_text text;
  int64_t number;
  bool present, yes;
  const struct json *value;
  assert_int_equal(json_get_text(json, "number", &text, &err), -1);
  assert_wrong_type(&err, "number");
  assert_int_equal(json_get_text(json, "yes", &text, &err), -1);
  assert_wrong_type(&err, "yes");
  assert_int_equal(json_get_integer(json, "text", &present, &number, &err), -1);
  assert_wrong_type(&err, "text");
  assert_int_equal(json_get_integer(json, "half", &present, &number, &err), -1);
  assert_wrong_type(&err, "half");
  assert_int_equal(json_get_boolean(json, "number", &present, &yes, &err), -1);
  assert_wrong_type(&err, "number");
  assert_int_equal(json_get_object(json, "array", &value, &err), -1);
  assert_wrong_type(&err, "array");
  assert_null(value);
  assert_int_equal(json_get_object(json, "array", &value, NULL), -1);
  struct json *array CLEANUP_JSON = parse(BYTES("[]"), &err);
  assert_int_equal(json_get_text(array, "x", &text, &err), -1);
  assert_wrong_type(&err, "x");
  assert_int_equal(json_get_integer(array, "x", &present, &number, &err), -1);
  assert_wrong_type(&err, "x");
  assert_int_equal(json_get_boolean(array, "x", &present, &yes, &err), -1);
  assert_wrong_type(&err, "x");
  assert_int_equal(json_get_object(array, "x", &value, &err), -1);
  assert_wrong_type(&err, "x");
}

static void test_walking(void **state) {
  (void)state;
  struct json *json CLEANUP_JSON = parse(BYTES("{\"a\\u0000b\":[],\"\\u0001\":[1,\"x\"]}"), NULL);
  const void *position = NULL;
  const struct json *value;
  struct json_text name, text;
  assert_true(json_next(json, &position, &name, &value));
  assert_int_equal(name.length, 3);
  assert_memory_equal(name.data, "a\0b", 4);
  const void *inner = NULL;
  const struct json *element;
  assert_true(json_is_array(value));
  assert_false(json_next(value, &inner, &name, &element));
  assert_true(json_next(json, &position, &name, &value));
  assert_int_equal(name.length, 1);
  assert_string_equal(name.data, "\x01");
  int64_t number = 0;
  assert_true(json_next(value, &inner, &name, &element));
  assert_int_equal(name.length, 0);
  assert_int_equal(json_as_integer(element, &number), 0);
  assert_true(json_next(value, &inner, &name, &element));
  assert_int_equal(json_as_text(element, &text), 0);
  assert_string_equal(text.data, "x");
  assert_false(json_next(value, &inner, &name, &element));
  assert_false(json_next(json, &position, &name, &value));
}

static void test_depth(void **state) {
  (void)state;
  char text[2 * (LIMIT_JSON_DEPTH + 1)];
  for (size_t depth = LIMIT_JSON_DEPTH; depth <= LIMIT_JSON_DEPTH + 1; depth++) {
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
    struct error *err CLEANUP_ERROR = NULL;
    struct json *json CLEANUP_JSON = parse(text, 2 * depth, &err);
    assert_int_equal(json != NULL, depth == LIMIT_JSON_DEPTH);
    if (json == NULL)
      assert_non_null(strstr(error_detail(err), "nested too deeply"));
  }
}

static void test_number_of_values(void **state) {
  (void)state;
  struct buffer text CLEANUP_BUFFER;
  buffer_init(&text, SIZE_MAX);
  buffer_append_byte(&text, '[');
  /* The array is a value too. */
  for (int i = 0; i < LIMIT_JSON_VALUES - 2; i++)
    buffer_append_string(&text, "0,");
  buffer_append_string(&text, "0");
  struct error *err CLEANUP_ERROR = NULL;
  for (int more = 0; more < 2; more++) {
    buffer_append_string(&text, "]");
    struct json *json CLEANUP_JSON = json_parse(buffer_text(&text), text.length, &err);
    assert_int_equal(json != NULL, more == 0);
    struct json *trusted CLEANUP_JSON = json_parse_trusted(buffer_text(&text), text.length, NULL);
    assert_non_null(trusted);
    buffer_truncate(&text, text.length - 1);
    buffer_append_string(&text, ",0");
  }
  assert_non_null(strstr(error_detail(err), "too many values"));
}

static void test_writing_back(void **state) {
  (void)state;
  static const struct {
    const char *in, *out;
  } cases[] = {
      {" { \"a\" : [ 1 , 1.50 , -0 , 1E5 , 123456789012345678901234567890 , null , true , false , { } , [ ] , "
       "\"\\u0000x\\u0001\" ] , \"\\u0062\":{\"c\":\"\"}} ",
       "{\"a\":[1,1.50,-0,1E5,123456789012345678901234567890,null,true,false,{},[],\"\\u0000x\\u0001\"],\"b\":{\"c\":"
       "\"\"}}"},
      {"\"x\"", "\"x\""},
      {"0.1", "0.1"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct json *json CLEANUP_JSON = parse(cases[i].in, strlen(cases[i].in), NULL);
    struct buffer out CLEANUP_BUFFER;
    buffer_init(&out, 1000);
    assert_int_equal(json_write_value(&out, json), 0);
    assert_string_equal(buffer_text(&out), cases[i].out);
    for (size_t limit = 0; limit < strlen(cases[i].out); limit++) {
      struct buffer small CLEANUP_BUFFER;
      buffer_init(&small, limit);
      assert_int_equal(json_write_value(&small, json), -1);
    }
  }
}

/* Every string, written and read, is itself. */
static void test_round_trip_of_every_character(void **state) {
  (void)state;
  for (uint32_t point = 0; point <= 0x10FFFF; point += point < 0x3000 ? 1 : 251) {
    char utf8[4];
    size_t length = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    if (point >= 0xD800 && point <= 0xDFFF)
      continue;
    static const uint8_t leads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    uint32_t rest = point;
    for (size_t i = length - 1; i > 0; i--, rest >>= 6)
      utf8[i] = (char)(0x80 | (rest & 63));
    utf8[0] = (char)(leads[length] | rest);
    struct buffer out CLEANUP_BUFFER;
    buffer_init(&out, 100);
    assert_int_equal(json_write_string(&out, utf8, length), 0);
    struct json *json CLEANUP_JSON = json_parse(buffer_text(&out), out.length, NULL);
    struct json_text text;
    assert_int_equal(json_as_text(json, &text), 0);
    assert_int_equal(text.length, length);
    assert_memory_equal(text.data, utf8, length);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_texts),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_place_of_the_error),
      cmocka_unit_test(test_integers),
      cmocka_unit_test(test_fields),
      cmocka_unit_test(test_fields_of_another_type),
      cmocka_unit_test(test_walking),
      cmocka_unit_test(test_depth),
      cmocka_unit_test(test_number_of_values),
      cmocka_unit_test(test_writing_back),
      cmocka_unit_test(test_round_trip_of_every_character),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
#include "api/fields.h"

#include <errno.h>

#include "api/render.h"
#include "base/mem.h"

static json_t *member(json_t *body, const char *name) {
    json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
}

static const char *kind_of(const json_t *value) {
    static const char *const kinds[] = {[JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list", [JSON_STRING] = "a string",
                                        [JSON_INTEGER] = "a number", [JSON_REAL] = "a fraction", [JSON_TRUE] = "true",
                                        [JSON_FALSE] = "false", [JSON_NULL] = "null"};
    return kinds[json_typeof(value)];
}

int field_string(json_t *body, const char *name, size_t max, const char **ret_text, struct error *err) {
    json_t *value = member(body, name);
    if (!value) return 0;
    if (!json_is_string(value)) return error_set(err, -EINVAL, "%s must be a string, not %s", name, kind_of(value));
    size_t len = json_string_length(value);
    if (len == 0) return error_set(err, -EINVAL, "%s must not be empty", name);
    if (len > max) return error_set(err, -EINVAL, "%s has %zu bytes, at most %zu are allowed", name, len, max);
    *ret_text = json_string_value(value);
    return 1;
}

int field_bool(json_t *body, const char *name, bool *ret_bool, struct error *err) {
    json_t *value = member(body, name);
    if (!value) return 0;
    if (!json_is_boolean(value)) return error_set(err, -EINVAL, "%s must be true or false, not %s", name, kind_of(value));
    *ret_bool = json_is_true(value);
    return 1;
}

int field_number(json_t *body, const char *name, uint32_t min, uint32_t max, uint32_t *ret_number, struct error *err) {
    json_t *value = member(body, name);
    if (!value) return 0;
    if (!json_is_integer(value)) return error_set(err, -EINVAL, "%s must be a whole number, not %s", name, kind_of(value));
    json_int_t number = json_integer_value(value);
    if (number < (json_int_t)min) return error_set(err, -EINVAL, "%s must be at least %u", name, min);
    if (number > (json_int_t)max) return error_set(err, -EINVAL, "%s must be at most %u", name, max);
    *ret_number = (uint32_t)number;
    return 1;
}

int field_pairs(json_t *body, const char *name, size_t max, char **ret_text, struct error *err) {
    json_t *object = member(body, name), *value;
    const char *key;
    if (!object) return 0;
    if (!json_is_object(object))
        return error_set(err, -EINVAL, "%s must be an object of strings, not %s", name, kind_of(object));
    json_object_foreach(object, key, value) {
        if (!*key) return error_set(err, -EINVAL, "%s has an empty key", name);
        if (!json_is_string(value))
            return error_set(err, -EINVAL, "%s: \"%s\" must be a string, not %s", name, key, kind_of(value));
    }
    char *text = render_dump(object);
    if (!text) return error_set(err, -ENOMEM, "out of memory");
    if (strlen(text) > max) {
        size_t len = strlen(text);
        free(text);
        return error_set(err, -EINVAL, "%s has %zu bytes as JSON, at most %zu are allowed", name, len, max);
    }
    *ret_text = text;
    return 1;
}

int field_variables(json_t *body, const char *name, size_t max, char **ret_text, struct error *err) {
    json_t *object = member(body, name), *value;
    const char *key;
    json_object_foreach(object, key, value)
        if (strchr(key, '=')) return error_set(err, -EINVAL, "%s: the name \"%.64s\" holds a \"=\"; remove it", name, key);
    return field_pairs(body, name, max, ret_text, err);
}

int field_strings(json_t *body, const char *name, size_t max_count, char ***ret_list, size_t *ret_count,
                  struct error *err) {
    json_t *list = member(body, name), *value;
    size_t index;
    if (!list) return 0;
    if (!json_is_array(list)) return error_set(err, -EINVAL, "%s must be a list of strings, not %s", name, kind_of(list));
    if (json_array_size(list) > max_count)
        return error_set(err, -EINVAL, "%s has more than %zu entries; send fewer", name, max_count);
    AUTO_FREE char **strings = NEW_ARRAY(char *, json_array_size(list) + 1);
    if (!strings) return error_set(err, -ENOMEM, "out of memory");
    json_array_foreach(list, index, value) {
        if (!json_is_string(value)) return error_set(err, -EINVAL, "%s must be a list of strings", name);
        strings[index] = (char *)(uintptr_t)json_string_value(value);
    }
    *ret_count = json_array_size(list);
    *ret_list = TAKE_POINTER(strings);
    return 1;
}

int field_unsupported(json_t *body, const char *name, struct error *err) {
    json_t *value = member(body, name);
    bool empty = !value || (json_is_object(value) && json_object_size(value) == 0) ||
                 (json_is_array(value) && json_array_size(value) == 0);
    return empty ? 0 : error_set(err, -EINVAL, "%s is not supported; leave it out", name);
}

// SPDX-License-Identifier: Apache-2.0
// Trees from libyaml's events. The events are used rather than its document, because only they show anchors, aliases
// and tags, which are refused: no policy needs them, and an alias is how a small text becomes an enormous tree. Depth,
// number of values and size of the text are bounded, and parsing stops at the event that breaks a bound.
//
// The caller never sees libyaml. Values are owned by the tree; strings may hold NULs ("\u0000" in JSON), which is why
// text and length travel together and validation gets to see the NUL.
#include "policy/yaml.h"

#include <errno.h>
#include <stdarg.h>
#include <yaml.h>

#include "base/mem.h"

struct yaml_builder {
    struct yaml_file *file;
    yaml_parser_t parser;
    struct yaml_value *stack[YAML_DEPTH_MAX];
    size_t depth;
    size_t values;
    char *key; // of the member whose value comes next
    size_t key_len;
    unsigned key_line;
    bool done;
};

static void value_free(struct yaml_value *value) {
    // Recursion is bounded by YAML_DEPTH_MAX; siblings are walked.
    while (value) {
        struct yaml_value *next = value->next;
        value_free(value->first);
        if (value->text) explicit_bzero(value->text, value->len); // E2B policies hold secrets
        free(value->key);
        free(value->text);
        free(value);
        value = next;
    }
}

void yaml_done(struct yaml_file *file) {
    value_free(file->root);
    file->root = NULL;
}

static int fail_line(const struct yaml_file *file, size_t line, const char *text) {
    if (!file->name) return error_set(file->err, -EINVAL, "%s", text);
    if (line == 0) return error_set(file->err, -EINVAL, "%s: %s", file->name, text);
    return error_set(file->err, -EINVAL, "%s:%zu: %s", file->name, line, text);
}

int yaml_fail(const struct yaml_file *file, const struct yaml_value *value, const char *format, ...) {
    char text[sizeof(file->err->text)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return fail_line(file, value ? value->line : 0, text);
}

int yaml_context(const struct yaml_file *file, const struct yaml_value *value, int code) {
    if (!file->name) return code;
    return error_context(file->err, code, "%s:%u", file->name, value->line);
}

const char *yaml_quote(const char *text, size_t len, char buf[YAML_QUOTE_SIZE]) {
    const size_t room = YAML_QUOTE_SIZE - sizeof("\\x00...");
    size_t used = 0, i = 0;
    for (; i < len && used < room; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            used += (size_t)snprintf(buf + used, YAML_QUOTE_SIZE - used, "\\x%02x", c);
        else
            buf[used++] = (char)c;
    }
    snprintf(buf + used, YAML_QUOTE_SIZE - used, "%s", i < len ? "..." : "");
    return buf;
}

const char *yaml_show(const struct yaml_value *value, char buf[YAML_QUOTE_SIZE]) {
    if (value->kind == YAML_LIST) return "a list";
    if (value->kind == YAML_MAP) return "a mapping";
    if (value->len == 0) return value->quoted ? "\"\"" : "nothing";
    char text[YAML_QUOTE_SIZE];
    yaml_quote(value->text, value->len, text);
    snprintf(buf, YAML_QUOTE_SIZE, "\"%.350s\"", text);
    return buf;
}

// --- building the tree ---

static int builder_fail(const struct yaml_builder *builder, const yaml_event_t *event, const char *text) {
    return fail_line(builder->file, event->start_mark.line + 1, text);
}

static int syntax_fail(const struct yaml_builder *builder) {
    const yaml_parser_t *parser = &builder->parser;
    if (parser->error == YAML_MEMORY_ERROR) return error_set(builder->file->err, -ENOMEM, "out of memory");
    // The line itself is what its writer recognises; the commonest slips get their fix.
    const char *start = builder->file->text, *end = start + builder->file->len;
    for (size_t line = parser->problem_mark.line; line > 0 && start < end; start++) line -= *start == '\n';
    size_t len = 0;
    while (start + len < end && start[len] != '\n' && len < 120) len++;
    char text[YAML_QUOTE_SIZE + 512], quoted[YAML_QUOTE_SIZE];
    yaml_quote(start, len, quoted);
    bool no_token = parser->problem && strcmp(parser->problem, "found character that cannot start any token") == 0;
    const char *fix = memchr(start, '\t', len)  ? "indent with blanks, not tabs"
                      : no_token && memchr(start, '@', len)
                          ? "a value that begins with @ has to be in quotes: \"@python\""
                      : memchr(start, '*', len) ? "a value that begins with * has to be in quotes: \"*.example.com\""
                                                : "correct the syntax";
    snprintf(text, sizeof(text), "\"%s\" is not valid YAML or JSON: %s%s%s; %s", quoted,
             parser->problem ? parser->problem : "unreadable", parser->context ? " " : "",
             parser->context ? parser->context : "", fix);
    return fail_line(builder->file, parser->problem_mark.line + 1, text);
}

static bool member_exists(const struct yaml_value *map, const char *key, size_t len) {
    for (const struct yaml_value *value = map->first; value; value = value->next)
        if (value->key_len == len && memcmp(value->key, key, len) == 0) return true;
    return false;
}

static char *copy_bytes(const void *bytes, size_t len) {
    char *copy = malloc(len + 1);
    if (!copy) return NULL;
    if (len) memcpy(copy, bytes, len);
    copy[len] = '\0';
    return copy;
}

// A scalar where a key is due. libyaml has already paired keys and values.
static int take_key(struct yaml_builder *builder, const yaml_event_t *event, const struct yaml_value *map) {
    char quoted[YAML_QUOTE_SIZE], text[YAML_QUOTE_SIZE + 64];
    const char *key = (const char *)event->data.scalar.value;
    size_t len = event->data.scalar.length;
    if (map->count >= YAML_KEYS_MAX) return builder_fail(builder, event, "a mapping has too many keys; at most 256");
    if (member_exists(map, key, len)) {
        snprintf(text, sizeof(text), "key \"%s\" is given twice; keep one", yaml_quote(key, len, quoted));
        return builder_fail(builder, event, text);
    }
    builder->key = copy_bytes(key, len);
    if (!builder->key) return error_set(builder->file->err, -ENOMEM, "out of memory");
    builder->key_len = len;
    builder->key_line = (unsigned)event->start_mark.line + 1;
    return 0;
}

static void attach(struct yaml_builder *builder, struct yaml_value *value) {
    if (builder->depth == 0) {
        builder->file->root = value;
        return;
    }
    struct yaml_value *parent = builder->stack[builder->depth - 1];
    if (parent->kind == YAML_MAP) {
        value->key = TAKE_POINTER(builder->key);
        value->key_len = builder->key_len;
        value->line = builder->key_line;
    }
    if (parent->last)
        parent->last->next = value;
    else
        parent->first = value;
    parent->last = value;
    parent->count++;
}

static int take_value(struct yaml_builder *builder, const yaml_event_t *event, enum yaml_kind kind) {
    if (++builder->values > YAML_VALUES_MAX)
        return builder_fail(builder, event, "the text holds too many values; at most 262144");
    if (kind != YAML_SCALAR && builder->depth >= YAML_DEPTH_MAX)
        return builder_fail(builder, event, "lists and mappings are nested too deep; at most 16 levels");
    struct yaml_value *value = NEW(struct yaml_value);
    if (!value) return error_set(builder->file->err, -ENOMEM, "out of memory");
    value->kind = kind;
    value->line = (unsigned)event->start_mark.line + 1;
    if (kind == YAML_SCALAR) {
        value->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        value->len = event->data.scalar.length;
        value->text = copy_bytes(event->data.scalar.value, value->len);
        if (!value->text) {
            free(value);
            return error_set(builder->file->err, -ENOMEM, "out of memory");
        }
    }
    attach(builder, value);
    if (kind != YAML_SCALAR) builder->stack[builder->depth++] = value;
    return 0;
}

static bool key_due(const struct yaml_builder *builder) {
    return builder->depth > 0 && builder->stack[builder->depth - 1]->kind == YAML_MAP && !builder->key;
}

static int take_scalar(struct yaml_builder *builder, const yaml_event_t *event) {
    if (event->data.scalar.anchor)
        return builder_fail(builder, event, "anchors (&name) are not accepted; write the value out");
    if (event->data.scalar.tag ||
        (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !event->data.scalar.plain_implicit))
        return builder_fail(builder, event, "tags (!name) are not accepted; remove the tag");
    if (key_due(builder)) return take_key(builder, event, builder->stack[builder->depth - 1]);
    return take_value(builder, event, YAML_SCALAR);
}

static int take_collection(struct yaml_builder *builder, const yaml_event_t *event, enum yaml_kind kind) {
    bool list = kind == YAML_LIST;
    if (list ? event->data.sequence_start.anchor : event->data.mapping_start.anchor)
        return builder_fail(builder, event, "anchors (&name) are not accepted; write the value out");
    if (list ? event->data.sequence_start.tag : event->data.mapping_start.tag)
        return builder_fail(builder, event, "tags (!name) are not accepted; remove the tag");
    if (key_due(builder)) return builder_fail(builder, event, "a key is a list or a mapping; write a word");
    return take_value(builder, event, kind);
}

static int take_event(struct yaml_builder *builder, const yaml_event_t *event) {
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return builder_fail(builder, event, "aliases (*name) are not accepted; write the value out");
    case YAML_SCALAR_EVENT:
        return take_scalar(builder, event);
    case YAML_SEQUENCE_START_EVENT:
        return take_collection(builder, event, YAML_LIST);
    case YAML_MAPPING_START_EVENT:
        return take_collection(builder, event, YAML_MAP);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        builder->depth--;
        return 0;
    case YAML_DOCUMENT_START_EVENT:
        if (builder->file->root) return builder_fail(builder, event, "there is a second document; keep one");
        return 0;
    case YAML_STREAM_END_EVENT:
        builder->done = true;
        return 0;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return 0;
    }
    return 0;
}

static int builder_run(struct yaml_builder *builder) {
    int r = 0;
    while (r == 0 && !builder->done) {
        yaml_event_t event;
        if (!yaml_parser_parse(&builder->parser, &event)) return syntax_fail(builder);
        r = take_event(builder, &event);
        yaml_event_delete(&event);
    }
    return r;
}

int yaml_read(struct yaml_file *file, const char *text, size_t len) {
    file->text = text;
    file->len = len;
    if (len > YAML_TEXT_MAX) return yaml_fail(file, NULL, "the text is larger than 1 MiB; make it smaller");
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { // byte order mark
        text += 3;
        len -= 3;
    }
    struct yaml_builder builder = {.file = file};
    if (!yaml_parser_initialize(&builder.parser)) return error_set(file->err, -ENOMEM, "out of memory");
    // Said rather than guessed: libyaml would take a text that starts with FF FE for UTF-16.
    yaml_parser_set_encoding(&builder.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&builder.parser, (const unsigned char *)text, len);
    int r = builder_run(&builder);
    yaml_parser_delete(&builder.parser);
    free(builder.key);
    if (r == 0 && !file->root && !file->may_be_empty)
        r = yaml_fail(file, NULL, "the text is empty; write a policy, at least {}");
    if (r < 0) yaml_done(file);
    return r;
}

// SPDX-License-Identifier: Apache-2.0
// Whether a sandbox type can enforce a policy (semantics section 6), asked when the sandbox is built: a type never runs
// with less than was asked. The table is types.c; here is what a policy needs of it, and the messages, which are
// interface.
#include <errno.h>

#include "policy/binding.h"

#define TEXT_SIZE 512

// --- what a policy needs ---

static bool is_plain_host(const struct policy_entry *entry) {
    return (entry->kind == POLICY_ENTRY_NAME || entry->kind == POLICY_ENTRY_ADDRESS) &&
           entry->protocol == POLICY_ENTRY_HTTPS && !entry->private_ok;
}

static bool is_plain_range(const struct policy_entry *entry) {
    return entry->kind == POLICY_ENTRY_CIDR && entry->protocol == POLICY_ENTRY_ANY && entry->port_count == 0;
}

// A file says its form by its dialect. A model from options is judged by what is in it, so that "--network all" is
// Network.all() and "--allow a.org" Network.allow() for every type that has them.
static enum policy_network needed_network(const struct policy_model *model) {
    if (model->dialect != POLICY_DIALECT_NATIVE || model->network == POLICY_NETWORK_NATIVE) return model->network;
    if (model->base_allow)
        return model->allow_count + model->deny_count == 0 ? POLICY_NETWORK_ALL : POLICY_NETWORK_NATIVE;
    if (model->deny_count > 0) return POLICY_NETWORK_NATIVE;
    enum policy_network needed = POLICY_NETWORK_NONE;
    for (size_t i = 0; i < model->allow_count; i++) {
        if (is_plain_host(&model->allow[i]))
            needed = POLICY_NETWORK_ALLOW;
        else if (!is_plain_range(&model->allow[i]))
            return POLICY_NETWORK_NATIVE;
    }
    return needed;
}

static bool needs_ranges(const struct policy_model *model) {
    if (model->has_egress) return true;
    for (size_t i = 0; i < model->allow_count; i++)
        if (model->allow[i].kind == POLICY_ENTRY_CIDR) return true;
    return false;
}

// --- words ---

static const char *network_words(const struct policy_model *model, enum policy_network network) {
    switch (network) {
    case POLICY_NETWORK_NONE:
        return "Network.none()";
    case POLICY_NETWORK_ALL:
        return "Network.all()";
    case POLICY_NETWORK_ALLOW:
        return "Network.allow()";
    case POLICY_NETWORK_NATIVE:
        return model->dialect == POLICY_DIALECT_E2B ? "e2b policies" : "native policies";
    }
    return "";
}

static bool supports(const struct policy_type_info *info, enum policy_network network) {
    switch (network) {
    case POLICY_NETWORK_NONE:
        return info->none;
    case POLICY_NETWORK_ALL:
        return info->all;
    case POLICY_NETWORK_ALLOW:
        return info->allow;
    case POLICY_NETWORK_NATIVE:
        return info->native;
    }
    return false;
}

// "network=Network.none() or network=Network.all()": what the type does support.
static const char *alternatives(const struct policy_type_info *info, char text[TEXT_SIZE]) {
    const char *words[3];
    size_t count = 0, used = 0;
    if (info->none) words[count++] = "network=Network.none()";
    if (info->all) words[count++] = "network=Network.all()";
    if (info->allow) words[count++] = "network=Network.allow(hosts=...)";
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const char *joint = i == 0 ? "" : i + 1 == count ? " or " : ", ";
        used += (size_t)snprintf(text + used, TEXT_SIZE - used, "%s%s", joint, words[i]);
    }
    return text;
}

// --- reach of bindings ---

static bool base_reaches(const struct policy_model *model) {
    bool denied = false;
    for (size_t i = 0; i < model->deny_count; i++)
        denied |= model->deny[i].prefix.length == 0 && model->deny[i].prefix.addr.family == ADDR_IPV4;
    return model->base_allow && !denied;
}

static bool entry_matches(const struct policy_entry *entry, const char *host) {
    if (entry->kind == POLICY_ENTRY_NAME) return strcmp(entry->name, host) == 0;
    if (entry->kind != POLICY_ENTRY_WILDCARD) return false;
    size_t suffix = strlen(entry->name), len = strlen(host);
    if (suffix == 0) return true; // the lone "*"
    return len > suffix + 1 && host[len - suffix - 1] == '.' && strcmp(host + len - suffix, entry->name) == 0;
}

static bool has_names(const struct policy_model *model) {
    for (size_t i = 0; i < model->allow_count; i++)
        if (model->allow[i].kind == POLICY_ENTRY_NAME || model->allow[i].kind == POLICY_ENTRY_WILDCARD) return true;
    return false;
}

static bool opens_port(const struct policy_entry *entry, uint16_t port) {
    if (entry->port_count == 0) return entry->protocol != POLICY_ENTRY_HTTP || port == 80;
    for (size_t i = 0; i < entry->port_count; i++)
        if (port >= entry->ports[i].first && port <= entry->ports[i].last) return true;
    return false;
}

// Whether two entries for a host open one port.
static bool ports_meet(const struct policy_entry *a, const struct policy_entry *b) {
    if (a->port_count == 0) return opens_port(b, 443);
    for (size_t i = 0; i < a->port_count; i++) {
        if (opens_port(b, a->ports[i].first)) return true;
        for (size_t j = 0; j < b->port_count; j++)
            if (b->ports[j].first >= a->ports[i].first && b->ports[j].first <= a->ports[i].last) return true;
    }
    return false;
}

static bool is_blind(const struct policy_entry *entry, const char *host) {
    return (entry->protocol == POLICY_ENTRY_TCP || entry->protocol == POLICY_ENTRY_ANY) && entry_matches(entry, host);
}

int policy_binding_reach(const struct policy_model *model, const char *host, const struct policy_entry **ret_entry) {
    static const struct policy_entry base = {.protocol = POLICY_ENTRY_HTTPS}; // on 443, where TLS is expected
    bool reached = base_reaches(model), blind = false, met = false;
    *ret_entry = NULL;
    for (size_t i = 0; i < model->allow_count; i++) {
        const struct policy_entry *entry = &model->allow[i];
        if (entry->protocol == POLICY_ENTRY_HTTPS) reached |= entry_matches(entry, host);
        if (!is_blind(entry, host)) continue;
        if (!blind) *ret_entry = entry;
        blind = true;
        bool meets = base_reaches(model) && ports_meet(&base, entry);
        for (size_t j = 0; j < model->allow_count && !meets; j++) {
            const struct policy_entry *other = &model->allow[j];
            meets = other->protocol == POLICY_ENTRY_HTTPS && entry_matches(other, host) && ports_meet(other, entry);
        }
        if (meets && !met) *ret_entry = entry;
        met |= meets;
    }
    if (met || (blind && !reached)) return -EPROTO;
    return reached ? 0 : -ENOENT;
}

// The hosts of a binding that the policy blocks, as text; empty if it reaches all. A workspace binding has none: its
// hosts are in the node's configuration (policy_bind_workspace), all that is known here is whether any host is reached.
static void blocked_hosts(const struct policy_model *model, const struct policy_binding *binding,
                          char text[TEXT_SIZE]) {
    struct policy_binding_target targets[POLICY_BINDING_TARGETS];
    const struct policy_entry *entry;
    size_t count = policy_binding_targets(binding, targets), used = 0;
    text[0] = '\0';
    if (binding->kind == POLICY_BINDING_WORKSPACE && !base_reaches(model) && !has_names(model))
        snprintf(text, TEXT_SIZE, "the hosts of the workspace's rules");
    for (size_t i = 0; i < count; i++) {
        if (policy_binding_reach(model, targets[i].host, &entry) != -ENOENT) continue;
        used += (size_t)snprintf(text + used, TEXT_SIZE - used, "%s%s", used ? ", " : "", targets[i].host);
    }
}

int policy_binding_check_tls(const struct policy_model *model, const struct policy_type_info *info,
                             const struct policy_binding *binding, struct error *err) {
    struct policy_binding_target targets[POLICY_BINDING_TARGETS];
    size_t count = policy_binding_targets(binding, targets);
    for (size_t i = 0; i < count; i++) {
        const struct policy_entry *entry;
        if (policy_binding_reach(model, targets[i].host, &entry) != -EPROTO) continue;
        return error_set(err, -EINVAL,
                         "%s: agents.%s needs https to %s, which %s opens as protocol: tcp, whose bytes are not read; write "
                         "protocol: https there, or leave the ports of https out of it", info->display,
                         policy_binding_name(binding), targets[i].host, entry->source ? entry->source : "an entry");
    }
    return 0;
}

static int check_reach(const struct policy_model *model, enum policy_network needed,
                       const struct policy_type_info *info, const struct policy_binding *binding, struct error *err) {
    char hosts[TEXT_SIZE];
    blocked_hosts(model, binding, hosts);
    if (!hosts[0]) return policy_binding_check_tls(model, info, binding, err);
    bool native = needed == POLICY_NETWORK_NATIVE;
    const char *all = native ? "base: allow" : "network=Network.all()";
    error_set(err, -EINVAL, "%s: agents.%s needs network access to %s, which %s blocks; pass %s%s", info->display,
              policy_binding_name(binding), hosts, native ? "base: deny" : network_words(model, needed), all,
              info->allow ? " or add the hosts" : "");
    return native && binding->source ? error_context(err, -EINVAL, "%s", binding->source) : -EINVAL;
}

static int check_bindings(const struct policy_model *model, enum policy_network needed,
                          const struct policy_type_info *info, struct error *err) {
    for (size_t i = 0; i < model->binding_count; i++) {
        if (!info->bindings[model->bindings[i].kind])
            return error_set(err, -EINVAL, "%s does not support agents.%s; pass header_bindings=()", info->display,
                             policy_binding_name(&model->bindings[i]));
    }
    if (model->dialect == POLICY_DIALECT_E2B) return 0; // transforms of hosts that are not reached do nothing (lint.c)
    for (size_t i = 0; i < model->binding_count; i++) {
        int r = check_reach(model, needed, info, &model->bindings[i], err);
        if (r < 0) return r;
    }
    return 0;
}

int policy_check_type(const struct policy_model *model, enum policy_type type, struct error *err) {
    const struct policy_type_info *info = policy_type_info(type);
    enum policy_network needed = needed_network(model);
    char text[TEXT_SIZE];
    if (!supports(info, needed))
        return error_set(err, -EINVAL, "%s does not support %s; pass %s", info->display, network_words(model, needed),
                         alternatives(info, text));
    if (info->cidr == POLICY_CIDR_NO && needs_ranges(model))
        return error_set(err, -EINVAL, "%s does not support EgressPolicy.custom(); pass %s without egress",
                         info->display, alternatives(info, text));
    return check_bindings(model, needed, info, err);
}

int policy_model_set_type(struct policy_model *model, enum policy_type type, struct error *err) {
    if (model->has_type && model->type != type)
        return error_set(err, -EINVAL, "the type is \"%s\" in the policy and \"%s\" beside it; keep one",
                         policy_type_info(model->type)->word, policy_type_info(type)->word);
    model->has_type = true;
    model->type = type;
    bool unsaid = !model->has_network && !model->has_egress && model->allow_count + model->deny_count == 0;
    if (type == POLICY_TYPE_HOST && unsaid) {
        model->network = POLICY_NETWORK_ALL;
        model->base_allow = true;
    }
    return 0;
}

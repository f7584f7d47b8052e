// SPDX-License-Identifier: Apache-2.0
#include "sandbox/trust_table.h"

#include <stddef.h>

const char *const trust_bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Alpine, Arch, Gentoo, NixOS
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/ca-bundle.pem",                            // SUSE
    "/var/lib/ca-certificates/ca-bundle.pem",
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",  // Arch
    "/etc/ssl/cert.pem",
    "/usr/lib/ssl/cert.pem",
    "/etc/pki/tls/cacert.pem",
    NULL,
};

const struct trust_folder trust_folders[] = {
    {"/etc/ssl/certs", true},
    {"/etc/pki/tls/certs", true},
    {"/usr/lib/ssl/certs", true},
    {"/etc/pki/ca-trust/source/anchors", false},
    {"/etc/ca-certificates/trust-source/anchors", false},
    {"/etc/pki/trust/anchors", false},
    {NULL, false},
};

const char *const trust_stores[] = {
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/ca-trust/extracted/java/cacerts",
    "/etc/pki/java/cacerts",
    "/var/lib/ca-certificates/java-cacerts",
    "/etc/ssl/java/cacerts",
    "/usr/lib/jvm/*/lib/security/cacerts",
    "/usr/lib/jvm/*/jre/lib/security/cacerts",
    "/opt/*/lib/security/cacerts",
    NULL,
};

const struct trust_variable trust_variables[TRUST_VARIABLES + 1] = {
    {"SSL_CERT_FILE", TRUST_ALL},       // OpenSSL, Go, Ruby, Rust's native roots, uv, httpx
    {"CURL_CA_BUNDLE", TRUST_ALL},
    {"REQUESTS_CA_BUNDLE", TRUST_ALL},
    {"GIT_SSL_CAINFO", TRUST_ALL},
    {"PIP_CERT", TRUST_ALL},
    {"AWS_CA_BUNDLE", TRUST_ALL},
    {"CARGO_HTTP_CAINFO", TRUST_ALL},
    {"NIX_SSL_CERT_FILE", TRUST_ALL},
    {"HTTPLIB2_CA_CERTS", TRUST_ALL},
    {"PERL_LWP_SSL_CA_FILE", TRUST_ALL},
    {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", TRUST_ALL},
    {"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", TRUST_ALL},
    {"HEX_CACERTS_PATH", TRUST_ALL},
    {"NODE_EXTRA_CA_CERTS", TRUST_MORE},
    {"DENO_CERT", TRUST_MORE},
    {"NPM_CONFIG_CAFILE", TRUST_THERE},
    {"npm_config_cafile", TRUST_THERE},
    {"BUNDLE_SSL_CA_CERT", TRUST_THERE},
    {"JULIA_SSL_CA_ROOTS_PATH", TRUST_THERE},
    {"YARN_HTTPS_CA_FILE_PATH", TRUST_THERE},
    {"YARN_CAFILE", TRUST_THERE},
    {NULL, TRUST_THERE},
};

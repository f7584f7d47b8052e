// SPDX-License-Identifier: Apache-2.0
// OpenSSL for the gate's side of opened connections, loaded before the gate isolates itself and only where a host has a
// credential (base/library.h). In a file that includes this header its functions are called by their own names.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "base/library.h"

#define TLS_SSL_CALLS(X) \
    X(OPENSSL_init_ssl) X(SSL_CTX_ctrl) X(SSL_CTX_free) X(SSL_CTX_new) X(SSL_CTX_set1_cert_store) \
    X(SSL_CTX_set_alpn_select_cb) X(SSL_CTX_set_default_read_buffer_len) X(SSL_CTX_set_num_tickets) X(SSL_CTX_set_options) X(SSL_CTX_set_verify) \
    X(SSL_accept) X(SSL_connect) X(SSL_ctrl) X(SSL_free) X(SSL_get0_alpn_selected) X(SSL_get0_param) X(SSL_get_error) \
    X(SSL_get_ex_data) X(SSL_get_servername) X(SSL_get_shutdown) X(SSL_get_verify_result) X(SSL_has_pending) \
    X(SSL_new) X(SSL_read) X(SSL_set1_host) X(SSL_set_alpn_protos) X(SSL_set_bio) X(SSL_set_ex_data) \
    X(SSL_set_hostflags) X(SSL_shutdown) X(SSL_use_PrivateKey) X(SSL_use_certificate) X(SSL_write) \
    X(TLS_client_method) X(TLS_server_method)

#define TLS_CRYPTO_CALLS(X) \
    X(BIO_clear_flags) X(BIO_free) X(BIO_get_data) X(BIO_meth_free) X(BIO_meth_new) X(BIO_meth_set_create) \
    X(BIO_meth_set_ctrl) X(BIO_meth_set_destroy) X(BIO_meth_set_read) X(BIO_meth_set_write) X(BIO_new) \
    X(BIO_new_mem_buf) X(BIO_set_data) X(BIO_set_flags) X(BIO_test_flags) X(BIO_set_init) X(ERR_clear_error) X(ERR_peek_error) \
    X(ERR_peek_last_error) X(OPENSSL_init_crypto) X(PEM_read_bio_X509) X(X509_STORE_add_cert) X(X509_STORE_free) \
    X(X509_STORE_load_file) X(X509_STORE_new) X(X509_free) X(X509_verify_cert_error_string)

struct tls_calls {
    TLS_SSL_CALLS(LIBRARY_MEMBER)
    TLS_CRYPTO_CALLS(LIBRARY_MEMBER)
};
extern struct tls_calls tls_calls;

// Once, before anything else here. 0, or -ENOPKG, -ENOMEM with a message.
int tls_calls_load(struct error *err);

#ifndef TLS_CALLS_PLAIN
#define OPENSSL_init_ssl (tls_calls.OPENSSL_init_ssl)
#define SSL_CTX_ctrl (tls_calls.SSL_CTX_ctrl)
#define SSL_CTX_free (tls_calls.SSL_CTX_free)
#define SSL_CTX_new (tls_calls.SSL_CTX_new)
#define SSL_CTX_set1_cert_store (tls_calls.SSL_CTX_set1_cert_store)
#define SSL_CTX_set_alpn_select_cb (tls_calls.SSL_CTX_set_alpn_select_cb)
#define SSL_CTX_set_default_read_buffer_len (tls_calls.SSL_CTX_set_default_read_buffer_len)
#define SSL_CTX_set_num_tickets (tls_calls.SSL_CTX_set_num_tickets)
#define SSL_CTX_set_options (tls_calls.SSL_CTX_set_options)
#define SSL_CTX_set_verify (tls_calls.SSL_CTX_set_verify)
#define SSL_accept (tls_calls.SSL_accept)
#define SSL_connect (tls_calls.SSL_connect)
#define SSL_ctrl (tls_calls.SSL_ctrl)
#define SSL_free (tls_calls.SSL_free)
#define SSL_get0_alpn_selected (tls_calls.SSL_get0_alpn_selected)
#define SSL_get0_param (tls_calls.SSL_get0_param)
#define SSL_get_error (tls_calls.SSL_get_error)
#define SSL_get_ex_data (tls_calls.SSL_get_ex_data)
#define SSL_get_servername (tls_calls.SSL_get_servername)
#define SSL_get_shutdown (tls_calls.SSL_get_shutdown)
#define SSL_get_verify_result (tls_calls.SSL_get_verify_result)
#define SSL_has_pending (tls_calls.SSL_has_pending)
#define SSL_new (tls_calls.SSL_new)
#define SSL_read (tls_calls.SSL_read)
#define SSL_set1_host (tls_calls.SSL_set1_host)
#define SSL_set_alpn_protos (tls_calls.SSL_set_alpn_protos)
#define SSL_set_bio (tls_calls.SSL_set_bio)
#define SSL_set_ex_data (tls_calls.SSL_set_ex_data)
#define SSL_set_hostflags (tls_calls.SSL_set_hostflags)
#define SSL_shutdown (tls_calls.SSL_shutdown)
#define SSL_use_PrivateKey (tls_calls.SSL_use_PrivateKey)
#define SSL_use_certificate (tls_calls.SSL_use_certificate)
#define SSL_write (tls_calls.SSL_write)
#define TLS_client_method (tls_calls.TLS_client_method)
#define TLS_server_method (tls_calls.TLS_server_method)
#define BIO_clear_flags (tls_calls.BIO_clear_flags)
#define BIO_free (tls_calls.BIO_free)
#define BIO_get_data (tls_calls.BIO_get_data)
#define BIO_meth_free (tls_calls.BIO_meth_free)
#define BIO_meth_new (tls_calls.BIO_meth_new)
#define BIO_meth_set_create (tls_calls.BIO_meth_set_create)
#define BIO_meth_set_ctrl (tls_calls.BIO_meth_set_ctrl)
#define BIO_meth_set_destroy (tls_calls.BIO_meth_set_destroy)
#define BIO_meth_set_read (tls_calls.BIO_meth_set_read)
#define BIO_meth_set_write (tls_calls.BIO_meth_set_write)
#define BIO_new (tls_calls.BIO_new)
#define BIO_new_mem_buf (tls_calls.BIO_new_mem_buf)
#define BIO_set_data (tls_calls.BIO_set_data)
#define BIO_set_flags (tls_calls.BIO_set_flags)
#define BIO_test_flags (tls_calls.BIO_test_flags)
#define BIO_set_init (tls_calls.BIO_set_init)
#define ERR_clear_error (tls_calls.ERR_clear_error)
#define ERR_peek_error (tls_calls.ERR_peek_error)
#define ERR_peek_last_error (tls_calls.ERR_peek_last_error)
#define OPENSSL_init_crypto (tls_calls.OPENSSL_init_crypto)
#define PEM_read_bio_X509 (tls_calls.PEM_read_bio_X509)
#define X509_STORE_add_cert (tls_calls.X509_STORE_add_cert)
#define X509_STORE_free (tls_calls.X509_STORE_free)
#define X509_STORE_load_file (tls_calls.X509_STORE_load_file)
#define X509_STORE_new (tls_calls.X509_STORE_new)
#define X509_free (tls_calls.X509_free)
#define X509_verify_cert_error_string (tls_calls.X509_verify_cert_error_string)
#endif

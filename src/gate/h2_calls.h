// SPDX-License-Identifier: Apache-2.0
// nghttp2. With the option `bundle` it is a part of the program; else it is loaded, before the gate isolates itself and only
// where a host has a credential (base/library.h), and its functions are called by their own names all the same.
#pragma once

#include <nghttp2/nghttp2.h>

#include "base/error.h"

// Once, before anything else of it. 0, or -ENOPKG with a message.
int h2_calls_load(struct error *err);

#ifndef PENSTOCK_BUNDLE
#include "base/library.h"

#define H2_CALLS(X) \
    X(nghttp2_option_del) X(nghttp2_option_new) X(nghttp2_option_set_max_send_header_block_length) \
    X(nghttp2_option_set_no_auto_window_update) \
    X(nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation) \
    X(nghttp2_option_set_stream_reset_rate_limit) X(nghttp2_session_callbacks_del) \
    X(nghttp2_session_callbacks_new) X(nghttp2_session_callbacks_set_before_frame_send_callback) \
    X(nghttp2_session_callbacks_set_on_begin_frame_callback) \
    X(nghttp2_session_callbacks_set_on_begin_headers_callback) \
    X(nghttp2_session_callbacks_set_on_data_chunk_recv_callback) \
    X(nghttp2_session_callbacks_set_on_frame_not_send_callback) \
    X(nghttp2_session_callbacks_set_on_frame_recv_callback) \
    X(nghttp2_session_callbacks_set_on_frame_send_callback) X(nghttp2_session_callbacks_set_on_header_callback) \
    X(nghttp2_session_callbacks_set_on_invalid_header_callback) \
    X(nghttp2_session_callbacks_set_on_stream_close_callback) X(nghttp2_session_change_extpri_stream_priority) \
    X(nghttp2_session_client_new3) X(nghttp2_session_consume) X(nghttp2_session_get_last_proc_stream_id) \
    X(nghttp2_session_get_outbound_queue_size) X(nghttp2_session_get_remote_settings) \
    X(nghttp2_session_get_stream_user_data) X(nghttp2_session_mem_recv) X(nghttp2_session_mem_send) \
    X(nghttp2_session_resume_data) X(nghttp2_session_server_new3) X(nghttp2_session_set_local_window_size) \
    X(nghttp2_session_set_stream_user_data) X(nghttp2_session_terminate_session) X(nghttp2_session_want_read) \
    X(nghttp2_session_want_write) X(nghttp2_submit_goaway) X(nghttp2_submit_headers) X(nghttp2_submit_request) \
    X(nghttp2_submit_response) X(nghttp2_submit_rst_stream) X(nghttp2_submit_settings) \
    X(nghttp2_submit_trailer)

struct h2_calls {
    H2_CALLS(LIBRARY_MEMBER)
};
extern struct h2_calls h2_calls;

#ifndef H2_CALLS_PLAIN
#define nghttp2_option_del (h2_calls.nghttp2_option_del)
#define nghttp2_option_new (h2_calls.nghttp2_option_new)
#define nghttp2_option_set_max_send_header_block_length (h2_calls.nghttp2_option_set_max_send_header_block_length)
#define nghttp2_option_set_no_auto_window_update (h2_calls.nghttp2_option_set_no_auto_window_update)
#define nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation (h2_calls.nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation)
#define nghttp2_option_set_stream_reset_rate_limit (h2_calls.nghttp2_option_set_stream_reset_rate_limit)
#define nghttp2_session_callbacks_del (h2_calls.nghttp2_session_callbacks_del)
#define nghttp2_session_callbacks_new (h2_calls.nghttp2_session_callbacks_new)
#define nghttp2_session_callbacks_set_before_frame_send_callback (h2_calls.nghttp2_session_callbacks_set_before_frame_send_callback)
#define nghttp2_session_callbacks_set_on_begin_frame_callback (h2_calls.nghttp2_session_callbacks_set_on_begin_frame_callback)
#define nghttp2_session_callbacks_set_on_begin_headers_callback (h2_calls.nghttp2_session_callbacks_set_on_begin_headers_callback)
#define nghttp2_session_callbacks_set_on_data_chunk_recv_callback (h2_calls.nghttp2_session_callbacks_set_on_data_chunk_recv_callback)
#define nghttp2_session_callbacks_set_on_frame_not_send_callback (h2_calls.nghttp2_session_callbacks_set_on_frame_not_send_callback)
#define nghttp2_session_callbacks_set_on_frame_recv_callback (h2_calls.nghttp2_session_callbacks_set_on_frame_recv_callback)
#define nghttp2_session_callbacks_set_on_frame_send_callback (h2_calls.nghttp2_session_callbacks_set_on_frame_send_callback)
#define nghttp2_session_callbacks_set_on_header_callback (h2_calls.nghttp2_session_callbacks_set_on_header_callback)
#define nghttp2_session_callbacks_set_on_invalid_header_callback (h2_calls.nghttp2_session_callbacks_set_on_invalid_header_callback)
#define nghttp2_session_callbacks_set_on_stream_close_callback (h2_calls.nghttp2_session_callbacks_set_on_stream_close_callback)
#define nghttp2_session_change_extpri_stream_priority (h2_calls.nghttp2_session_change_extpri_stream_priority)
#define nghttp2_session_client_new3 (h2_calls.nghttp2_session_client_new3)
#define nghttp2_session_consume (h2_calls.nghttp2_session_consume)
#define nghttp2_session_get_last_proc_stream_id (h2_calls.nghttp2_session_get_last_proc_stream_id)
#define nghttp2_session_get_outbound_queue_size (h2_calls.nghttp2_session_get_outbound_queue_size)
#define nghttp2_session_get_remote_settings (h2_calls.nghttp2_session_get_remote_settings)
#define nghttp2_session_get_stream_user_data (h2_calls.nghttp2_session_get_stream_user_data)
#define nghttp2_session_mem_recv (h2_calls.nghttp2_session_mem_recv)
#define nghttp2_session_mem_send (h2_calls.nghttp2_session_mem_send)
#define nghttp2_session_resume_data (h2_calls.nghttp2_session_resume_data)
#define nghttp2_session_server_new3 (h2_calls.nghttp2_session_server_new3)
#define nghttp2_session_set_local_window_size (h2_calls.nghttp2_session_set_local_window_size)
#define nghttp2_session_set_stream_user_data (h2_calls.nghttp2_session_set_stream_user_data)
#define nghttp2_session_terminate_session (h2_calls.nghttp2_session_terminate_session)
#define nghttp2_session_want_read (h2_calls.nghttp2_session_want_read)
#define nghttp2_session_want_write (h2_calls.nghttp2_session_want_write)
#define nghttp2_submit_goaway (h2_calls.nghttp2_submit_goaway)
#define nghttp2_submit_headers (h2_calls.nghttp2_submit_headers)
#define nghttp2_submit_request (h2_calls.nghttp2_submit_request)
#define nghttp2_submit_response (h2_calls.nghttp2_submit_response)
#define nghttp2_submit_rst_stream (h2_calls.nghttp2_submit_rst_stream)
#define nghttp2_submit_settings (h2_calls.nghttp2_submit_settings)
#define nghttp2_submit_trailer (h2_calls.nghttp2_submit_trailer)
#endif
#endif

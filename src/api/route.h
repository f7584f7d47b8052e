// SPDX-License-Identifier: Apache-2.0
// What the endpoints do: the functions of the table in route.c. Private to the api room. Each answers its call, or hands it
// to the backend.
#pragma once

#include "api/api_state.h"

typedef void route_answer(struct api_request *request);

route_answer route_health, route_metrics, route_audit;                                        // node_calls.c
route_answer route_create_warm, route_create_warm_v2, route_create_cold;                      // create_calls.c
route_answer route_list, route_list_v2, route_detail;                                         // list_calls.c
route_answer route_remove, route_timeout, route_refresh, route_pause, route_resume, route_connect; // sandbox_calls.c
route_answer route_fork, route_network, route_extension, route_extension_patch;               // sandbox_calls.c
route_answer route_exec, route_decisions, route_explain;                                      // exec_calls.c
route_answer route_snapshot, route_snapshots, route_snapshot_info;                            // snapshot_calls.c
route_answer route_template_create, route_templates, route_templates_v2, route_alias, route_template; // template_calls.c
route_answer route_template_remove;                                                           // template_calls.c
route_answer route_build_start, route_build_status;                                           // build_calls.c

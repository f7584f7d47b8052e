#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A gRPC server (grpc.example) of service lab.Echo, whose messages are bytes: Unary, Split (one to many), Join (many to one),
Both (many to many, each at once), Fail. It demands a Bearer credential, and answers with trailers. grpc.log beside it has a
line of JSON for each call.

usage: grpc_server.py DIR"""
import concurrent.futures
import json
import os
import sys
import threading
import time

import grpc

import zone

METHODS = {}


def method(kind):
    def add(function):
        def call(request, context):
            metadata = [[name, value] for name, value in context.invocation_metadata() if isinstance(value, str)]
            with open("grpc.log", "a", encoding="utf-8") as file:
                file.write(json.dumps({"time": time.time(), "event": "call", "method": function.__name__, "headers": metadata}) + "\n")
            if not dict(metadata).get("authorization", "").startswith("Bearer "):
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "no credential")
            context.set_trailing_metadata((("x-lab-trailer", function.__name__),))
            return function(request, context)
        METHODS[function.__name__] = getattr(grpc, kind + "_rpc_method_handler")(call)
        return function
    return add


@method("unary_unary")
def Unary(request, context):
    return request


@method("unary_stream")
def Split(request, context):
    return (bytes([byte]) for byte in request)


@method("stream_unary")
def Join(requests, context):
    return b"".join(requests)


@method("stream_stream")
def Both(requests, context):
    return (b"re: " + request for request in requests)


@method("unary_unary")
def Fail(request, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as asked for")


def read(name):
    with open(name, "rb") as file:
        return file.read()


def main(folder):
    os.chdir(folder)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 1)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("lab.Echo", METHODS),))
    credentials = grpc.ssl_server_credentials([(read("server.key"), read("server.pem"))])
    address = zone.ZONE["grpc.example"]
    for at in (address["A"][0], f"[{address['AAAA'][0]}]"):
        if not server.add_secure_port(at + ":443", credentials):
            raise OSError(at)
    server.start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])

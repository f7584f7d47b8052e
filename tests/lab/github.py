# SPDX-License-Identifier: Apache-2.0
"""What github.com, api.github.com and api.mistral.ai answer in the lab, behind nginx (so by HTTP/1.1 and HTTP/2): smart Git
by git's own CGI program, the API calls that `gh` makes, a model that speaks JSON and SSE. As the real ones they demand a
credential: Basic with the user x-access-token for the repositories of github.com (all but octo/public), Bearer for both
APIs. Any token that starts with TOKEN is good, so that each test has its own and finds it in the log.

The log, DIR/log/credentials.log, has a line of JSON for each request that arrived, its headers as they were."""
import base64
import http.server
import json
import os
import re
import subprocess
import threading
import time

DEADLINE = 60
TOKEN = "labtok_"
PAUSE, WORDS = 0.15, ["Hello", " from", " the", " lab", "."]
REPOSITORY = {"id": 1, "name": "hello", "full_name": "octo/hello", "private": True, "default_branch": "main", "fork": False,
              "owner": {"login": "octo"}, "html_url": "https://github.com/octo/hello"}


class Handler(http.server.BaseHTTPRequestHandler):
    folder = None  # the lab's
    lock = threading.Lock()

    def setup(self):
        super().setup()
        self.connection.settimeout(DEADLINE)

    def log_message(self, *args):
        pass

    def take(self):
        """Reads the request to its end and logs it. Returns its body."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        line = json.dumps({"time": time.time(), "host": self.headers.get("host"), "method": self.command, "path": self.path,
                           "headers": [[name.lower(), value] for name, value in self.headers.items()]})
        with self.lock, open(os.path.join(self.folder, "log/credentials.log"), "a", encoding="utf-8") as file:
            file.write(line + "\n")
        return body

    def bearer(self):
        word, _, token = self.headers.get("authorization", "").partition(" ")
        return word.lower() in ("bearer", "token") and token.startswith(TOKEN)

    def reply(self, status, data, headers=()):
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        for name, value in [("content-type", "application/json"), ("content-length", str(len(data))), *headers]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


class Git(Handler):
    protocol_version = "HTTP/1.0"

    def do_GET(self):
        body = self.take()
        path, _, query = self.path.partition("?")
        path = re.sub(r"^/([^/]+)/([^/]+?)(\.git)?/", r"/\1/\2.git/", path)
        demands = self.headers.get("host") == "github.com" and not path.startswith("/octo/public.git/")
        if demands and not self.basic():
            self.reply(401, b"", [("www-authenticate", 'Basic realm="GitHub"')])
            return
        cgi = subprocess.run(["git", "http-backend"], input=body, stdout=subprocess.PIPE, timeout=DEADLINE, check=True,
                             env={**os.environ, "GIT_PROJECT_ROOT": os.path.join(self.folder, "git"), "GIT_HTTP_EXPORT_ALL": "1",
                                  "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
                                  "CONTENT_TYPE": self.headers.get("content-type", ""),
                                  "CONTENT_LENGTH": str(len(body)), **({"REMOTE_USER": "x-access-token"} if demands else {}),
                                  "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
                                  "GIT_PROTOCOL": self.headers.get("git-protocol", "")}).stdout
        head, _, rest = cgi.partition(b"\r\n\r\n")
        status = [line for line in head.split(b"\r\n") if line.lower().startswith(b"status:")]
        self.wfile.write(b"HTTP/1.0 " + (status[0].partition(b":")[2].strip() if status else b"200 OK") + b"\r\n" +
                         head + b"\r\n\r\n" + rest)
    do_POST = do_GET

    def basic(self):
        word, _, coded = self.headers.get("authorization", "").partition(" ")
        try:
            user, _, token = base64.b64decode(coded, validate=True).decode().partition(":")
        except ValueError:
            return False
        return word == "Basic" and user == "x-access-token" and token.startswith(TOKEN)


class Api(Handler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.take()
        if not self.bearer():
            self.reply(401, {"message": "Bad credentials"}, [("www-authenticate", "Bearer")])
            return
        path = self.path.partition("?")[0]
        if self.command == "POST" and path == "/graphql":
            data = {"viewer": {"login": "octo"}} if b"viewer" in body else {"repository": {**REPOSITORY, "id": "R_1"}}
            self.reply(200, {"data": data})
        elif self.command == "POST" and path == "/repos/octo/hello/issues":
            self.reply(201, {"number": 7, "title": json.loads(body)["title"]})
        elif self.command == "POST" and path == "/v1/chat/completions":
            self.chat(json.loads(body))
        elif path == "/user":
            self.reply(200, {"login": "octo", "id": 1}, [("x-oauth-scopes", "repo, read:org")])
        elif path.startswith("/repos/"):
            self.reply(200, {**REPOSITORY, "full_name": path[7:]})
        elif path == "/v1/models":
            self.reply(200, {"object": "list", "data": [{"id": "lab-small"}]})
        else:
            self.reply(404, {"message": "Not Found"})
    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def chat(self, request):
        if not request.get("stream"):
            self.reply(200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": "".join(WORDS)}}]})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for word in WORDS:
            self.event(json.dumps({"choices": [{"index": 0, "delta": {"content": word}}]}))
            threading.Event().wait(PAUSE)
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, text):
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

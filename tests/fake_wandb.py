"""A fake W&B server that stores uploads, with the requests that `wandb sync` needs."""

import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "0" * 40
"""A key that the client accepts."""


class Server(ThreadingHTTPServer):
    """Stores runs by id, with `config`, `summary`, `history` rows, names and tags; and workspaces.

    refuses: whether to answer every query with an error.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.runs: dict[str, dict] = {}
        self.files: dict[str, bytes] = {}
        self.views: dict[str, dict] = {}
        self.refuses = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that closes its connection."""

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, query: str, asked: dict) -> dict:
        """Return the data of one GraphQL query."""
        if "upsertBucket" in query:
            return {"upsertBucket": {"bucket": self._upsert(asked), "inserted": True}}
        if "RunResumeStatus" in query:
            run = self.runs.get(asked["name"])
            return {"model": {**_PROJECT, "bucket": run and _resumed(asked["name"], run)}}
        if "createRunFiles" in query:
            places = [{"name": name, "uploadUrl": f"{self.url}/{name}"} for name in asked["files"]]
            return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": places}}
        if "upsertView" in query:
            self.views[asked["name"]] = asked
            return {"upsertView": {"view": {"id": "view", "name": asked["name"]}, "inserted": True}}
        return {"viewer": {"id": "v", "username": "me", "entity": "me", "flags": "{}"}}

    def stream(self, run: str, sent: dict) -> None:
        """Store rows from their offset on, as W&B does, and the last summary."""
        for name, part in sent.get("files", {}).items():
            lines = [json.loads(line) for line in part["content"]]
            if name == "wandb-history.jsonl":
                history = self.runs[run]["history"]
                history[part["offset"] : part["offset"] + len(lines)] = lines
            elif name == "wandb-summary.json":
                self.runs[run]["summary"] = lines[-1]
        if "exitcode" in sent:
            self.runs[run]["exitcode"] = sent["exitcode"]

    def _upsert(self, asked: dict) -> dict:
        run = self.runs.setdefault(asked["name"], {"history": [], "summary": {}})
        named = ("project", "groupName", "displayName", "jobType", "tags", "commit")
        run |= {key: asked[key] for key in named if asked.get(key)}
        if asked.get("config"):
            run["config"] = {k: v["value"] for k, v in json.loads(asked["config"]).items()}
        return {"id": "r", "name": asked["name"], "config": "{}", "project": _PROJECT}


_PROJECT = {"id": "p", "name": "rigor", "entity": {"id": "e", "name": "me"}}


def _resumed(name: str, run: dict) -> dict:
    tail = json.dumps([json.dumps(row) for row in run["history"][-1:]])
    return {
        "id": "r",
        "name": name,
        "summaryMetrics": json.dumps(run["summary"]),
        "displayName": run.get("displayName"),
        "logLineCount": 0,
        "historyLineCount": len(run["history"]),
        "eventsLineCount": 0,
        "historyTail": tail,
        "eventsTail": "[]",
        "config": json.dumps({key: {"value": value} for key, value in run["config"].items()}),
        "tags": run.get("tags"),
        "notes": "",
        "wandbConfig": json.dumps({"t": run["config"].get("_wandb", {}).get("t")}),
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Print no requests."""

    def do_GET(self) -> None:
        """Answer with an empty object."""
        self._send({})

    def do_PUT(self) -> None:
        """Store an uploaded file."""
        self.server.files[self.path.strip("/")] = self._body()
        self._send({})

    def do_POST(self) -> None:
        """Answer a query, or store a part of a run's stream."""
        body = self._body()
        stream = re.match(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", self.path)
        if self.server.refuses:
            self._send({"errors": [{"message": "refused"}]}, 403)
        elif stream:
            self.server.stream(stream[1], json.loads(body))
            self._send({"exitcode": None, "limits": {}})
        elif self.path == "/graphql":
            asked = json.loads(body)
            self._send({"data": self.server.answer(asked["query"], asked.get("variables") or {})})
        else:
            self._send({})

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _send(self, content: dict, code: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def served() -> Iterator[Server]:
    """Run a server on a free port inside the block."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

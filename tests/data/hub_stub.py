"""A Hub on the loopback: just enough of its protocol for reading data sets and looking up commits.

with HubStub({("dataset", "org/name"): Repo(files={"train.jsonl": b"..."})}) as hub:
    hub.run("print(1)")     # Python in a subprocess whose HF_ENDPOINT is this server
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Repo:
    files: dict[str, bytes] = field(default_factory=dict)
    commit: str = "a" * 40
    gated: bool = False


def environment(endpoint: str, home: Path, **more: str) -> dict[str, str]:
    """A subprocess's environment: this Hub, an empty cache, no proxy, no login, no telemetry."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()}
    return {
        **keep,
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "*",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        **more,
    }


class HubStub:
    def __init__(self, repos: dict[tuple[str, str], Repo]) -> None:
        self.repos = repos
        self.requests: list[str] = []
        stub = self

        class Handler(_Handler):
            hub = stub

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> HubStub:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def run(self, code: str, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
        return run(code, self.endpoint, home, **more)


def run(code: str, endpoint: str, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python code with the real client against `endpoint`."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment(endpoint, home, **more),
        capture_output=True,
        text=True,
        timeout=120,
    )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubStub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = urlsplit(self.path).path
        self.hub.requests.append(f"{self.command} {unquote(path)}")
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[:2] in (["api", "datasets"], ["api", "models"]):
            return self._api(parts[1].removesuffix("s"), "/".join(parts[2:4]), parts[4:], body)
        repo_type = "dataset" if parts[0] == "datasets" else "model"
        parts = parts[1:] if repo_type == "dataset" else parts
        if len(parts) > 4 and parts[2] == "resolve":
            return self._file(repo_type, "/".join(parts[:2]), parts[3], "/".join(parts[4:]), body)
        return self._send(404, b"{}", body)

    def _repo(self, repo_type: str, repo_id: str, revision: str, body: bool) -> Repo | None:
        repo = self.hub.repos.get((repo_type, repo_id))
        if repo is None:
            self._send(404, b'{"error":"Repository not found"}', body, {"X-Error-Code": "RepoNotFound"})
        elif repo.gated:
            self._send(403, b'{"error":"gated"}', body, {"X-Error-Code": "GatedRepo"})
        elif revision not in ("main", repo.commit):
            self._send(404, b'{"error":"Invalid rev"}', body, {"X-Error-Code": "RevisionNotFound"})
        else:
            return repo
        return None

    def _api(self, repo_type: str, repo_id: str, rest: list[str], body: bool) -> None:
        revision = rest[1] if len(rest) > 1 else "main"
        repo = self._repo(repo_type, repo_id, revision, body)
        if repo is None:
            return
        what = rest[0] if rest else "revision"
        if what == "revision":
            siblings = [{"rfilename": name} for name in repo.files]
            answer: object = {"id": repo_id, "sha": repo.commit, "private": False, "gated": False, "tags": []}
            answer = {**answer, "siblings": siblings}  # type: ignore[dict-item]
        elif what == "tree":
            answer = self._tree(repo, "/".join(rest[2:]), "recursive=True" in self.path)
        elif what == "paths-info":
            answer = []
        else:
            return self._send(404, b"{}", body)
        self._send(200, json.dumps(answer).encode(), body, {"Content-Type": "application/json"})

    def _tree(self, repo: Repo, under: str, recursive: bool) -> list[dict[str, object]]:
        prefix = f"{under}/" if under else ""
        below = {n.removeprefix(prefix): d for n, d in repo.files.items() if n.startswith(prefix)}
        folders = {n.rpartition("/")[0] for n in below if "/" in n}
        entries = [self._entry(prefix + n, d) for n, d in below.items() if recursive or "/" not in n]
        entries += [
            {"type": "directory", "path": prefix + name, "size": 0, "oid": "0" * 40}
            for name in sorted(folders)
            if recursive or "/" not in name
        ]
        return entries

    @staticmethod
    def _entry(name: str, data: bytes) -> dict[str, object]:
        return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}

    def _file(self, repo_type: str, repo_id: str, revision: str, name: str, body: bool) -> None:
        repo = self._repo(repo_type, repo_id, revision, body)
        if repo is None:
            return
        headers = {"X-Repo-Commit": repo.commit}
        if name not in repo.files:
            return self._send(404, b"", body, {**headers, "X-Error-Code": "EntryNotFound"})
        data = repo.files[name]
        self._send(200, data, body, {**headers, "ETag": f'"{hashlib.sha1(data).hexdigest()}"'})

    def _send(self, status: int, data: bytes, body: bool, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

"""A server on this machine that answers as the hub does; no other address is ever contacted."""

import base64
import contextlib
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Serves what the hub's client requests: the list of files of a model, and the files."""

    def __init__(self) -> None:
        self.models: dict[str, Path] = {}
        self.asked: list[str] = []
        self.agents: set[str] = set()
        self.broken = False
        # Of uploads: where repositories are, large files by digest, and what the hub refuses or remarks.
        self.received, self.large = Path(), dict[str, bytes]()
        self.tokens, self.visibility = set[str](), dict[str, str]()
        self.refusal: tuple[str, int, str] | None = None
        self.remark = ""
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.answer(self)

            do_HEAD = do_GET  # noqa: N815

            def do_POST(self) -> None:
                hub.receive(self)

            do_PUT = do_POST  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"

    def receive(self, request: http.server.BaseHTTPRequestHandler) -> None:
        """Answers what is posted: a repository, a card, sizes of files, large files, and a commit."""
        path = request.path.split("?")[0]
        self.asked.append(path)
        self.tokens.add(request.headers.get("Authorization", ""))
        content = request.rfile.read(int(request.headers["Content-Length"]))
        if self.refusal and path.endswith(self.refusal[0]):
            body = json.dumps({"error": self.refusal[2], "errors": [{"message": self.refusal[2]}]}).encode()
            return self.reply(request, self.refusal[1], body)
        answer: dict[str, object] = {"warnings": [{"message": self.remark}] if self.remark else []}
        name = "/".join(path.removesuffix(".git/info/lfs/objects/batch").split("/")[-4:-2])
        if path == "/api/repos/create":
            asked = json.loads(content)
            name = f"{asked['organization']}/{asked['name']}"
            self.models[name] = self.received / name
            self.models[name].mkdir(parents=True)
            (self.models[name] / ".gitattributes").touch()
            self.visibility[name] = asked["visibility"]
            answer = {"url": f"{self.endpoint}/{name}"}
        elif path.endswith("/preupload/main"):
            files = json.loads(content)["files"]
            modes = {"path": "", "shouldIgnore": False}
            answer = {"files": [{**modes, **file, "uploadMode": self.mode(file["path"])} for file in files]}
        elif path.endswith("/lfs/objects/batch"):
            objects = [{"oid": each["oid"], "size": each["size"]} for each in json.loads(content)["objects"]]
            for each in objects:
                if each["oid"] not in self.large:
                    each["actions"] = {"upload": {"href": f"{self.endpoint}/large/{each['oid']}"}}
            answer = {"transfer": "basic", "objects": objects}
        elif path.startswith("/large/"):
            self.large[path.rpartition("/")[2]] = content
        elif path.endswith("/commit/main"):
            for line in map(json.loads, content.splitlines()):
                value = line["value"]
                assert line["key"] in ("header", "file", "lfsFile"), "nothing is deleted"
                if line["key"] != "header":
                    file = self.models[name] / value["path"]
                    file.parent.mkdir(exist_ok=True)
                    small = line["key"] == "file"
                    file.write_bytes(base64.b64decode(value["content"]) if small else self.large[value["oid"]])
            answer = {"commitUrl": f"{self.endpoint}/{name}/commit/{COMMIT}", "commitOid": COMMIT}
        return self.reply(request, 200, json.dumps(answer).encode())

    @staticmethod
    def mode(path: str) -> str:
        return "lfs" if path.endswith(".safetensors") else "regular"

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        path = request.path.split("?")[0]
        self.asked.append(path)
        self.agents.add(request.headers.get("User-Agent", ""))
        parts = path.strip("/").split("/")
        if self.broken:
            return self.reply(request, 500, b"{}")
        if parts[:2] == ["api", "models"] and "/".join(parts[2:4]) in self.models:
            folder = self.models["/".join(parts[2:4])]
            if parts[4] == "tree":
                files = [
                    {
                        "type": "file",
                        "path": str(file.relative_to(folder)),
                        "size": file.stat().st_size,
                        "oid": self.digest(file),
                    }
                    for file in self.files(folder)
                ]
                return self.reply(request, 200, json.dumps(files).encode())
            siblings = [{"rfilename": str(file.relative_to(folder))} for file in self.files(folder)]
            body = {"id": "/".join(parts[2:4]), "sha": COMMIT, "siblings": siblings}
            return self.reply(request, 200, json.dumps(body).encode())
        if "/".join(parts[:2]) in self.models and parts[2:3] == ["resolve"]:
            file = self.models["/".join(parts[:2])].joinpath(*parts[4:])
            return self.reply(request, 200, file.read_bytes(), self.digest(file))
        return self.reply(request, 404, b"{}", error="RepoNotFound")

    @staticmethod
    def files(folder: Path) -> list[Path]:
        return sorted(file for file in folder.rglob("*") if file.is_file())

    @staticmethod
    def digest(file: Path) -> str:
        return hashlib.sha1(file.read_bytes()).hexdigest()

    @staticmethod
    def reply(
        request: http.server.BaseHTTPRequestHandler, status: int, body: bytes, etag: str = "", error: str = ""
    ) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.send_header("X-Repo-Commit", COMMIT)
        if etag:
            request.send_header("ETag", f'"{etag}"')
        if error:
            request.send_header("X-Error-Code", error)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)


@contextlib.contextmanager
def running(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub, whose client may make requests to it, which tests otherwise forbid."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    thread = threading.Thread(target=hub.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()
    huggingface_hub.close_session()

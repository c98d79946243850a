#!/usr/bin/env python3
"""Uploads an offline run that zinc wrote by the real `wandb sync`, to a server that stands in for the
service, and compares what arrives with the run's metrics.jsonl.

    python3 -m venv /tmp/wandb && /tmp/wandb/bin/pip install wandb==0.31.0
    zinc train --config ds.json ... --out run       # with "wandb": {"enabled": true}
    /tmp/wandb/bin/python tests/reference/sync_wandb.py run

Nothing leaves this machine: the server listens on 127.0.0.1, and the key is forty zeros. It answers
the few GraphQL operations that a sync asks for and keeps the history, configuration and names that
are sent. Prints one line and ends with 1 where something differs. tests/reference/wandb_result.txt
holds what it printed.
"""

import gzip
import http.server
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

CURVES = {
    "Train/Samples/train_loss": "loss",
    "Train/Samples/lr": "lr",
    "Train/Samples/loss_scale": "loss_scale",
    "Train/Samples/grad_norm": "grad_norm",
    "Train/Samples/tokens_per_second": "tokens_per_second",
    "Validation/Samples/val_loss": "val_loss",
}


def same(sent, written):
    if written is None:  # no number: null in metrics.jsonl
        return not math.isfinite(sent)
    return sent == written


class Service(http.server.BaseHTTPRequestHandler):
    history = []
    upserts = []
    exit_codes = []

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if "file_stream" in self.path:
            self.take_stream(json.loads(body))
            answer = {"exitcode": None, "limits": {}}
        elif "graphql" in self.path:
            answer = {"data": self.graphql(json.loads(body))}
        else:
            answer = {}
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def take_stream(self, body):
        part = body.get("files", {}).get("wandb-history.jsonl")
        if part:
            assert part["offset"] == len(self.history), "a part of the history is missing"
            self.history.extend(json.loads(line) for line in part["content"])
        if body.get("complete"):
            self.exit_codes.append(body.get("exitcode"))

    def graphql(self, body):
        name = body.get("operationName") or re.search(r"(?:query|mutation)\s+(\w+)", body["query"]).group(1)
        variables = body.get("variables") or {}
        if name == "UpsertBucket":
            self.upserts.append(variables)
            project = {"id": "p", "name": variables.get("project") or "p",
                       "entity": {"id": "e", "name": variables.get("entity") or "e"}}
            bucket = {"id": "b", "name": variables.get("name"), "displayName": "", "description": "",
                      "config": "{}", "sweepName": None, "historyLineCount": 0, "project": project}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if name == "CreateRunFiles":
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": []}}
        return {"serverInfo": {"features": []}}


def sync(run):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    program = os.path.join(os.path.dirname(sys.executable), "wandb")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(os.path.join(run, "wandb"), os.path.join(folder, "wandb"))
        environment = dict(os.environ, WANDB_API_KEY="0" * 40, HOME=folder,
                           WANDB_BASE_URL=f"http://127.0.0.1:{server.server_port}")
        paths = [os.path.join("wandb", name) for name in os.listdir(os.path.join(folder, "wandb"))]
        done = subprocess.run([program, "sync", "--yes", *paths], cwd=folder, env=environment,
                              capture_output=True, text=True, timeout=120, check=False)
    server.shutdown()
    assert done.returncode == 0, done.stdout + done.stderr
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout


def main():
    run = sys.argv[1]
    version = sync(run).strip().replace(", version", "")
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    assert len(Service.history) == len(lines), (len(Service.history), len(lines))
    for line, step in zip(lines, Service.history):
        for curve, key in CURVES.items():
            assert (curve in step) == (key in line), curve
            if curve in step:
                assert same(float(step[curve]), line[key]), (line["step"], curve, step[curve])
    with open(os.path.join(run, "config.resolved.json"), encoding="utf-8") as file:
        configuration = json.load(file)
    sent = json.loads(Service.upserts[-1]["config"])
    for key, value in configuration.items():
        assert sent[key]["value"] == value, key
    wandb = configuration["wandb"]
    assert Service.upserts[0]["project"] == wandb["project"]
    assert Service.upserts[0]["entity"] == wandb.get("team")
    assert Service.upserts[0]["groupName"] == wandb.get("group")
    assert Service.upserts[0]["displayName"] == os.path.basename(os.path.normpath(run))
    print(f"{version} sync: {len(lines)} steps, configuration, project, entity, group and name "
          f"arrive as written")


if __name__ == "__main__":
    main()

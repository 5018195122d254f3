#!/usr/bin/env python3
"""The rules of `automodel studio`, through a socket as an attacker or a browser has it: who is answered, what is read and
written, how it ends.

  server_test.py AUTOMODEL
"""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

PROGRAM = os.path.abspath(sys.argv.pop(1))
RECIPE = """model:
  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B
distributed:
  tp_size: 2
  pp_size: 2
  dp_size: 4
  pipeline: {pp_schedule: Interleaved1F1B, pp_microbatch_size: 1}
step_scheduler: {global_batch_size: 128, local_batch_size: 4}
dataset: {_target_: mock, seq_length: 4096}
# a comment
hardware: {profile: h100}
"""


class Studio:
    def __init__(self, folder, *words):
        self.process = subprocess.Popen([PROGRAM, "studio", "--no-open", *words], cwd=folder, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([0-9a-f]{32,})", self.address)
        if not found:
            self.process.kill()
            raise AssertionError((self.address, *self.process.communicate()))
        self.port, self.token = int(found[1]), found[2]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def ask(self, path, query=(), method="GET", token=True, headers=None, body=None):
        """Status, headers and body."""
        words = [("token", self.token)] * bool(token) + list(query)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path + ("?" + urllib.parse.urlencode(words) if words else ""), body, headers or {})
        answer = connection.getresponse()
        out = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return out

    def raw(self, data, seconds=30):
        """Everything that is answered to these bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            try:
                connection.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass
            out = b""
            try:
                while part := connection.recv(1 << 16):
                    out += part
            except ConnectionResetError:
                pass
            return out


class Rules(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.root.joinpath("recipe.yaml").write_text(RECIPE)
        self.root.joinpath("secret.yaml").write_text(RECIPE.replace("tp_size: 2", "tp_size: 1"))

    def studio(self, *words):
        studio = Studio(self.root, *words)
        self.addCleanup(studio.__exit__)
        return studio

    def plan(self, *words):
        return subprocess.run([PROGRAM, "plan", *words, "--json"], cwd=self.root, capture_output=True, text=True)

    def test_a_plan_is_that_of_the_command(self):
        studio = self.studio("recipe.yaml")
        cases = [
            ([], []),
            ([("recipe", "recipe.yaml"), ("actions", "compute")], ["--actions", "compute"]),
            ([("set", "distributed.tp_size=1"), ("set", "distributed.dp_size=none"), ("world_size", "64"), ("gpus_per_node", "4")],
             ["distributed.tp_size=1", "distributed.dp_size=none", "--world-size", "64", "--gpus-per-node", "4"]),
            ([("set", "distributed.tp_size=3")], ["distributed.tp_size=3"]),
            ([("set", "distributed.tp_sise=3")], ["distributed.tp_sise=3"]),
            ([("set", "--distributed.activation_checkpointing=full")], ["--distributed.activation_checkpointing=full"]),
            ([("set", "nothing")], ["nothing"]),
            ([("distributed.tp_size", "4"), ("set", "distributed.tp_size=1"), ("distributed.dp_size", "8")], ["distributed.tp_size=1", "distributed.dp_size=8"]),
            ([("set", "dataset={_target_: text, paths: [no.txt], tokenizer: bytes, seq_length: 64}"), ("no_files", "1")],
             ["dataset={_target_: text, paths: [no.txt], tokenizer: bytes, seq_length: 64}", "--no-files"]),
        ]
        for query, words in cases:
            status, headers, body = studio.ask("/api/plan", query)
            with self.subTest(words=words):
                self.assertEqual((status, headers["Content-Type"]), (200, "application/json; charset=utf-8"))
                self.assertEqual(body, self.plan("recipe.yaml", *words).stdout)
        self.assertIn("errors", json.loads(studio.ask("/api/plan", [("set", "distributed.tp_size=3")])[2]))

    def test_nothing_is_answered_without_the_token(self):
        studio = self.studio("recipe.yaml")
        for path in ("/", "/api/plan", "/api/save", "/favicon.ico", "/nothing"):
            for query in ([], [("token", "")], [("token", studio.token[:-1])], [("token", studio.token + "0")], [("token", "0" * len(studio.token))]):
                for method in ("GET", "POST"):
                    status, _, body = studio.ask(path, query, method=method, token=False)
                    self.assertIn(status, (401, 403), (path, query))
                    self.assertNotIn(studio.token, body)
        self.assertEqual(studio.ask("/api/plan", token=False, headers={"Authorization": "Bearer " + studio.token})[0], 200)
        self.assertEqual(studio.ask("/api/plan", token=False, headers={"Authorization": "Bearer " + studio.token[:-1]})[0], 403)
        with Studio(self.root) as other:
            self.assertNotEqual(other.token, studio.token)

    def test_other_hosts_and_origins_are_refused(self):
        studio = self.studio("recipe.yaml")
        port = studio.port
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", f"127.0.0.1:{port}.evil.example", ""):
            self.assertEqual(studio.ask("/api/plan", headers={"Host": host})[0], 403, host)
        for origin in ("http://evil.example", "null", f"https://127.0.0.1:{port}", f"http://127.0.0.1:{port}.evil.example", "http://127.0.0.1"):
            status, headers, _ = studio.ask("/api/plan", headers={"Origin": origin})
            self.assertEqual(status, 403, origin)
            self.assertNotIn("Access-Control-Allow-Origin", headers)
        for name in (f"127.0.0.1:{port}", f"localhost:{port}"):
            self.assertEqual(studio.ask("/api/plan", headers={"Host": name, "Origin": "http://" + name})[0], 200)
        line = f"GET /api/plan?token={studio.token} HTTP/1.1\r\n".encode()
        end = b"Connection: close\r\n\r\n"
        self.assertIn(b" 403 ", studio.raw(line + end))
        self.assertIn(b" 403 ", studio.raw(line + f"Host: 127.0.0.1:{port}\r\nHost: evil.example\r\n".encode() + end))
        proxy = f"GET http://evil.example/api/plan?token={studio.token} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()
        self.assertIn(b" 403 ", studio.raw(proxy + end))

    def test_only_the_loopback_interface_listens(self):
        studio = self.studio("recipe.yaml")
        table = pathlib.Path("/proc/net/tcp").read_text() + pathlib.Path("/proc/net/tcp6").read_text()
        local = [line.split()[1] for line in table.splitlines() if line.split()[3] == "0A"]
        self.assertEqual([each for each in local if each.endswith(f":{studio.port:04X}")], [f"0100007F:{studio.port:04X}"])

    def test_methods_and_pages_that_there_are_not(self):
        studio = self.studio("recipe.yaml")
        for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
            self.assertEqual(studio.ask("/api/plan", method=method)[0], 405, method)
        self.assertEqual(studio.ask("/api/plan", method="POST")[0], 405)
        self.assertEqual(studio.ask("/api/save")[0], 405)
        for path in ("/api", "/api/plan/", "/index.html", "/../etc/passwd", "/..%2f..%2fetc/passwd", "/recipe.yaml"):
            self.assertEqual(studio.ask(path)[0], 404, path)
        self.assertEqual(studio.ask("//etc/passwd")[0], 403)  # names another host
        self.assertEqual(studio.ask("/", method="HEAD")[2], "")

    def test_only_what_was_named_is_read(self):
        self.root.joinpath("runs").mkdir()
        self.root.joinpath("runs", "own.yaml").write_text(RECIPE)
        self.root.joinpath("runs", "link.yaml").symlink_to("../secret.yaml")
        self.root.joinpath("model").mkdir()
        self.root.joinpath("model", "config.json").write_text('{"model_type": "secret-of-the-folder"}')
        for name in ("corpus.idx", "123", "[book]"):
            self.root.joinpath(name).write_text("secret-of-the-folder")
        studio = self.studio("recipe.yaml", "runs")
        self.assertEqual(studio.ask("/api/plan", [("recipe", "runs/own.yaml")])[0], 200)
        for path in ("secret.yaml", "runs/../secret.yaml", "runs/link.yaml", str(self.root / "secret.yaml"), "/etc/passwd", "../secret.yaml",
                     "runs", "recipe.yaml/../secret.yaml", ".", "no.yaml"):
            for page in ("plan", "trace", "search", "recipe"):
                status, _, body = studio.ask("/api/" + page, [("recipe", path)])
                if path == "runs":  # named, and no recipe
                    self.assertIn("missing-file", body)
                    continue
                self.assertEqual(status, 400, (page, path))
                self.assertNotIn("tp_size", body)
        for value in ("model=model", "model={config: model}", "model.config=model/config.json", 'model={config: "mo\\x64el"}', "model.config=./model",
                      "model.config=" + str(self.root / "model"), "model.config=/etc", "model.config=~/x", "model.config=${HOME}/x",
                      "model.config=runs/../model", "model.config=runs/..", "dataset={_target_: text, paths: ['s*.yaml']}",
                      "dataset={_target_: text, paths: [secret.yaml]}", "dataset.paths=[{a: [/etc/passwd]}]",
                      # Text that is no YAML is taken as it is; a list in quotes is a list; keys may be names.
                      "dataset.paths=*/../../secret.yaml", "dataset.paths=[a-z]*/../../secret.yaml", "dataset.paths=/home/u/a: b/x", "dataset.paths=@/../x: y: z",
                      "dataset.paths='[\"/etc/passwd\"]'", "dataset.paths='[\"sec\\x72et.yaml\"]'", "model.config={/etc/passwd: 1}",
                      # A number may be a name, and a pattern any depth.
                      "dataset.paths=123", "dataset.paths=**", "dataset.paths=**/*.json", "dataset.paths=*/config.json", "dataset.paths=./m*/*", "dataset.paths=[!r]*",
                      "dataset.paths=['[book]']", "dataset.paths=runs/*.yaml",
                      # Megatron's files are named without their endings.
                      "dataset.paths=corpus", "dataset.paths=corpus.bin", "dataset.paths=[30, corpus]", "dataset.paths=./corpus.idx"):
            for page in ("plan", "recipe"):
                for query in ([("set", value)], [tuple(value.split("=", 1))] if "." in value.split("=")[0] else []):
                    if query:
                        status, _, body = studio.ask("/api/" + page, query)
                        self.assertEqual(status, 400, value)
                        self.assertIn("bad-override", body, value)
                        self.assertNotIn("secret-of-the-folder", body)

    def test_overrides_may_name_what_is_held_and_what_is_no_file(self):
        data = self.root / "data" / "more"
        data.mkdir(parents=True)
        data.joinpath("a.txt").write_text("words\n" * 1000)
        studio = self.studio("recipe.yaml", "data")
        for value in ("dataset.paths=data", "dataset.paths=data/**/*.txt", "dataset.paths=[data/*/a.txt]", "dataset.paths=d*", "dataset.paths='[data/more/a.txt]'",
                      "dataset.paths=none/**/x", "peft.target_modules=*_proj", "dataset.split=train[:10]", "recipe=a: b"):
            self.assertNotIn("does not name", studio.ask("/api/plan", [("set", value)])[2], value)
        text = "dataset={_target_: text, paths: [data/**/*.txt], tokenizer: bytes, seq_length: 64}"
        model = "model={config: {model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 4, num_attention_heads: 4, vocab_size: 300}}"
        self.assertIn('"ok":true', studio.ask("/api/plan", [("set", text), ("set", model)])[2])

    def test_links_in_a_run_that_lead_elsewhere_are_passed_over(self):
        run = self.root / "runs" / "one"
        run.mkdir(parents=True)
        run.joinpath("training.jsonl").write_text('{"step": 1, "loss": 2.5}\n')
        secret = self.root / "elsewhere.jsonl"
        secret.write_text('{"step": 1, "event": "start", "message": "a secret", "val_loss": 77.25, "predicted_step_seconds": 77.25}\n')
        names = ("events.jsonl", "validation.jsonl", "estimate.json")
        for name in names:
            run.joinpath(name).symlink_to(secret)
        os.mkfifo(run / "ranks.jsonl")
        studio = self.studio("runs")
        status, _, body = studio.ask("/api/run", [("run", "runs/one")])
        self.assertEqual(status, 200)
        self.assertIn("2.5", body)
        self.assertNotIn("a secret", body)
        self.assertNotIn("77.25", body)
        stamp = json.loads(body)["stamp"]
        secret.write_text("changed")
        self.assertEqual(json.loads(studio.ask("/api/run", [("run", "runs/one")])[2])["stamp"], stamp)
        for name in names:  # a link that stays within reach is read
            run.joinpath(name).unlink()
        self.root.joinpath("runs", "own.jsonl").write_text('{"step": 1, "event": "start", "message": "no secret"}\n')
        run.joinpath("events.jsonl").symlink_to("../own.jsonl")
        self.assertIn("no secret", studio.ask("/api/run", [("run", "runs/one")])[2])
        run.joinpath("training.jsonl").unlink()
        run.joinpath("training.jsonl").symlink_to(secret)
        self.assertIn("missing-file", studio.ask("/api/run", [("run", "runs/one")])[2])

    def test_a_saved_recipe_is_new_and_in_the_working_directory(self):
        studio = self.studio("recipe.yaml")
        before = sorted(self.root.rglob("*"))
        for path in ("/", "/api/plan", "/api/trace", "/api/search", "/api/recipe"):
            self.assertEqual(studio.ask(path)[0], 200, path)
        for name in ("", "../out.yaml", "a/b.yaml", "/tmp/out.yaml", ".hidden.yaml", "out.txt", "out", "..", "recipe.yaml", "a" * 300 + ".yaml", "o\nut.yaml"):
            self.assertEqual(studio.ask("/api/save", [("name", name)], method="POST")[0], 400, name)
        self.assertEqual(sorted(self.root.rglob("*")), before)
        self.assertEqual(self.root.joinpath("recipe.yaml").read_text(), RECIPE)
        status, _, body = studio.ask("/api/save", [("name", "new.yaml"), ("set", "distributed.tp_size=1")], method="POST")
        self.assertEqual((status, body), (200, "written: new.yaml\n"))
        text = self.root.joinpath("new.yaml").read_text()
        self.assertIn("tp_size: 1", text)
        self.assertIn("a comment", text)
        self.assertEqual(self.plan("new.yaml").returncode, 0)

    def test_what_is_too_large_or_no_request_is_refused(self):
        studio = self.studio("recipe.yaml")
        host = f"Host: 127.0.0.1:{studio.port}\r\n".encode()
        token = f"token={studio.token}".encode()
        long = b"GET /api/plan?" + token + b"&set=" + b"a" * 40000 + b" HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n"
        headers = b"GET /api/plan?" + token + b" HTTP/1.1\r\n" + host + b"A: b\r\n" * 20000 + b"\r\n"
        body = b"POST /api/save?name=large.yaml&" + token + b" HTTP/1.1\r\n" + host + b"Content-Length: 1000000\r\nConnection: close\r\n\r\n" + b"x" * 1000000
        negative = b"POST /api/save?" + token + b" HTTP/1.1\r\n" + host + b"Content-Length: -5\r\nConnection: close\r\n\r\n"
        endless = b"G" * 1000000
        for data in (long, headers, body, negative, endless, b"\0\1\2\3\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
            answer = studio.raw(data)
            self.assertNotRegex(answer, rb"^HTTP/1.\d 2", data[:60])
        chunks = b"POST /api/save?name=large.yaml&" + token + b" HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n" + (b"4000\r\n" + b"x" * 0x4000 + b"\r\n") * 8
        self.assertNotRegex(studio.raw(chunks), rb"^HTTP/1.\d 2")
        self.assertFalse(self.root.joinpath("large.yaml").exists())
        for query in ([("world_size", "0")], [("world_size", "4x")], [("world_size", "99999999999999")], [("gpus_per_node", "-1")], [("unknown", "1")],
                      [("actions", "all")], [("no_files", "0")], [("name", "a.yaml")]):
            status, _, text = studio.ask("/api/plan", query)
            self.assertEqual((status, json.loads(text)["errors"][0]["id"]), (400, "usage"), query)
        self.assertEqual(studio.ask("/api/plan")[0], 200)
        memory = int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{studio.process.pid}/status").read_text())[1])
        if "libasan" not in pathlib.Path(f"/proc/{studio.process.pid}/maps").read_text():
            self.assertLess(memory, 200 << 10)

    def test_slow_and_many_connections_hold_up_nobody(self):
        studio = self.studio("recipe.yaml")
        open_ones = [socket.create_connection(("127.0.0.1", studio.port)) for _ in range(100)]
        for each in open_ones:
            each.sendall(b"GET /api/plan HTTP/1.1\r\nHost: ")
        results = []
        threads = [threading.Thread(target=lambda: results.append(studio.ask("/api/plan")[0])) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(30)
        self.assertEqual(results, [200] * 8)
        for each in open_ones:
            each.close()

    def test_more_connections_than_there_are_descriptors(self):
        with open(self.root / "said", "w") as said:
            process = subprocess.Popen(["bash", "-c", 'ulimit -n 64; exec "$0" studio --no-open', PROGRAM], cwd=self.root, stdout=subprocess.PIPE, stderr=said, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        port, token = re.search(r":(\d+)/\?token=(\w+)", process.stdout.readline()).groups()
        open_ones = [socket.create_connection(("127.0.0.1", int(port))) for _ in range(100)]
        time.sleep(1)
        user, system = map(int, pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])
        self.assertLess(user + system, 40)  # hundredths of a second
        self.assertLess(self.root.joinpath("said").stat().st_size, 1000)
        for each in open_ones:
            each.close()
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=30)
        connection.request("GET", "/api/plan?token=" + token)
        self.assertEqual(connection.getresponse().status, 200)
        connection.close()

    def test_the_page_may_load_nothing_and_is_not_kept(self):
        studio = self.studio("recipe.yaml")
        status, headers, body = studio.ask("/")
        self.assertEqual(status, 200)
        policy = headers["Content-Security-Policy"]
        nonce = re.search(r"script-src 'nonce-([0-9a-f]{32})'", policy)[1]
        self.assertTrue(policy.startswith("default-src 'none';"))
        self.assertEqual(body.count("<script"), 1)
        self.assertIn(f'<script nonce="{nonce}">', body)
        for name, value in (("Cache-Control", "no-store"), ("Referrer-Policy", "no-referrer"), ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY")):
            self.assertEqual(headers[name], value)
        for outside in ("https:", "src=", "<link", "@import", "url("):
            self.assertNotIn(outside, body)

    def test_names_of_files_are_text_in_the_page(self):
        name = "</script><script>alert(1)<!--.yaml".replace("/", "")
        self.root.joinpath(name).write_text(RECIPE)
        body = self.studio(name).ask("/")[2]
        self.assertEqual(body.count("<script"), 1)
        self.assertNotIn("alert(1)<", body)

    def opened(self, *words, **environment):
        """The program, its port and token, and what a browser that it starts has seen: none within the time is None."""
        tools, private = self.root / "tools", self.root / "private"
        for folder in (tools, private):
            folder.mkdir(exist_ok=True)
        opener = tools / "xdg-open"
        opener.write_text("""#!/usr/bin/env python3
import json, os, pathlib, re, sys
status = pathlib.Path("/proc/self/status").read_text()
seen = {"words": sys.argv[1:], "text": pathlib.Path(sys.argv[1]).read_text(), "mode": os.stat(sys.argv[1]).st_mode & 0o777, "session": os.getsid(0) == os.getpid(),
        "files": {each: os.readlink("/proc/self/fd/" + each) for each in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + each)},
        "ignored": int(re.search(r"SigIgn:\\s+(\\w+)", status)[1], 16)}
pathlib.Path("opened.part").write_text(json.dumps(seen))
os.rename("opened.part", "opened")
""")
        opener.chmod(0o755)
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "DISPLAY": ":9", "XDG_RUNTIME_DIR": str(private), **environment}
        process = subprocess.Popen([PROGRAM, "studio", "recipe.yaml", *words], cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        port, token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([0-9a-f]+)", process.stdout.readline().strip()).groups()
        opened, end = self.root / "opened", time.monotonic() + (0.5 if words or environment["XDG_RUNTIME_DIR"].endswith("none") else 10)
        while not opened.exists() and time.monotonic() < end:
            time.sleep(0.02)
        seen = json.loads(opened.read_text()) if opened.exists() else None
        opened.unlink(missing_ok=True)
        return process, int(port), token, seen

    def test_a_browser_is_given_a_page_that_only_its_user_can_read(self):
        process, port, token, seen = self.opened()
        page = pathlib.Path(seen["words"][0])
        self.assertEqual((len(seen["words"]), page.parent, seen["mode"]), (1, self.root / "private", 0o600))
        self.assertNotIn(token, " ".join(seen["words"]))
        address = re.search(r'content="0; url=([^"]+)"', seen["text"])[1]
        self.assertEqual(address, f"http://127.0.0.1:{port}/?token={token}")
        for path, status, there in (("/", 403, True), ("/?ticket=" + token, 403, True), ("/api/plan?token=" + token, 200, True), ("/?token=" + token, 200, False)):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", path)
            self.assertEqual(connection.getresponse().status, status, path)
            connection.close()
            self.assertEqual(page.exists(), there, path)
        # At its end, whether or not a browser came.
        process, _, _, seen = self.opened()
        self.assertTrue(os.path.exists(seen["words"][0]))
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(10), 0)
        self.assertFalse(os.path.exists(seen["words"][0]))
        self.assertIsNone(self.opened("--no-open")[3])
        self.assertEqual(list(self.root.joinpath("private").iterdir()), [])

    def test_a_browser_is_opened_or_not_but_studio_runs(self):
        process, port, token, seen = self.opened(XDG_RUNTIME_DIR=str(self.root / "none"))
        self.assertIsNone(seen)
        process.kill()
        self.assertIn("no browser is opened", process.stderr.read())
        shared = self.root / "shared"
        shared.mkdir()
        environment = {"XDG_RUNTIME_DIR": "", "TMPDIR": str(shared)}
        self.assertEqual(pathlib.Path(self.opened(**environment)[3]["words"][0]).parent, shared)

    def test_a_browser_outlives_the_program(self):
        seen = self.opened()[3]
        self.assertTrue(seen["session"])  # Ctrl-C at the terminal does not reach it
        self.assertEqual({each: seen["files"].pop(each, None) for each in "012"}, dict.fromkeys("012", "/dev/null"))
        self.assertFalse([each for each in seen["files"].values() if each.startswith("socket:")])
        self.assertEqual(seen["ignored"] >> (signal.SIGCHLD - 1) & 1, 0)

    def test_a_port_can_be_chosen_and_be_taken(self):
        studio = self.studio("recipe.yaml")
        taken = subprocess.run([PROGRAM, "studio", "--no-open", "--port", str(studio.port)], cwd=self.root, capture_output=True, text=True, timeout=30)
        self.assertEqual(taken.returncode, 4)
        self.assertIn(f"error[cannot-start]: studio cannot listen on 127.0.0.1:{studio.port}: Address already in use", taken.stderr)
        self.assertIn("'--port'", taken.stderr)
        studio.__exit__()
        with Studio(self.root, "--port", str(studio.port)) as again:
            self.assertEqual(again.port, studio.port)
            self.assertIn('"ok":true', again.ask("/api/plan")[2])  # a recipe to begin with
        for words, code in ((["--port", "0"], 2), (["--port", "70000"], 2), (["no.yaml"], 2)):
            self.assertEqual(subprocess.run([PROGRAM, "studio", "--no-open", *words], cwd=self.root, capture_output=True, timeout=30).returncode, code, words)

    def test_ctrl_c_ends_it_at_once(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            studio = self.studio("recipe.yaml")
            hanging = socket.create_connection(("127.0.0.1", studio.port))
            hanging.sendall(b"GET / HTTP/1.1\r\n")
            self.assertEqual(studio.ask("/api/plan")[0], 200)
            begin = time.monotonic()
            os.kill(studio.process.pid, number)
            self.assertEqual(studio.process.wait(10), 0)
            self.assertLess(time.monotonic() - begin, 2)
            hanging.close()


if __name__ == "__main__":
    unittest.main()

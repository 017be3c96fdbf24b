"""The services of compose.yaml (test/deploy/compose), watched as doc/grafana.md says.

Real exporters and a real Prometheus, from the tree build/deploy/build: for the test, watch, and
for what draws the dashboard, picture.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request

work = os.path.abspath("build/deploy")
tree = work + "/build"
inside = json.load(open(work + "/in.json"))
holders = json.load(open(work + "/holders.json"))
page = open("doc/grafana.md").read()
dashboard = open("doc/grafana.json").read()
wrong = []


def block(language, containing):
    """a block of code of the page"""
    return next(b for b in re.findall(r"```%s\n(.*?)```" % language, page, re.S) if containing in b)


def psql(server, *options):
    words = inside[server] + ["psql", "-U", "postgres", "-qAtX", *options]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(server, sql):
    p = psql(server, "-v", "ON_ERROR_STOP=1")
    out = p.communicate(sql)[0]
    if p.returncode:
        sys.exit("%s: %s failed" % (server, sql))
    return out.strip()


def until(what, condition, seconds=120):
    """wait for it; the limit is for what hangs"""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            value = condition()
        except OSError:
            value = None
        if value:
            return value
        time.sleep(0.3)
    wrong.append("not within %d s: %s" % (seconds, what))
    return None


def api(path, **parameters):
    url = "http://127.0.0.1:9090/api/v1/" + path + "?" + urllib.parse.urlencode(parameters)
    return json.load(urllib.request.urlopen(url, timeout=20))["data"]


def value(expression):
    """{labels: value} of what is there now"""
    return {tuple(sorted(r["metric"].items())): float(r["value"][1]) for r in api("query", query=expression)["result"]}


def expressions(panel, interval, range_):
    """what a panel of the dashboard asks: [(expression, legend)], for all servers"""
    for target in panel.get("targets", ()):
        expression = target["expr"]
        for variable, text in (("$instance", ".*"), ("$__rate_interval", interval), ("$__range", range_)):
            expression = expression.replace(variable, text)
        yield expression, target["legendFormat"]


def start(name, *words, enter=()):
    return subprocess.Popen([*enter, "chroot", tree, "env", *words], stdin=subprocess.DEVNULL,
                            stdout=open(work + "/" + name + ".log", "w"), stderr=subprocess.STDOUT)


def cut_off(host, off=True):
    """a host from all others"""
    subprocess.run(["ip", "link", "set", "v" + host, "down" if off else "up"], check=True)


def watch():
    """as the page says, on each server"""
    for file in ("prometheus.yaml", "prometheus-rules.yaml"):
        os.makedirs(tree + "/etc/zklock", exist_ok=True)
        subprocess.run(["cp", "doc/" + file, tree + "/etc/zklock"], check=True)
    subprocess.run(["cp", work + "/hosts", tree + "/etc/hosts"], check=True)
    command = block("sh", "prometheus-postgres-exporter").replace("\\\n", "")
    for server in "ab":
        ask(server, block("sql", "CREATE ROLE"))
        start("exporter-" + server, "sh", "-c", "exec env " + command,
              enter=["nsenter", "-t", str(holders[server]), "--net"])
    open(tree + "/etc/prometheus.yml", "w").write(
        "global: {scrape_interval: 5s, scrape_timeout: 5s, evaluation_interval: 1s}\n"
        + block("yaml", "scrape_configs").replace("db1", "a").replace("db2", "b"))
    start("prometheus", "prometheus", "--config.file=/etc/prometheus.yml", "--storage.tsdb.path=/tmp/tsdb",
          "--web.listen-address=127.0.0.1:9090")
    until("both are scraped", lambda: len(value("zklock_session_connected == 1")) == 2)
